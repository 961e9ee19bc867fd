"""What is to happen when: a clock that stands until somebody moves it."""

import heapq
from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Timer:
    """Something that will happen, unless it is cancelled."""

    at: float
    action: Callable[[], None] | None

    def cancel(self) -> None:
        self.action = None


class Agenda:
    """Timers in the order of their time; at the same time, in the order in which they were set."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0

    def set(self, at: float, action: Callable[[], None]) -> Timer:
        timer = Timer(at, action)
        self._count += 1
        heapq.heappush(self._timers, (at, self._count, timer))
        return timer

    def next_at(self) -> float | None:
        """When something will happen; None when nothing will."""
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def pop(self, now: float) -> Timer | None:
        """The next one that is due."""
        at = self.next_at()
        if at is None or at > now:
            return None
        return heapq.heappop(self._timers)[2]
