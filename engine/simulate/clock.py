"""Time, ids and chance of a run.

A run whose models are scripted needs no time: it runs on a virtual clock, which jumps to the next deadline as soon as nobody has
anything to do, and the same seed then gives the same report, byte for byte. A thread at work, or a socket that is waited for,
holds the clock: nothing times out because somebody really works.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TypeVar

import trio
from trio.lowlevel import Task
from trio.testing import MockClock

from engine.composition import real_environment
from engine.interfaces import Environment
from engine.testing.schedule import repeatable

R = TypeVar("R")

FIRST_MORNING = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""The wall clock at the start of a seeded run in virtual time: a Monday, so that "tomorrow" is always the same day."""
REAL_WORK = frozenset(
    function.__code__
    for function in (trio.to_thread.run_sync, trio.lowlevel.wait_readable, trio.lowlevel.wait_writable)
)
"""Where a task waits for what virtual time does not hurry."""


def run_in_virtual_time(main: Callable[[], Awaitable[R]], *, seed: int | None) -> R:
    """`trio.run` on a virtual clock; with a seed also the order of what is ready at the same time follows it."""
    clock = MockClock(autojump_threshold=0)
    results: list[R] = []

    async def work() -> None:
        results.append(await main())

    async def start() -> None:
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - so that our tasks can be told from Trio's own
            nursery.start_soon(work, name="simulation")

    with nullcontext() if seed is None else repeatable(seed):
        trio.run(start, clock=clock, instruments=[_RealWork(clock)])
    return results[0]


def run_environment(seed: int | None, *, is_virtual: bool, is_kept: bool) -> Environment:
    """Of one run. In virtual time the wall clock follows Trio's. Sessions that are kept in a store have ids that nobody has seen,
    seeded or not: the same id would be the same session."""
    real = real_environment()
    start = real.wall_clock() if seed is None else FIRST_MORNING
    wall_clock = (lambda: start + timedelta(seconds=trio.current_time())) if is_virtual else real.wall_clock
    if seed is None:
        return Environment(wall_clock, real.new_id, real.random)
    ids = Random(f"ids of {seed}")

    def new_id(kind: str) -> str:
        return f"{kind[0]}-{ids.getrandbits(64):016x}"

    return Environment(wall_clock, real.new_id if is_kept else new_id, Random(seed))


class _RealWork(trio.abc.Instrument):
    """Holds the clock while any task waits for a thread or a socket."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self._working: set[Task] = set()

    def task_scheduled(self, task: Task) -> None:
        self._working.discard(task)
        self._set()

    def after_task_step(self, task: Task) -> None:
        if _is_ours(task) and _is_at_real_work(task):
            self._working.add(task)
        self._set()

    def task_exited(self, task: Task) -> None:
        self._working.discard(task)
        self._set()

    def _set(self) -> None:
        threshold = float("inf") if self._working else 0.0
        if self._clock.autojump_threshold != threshold:
            self._clock.autojump_threshold = threshold


def _is_ours(task: Task) -> bool:
    """Trio's own tasks, one of which always waits for a socket, are children of its root task."""
    nursery = task.parent_nursery
    return nursery is not None and nursery.parent_task.parent_nursery is not None


def _is_at_real_work(task: Task) -> bool:
    return any(getattr(frame, "f_code", None) in REAL_WORK for frame, _ in task.iter_await_frames())
