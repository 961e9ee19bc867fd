"""Time and order of a run that can be had again: a clock that jumps, and a seed for what is ready at the same instant.

Trio has no public names for this. The private ones stand here and nowhere else, in `PRIVATE_NAMES`; a test says when they change.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar, TypeVarTuple
from zlib import crc32

import attrs
import outcome
import trio
from trio.testing import MockClock

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

PRIVATE_NAMES = (
    "trio._core._run._r",
    "trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING",
    "trio._core._run.Task._counter",
    "trio._core._run.Task._next_send",
    "trio._core._run.GLOBAL_RUN_CONTEXT",
    "trio._core._run.Runner.waiting_for_idle",
    "trio._core._run.SystemClock.offset",
)
"""The source of chance of Trio's scheduler; whether what is ready is put in the order of its age before it is shuffled; that age; what
a task that is ready gets from what it waited for; the run that is going on; who waits in it for everybody else to wait; what a real
clock is ahead of `time.perf_counter`."""


class Schedule:
    """In the place of Trio's source of chance: who goes first of those that are ready in the same pass of its loop.

    It follows a seed and the number of the pass, and where Trio sorts what is ready, the names of the tasks. So the same tasks go in
    the same order also when others are ready beside them that do not matter.
    """

    __slots__ = ("_seed", "_turned", "passes")

    def __init__(self, seed: int, turned: frozenset[int] = frozenset()) -> None:
        """In the passes that are `turned`, what is ready goes the other way round."""
        self._seed = seed
        self._turned = turned
        self.passes = 0
        """Passes of the loop that have begun."""

    @property
    def chosen_by(self) -> int:
        """The seed."""
        return self._seed

    def seed(self, seed: int) -> None:
        self._seed, self.passes = seed, 0

    def random(self) -> float:
        """Asked once in each pass: below 0.5 what is ready goes in the opposite order."""
        self.passes = number = self.passes + 1
        chance = _CHANCES[(number ^ self._seed) & _PERIOD - 1]
        return chance if number not in self._turned else 1 - chance

    def shuffle(self, batch: list[Any]) -> None:
        """Asked instead, where what is ready is sorted by its age before. Tasks of the same name stay sorted, or turn round."""
        self.passes = number = self.passes + 1
        if len(batch) > 1:
            salt = (number ^ self._seed) * _GOLDEN >> 24 & 0xFFFFFFFF
            if salt & 1:
                batch.reverse()
            batch.sort(key=lambda task: crc32(task.name.encode(), salt))
            if number in self._turned:
                batch.reverse()

    def uniform(self, low: float, high: float) -> float:
        """Asked once for a real clock, which then does not begin at 0."""
        return low + (high - low) * 0.5


_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: multiples of it are spread evenly over the numbers of 64 bits."""
_PERIOD = 1 << 12
"""Passes after which what is ready is turned round as it was: a server that keeps its sessions asks in each of them."""
_CHANCES = tuple(0.25 if number * _GOLDEN >> 41 & 1 else 0.75 for number in range(_PERIOD))


@attrs.frozen
class ScheduleFacts:
    """What a run's order follows. `seed` is None where it is true chance."""

    seed: int | None
    is_sorted: bool
    passes: int


def schedule_facts() -> ScheduleFacts:
    """Of this process, now."""
    scheduler = _scheduler()
    chance, is_sorted = scheduler._r, bool(scheduler._ALLOW_DETERMINISTIC_SCHEDULING)
    if isinstance(chance, Schedule):
        return ScheduleFacts(chance.chosen_by, is_sorted, chance.passes)
    return ScheduleFacts(None, is_sorted, 0)


def current_pass() -> int:
    """The pass of Trio's loop that this step belongs to; 0 where nobody counts them."""
    return getattr(_scheduler()._r, "passes", 0)


def current_schedule() -> Schedule | None:
    """What counts this run's passes; it stays the same all through a run. None where nobody counts them."""
    chance = _scheduler()._r
    return chance if isinstance(chance, Schedule) else None


