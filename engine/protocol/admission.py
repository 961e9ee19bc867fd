"""Who is let in: as many as a process can carry, and nobody while those inside are already served late.

It is better to turn somebody away who can come back than to fail slowly those who are talking. What is counted are places: a
connection that may hold sessions, one after another, has one, and so has an HTTP request that holds a session.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum

import attrs

RETRY_AFTER_SECONDS = 5
"""When a full server is worth asking again: conversations last minutes, so one of hundreds ends about this often; and a load
balancer has taken out a server that stops."""
RETRY_SPREAD = 6
"""Those who are refused together are told to come back in as many different seconds."""


class Reason(StrEnum):
    """Why somebody is not let in."""

    STOPPING = "stopping"
    FULL = "full"
    LATE = "late"


MESSAGES = {
    Reason.STOPPING: "This server is stopping; connect again.",
    Reason.FULL: "All lines are busy; try again shortly.",
    Reason.LATE: "This server is too busy now; try again shortly.",
}


@attrs.frozen
class Refusal:
    """The answer to somebody who is not let in."""

    reason: Reason
    retry_after: int
    """Seconds."""

    @property
    def message(self) -> str:
        return MESSAGES[self.reason]


class NoPlaceError(Exception):
    """There is no place."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def never_late() -> float:
    """The lateness where nobody measures it."""
    return 0.0


def never_stopping() -> bool:
    return False


@attrs.define(eq=False)
class Admission:
    """The door of one process. `lateness` and `is_stopping` are asked each time, and have to answer at once."""

    places: int
    max_lateness: float
    """Seconds; beyond it nobody is let in."""
    lateness: Callable[[], float] = never_late
    """How late this process serves those inside, lately, in seconds."""
    is_stopping: Callable[[], bool] = never_stopping
    _taken: int = attrs.field(default=0, init=False)
    _refused: int = attrs.field(default=0, init=False)

    @property
    def taken(self) -> int:
        """Places that are taken now."""
        return self._taken

    @property
    def load(self) -> float:
        """The share of the places that is taken."""
        return self._taken / self.places if self.places else 1.0

    def take(self) -> None:
        """Take a place, which has to be given back.

        Raises:
            NoPlaceError: there is none; says why, and when to come back.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise NoPlaceError(refusal)
        self._taken += 1

    def give_back(self) -> None:
        self._taken -= 1

    @contextmanager
    def enter(self) -> Generator[None]:
        """A place for as long as the context lasts; raises as `take` does."""
        self.take()
        try:
            yield
        finally:
            self.give_back()

    def refusal(self, *, has_place: bool = False) -> Refusal | None:
        """Why nobody is let in now; None when there is room. Who has a place already, and begins another session at it, is not
        refused for want of one."""
        if self.is_stopping():
            reason = Reason.STOPPING
        elif self._taken >= self.places and not has_place:
            reason = Reason.FULL
        elif self.lateness() > self.max_lateness:
            reason = Reason.LATE
        else:
            return None
        retry_after = RETRY_AFTER_SECONDS + self._refused % RETRY_SPREAD
        self._refused += 1
        return Refusal(reason, retry_after)
