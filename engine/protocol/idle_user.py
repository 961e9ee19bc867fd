"""A user who says nothing (SPEC L23): asked once, then the session ends."""

from enum import Enum, auto

import attrs


class IdleStep(Enum):
    WAIT = auto()
    ASK = auto()
    END = auto()


@attrs.define(eq=False)
class IdleUser:
    """`limit` seconds without a sign of the user, counted from when the agent has finished speaking."""

    limit: float
    quiet_since: float = attrs.field(default=0.0, init=False)
    """The last sign of the user, or the end of what the agent said since."""
    _asked: bool = attrs.field(default=False, init=False)

    def sign(self, now: float) -> None:
        """The user has spoken, typed or acted."""
        self.quiet_since = now
        self._asked = False

    def agent_speaks_until(self, time: float) -> None:
        self.quiet_since = max(self.quiet_since, time)

    @property
    def deadline(self) -> float:
        return self.quiet_since + self.limit

    def step(self, now: float) -> IdleStep:
        """What to do now; call it at the deadline."""
        if now < self.deadline:
            return IdleStep.WAIT
        if self._asked:
            return IdleStep.END
        self._asked = True
        self.quiet_since = now
        return IdleStep.ASK