def bare_clock() -> tuple[Callable[[], float], float]:
    """What tells this run's time, in seconds, and how many of them `trio.current_time` is ahead of it: who has to know the time hundreds
    of times in a second asks a real clock without what is around it."""
    clock: Any = trio.lowlevel.current_clock()
    if type(clock) is _scheduler().SystemClock:
        return perf_counter, clock.offset
    return clock.current_time, 0.0


@contextmanager
def scheduled_by(schedule: Schedule, *, is_sorted: bool) -> Generator[None]:
    """Everything that runs inside runs in an order that follows a schedule."""
    scheduler = _scheduler()
    before, chance = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r = is_sorted, schedule
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r = before, chance


@contextmanager
def passes_counted(seed: int) -> Generator[None]:
    """The passes of Trio's loop are counted inside, and the order follows a seed that is nobody's choice. It was so before: nothing
    changes."""
    if isinstance(_scheduler()._r, Schedule):
        yield
        return
    with scheduled_by(Schedule(seed), is_sorted=bool(_scheduler()._ALLOW_DETERMINISTIC_SCHEDULING)):
        yield


NEVER = 1e9
"""Seconds until a deadline that is none."""


class JumpingClock(trio.abc.Clock):
    """As `virtual_clock`, for a run in which nothing comes from outside: no socket and no thread is waited for.

    Trio asks a clock how long to sleep when nobody can go on; this one is there already. The other looks at the sockets first, in a
    pass of the scheduler of its own, and works out from statistics how far to jump, which costs a tenth of a conversation's time.
    That pass is counted here too, and time is added as it is there: a run is the same with either, to the last bit.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._idle: Any = ()
        self._schedule: Schedule | None = None

    def start_clock(self) -> None:
        scheduler = _scheduler()
        self._idle = scheduler.GLOBAL_RUN_CONTEXT.runner.waiting_for_idle
        self._schedule = scheduler._r if isinstance(scheduler._r, Schedule) else None

    def current_time(self) -> float:
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if deadline > self._now + NEVER:
            return NEVER
        if not self._idle:  # whoever waits for that goes on before time does
            while self._now < deadline:
                self._now += deadline - self._now
                if self._schedule is not None:
                    self._schedule.passes += 1
        return max(0.0, deadline - self._now)


def virtual_clock() -> MockClock:
    """A clock that stands still while anybody has something to do, and then jumps to the next deadline. It starts at 0."""
    return MockClock(autojump_threshold=0)


def seed_schedule(seed: int) -> None:
    """Make the order of tasks that are ready at the same instant follow `seed`; another seed explores another order.

    It holds for the whole process, from now on. Where the tasks are compared by their age first (pytest-trio switches that on, and
    `repeatable` does), the same seed gives the same run.
    """
    _scheduler()._r.seed(seed)


@contextmanager
def repeatable(seed: int) -> Generator[None]:
    """Everything that runs inside runs in an order that follows `seed`, in this process and in any other."""
    with scheduled_by(Schedule(seed), is_sorted=True):
        yield


def run_repeatably(seed: int, main: Callable[[*Arguments], Awaitable[R]], *args: *Arguments) -> R:
    """`trio.run` in virtual time, in the order of a seed. Nothing in it may wait for a socket or a thread."""
    with repeatable(seed):
        return trio.run(main, *args, clock=JumpingClock())


def raise_at_next_step(task: trio.lowlevel.Task, error: Exception) -> None:
    """Make what a task has waited for raise, when it goes on; as `trio.lowlevel.reschedule` does, for a task that is scheduled already.

    To be called by an instrument, before a step of a task that has begun.
    """
    task._next_send = outcome.Error(error)  # pyright: ignore[reportPrivateUsage] - trio has no public name for it


def _scheduler() -> Any:
    return trio._core._run  # pyright: ignore[reportPrivateUsage] - trio has no public name for it
