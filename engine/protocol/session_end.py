"""The end of a session, as the realtime model's session sees it: sans-I/O (S0, "Session End Approved by the Planning").

A session ends behind a goodbye. With a planner the speaking model only asks for the end, by calling `finish_session`; it says a
neutral sentence and waits, until an instruction of planning says what comes: something else to say, or the goodbye. Without one
the call itself makes the answer the goodbye.

`PlannedSessionEnd` belongs to the session, `Ending` to one of its answers.
"""

import attrs

from engine.interfaces import ToolSettled


@attrs.define(eq=False)
class Ending:
    """What one answer has to do with the end of the session."""

    ends_session: bool = False
    """It is the goodbye: planning says so, or a tool of its own."""
    has_asked: bool = attrs.field(default=False, init=False)
    """The model has asked for the end, and is to say a neutral sentence."""
    _was_told: bool = attrs.field(default=False, init=False)
    """The model was asked again, with what `finish_session` gave: what it says now is the goodbye, or the neutral sentence."""
    _asked_now: bool = attrs.field(default=False, init=False)
    """… and a call of its last response has asked for the end."""

    def settle(self, settled: ToolSettled) -> None:
        """One of its calls has ended."""
        if settled.is_error or settled.interrupted:
            return
        self.ends_session = self.ends_session or settled.ends_session
        if settled.requests_end:
            self.has_asked = self._asked_now = True

    def is_said(self, *, has_spoken: bool) -> bool:
        """All calls of its last response have ended, and it has `has_spoken` in that: whether all is said, so that the model is not
        asked again with what the calls gave. A goodbye may be said with the call; the neutral sentence comes behind it."""
        if self.ends_session:
            return has_spoken or self._was_told
        return self.has_asked and self._was_told and (has_spoken or self._asked_now)

    def asked_again(self) -> None:
        """The model is asked to go on with the answer."""
        self._was_told = self.ends_session or self.has_asked
        self._asked_now = False


@attrs.define(eq=False)
class PlannedSessionEnd:
    """Whether the model waits for what planning says to the end it has asked for."""

    is_awaited: bool = attrs.field(default=False, init=False)

    def settle(self, ending: Ending, settled: ToolSettled) -> None:
        """A call of an answer that goes on has ended."""
        asked_before = ending.has_asked
        ending.settle(settled)
        if ending.has_asked and not asked_before:
            self.is_awaited = True

    def instructed(self) -> None:
        """An instruction makes the model speak: planning has answered."""
        self.is_awaited = False

    def supersede(self) -> bool:
        """The user says something new. Whether the model is to be told, right before it, that the session has not ended: it waits
        for an answer that will not come, as the new input cancels the pass of planning that was to give it."""
        was_awaited, self.is_awaited = self.is_awaited, False
        return was_awaited
