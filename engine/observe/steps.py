"""A Trio instrument that tells of long steps: while a task holds the loop, no session hears or speaks."""

import logging
import time
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from trio.lowlevel import Task

logger = logging.getLogger(__name__)

LONG_STEP_SECONDS = 0.020
"""One audio frame: beyond it somebody's speech is late."""


class StepInstrument(trio.abc.Instrument):
    """Logs every step of a task that takes longer than a frame lasts."""

    def __init__(self, limit: float = LONG_STEP_SECONDS) -> None:
        self._limit = limit
        self._began: float | None = None  # None: added in the middle of a step

    def before_task_step(self, task: "Task") -> None:
        self._began = time.perf_counter()

    def after_task_step(self, task: "Task") -> None:
        took = 0.0 if self._began is None else time.perf_counter() - self._began
        if took > self._limit:
            logger.warning("a step of the task %r held the loop for %.0f ms", task.name, took * 1000)
