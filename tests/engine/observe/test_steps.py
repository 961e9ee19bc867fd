"""The instrument: a loop that is held is noticed, whoever holds it again is named, and that costs little."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

import attrs
import pytest
import trio

from engine.observe.steps import NAMING_SECONDS, PAUSE_SECONDS, SILENT_SECONDS, StepInstrument


@attrs.define
class Clock:
    """Time goes by where a test says so."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@attrs.define
class Watched:
    clock: Clock
    caplog: pytest.LogCaptureFixture
    told: list[float] = attrs.field(factory=list[float])

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.caplog.records]

    async def hold(self, seconds: float) -> None:
        """A step of this task that takes so long."""
        await trio.lowlevel.checkpoint()
        self.clock.now += seconds
        await trio.lowlevel.checkpoint()

    async def idle(self, seconds: float) -> None:
        """Time that goes by while the loop waits for the network, in no step."""
        instrument = _Waiting(lambda: self._pass(seconds))
        trio.lowlevel.add_instrument(instrument)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(instrument)

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds


class _Waiting(trio.abc.Instrument):
    def __init__(self, once: Callable[[], None]) -> None:
        self._once: Callable[[], None] | None = once

    def before_io_wait(self, timeout: float) -> None:
        if self._once is not None:
            self._once()
            self._once = None


@contextmanager
def watched(caplog: pytest.LogCaptureFixture) -> Generator[Watched]:
    caplog.set_level(logging.WARNING, "engine.observe.steps")
    watched = Watched(Clock(), caplog)
    instrument = StepInstrument(watched.told.append, clock=watched.clock)
    trio.lowlevel.add_instrument(instrument)
    try:
        yield watched
    finally:
        trio.lowlevel.remove_instrument(instrument)


async def test_short_steps_and_long_waits_are_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        for _ in range(10):
            await loop.hold(0.019)
            await loop.idle(5.0)
        assert loop.told == []
        assert loop.lines == []


async def test_a_long_step_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        await loop.hold(0.05)
        assert loop.told == pytest.approx([0.05])
        assert loop.lines == ["the loop was held for 50 ms"]


async def test_many_steps_together_are_told_too(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody's frame is sooner for its being held by many."""
    with watched(caplog) as loop:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(loop.hold, 0.006)
        assert loop.told == pytest.approx([0.03])


async def test_who_holds_it_again_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        await loop.hold(0.03)
        await loop.idle(2.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.hold, 0.04, name="a heavy one")
            nursery.start_soon(loop.hold, 0.001, name="a light one")
        assert loop.lines[0] == "the loop was held for 30 ms"
        assert loop.lines[1] == "the loop was held for 41 ms by 2 steps, of which 40 ms by the task 'a heavy one'"


async def test_every_step_is_looked_at_for_a_while_only(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        await loop.hold(0.03)
        await loop.idle(NAMING_SECONDS + 0.1)
        await loop.hold(0.03)  # the next look at every step is not yet due
        assert loop.lines[1] == "the loop was held for 30 ms"
        await loop.idle(PAUSE_SECONDS)
        await loop.hold(0.03)
        await loop.idle(SILENT_SECONDS)
        await loop.hold(0.03)
        assert ["task" in line for line in loop.lines] == [False, False, False, True]


async def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        for _ in range(10):
            await loop.hold(0.03)
        await loop.idle(SILENT_SECONDS)
        await loop.hold(0.03)
        assert len(loop.told) == 11
        assert len(loop.lines) == 2
        assert loop.lines[1].endswith("; 9 more times since the last such line")


def test_no_hook_is_called_for_each_step_while_nothing_holds_the_loop() -> None:
    hooks = {name for name in dir(trio.abc.Instrument) if not name.startswith("_")}
    assert {name for name in vars(StepInstrument) if name in hooks} == {"before_io_wait", "after_io_wait"}
