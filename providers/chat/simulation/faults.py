"""Faults by chance, but the same for the same seed: what a network and a busy service do to requests and streams.

What a client has to bear is `delay`, `stall`, `comment`; what it may fail of, or try again, is all the rest. An event that comes twice
is the service's mistake: `duplicate` is for clients that claim to bear it.
"""

from collections.abc import Iterable, Iterator
from random import Random

import attrs

from providers.chat.simulation.completion import event
from providers.chat.simulation.refusals import BAD_GATEWAY, BROKEN_SERVICE, OVERLOADED, RATE_LIMITED, Refusal
from providers.chat.simulation.script import COMMENT, GARBAGE, Drop
from providers.chat.simulation.steps import Body, End, Head, Lose, Step, Wait


@attrs.frozen
class Faults:
    """How often what happens; each number is a probability, the first two for every request and the others for every event."""

    seed: int
    refuse: float = 0.0
    """The request is answered with one of `refusals`."""
    refusals: tuple[Refusal, ...] = (RATE_LIMITED, BROKEN_SERVICE, BAD_GATEWAY, OVERLOADED)
    silence: float = 0.0
    """The request is never answered."""
    delay: float = 0.0
    """The event, and all behind it, come up to `delay_seconds` later."""
    delay_seconds: float = 0.2
    stall: float = 0.0
    """The event, and all behind it, come `stall_seconds` later."""
    stall_seconds: float = 5.0
    drop: float = 0.0
    """The connection is lost in place of the event, in one of `drop_ways`."""
    drop_ways: tuple[Drop, ...] = tuple(Drop)
    garbage: float = 0.0
    """Something that is no JSON comes first."""
    error: float = 0.0
    """An error comes in place of the event, and ends the stream."""
    duplicate: float = 0.0
    comment: float = 0.0


class Chance:
    """The faults of one request. Every event takes the same draws, whatever happens to it."""

    def __init__(self, faults: Faults, request: int) -> None:
        self._faults = faults
        self._random = Random(f"{faults.seed}/{request}")
        self._refuse, self._silence, self._which = (self._random.random() for _ in range(3))

    @property
    def refusal(self) -> Refusal | None:
        if self._refuse < self._faults.refuse:
            return self._faults.refusals[int(self._which * len(self._faults.refusals))]
        return None

    def pass_on(self, steps: Iterable[Step]) -> Iterator[Step]:
        """The steps, with what goes wrong."""
        if self._silence < self._faults.silence:
            yield Wait(None)
            return
        streams = False
        for step in steps:
            if isinstance(step, Head):
                streams = any(value.startswith("text/event-stream") for _, value in step.headers)
            if not isinstance(step, Body):
                yield step
                continue
            for changed in self._event(step, streams=streams):
                yield changed
                if isinstance(changed, Lose | End):
                    return

    def _event(self, step: Body, *, streams: bool) -> Iterator[Step]:
        faults = self._faults
        late, stalls, lost, odd, fails, twice, noise, size = (self._random.random() for _ in range(8))
        if late < faults.delay:
            yield Wait(size * faults.delay_seconds)
        if stalls < faults.stall:
            yield Wait(faults.stall_seconds)
        if lost < faults.drop:
            yield Lose(faults.drop_ways[int(size * len(faults.drop_ways))], step)
        if not streams:
            yield step
            return
        if noise < faults.comment:
            yield Body(COMMENT)
        if odd < faults.garbage:
            yield Body(GARBAGE)
        if fails < faults.error:
            yield Body(event(BROKEN_SERVICE.payload))
            yield End()
        yield step
        if twice < faults.duplicate:
            yield step
