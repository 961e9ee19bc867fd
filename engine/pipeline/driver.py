"""What a session's other tasks ask of the pipeline that drives it, whether its model speaks in turns or without them."""

from abc import ABC, abstractmethod
from typing import Any

import trio

from engine.elements import Interrupted, RealtimeElement, RealtimeInstruction, ResponseStatus, Transcript
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import Context, ToolCall
from engine.pipeline.ordered_writer import OrderedWriter
from engine.pipeline.tools import ToolRunner
from engine.protocol.steering import SteeringTotals

FromModel = RealtimeElement | ToolCall
"""What comes from a model's session. Its tool calls come on the same channel, so that each keeps its place among what it says."""


def model_has_ended(context: Context) -> RealtimeException:
    """The model's session ended by itself, in the middle of the conversation."""
    return RealtimeException(
        ErrorCode.PROVIDER_UNAVAILABLE, f"The connection to {context.properties.provider} has ended."
    )


class ConversationDriver(ABC):
    """One session's pipeline. `run` is its task; every other method is synchronous or bounded and may be called from any task."""

    tools: ToolRunner | None
    """Set when the session's nursery is open."""
    writer: OrderedWriter[Any]
    """Of the turns, or of the messages of a conversation without turns."""
    turn_count: int
    """Turns stored so far, of earlier runs too."""
    end_reason: str
    """Why the session has to end; empty while it goes on."""

    @abstractmethod
    async def run(self, elements: trio.MemoryReceiveChannel[FromModel]) -> None:
        """Work through the model's elements until the output is complete.

        Raises:
            RealtimeException: the model has ended before.
        """

    def start_tool(self, call: ToolCall) -> None:
        """A call of the model's, when its turn among the elements has come."""
        if self.tools is not None:
            self.tools.start(call)

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether the output is complete."""

    @abstractmethod
    def receive(self, element: RealtimeElement) -> None:
        """An element from recognition, a tool or a planner."""

    @abstractmethod
    def interrupt(self, interim: Transcript) -> Interrupted:
        """The user begins to speak or has typed; returns what the model has to be told."""

    @abstractmethod
    def expect_answer(self, text: str, provider: str) -> None:
        """An input that asks for speech is on its way to the model, which will echo it as `text` of `provider` ("": of any)."""

    @abstractmethod
    def input_ended(self) -> None:
        """The client's input has ended."""

    @abstractmethod
    def recognition_over(self, *, by_engine: bool) -> None:
        """No words of the user will follow."""

    @abstractmethod
    def playback(self, response_id: str, played_ms: int) -> None:
        """The client says how much of a response it has played."""

    @abstractmethod
    def end(self, reason: str) -> None:
        """End the session now, whatever is open."""

    @abstractmethod
    def is_dead(self, response_id: str) -> bool:
        """Whether a response has ended: nothing may be started in its name."""

    @property
    def steering(self) -> SteeringTotals:
        """How planning has steered this run."""
        return SteeringTotals()

    @property
    @abstractmethod
    def user_active_at(self) -> float:
        """The user's last sign."""

    @abstractmethod
    def speaks_until(self, now: float) -> float:
        """When the agent had finished what it had to say, or will have; later than `now` as long as it owes an answer."""

    @abstractmethod
    async def steer(self, instruction: RealtimeInstruction) -> None:
        """Inject an instruction that belongs to the session rather than to a planning pass."""

    @abstractmethod
    async def abandon(self, status: ResponseStatus, *, client_is_gone: bool) -> None:
        """Close what is still open, after `run` has ended: the caller shields and bounds this. What cannot be saved soon is
        left to the writer. `client_is_gone`: what it had not played was not heard."""
