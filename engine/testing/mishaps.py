"""What goes wrong on the way: seeded or planned, the same at every boundary (`engine.testing.boundaries` has those).

Mishaps.often("network", delay=0.1, drop=0.01)     one message in ten is late, one in a hundred is lost; by a seed
Mishaps.at({3: Mishap.DUPLICATE, 7: Mishap.CLOSE})  exactly these
Mishaps.at({1: Mishap.STALL}) | Mishaps.often(7, reorder=0.2)
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Generic, TypeVar

import attrs
import trio

T = TypeVar("T")


class Mishap(StrEnum):
    DELAY = "delay"
    """It comes a little later, and what is behind it too."""
    STALL = "stall"
    """Nothing comes for a long time; then everything does."""
    DROP = "drop"
    """It never comes."""
    DUPLICATE = "duplicate"
    """It comes twice."""
    REORDER = "reorder"
    """The next one overtakes it."""
    PARTIAL = "partial"
    """Half of it comes."""
    CLOSE = "close"
    """It does not come, and nothing after it: the other side is gone, without a word."""


class ClosedByMishapError(Exception):
    """The boundary has been closed in the middle of something."""


@attrs.frozen
class Happened:
    """One thing that went wrong: when, to the how-manieth message (from 1) of which boundary."""

    at: float
    boundary: str
    number: int
    mishap: Mishap


@attrs.define(eq=False)
class Mishaps:
    """Decides for each message of one boundary what happens to it. It has a state: use one object for one boundary and one run."""

    choose: Callable[[int], Mishap | None]
    """By the number of the message, from 1."""
    delay_seconds: float = 0.2
    stall_seconds: float = 6.0
    boundary: str = ""
    happened: list[Happened] = attrs.field(factory=list[Happened], init=False)
    """What went wrong so far."""
    count: int = attrs.field(default=0, init=False)

    @classmethod
    def at(cls, planned: Mapping[int, Mishap], *, delay_seconds: float = 0.2, stall_seconds: float = 6.0) -> "Mishaps":
        """Exactly these, by the number of the message, from 1."""
        return cls(planned.get, delay_seconds, stall_seconds)

    @classmethod
    def often(
        cls, seed: int | str, *, delay_seconds: float = 0.2, stall_seconds: float = 6.0, **rates: float
    ) -> "Mishaps":
        """By chance: `rates` says of each kind how many of all messages it happens to, from 0 to 1.

        Raises ValueError when a rate is for no kind of mishap.
        """
        chance = Random(f"mishaps of {seed}")
        kinds = [(Mishap(name), rate) for name, rate in rates.items() if rate]

        def choose(number: int) -> Mishap | None:
            if not kinds:
                return None
            drawn = chance.random()
            for kind, rate in kinds:
                drawn -= rate
                if drawn < 0:
                    return kind
            return None

        return cls(choose, delay_seconds, stall_seconds)

    def __or__(self, other: "Mishaps") -> "Mishaps":
        """Both; where both have something for a message, this one's. Times are this one's."""

        def choose(number: int) -> Mishap | None:
            mine, theirs = self.choose(number), other.choose(number)
            return mine or theirs

        return Mishaps(choose, self.delay_seconds, self.stall_seconds, self.boundary or other.boundary)

    def named(self, boundary: str) -> "Mishaps":
        """The same, with the name of where it happens."""
        self.boundary = self.boundary or boundary
        return self

    def next(self) -> Mishap | None:
        """What happens to the next message."""
        self.count += 1
        mishap = self.choose(self.count)
        if mishap is not None:
            self.happened.append(Happened(trio.current_time(), self.boundary, self.count, mishap))
        return mishap


def no_mishaps() -> Mishaps:
    """Everything arrives."""
    return Mishaps.at({})


def whole(message: T) -> T:
    """Half of what cannot be halved."""
    return message


@attrs.define(eq=False)
class Passage(Generic[T]):
    """One direction of a boundary: what is put in at one end is delivered at the other, or not."""

    mishaps: Mishaps
    deliver: Callable[[T], Awaitable[None]]
    half: Callable[[T], T | None] = whole
    """What arrives of a message that is cut short; None: nothing."""
    breaks: bool = False
    """A message that is cut short is the last one, as on a byte stream."""
    _overtaken: list[T] = attrs.field(factory=list[T], init=False)

    async def put(self, message: T) -> None:
        """Hand a message over.

        Raises ClosedByMishapError when the boundary closes with it.
        """
        match self.mishaps.next():
            case Mishap.DROP:
                await trio.lowlevel.checkpoint()
                return
            case Mishap.CLOSE:
                raise ClosedByMishapError(f"{self.mishaps.boundary or 'the boundary'} was closed")
            case Mishap.REORDER:
                self._overtaken.append(message)
                await trio.lowlevel.checkpoint()
                return
            case Mishap.DELAY:
                await trio.sleep(self.mishaps.delay_seconds)
                await self.deliver(message)
            case Mishap.STALL:
                await trio.sleep(self.mishaps.stall_seconds)
                await self.deliver(message)
            case Mishap.DUPLICATE:
                await self.deliver(message)
                await self.deliver(message)
            case Mishap.PARTIAL:
                part = self.half(message)
                if part is not None:
                    await self.deliver(part)
                if self.breaks:
                    raise ClosedByMishapError(
                        f"{self.mishaps.boundary or 'the boundary'} broke in the middle of a message"
                    )
            case None:
                await self.deliver(message)
        await self.flush()

    async def flush(self) -> None:
        """What was overtaken arrives, at the latest when nothing follows it."""
        while self._overtaken:
            await self.deliver(self._overtaken.pop(0))
