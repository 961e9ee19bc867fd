"""Several sessions, one after another, on one connection (SPEC L3).

A `#ready` token begins a session, `#exit` ends it, `#end` ends it and the connection; a key given with the connection stands
for a first `#ready`. Each session re-reads its key and id, and nothing of one session is in the next.
"""

import re

import attrs
import trio

from engine.config import PipelineConfiguration
from engine.elements import ControlToken, InputElement, OutError, Playback
from engine.errors import ErrorCode, Whose
from engine.pipeline.line import ClientLine
from engine.principal import Principal
from engine.protocol.outbox import OutboxFullError
from engine.session.finish import say_last
from engine.session.live import Cut, server_stops
from engine.session.run import run_session
from engine.session.services import Services
from engine.session.start import SessionEnd

SESSION_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")

NORMAL = 1000
GOING_AWAY = 1001
POLICY = 1008
OUR_FAULT = 1011
TRY_AGAIN_LATER = 1013


@attrs.frozen
class ConnectionEnd:
    """How a connection's work ended, and the WebSocket close code that says so."""

    code: int
    reason: str


@attrs.define(eq=False)
class SessionWindow:
    """The part of a connection's input that belongs to one session."""

    line: ClientLine
    next_ready: ControlToken | None = attrs.field(default=None, init=False)
    """The `#ready` that ended this session, and begins the next."""
    ends_connection: bool = attrs.field(default=False, init=False)
    ended_by_client: bool = attrs.field(default=False, init=False)

    async def take(self) -> InputElement:
        """The session's next element; raises EndOfChannel at its end."""
        if self.ended_by_client:
            raise trio.EndOfChannel
        try:
            element = await self.line.take_input()
        except trio.EndOfChannel:
            self.ended_by_client = self.ends_connection = True
            raise
        match element:
            case ControlToken("ready"):
                self.next_ready = element
            case ControlToken("exit"):
                pass
            case ControlToken("end"):
                self.ends_connection = True
            case _:
                return element
        self.ended_by_client = True
        raise trio.EndOfChannel


async def run_connection(
    configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
) -> ConnectionEnd:
    """Run the sessions of one connection until its input ends or the agent ends it.

    Cancelling it is how a door says that its client has vanished; the open session is then saved as DISCONNECTED, within the
    clean-up limit. Afterwards the line's output has ended and nothing of the connection runs.
    """
    try:
        return await _run_sessions(configuration, line, services, principal=principal)
    except OutboxFullError as error:  # by what is said between sessions
        return ConnectionEnd(POLICY, error.code.value)
    finally:
        line.end_output()


async def _run_sessions(
    configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
) -> ConnectionEnd:
    has_key = bool(configuration.key)
    ready = ControlToken("ready", parameters={"key": configuration.key, "sessionId": configuration.session_id})
    token: ControlToken | None = ready if has_key else None
    is_later = False
    while True:
        if token is None:
            with services.live.between_sessions() as waiting:
                token = await _wait_for_ready(line)
            if waiting.cancelled_caught:
                return _cut_end(server_stops())
            if token is None:
                return ConnectionEnd(NORMAL, "the client ended the connection")
        refusal = services.admission.refusal(has_place=True)
        if refusal is not None:
            services.observer.refused(ErrorCode.TOO_BUSY.value)
            say_last(line, OutError(ErrorCode.TOO_BUSY, refusal.message, recoverable=False, whose=Whose.SERVER))
            return ConnectionEnd(TRY_AGAIN_LATER, ErrorCode.TOO_BUSY.value)
        if is_later and not await _still_holds(principal, line, services):
            return ConnectionEnd(POLICY, ErrorCode.UNAUTHORIZED.value)
        is_later = True
        window = SessionWindow(line)
        session_configuration = _configuration(configuration, token, line)
        if session_configuration is None:
            token = None
            continue
        end = await run_session(session_configuration, line, services, principal=principal, take=window.take)
        if window.ends_connection:
            return ConnectionEnd(NORMAL, "the client ended the connection")
        if line.is_lost:
            return ConnectionEnd(POLICY, ErrorCode.SLOW_CLIENT.value)
        if end.cut is not None:
            return _cut_end(end.cut)
        if has_key and not window.ended_by_client:
            return _connection_end(end)
        token = window.next_ready


def _cut_end(cut: Cut) -> ConnectionEnd:
    """What ended a session from outside ends its connection too."""
    if cut.error is None:
        return ConnectionEnd(GOING_AWAY, cut.reason)
    return ConnectionEnd(POLICY, cut.error.code.value)


def _connection_end(end: SessionEnd) -> ConnectionEnd:
    """A session with the connection's own key ended by itself: so does the connection."""
    if end.error is None:
        return ConnectionEnd(NORMAL, end.reason)
    return ConnectionEnd(POLICY if end.error.whose is Whose.CLIENT else OUR_FAULT, end.error.code.value)


async def _still_holds(principal: Principal, line: ClientLine, services: Services) -> bool:
    """Whether the credentials the connection was opened with are good for one more session."""
    credential = principal.credential
    if credential is None:
        return True
    now = services.environment.wall_clock()
    has_expired = credential.expires_at is not None and credential.expires_at <= now
    if not has_expired and not await services.authenticator.revoked([credential]):
        return True
    message = "The credentials of this connection do not hold any more; connect again with new ones."
    say_last(line, OutError(ErrorCode.UNAUTHORIZED, message, recoverable=False, whose=Whose.CLIENT))
    return False


async def _wait_for_ready(line: ClientLine) -> ControlToken | None:
    """Between sessions: the next `#ready`, None when the connection ends. Everything else is dropped, and said so once."""
    told = False
    while True:  # noqa: ASYNC913 - every way round waits, or ends
        try:
            element = await line.take_input()
        except trio.EndOfChannel:
            return None
        match element:
            case ControlToken("ready"):
                return element
            case ControlToken("end"):
                return None
            case ControlToken("exit") | Playback():
                pass  # they cross with the end of the session, and harm nobody
            case _ if not told:
                told = True
                message = "There is no session: begin one with the token #ready:key=…"
                line.put_output(OutError(ErrorCode.NO_SESSION, message, recoverable=True, whose=Whose.CLIENT))
            case _:
                pass


def _configuration(
    configuration: PipelineConfiguration, token: ControlToken, line: ClientLine
) -> PipelineConfiguration | None:
    """The configuration of the session that a `#ready` begins; None, and an error to the client, when it cannot."""
    key, session_id = token.parameters.get("key", ""), token.parameters.get("sessionId", "")
    if not key or (session_id and not SESSION_ID.fullmatch(session_id)):
        message = (
            "#ready needs a key, and a sessionId is up to 128 letters, digits, dots, underscores, tildes or hyphens."
        )
        line.put_output(OutError(ErrorCode.BAD_ELEMENT, message, recoverable=True, whose=Whose.CLIENT))
        return None
    return attrs.evolve(configuration, key=key, session_id=session_id)
