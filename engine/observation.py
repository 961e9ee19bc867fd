"""What happens in sessions, told to whoever measures it: the contract between the engine and metrics, traces and invariants.

The engine tells facts and knows nothing of what is made of them. Times are `trio.current_time()`.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum

import attrs

from engine.store.documents import SessionDocument, SteeringRecord, TurnDocument


class SpanKind(StrEnum):
    SESSION = "session"
    START = "start"
    """A part of a session's start; its name is "manager", "history", "prompt" or "provider"."""
    TURN = "turn"
    LEG = "leg"
    """Extraction or planning of a turn."""
    TOOL = "tool"
    FINISH = "finish"
    """A part of a session's end; its name is that of the part."""


class Outcome(StrEnum):
    OK = "ok"
    CANCELLED = "cancelled"
    FAILED = "failed"


@attrs.frozen
class Span:
    """Something that takes time. `id` is unique among the spans of its kind and session."""

    kind: SpanKind
    id: str
    name: str
    session_id: str
    turn_id: str = ""


class Happening(StrEnum):
    """What is counted."""

    BARGE_IN = "barge_in"
    IDLE_RESPONSE_END = "idle_response_end"
    SPEECH_SHED = "speech_shed"
    TURN_UNSAVED = "turn_unsaved"
    """`exit` said `saved: false`."""
    TURN_LOST = "turn_lost"
    STORE_FAILED = "store_failed"
    TAKEN_OVER = "taken_over"
    REVOKED = "revoked"
    FORCE_CLOSED = "force_closed"
    SLOW_CLIENT = "slow_client"
    RECOVERABLE_ERROR = "recoverable_error"
    LINK_REMOVED = "link_removed"
    """The speaking model said a link that nobody had seen. It was taken out of the text; what was spoken by a speech-to-speech model
    was heard."""


class Observer:
    """Told what happens. Every method returns at once and raises nothing; this one takes no notice."""

    def session_opened(self, session: SessionDocument, provider: str) -> None:
        """A session has begun to run."""

    def session_closed(self, session: SessionDocument, provider: str, active_seconds: float) -> None:
        """It has ended; `session.state` says how."""

    def session_steered(self, session: SessionDocument, run: SteeringRecord) -> None:
        """How planning has steered the run of a session that is closing; not told when nobody planned."""

    def refused(self, code: str) -> None:
        """Somebody was not let in, by the error code or HTTP status they were told."""

    def turn_ended(self, session: SessionDocument, turn: TurnDocument) -> None:
        """A turn has ended, with its timing log."""

    def happened(self, what: Happening, session_id: str = "") -> None: ...

    def began(self, span: Span, at: float) -> None: ...

    def ended(self, span: Span, at: float, outcome: Outcome = Outcome.OK) -> None: ...

    def store_took(self, operation: str, seconds: float, *, ok: bool) -> None: ...

    def contract_judged(self) -> None:
        """A session is held against the contract."""

    def contract_broken(self, rule: str) -> None:
        """Such a session has broken a promise of it; told once for each promise."""


@attrs.frozen
class Observers(Observer):
    """Several, told in this order."""

    of: Sequence[Observer] = ()

    def session_opened(self, session: SessionDocument, provider: str) -> None:
        for each in self.of:
            each.session_opened(session, provider)

    def session_closed(self, session: SessionDocument, provider: str, active_seconds: float) -> None:
        for each in self.of:
            each.session_closed(session, provider, active_seconds)

    def session_steered(self, session: SessionDocument, run: SteeringRecord) -> None:
        for each in self.of:
            each.session_steered(session, run)

    def refused(self, code: str) -> None:
        for each in self.of:
            each.refused(code)

    def turn_ended(self, session: SessionDocument, turn: TurnDocument) -> None:
        for each in self.of:
            each.turn_ended(session, turn)

    def happened(self, what: Happening, session_id: str = "") -> None:
        for each in self.of:
            each.happened(what, session_id)

    def began(self, span: Span, at: float) -> None:
        for each in self.of:
            each.began(span, at)

    def ended(self, span: Span, at: float, outcome: Outcome = Outcome.OK) -> None:
        for each in self.of:
            each.ended(span, at, outcome)

    def store_took(self, operation: str, seconds: float, *, ok: bool) -> None:
        for each in self.of:
            each.store_took(operation, seconds, ok=ok)

    def contract_judged(self) -> None:
        for each in self.of:
            each.contract_judged()

    def contract_broken(self, rule: str) -> None:
        for each in self.of:
            each.contract_broken(rule)


# --- whose task this is


def no_turn() -> str:
    """The turn's id where there is none."""
    return ""


@attrs.define(eq=False)
class BoundSession:
    """The session a task works for, for whoever has to name it: a line of the log, most of all."""

    session_id: str
    read_turn_id: Callable[[], str] = no_turn
    """Asked when a turn has to be named, so that nothing is done when a turn begins."""

    @property
    def turn_id(self) -> str:
        return self.read_turn_id()


_bound: ContextVar[BoundSession | None] = ContextVar("souffleur_session", default=None)


@contextmanager
def bind_session(session_id: str) -> Generator[BoundSession]:
    """This task works for a session, and so does every task and thread that is started in this context, wherever it runs: Trio
    starts a task with the context of whoever calls `start_soon`, not of the nursery's owner."""
    bound = BoundSession(session_id)
    token = _bound.set(bound)
    try:
        yield bound
    finally:
        _bound.reset(token)
        bound.read_turn_id = no_turn  # a task that outlives the session keeps nothing of it alive


def bound_session() -> BoundSession | None:
    """The session this task works for."""
    return _bound.get()
