"""Whether the session ends, as planning decides it: sans-I/O (SPEC R9; S0, "Session End Approved by the Planning").

The speaking model asks (`ask`), the planning of that turn decides. A request is offered to one pass only, that of the turn in
which it was made: new words of the user cancel that pass, and the next one treats them as an ordinary turn. Only the first results
of a pass that could be persisted answer the request; a pass that gives none ends with a goodbye of the engine's own. So a request
is always answered or overtaken, and nobody waits for ever.
"""

import attrs


@attrs.define(eq=False)
class SessionEndGate:
    """The requests and the approval of one session."""

    _asked_in: str | None = attrs.field(default=None, init=False)
    """The turn of a request that no pass has read."""
    _approval: "EndPass | None" = attrs.field(default=None, init=False)
    """The pass whose goodbye is approved and was not said to its end."""

    def ask(self, turn_id: str) -> bool:
        """The model calls `finish_session`. Whether the end is approved already: then it has only to say the goodbye."""
        if self._approval is not None:
            return True
        self._asked_in = turn_id
        return False

    def is_asked(self, turn_id: str) -> bool:
        """A request of that turn waits for a pass."""
        return self._asked_in == turn_id

    def begin(self, turn_id: str) -> "EndPass":
        """A pass of planning begins. It takes the request of its own turn; an older one was overtaken, and so was an approval whose
        goodbye was not said."""
        is_requested = self._asked_in == turn_id
        self._asked_in = self._approval = None
        return EndPass(self, is_requested)

    def approve(self, by: "EndPass") -> None:
        """The goodbye of a pass is about to be said."""
        self._approval = by

    def withdraw(self, by: "EndPass") -> None:
        """It was said, or cut."""
        if self._approval is by:
            self._approval = None


@attrs.define(eq=False)
class EndPass:
    """The decisions of one pass."""

    _gate: SessionEndGate
    is_requested: bool
    """The prompt asks the planner to decide."""
    is_answered: bool = attrs.field(default=False, init=False)
    """Something is going to be said to the user that lets the model go on."""
    is_ending: bool = attrs.field(default=False, init=False)
    """The goodbye is approved: nothing else is said."""

    def answer(self, *, ends_session: bool) -> None:
        """Results that are not blank, and persisted where they end the session, are about to be said."""
        self.is_answered = True
        if ends_session:
            self.is_ending = True
            self._gate.approve(self)

    @property
    def needs_fallback(self) -> bool:
        """The pass is over, and the model that asked would wait for ever."""
        return self.is_requested and not self.is_answered

    def close(self) -> None:
        """The pass is over: its goodbye was said to its end, or was cut by the user, and then the session goes on."""
        self._gate.withdraw(self)
