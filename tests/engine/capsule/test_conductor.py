"""When the conductor lets go what had come from outside: by the passes in between, by time, and behind what was the session's own."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio

from engine.capsule.conductor import LONGEST_ACTIVITY, Conductor, Event
from engine.capsule.file import Kind
from engine.testing.schedule import Schedule, current_pass, scheduled_by, virtual_clock

Told = list[tuple[float, str]]


def event(at: float, step: int) -> Event:
    return Event(at, Kind.IN, (), step)


def run(events: Sequence[Event], *others: Callable[[Told], Awaitable[None]]) -> tuple[Told, list[int]]:
    """What came when, from outside ("0", "1", …) and from the tasks beside it; and the passes it came in, as the capsule counts."""
    conductor = Conductor(virtual_clock(), Schedule(0))
    told: Told = []
    passes: list[int] = []

    async def receive() -> None:
        for number, each in enumerate(events):
            await each.due()
            told.append((round(trio.current_time(), 6), str(number)))
            passes.append(current_pass())

    async def main() -> None:
        conductor.begin(events, trio.current_time(), 100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            for other in others:
                nursery.start_soon(other, told)

    with scheduled_by(conductor.schedule, is_sorted=True):
        trio.run(main, clock=conductor.clock, instruments=[conductor])
    return told, passes


def busy(passes: int) -> Callable[[Told], Awaitable[None]]:
    async def work(told: Told) -> None:
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        told.append((round(trio.current_time(), 6), "done"))

    return work


def sleeping(seconds: float) -> Callable[[Told], Awaitable[None]]:
    async def sleep(told: Told) -> None:
        await trio.sleep(seconds)
        told.append((round(trio.current_time(), 6), "timer"))

    return sleep


def test_while_nobody_has_anything_to_do_the_clock_jumps() -> None:
    told, passes = run([event(0.5, 110), event(2.0, 300), event(2.0, 301)])
    assert told == [(0.5, "0"), (2.0, "1"), (2.0, "2")]
    assert passes == [110, 300, 301]


@pytest.mark.parametrize("distance", [3, 10, 25])
def test_in_the_middle_of_work_it_comes_after_as_many_passes(distance: int) -> None:
    """Though the clock had not got there: work takes no time on a clock that jumps, and took some on the real one."""
    told, passes = run([event(0.001, 101), event(0.02, 101 + distance)], busy(40))
    assert told[:2] == [(0.001, "0"), (0.02, "1")]
    assert told[2][1] == "done"
    assert passes == [101, 101 + distance]


def test_work_that_was_over_is_over() -> None:
    told, _ = run([event(0.001, 101), event(0.02, 190)], busy(10))
    assert [what for _, what in told] == ["0", "done", "1"]


def test_what_is_far_apart_had_nothing_to_do_with_each_other() -> None:
    far = LONGEST_ACTIVITY + 0.01
    told, _ = run([event(0.0, 101), event(far, 104)], busy(40))
    assert [what for _, what in told] == ["0", "done", "1"]


def test_what_the_session_waits_for_comes_first() -> None:
    told, _ = run([event(1.0, 110)], sleeping(0.4))
    assert told == [(0.4, "timer"), (1.0, "0")]


def test_at_the_same_instant_the_passes_tell_who_was_first() -> None:
    assert next(what for _, what in run([event(1.0, 103)], sleeping(1.0))[0]) == "0"
    late = [what for _, what in run([event(1.0, 120)], sleeping(1.0))[0]]
    assert late == ["timer", "0"]


def test_the_passes_go_on_from_the_last_event() -> None:
    """So the order within each is the one that the seed gives there."""
    _, passes = run([event(0.1, 5_000), event(0.1, 5_004)], busy(60))
    assert passes[1] - passes[0] == 4
