"""The recording of a conversation, as a session sees it (SPEC L10): sounds go in, and nothing of it ever waits or fails."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Protocol


class SessionRecorder(ABC):
    """One run's recording. Feeding it is synchronous and may be done by any task of the session's.

    Audio is mono PCM16 of whole samples, as decoded from the wire and not yet resampled. Times are `trio.current_time()`.
    """

    file_name: str
    """For the session's document. The file is there once `run` has begun, if the disk lets it be."""

    @abstractmethod
    def user_audio(self, pcm: bytes, rate: int, at: float) -> None:
        """What the user said, when it was received."""

    @abstractmethod
    def agent_audio(self, pcm: bytes, rate: int, at: float, response_id: str) -> None:
        """What the agent says, when it was sent to the client."""

    @abstractmethod
    def cut(self, response_id: str, at: float) -> None:
        """A barge-in: of this response nothing was heard after `at`."""

    @abstractmethod
    def stop(self, at: float) -> None:
        """The client has gone: what it had not played by then it never will."""

    @abstractmethod
    async def run(self) -> None:
        """Write while the session runs, until cancelled."""

    @abstractmethod
    async def aclose(self) -> None:
        """Write what is left and close the file; the caller bounds it. What is fed later is dropped."""


class OpenRecorder(Protocol):
    """Makes a recorder; opens nothing yet."""

    def __call__(
        self, *, session_id: str, run: int, user_rate: int, agent_rate: int, began: datetime, max_seconds: float
    ) -> SessionRecorder:
        """The recording begins now, which is `began` on the wall clock. `run` is the fence of the session's opening, the
        rates are those of the connection, and what is behind `max_seconds` is left out."""
        ...
