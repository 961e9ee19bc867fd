"""When a connection is tried for again, and when it is replaced before the service ends it. Sans-I/O; times are in seconds."""

import attrs

START_SECONDS = 9.0
"""All tries to get the first connection together: the engine waits for 10 (`connect_seconds`), and would know less to say."""
RECONNECT_SECONDS = 5.0
"""All tries to get a lost connection back together: so long the user hears nothing."""
FIRST_PAUSE = 0.25
"""Before the second try at the same place, and twice as long before each after it."""
JITTER = 0.5
"""Of a pause, at most: sessions that were lost together do not come back together."""
STEADY_SECONDS = 30.0
"""A connection that lasts so long is a new one; one that is lost before is the same trouble as the one before it."""

RENEW_SECONDS = 300.0
"""Before the service's limit a connection is replaced as soon as nobody is speaking, …"""
FORCE_SECONDS = 20.0
"""… and so long before it in any case."""
RENEW_AGAIN_SECONDS = 20.0
"""After a replacement could not be had."""


@attrs.define(eq=False)
class Tries:
    """How often, until when and with which pauses a connection is tried for."""

    attempts: int
    """Tries to get a lost connection back."""
    places: int = 1
    """There are to connect to; the first connection is tried for at each of them."""
    _left: int = attrs.field(default=0, init=False)
    _pause: float = attrs.field(default=FIRST_PAUSE, init=False)
    _connected_at: float | None = attrs.field(default=None, init=False)
    give_up_at: float = attrs.field(default=0.0, init=False)

    def start(self, now: float) -> None:
        """The first connection is wanted."""
        self._left = 1 + max(self.attempts, self.places - 1)
        self.give_up_at = now + START_SECONDS

    def connected(self, now: float) -> None:
        self._connected_at = now

    def lost(self, now: float) -> bool:
        """A connection is lost, and another one wanted; False when there are to be no more tries."""
        if self._connected_at is None or now - self._connected_at >= STEADY_SECONDS:
            self._left, self._pause = self.attempts, FIRST_PAUSE
        elif self._left > self.attempts:
            self._left = self.attempts
        self.give_up_at = now + RECONNECT_SECONDS
        return self._left > 0

    def begin(self) -> None:
        """A try begins."""
        self._left -= 1

    def failed(self, now: float, *, retry_after: float | None, elsewhere: bool, jitter: float) -> float | None:
        """A try was in vain. When the next one begins, None when there is none.

        Args:
            retry_after: What the service asked for.
            elsewhere: Whether there is another place to try, that was not in vain.
            jitter: From 0 to 1, by chance.
        """
        if self._left <= 0:
            return None
        pause = 0.0
        if not elsewhere:
            pause = max(self._pause * (1 + JITTER * jitter), retry_after or 0.0)
            self._pause *= 2
        return now + pause if now + pause < self.give_up_at else None


@attrs.define(eq=False)
class Renewal:
    """The end of a connection that the service has set, and when to be ahead of it."""

    _renew_at: float | None = attrs.field(default=None, init=False)
    _force_at: float = attrs.field(default=0.0, init=False)
    _not_before: float = attrs.field(default=0.0, init=False)

    def connected(self, now: float, seconds_left: float | None) -> None:
        """A connection will last so long; None, or nothing, when that is not known. Half of a short life is lived in any case."""
        self._renew_at, self._not_before = None, now
        if seconds_left is not None and seconds_left > 0:
            self._renew_at = now + max(seconds_left - RENEW_SECONDS, seconds_left / 2)
            self._force_at = now + max(seconds_left - FORCE_SECONDS, seconds_left * 3 / 4)

    def failed(self, now: float) -> None:
        """A replacement could not be had."""
        self._not_before = now + RENEW_AGAIN_SECONDS

    def is_due(self, now: float, *, is_quiet: bool) -> bool:
        """Whether the connection is to be replaced now."""
        if self._renew_at is None or now < self._not_before:
            return False
        return now >= (self._renew_at if is_quiet else self._force_at)

    def deadline(self, now: float) -> float | None:
        """When that has to be asked again, if nothing happens before."""
        if self._renew_at is None:
            return None
        times = (self._not_before, self._renew_at, self._force_at)
        return min((time for time in times if time > now), default=None)
