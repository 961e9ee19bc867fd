"""Who holds the loop: while a task makes a long step, no session hears or speaks.

To look at every step takes 4 to 8 % of the processor time of a busy server, so it is done when there is a reason to: `StepSearch` is
told how late the loop is (`watch_lateness`), and when that is more than a frame lasts, it looks at every step for a while. A quiet
server pays nothing. What that gives up: a single long step, not repeated within that while, is known by its lateness and not by its
task's name; and of one that is short against the time between two looks at the clock only some are noticed, the more the oftener it
comes.
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
SEARCH_SECONDS = 20.0
"""How long every step is looked at."""
PAUSE_SECONDS = 40.0
"""How long it is then not done again, so that a process with too much to do does not pay for it all the time."""
SILENT_SECONDS = 1.0
"""Between two lines of the log: a process with too much to do would say it fifty times a second."""


class StepInstrument(trio.abc.Instrument):
    """Logs, and tells the seconds of, every step that takes longer than a frame lasts.

    A step's time is that since the one before it, or since the last wait for the network: one look at the clock a step.
    """

    def __init__(
        self,
        tell: Callable[[float], None] = ignore,
        *,
        limit: float = LONG_STEP_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`tell` is given every long step, logged or not."""
        self._tell = tell
        self._limit = limit
        self._clock = clock
        self._last = self._next_line = clock()
        self._unsaid = 0

    def after_io_wait(self, timeout: float) -> None:
        self._last = self._clock()

    def after_task_step(self, task: "Task") -> None:
        now = self._clock()
        took = now - self._last
        self._last = now
        if took > self._limit:
            self._tell(took)
            self._say(took, task.name, now)

    def _say(self, took: float, name: str, now: float) -> None:
        if now < self._next_line:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more long steps since the last such line" if self._unsaid else ""
        logger.warning("a step of the task %r held the loop for %.0f ms%s", name, took * 1000, more)
        self._next_line, self._unsaid = now + SILENT_SECONDS, 0


class StepSearch:
    """Adds a `StepInstrument` to the run when its loop is late, and takes it away again."""

    def __init__(
        self, tell: Callable[[float], None] = ignore, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`tell` is given the seconds of each long step that was found."""
        self._tell = tell
        self._clock = clock
        self._instrument: StepInstrument | None = None
        self._ends = 0.0
        self._next = clock()

    def loop_was_late(self, seconds: float) -> None:
        """To be told again and again, within the run."""
        now = self._clock()
        if self._instrument is not None and now >= self._ends:
            self.stop()
        elif self._instrument is None and seconds > LONG_STEP_SECONDS and now >= self._next:
            logger.info("the loop was late by %.0f ms; who holds it is looked for", seconds * 1000)
            self._instrument = StepInstrument(self._tell, clock=self._clock)
            self._ends = now + SEARCH_SECONDS
            self._next = self._ends + PAUSE_SECONDS
            trio.lowlevel.add_instrument(self._instrument)

    def stop(self) -> None:
        """Look no longer."""
        if self._instrument is not None:
            trio.lowlevel.remove_instrument(self._instrument)
            self._instrument = None
