"""Long steps: whoever makes one is named, and nobody pays for that while the loop is in time."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

import attrs
import pytest
import trio

from engine.observe.steps import PAUSE_SECONDS, SEARCH_SECONDS, SILENT_SECONDS, StepInstrument, StepSearch


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
    """Every step is looked at."""
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
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(loop.hold, 0.006)
        assert loop.told == []
        assert loop.lines == []


async def test_a_long_step_is_told_with_its_task(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.hold, 0.001, name="a light one")
            nursery.start_soon(loop.hold, 0.04, name="a heavy one")
            nursery.start_soon(loop.hold, 0.002, name="another light one")
        assert loop.told == pytest.approx([0.04])
        assert loop.lines == ["a step of the task 'a heavy one' held the loop for 40 ms"]


async def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    with watched(caplog) as loop:
        for _ in range(10):
            await loop.hold(0.03)
        await loop.idle(SILENT_SECONDS)
        await loop.hold(0.03)
        assert len(loop.told) == 11
        assert len(loop.lines) == 2
        assert loop.lines[1].endswith(" held the loop for 30 ms; 9 more long steps since the last such line")


@contextmanager
def searching(caplog: pytest.LogCaptureFixture) -> Generator[tuple[Watched, StepSearch]]:
    caplog.set_level(logging.INFO, "engine.observe.steps")
    watched = Watched(Clock(), caplog)
    search = StepSearch(watched.told.append, clock=watched.clock)
    try:
        yield watched, search
    finally:
        search.stop()


async def test_nothing_is_looked_at_while_the_loop_is_in_time(caplog: pytest.LogCaptureFixture) -> None:
    with searching(caplog) as (loop, search):
        search.loop_was_late(0.02)
        await loop.hold(0.05)
        assert loop.told == []
        assert loop.lines == []


async def test_whoever_holds_a_late_loop_again_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with searching(caplog) as (loop, search):
        search.loop_was_late(0.05)
        await loop.hold(0.03)
        assert loop.told == pytest.approx([0.03])
        assert loop.lines[0] == "the loop was late by 50 ms; who holds it is looked for"
        assert loop.lines[1].endswith("held the loop for 30 ms")


async def test_a_loop_that_is_always_late_is_searched_for_a_third_of_the_time(caplog: pytest.LogCaptureFixture) -> None:
    seconds = 600
    with searching(caplog) as (loop, search):
        for _ in range(seconds):
            search.loop_was_late(0.5)
            await loop.hold(0.03)
            await loop.idle(0.97)
        share = SEARCH_SECONDS / (SEARCH_SECONDS + PAUSE_SECONDS)
        assert len(loop.told) == pytest.approx(seconds * share, abs=2)
        assert len([line for line in loop.lines if "is looked for" in line]) == seconds / 60


async def test_the_search_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    with searching(caplog) as (loop, search):
        search.loop_was_late(0.05)
        await loop.idle(SEARCH_SECONDS)
        search.loop_was_late(0.0)
        await loop.hold(0.03)
        assert loop.told == []
        search.stop()
