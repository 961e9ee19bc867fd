"""Lateness: a loop that stopped once turns nobody away, one that cannot keep up does, and goes on doing so for a while."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from engine.observe.lateness import HELD_SECONDS, MOST_COUNTED, PROBE_SECONDS, LatenessMeter, watch_lateness

LIMIT = 0.1


class Loop:
    """Looks at a loop as `watch_lateness` does."""

    def __init__(self) -> None:
        self.meter = LatenessMeter()
        self.now = 0.0

    def look(self, late: float, times: int = 1) -> None:
        for _ in range(times):
            due = self.now + PROBE_SECONDS
            self.now = due + late
            assert self.meter.note(due, self.now) == pytest.approx(late)

    def seconds_until(self, late: float, *, is_late: bool) -> float:
        began = self.now
        while self.meter.is_late(LIMIT) is not is_late:
            self.look(late)
            assert self.now - began < 60, "it never changes its mind"
        return self.now - began


def test_a_quiet_loop() -> None:
    loop = Loop()
    assert loop.meter.lateness == 0.0
    loop.look(0.001, 1000)
    assert loop.meter.lateness == pytest.approx(0.001)
    assert not loop.meter.is_late(LIMIT)


@pytest.mark.parametrize("stop", [0.1, 0.5, 3.0, 60.0])
def test_one_stop_refuses_nobody(stop: float) -> None:
    loop = Loop()
    loop.look(0.001, 10)
    loop.look(stop)
    assert loop.meter.latest == pytest.approx(stop)
    assert loop.meter.lateness <= 0.051
    loop.look(0.001, 100)
    assert loop.meter.lateness < 0.002


def test_stops_again_and_again_do() -> None:
    loop = Loop()
    for _ in range(10):  # half a second in two
        loop.look(0.5)
        loop.look(0.001, 15)
    assert not loop.meter.is_late(LIMIT)
    for _ in range(10):  # half a second in one
        loop.look(0.5)
        loop.look(0.001, 4)
    assert loop.meter.is_late(LIMIT)


@pytest.mark.parametrize(("late", "at_most"), [(0.12, 4.0), (0.2, 2.5), (0.5, 2.0), (1.0, 3.5)])
def test_a_loop_that_is_always_late_refuses_soon(late: float, at_most: float) -> None:
    loop = Loop()
    loop.look(0.001, 10)
    assert 0.5 < loop.seconds_until(late, is_late=True) < at_most


def test_it_goes_on_refusing_until_the_loop_has_been_quick_for_a_while() -> None:
    loop = Loop()
    loop.look(0.3, 50)
    assert loop.meter.is_late(LIMIT)
    assert HELD_SECONDS < loop.seconds_until(0.001, is_late=False) < HELD_SECONDS + 2.0


def test_it_does_not_change_its_mind_at_every_look() -> None:
    loop = Loop()
    loop.look(0.11, 50)
    minds = set[bool]()
    for _ in range(200):  # about the limit, now over and now under it
        loop.look(0.05)
        loop.look(0.15)
        minds.add(loop.meter.is_late(LIMIT))
    assert minds == {True}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_the_lateness_is_the_highest_mean_of_the_last_seconds(lates: list[float]) -> None:
    meter, now, means = LatenessMeter(), 0.0, list[tuple[float, float]]()
    for late in lates:
        due = now + PROBE_SECONDS
        now = due + late
        meter.note(due, now)
        means.append((now, meter.mean))
        assert meter.lateness == max(mean for at, mean in means if at >= now - HELD_SECONDS)
        assert 0 <= meter.mean <= MOST_COUNTED


async def test_the_watch_tells_how_late_it_woke(mock_clock: MockClock) -> None:
    """The clock stands still but for what a task takes, as a long step does."""
    meter, told = LatenessMeter(), list[float]()
    mock_clock.autojump_threshold = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_lateness, meter, told.append)
        await trio.sleep(10 * PROBE_SECONDS + 0.01)
        assert told == pytest.approx([0.0] * 10)
        mock_clock.jump(0.5)  # this task holds the loop
        await trio.sleep(PROBE_SECONDS / 2)
        assert told[10:] == pytest.approx([0.51 - PROBE_SECONDS])
        assert meter.latest == told[10]
        nursery.cancel_scope.cancel()
    assert len(told) == 11
