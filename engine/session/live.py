"""The sessions that run in this process, and what ends them from outside: takeover, revocation, the server's stop.

A session has one holder at a time. Who opens it gets a higher fence than all before; of two in this process the older is cut at
once, of two in different processes the older finds out by a write that is refused, or by `watch_sessions`.
"""

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import attrs
import trio

from engine.boundary import PASSES, Boundary
from engine.elements import JsonObject
from engine.errors import ErrorCode, RemoteError
from engine.principal import Credential

logger = logging.getLogger(__name__)


@attrs.frozen
class Cut:
    """Why a session was ended from outside."""

    reason: str
    error: RemoteError | None = None
    """What its client is told; None when the client is not at fault and may just come back."""
    is_taken_over: bool = False
    """It runs elsewhere now: nothing more may be written to it."""


def taken_over() -> Cut:
    error = RemoteError(ErrorCode.TAKEN_OVER, "This session was opened again by another connection.")
    return Cut("taken over by another connection", error, is_taken_over=True)


def revoked() -> Cut:
    error = RemoteError(ErrorCode.UNAUTHORIZED, "The credentials of this session do not hold any more.")
    return Cut("its credentials were revoked", error)


def server_stops() -> Cut:
    return Cut("the server is stopping")


TakeEvent = Callable[[JsonObject], Awaitable[None]]


@attrs.define(eq=False)
class LiveSession:
    """One running session."""

    session_id: str
    owner: str
    fence: int
    credential: Credential | None = None
    """`#authorization` replaces it."""
    boundary: Boundary = PASSES
    """Told when it is cut."""
    take_event: TakeEvent | None = attrs.field(default=None, init=False)
    """Gives a chat event to the running conversation; set once there is one."""
    cut: Cut | None = attrs.field(default=None, init=False)
    saved: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Its turns are written, or will never be."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def open_scope(self) -> trio.CancelScope:
        """A scope for the session's next phase, which a cut cancels."""
        self._scope = trio.CancelScope()
        if self.cut is not None:
            self._scope.cancel(reason=self.cut.reason)
        return self._scope

    def end(self, cut: Cut) -> None:
        """End it from outside; the first reason stands."""
        if self.cut is None:
            self.cut = cut
            self.boundary.cut_off(cut.reason, cut.error, is_taken_over=cut.is_taken_over)
            self._scope.cancel(reason=cut.reason)


@attrs.define(eq=False)
class LiveSessions:
    """See the module."""

    _sessions: dict[str, LiveSession] = attrs.field(factory=dict[str, LiveSession], init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)
    _last_cut: Cut | None = attrs.field(default=None, init=False)
    """What has ended all of them, and ends whoever was still on the way."""
    _between: set[trio.CancelScope] = attrs.field(factory=set[trio.CancelScope], init=False)
    """Connections that wait for their next session."""
    _arrived: trio.Event = attrs.field(factory=trio.Event, init=False)
    _left: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def all(self) -> tuple[LiveSession, ...]:
        return tuple(self._sessions.values())

    def find(self, session_id: str) -> LiveSession | None:
        return self._sessions.get(session_id)

    @property
    def is_stopping(self) -> bool:
        """No session may begin any more."""
        return self._is_stopping

    def refuse_new(self) -> None:
        """The server stops: running sessions go on, no other begins."""
        self._is_stopping = True
        for waiting in self._between:
            waiting.cancel(reason="the server is stopping")

    def end_all(self, cut: Cut) -> None:
        """End every running session, and none is left running that was already let in."""
        self._last_cut = self._last_cut or cut
        for session in self.all:
            session.end(cut)

    @contextmanager
    def between_sessions(self) -> Generator[trio.CancelScope]:
        """Where a connection waits for its next session: the server's stop cancels that, as there will be none."""
        with trio.CancelScope() as scope:
            if self._is_stopping:
                scope.cancel(reason="the server is stopping")
            self._between.add(scope)
            try:
                yield scope
            finally:
                self._between.remove(scope)

    @contextmanager
    def enter(self, session: LiveSession) -> Generator[None]:
        """Hold it as the running one. Of two with the same id the one with the lower fence is cut, whichever comes first."""
        other = self._sessions.get(session.session_id)
        if other is not None and other.fence > session.fence:
            session.end(taken_over())
        else:
            if other is not None:
                other.end(taken_over())
            self._sessions[session.session_id] = session
            self._arrived.set()
        if self._last_cut is not None:
            session.end(self._last_cut)
        try:
            yield
        finally:
            session.saved.set()
            if self._sessions.get(session.session_id) is session:
                del self._sessions[session.session_id]
                self._left.set()

    async def wait_for_some(self) -> None:
        """Returns when a session runs."""
        while not self._sessions:
            if self._arrived.is_set():
                self._arrived = trio.Event()
            await self._arrived.wait()

    async def wait_for_none(self) -> None:
        """Returns when no session runs."""
        while self._sessions:
            if self._left.is_set():
                self._left = trio.Event()
            await self._left.wait()
