"""Which region a connection goes to. Sans-I/O: times are `trio.current_time()`, in seconds.

The laws:

- Regions that work take turns, whichever sessions ask.
- One that fails is left out: as long as it asks for, and longer each time it fails again without having worked in between.
- When that time is over, one session tries it; the others follow when it has worked.
- When all are left out, the one that comes back first is tried, rather than nothing; one that refuses us only when all do.
"""

import logging
from collections.abc import Sequence

import attrs

from providers.openai.connection import READY_SECONDS
from providers.openai.lifeline import STEADY_SECONDS
from providers.openai.targets import Target

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 3.0
"""For the handshake with a region: thrice what it takes across the world, and short enough that a lost connection can be tried for
at a second region when the first does not answer (`RECONNECT_SECONDS` is 5)."""
COOL_DOWN_SECONDS = 5.0
"""After a failure, and twice as long after each that follows it …"""
LONGEST_COOL_DOWN_SECONDS = 300.0
"""… but not longer, unless the region asks for it."""
PROBE_SECONDS = CONNECT_SECONDS + READY_SECONDS
"""After that a probe has been given up, whatever became of it."""


@attrs.define(eq=False)
class _Place:
    """A region, as it is known."""

    name: str
    target: Target
    failures: int = 0
    """Times in a row that it had to be left out."""
    out_until: float | None = None
    """None when it works, as far as is known. When it is over, it has to be tried first."""
    probe_until: float | None = None
    """Since it is left out, a session has been sent there, which will have told by then."""
    well_since: float | None = None
    """It has worked since; None when it has not worked after it failed."""
    refuses: bool = False
    """What it answered will not change by itself."""

    def is_open(self, now: float) -> bool:
        """Whether another session may be sent there."""
        if self.out_until is None:
            return True
        return now >= self.out_until and (self.probe_until is None or now >= self.probe_until)

    def take(self, now: float) -> None:
        if self.out_until is not None:
            self.probe_until = now + PROBE_SECONDS

    def connected(self, now: float) -> None:
        if self.out_until is not None:
            if self.probe_until is None:
                return  # it was asked before it failed
            logger.warning("region %s is back", self.name)
            self.out_until, self.refuses = None, False
        self.probe_until = None
        if self.well_since is None:
            self.well_since = now

    def failed(self, now: float, retry_after: float | None, *, refuses: bool) -> None:
        """Several sessions may have been sent there before it was known: all of that is one failure."""
        is_known = self.out_until is not None and now < self.out_until
        pause = COOL_DOWN_SECONDS
        if not is_known:
            if self.well_since is not None and now - self.well_since >= STEADY_SECONDS:
                self.failures = 0
            pause = min(COOL_DOWN_SECONDS * 2.0 ** min(self.failures, 10), LONGEST_COOL_DOWN_SECONDS)
            self.failures += 1
            logger.warning(
                "region %s %s; it is left out for %.0f s",
                self.name,
                "refuses us" if refuses else "fails",
                max(pause, retry_after or 0.0),
            )
        self.out_until = max(self.out_until or 0.0, now + max(pause, retry_after or 0.0))
        self.probe_until = self.well_since = None
        self.refuses = refuses


class Regions:
    """See the module, and `Targets`. One object for all sessions of a configuration."""

    def __init__(self, targets: Sequence[tuple[str, Target]]) -> None:
        """`targets` are named, for the log; there is at least one, and no two have the same URL."""
        self._places = [_Place(name, target) for name, target in targets]
        self._by_url = {place.target.url: place for place in self._places}
        self._turn = 0

    @property
    def count(self) -> int:
        return len(self._places)

    def next(self, now: float) -> Target:
        turns = self._places[self._turn :] + self._places[: self._turn]
        place = next((place for place in turns if place.is_open(now)), None)
        if place is None:
            place = min(turns, key=lambda each: (each.refuses, each.out_until))
        self._turn = (self._places.index(place) + 1) % len(self._places)
        place.take(now)
        return place.target

    def connected(self, target: Target, now: float) -> None:
        self._by_url[target.url].connected(now)

    def failed(self, target: Target, now: float, retry_after: float | None, *, is_final: bool = False) -> bool:
        """That one refuses us does not hide that another may only be busy."""
        failed = self._by_url[target.url]
        failed.failed(now, retry_after, refuses=is_final)
        others = [place for place in self._places if place is not failed]
        return any(place.is_open(now) or (is_final and not place.refuses) for place in others)
