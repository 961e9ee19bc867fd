"""When a run is given what had come from outside: after as many passes of Trio's loop, or when nothing is left to do before.

Whatever is ready runs once in each pass, also when other sessions run beside it; so how far a session had come when something
reached it is known from the passes in between. The conductor sits in the loop, where what comes from outside comes in, and lets go
what is due: when the distance has been passed, or when nobody has anything to do until it comes. The clock jumps along.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from engine.capsule.file import Kind
from engine.testing.schedule import Schedule

LONGEST_ACTIVITY = 0.25
"""Seconds. What is further apart had nothing to do with each other: everything is waited for, however many passes that takes."""


SAME_INSTANT = 1e-9
"""Seconds; sums of times differ by less."""
PASSES_OF_A_JUMP = 2
"""A clock that jumps takes one pass for it, and what then is ready runs in the next."""


@attrs.define(eq=False)
class Event:
    """A record, at the time at which it is given."""

    at: float
    kind: Kind
    fields: tuple[Any, ...]
    step: int
    is_due: bool = attrs.field(default=False, init=False)
    _waiting: trio.Event | None = attrs.field(default=None, init=False)

    async def due(self) -> None:
        """Wait until it is given; returns at once when it is."""
        if not self.is_due:
            self._waiting = self._waiting or trio.Event()
            await self._waiting.wait()

    def let_go(self) -> None:
        self.is_due = True
        if self._waiting is not None:
            self._waiting.set()


@attrs.define(eq=False)
class Conductor(trio.abc.Instrument):
    """See the module. Times are those of the clock, which begins at 0."""

    clock: MockClock
    schedule: Schedule
    _events: Sequence[Event] = attrs.field(default=(), init=False)
    _next: int = attrs.field(default=0, init=False)
    _began: float = attrs.field(default=0.0, init=False)
    _passes: int = attrs.field(default=0, init=False)
    """Of this run."""
    _last_pass: int = attrs.field(default=0, init=False)
    """In which the last event was let go …"""
    _last_step: int = attrs.field(default=0, init=False)
    """… and the pass it had been made in."""

    def begin(self, events: Sequence[Event], began: float, step: int) -> None:
        """From now on these are given. `began` is the time of the capsule's beginning, which was in the pass `step`."""
        self._events, self._began = events, began
        self._last_pass, self._last_step = self._passes, step
        self.schedule.passes = step

    def after_io_wait(self, timeout: float) -> None:
        """Called in each pass, before what is ready is run."""
        self._passes += 1
        while self._next < len(self._events):
            event = self._events[self._next]
            wait = self._began + event.at - self.clock.current_time()
            if not self._is_due(event, wait):
                break
            if wait > 0:
                self.clock.jump(wait)
            self._next += 1
            self._last_pass, self._last_step = self._passes, event.step or self.step
            event.let_go()
        self.schedule.passes = self.step - 1  # it counts this pass itself

    @property
    def step(self) -> int:
        """The pass of the capsule's run that this one stands for."""
        return self._last_step + self._passes - self._last_pass

    def _is_due(self, event: Event, wait: float) -> bool:
        statistics = trio.lowlevel.current_statistics()
        own = statistics.seconds_to_next_deadline
        if wait > own + SAME_INSTANT:
            return False  # something of the session's own comes first
        if not statistics.tasks_runnable:
            # At the same instant as something of its own: the one that came first, and the other as many passes behind it.
            is_tied = abs(wait - own) <= SAME_INSTANT
            return not (is_tied and event.step > self.step + PASSES_OF_A_JUMP)
        return bool(event.step) and event.step <= self.step and wait < LONGEST_ACTIVITY
