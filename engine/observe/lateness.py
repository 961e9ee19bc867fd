"""How late the loop serves everybody: a task that wakes ten times a second and looks at the clock.

What it has to wait for, everybody waits for. One stop of the loop (a garbage collection, a heavy import) is no reason to turn
anybody away; a loop that is late again and again has more to do than it can, and whoever is let in makes it worse for all.
"""

from collections import deque
from collections.abc import Callable

import attrs
import trio

PROBE_SECONDS = 0.097
"""Between two looks. No multiple of a frame, so that they do not all fall in step with one session's frames. One takes 20 to 70 µs,
so all of them at most 0.7 ms of a second."""
WEIGHT = 0.1
"""Of the newest look in the mean: a lateness has to last for ten looks, a second or two, to be most of it."""
MOST_COUNTED = 0.5
"""Seconds, of one look. However long the loop stood still once, it moves the mean by 50 ms at most: less than a limit has to be
for a loop that cannot be talked through. Three stops of half a second or more among ten looks are 135 ms."""
HELD_SECONDS = 3.0
"""How long the mean must have been low before it counts as low: as long as those who were just refused, or let in, take to show."""


@attrs.define(eq=False)
class LatenessMeter:
    """Takes when each look was to be and when it was; times in seconds."""

    mean: float = attrs.field(default=0.0, init=False)
    """The lateness lately: each look counts for nine tenths of what the next one does."""
    latest: float = attrs.field(default=0.0, init=False)
    _peaks: deque[tuple[float, float]] = attrs.field(factory=deque[tuple[float, float]], init=False)
    """Times and means of the last seconds, without those that a later one exceeds."""

    def note(self, due: float, at: float) -> float:
        """A look; gives how late it was."""
        self.latest = max(0.0, at - due)
        self.mean += WEIGHT * (min(self.latest, MOST_COUNTED) - self.mean)
        while self._peaks and self._peaks[-1][1] <= self.mean:
            self._peaks.pop()
        self._peaks.append((at, self.mean))
        while self._peaks[0][0] < at - HELD_SECONDS:
            self._peaks.popleft()
        return self.latest

    @property
    def lateness(self) -> float:
        """The highest mean of the last three seconds. It rises when the loop has been late for some time, not for a single stop, and
        falls when it has not been for some time: whoever compares it with a limit does not change their mind at every look."""
        return self._peaks[0][1] if self._peaks else 0.0

    def is_late(self, limit_seconds: float) -> bool:
        """Whether nobody more should be let in. A limit under 50 ms would let a single stop decide."""
        return self.lateness > limit_seconds


def ignore(seconds: float) -> None:
    """Tell nobody."""


async def watch_lateness(
    meter: LatenessMeter, tell: Callable[[float], None] = ignore, *, interval: float = PROBE_SECONDS
) -> None:
    """Look at the clock again and again; `tell` is given each lateness in seconds. A task of the process."""
    due = trio.current_time() + interval
    while True:
        await trio.sleep_until(due)
        now = trio.current_time()
        tell(meter.note(due, now))
        due = now + interval
