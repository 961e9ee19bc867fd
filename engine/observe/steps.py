"""A Trio instrument that tells when the loop is held: in that time no session hears or speaks.

Two looks at the clock, before and after each wait for the network, take the time of all the steps between them. That costs a
third of looking at every step when there is little to do and next to nothing when there is much, as the steps are then many to a
wait. What it gives up is the name of the task: after a long time every step is looked at for some seconds, so that a task
that holds the loop again is named then. A single one, not repeated within that time, stays without a name.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from engine.observe.lateness import ignore

if TYPE_CHECKING:
    from trio.lowlevel import Task

logger = logging.getLogger(__name__)

LONG_STEP_SECONDS = 0.020
"""One audio frame: beyond it somebody's speech is late."""
NAMING_SECONDS = 10.0
"""How long every step is looked at after the loop was held."""
PAUSE_SECONDS = 50.0
"""How long that is not done again, so that a process with too much to do does not pay for it all the time."""
SILENT_SECONDS = 1.0
"""Between two lines of the log: a process with too much to do would say it fifty times a second."""


class StepInstrument(trio.abc.Instrument):
    """Logs, and tells, when the steps between two waits take longer than a frame lasts."""

    def __init__(
        self,
        tell: Callable[[float], None] = ignore,
        *,
        limit: float = LONG_STEP_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`tell` is given the seconds of each time, logged or not. Instruments are added within the run they watch."""
        self._tell = tell
        self._limit = limit
        self._clock = clock
        self._began = clock()
        self._naming: _StepNaming | None = None
        self._naming_ends = self._next_naming = self._next_line = self._began
        self._unsaid = 0

    def after_io_wait(self, timeout: float) -> None:
        self._began = self._clock()

    def before_io_wait(self, timeout: float) -> None:
        now = self._clock()
        took = now - self._began
        if took > self._limit:
            self._held(took, now)
        elif self._naming is not None and now > self._naming_ends:
            self._stop_naming()

    def _held(self, took: float, now: float) -> None:
        self._tell(took)
        if now < self._next_line:
            self._unsaid += 1
        else:
            self._say(took)
            self._next_line = now + SILENT_SECONDS
        if self._naming is not None and now > self._naming_ends:
            self._stop_naming()
        elif self._naming is None and now >= self._next_naming:
            self._naming = _StepNaming(self._clock)
            self._naming_ends = now + NAMING_SECONDS
            self._next_naming = self._naming_ends + PAUSE_SECONDS
            trio.lowlevel.add_instrument(self._naming)

    def _say(self, took: float) -> None:
        whose = self._naming.longest() if self._naming is not None else ""
        more = f"; {self._unsaid} more times since the last such line" if self._unsaid else ""
        logger.warning("the loop was held for %.0f ms%s%s", took * 1000, whose, more)
        self._unsaid = 0

    def _stop_naming(self) -> None:
        if self._naming is not None:
            trio.lowlevel.remove_instrument(self._naming)
            self._naming = None


class _StepNaming(trio.abc.Instrument):
    """Knows the longest step since the last wait, and its task. A step's time is that since the one before it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self._longest = 0.0
        self._name = ""
        self._steps = 0

    def after_io_wait(self, timeout: float) -> None:
        self._last = self._clock()
        self._longest = 0.0
        self._steps = 0

    def after_task_step(self, task: "Task") -> None:
        now = self._clock()
        if now - self._last > self._longest:
            self._longest, self._name = now - self._last, task.name
        self._last = now
        self._steps += 1

    def longest(self) -> str:
        if not self._steps:
            return ""
        return f" by {self._steps} steps, of which {self._longest * 1000:.0f} ms by the task {self._name!r}"
