"""What a session cost: active seconds and tokens (SPEC M11, case C46)."""

import attrs


@attrs.define(eq=False)
class ActivityMeter:
    """Active duration: each gap between two activities counts, but for at most `max_gap` seconds, so that an idle connection
    does not inflate the total. The end of a session counts as an activity."""

    started_at: float
    max_gap: float = 30.0
    active_seconds: float = attrs.field(default=0.0, init=False)
    last_active: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.last_active = self.started_at

    def activity(self, now: float) -> None:
        gap = now - self.last_active
        if gap > 0:
            self.active_seconds += min(gap, self.max_gap)
            self.last_active = now


@attrs.define(eq=False)
class RunningTotals:
    """Usage of a provider that reports running totals: only what a total grew by counts; one that fell has begun anew.

    `add` gives the growth of (input, output, cached) tokens.
    """

    _last: tuple[int, int, int] = attrs.field(default=(0, 0, 0), init=False)

    def add(self, total_input: int, total_output: int, total_cached: int = 0) -> tuple[int, int, int]:
        total = (max(0, total_input), max(0, total_output), max(0, total_cached))
        if total[0] < self._last[0] or total[1] < self._last[1]:
            self._last = (0, 0, 0)
        grown = (total[0] - self._last[0], total[1] - self._last[1], max(0, total[2] - self._last[2]))
        self._last = total
        return grown
