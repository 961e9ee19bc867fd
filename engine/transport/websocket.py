"""One WebSocket client: its frames go in, what its sessions say goes out (protocol page, section 2).

The reader never stops: only so is the client's leaving seen at once. The writer is outside every turn and session, as half a
frame is the end of a connection. Between them `run_connection` holds the sessions; it is inside one cancel scope, and whatever
ends a connection early ends that scope: the client has vanished, a frame was too large, or nothing is taken any more.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
import trio

from engine.config import PipelineConfiguration, Settings
from engine.elements import ControlToken, InputElement, OutError
from engine.errors import ErrorCode, Whose
from engine.pipeline.line import ClientLine
from engine.principal import Principal
from engine.protocol.outbox import OutboxFullError
from engine.protocol.wire import WireEncoder, decode_binary, decode_text
from engine.session.services import Services
from engine.session.windowing import ConnectionEnd
from engine.transport.asgi import FAULT, Receive, Send

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
"""What a client gets to take the last elements of a connection that was ended for a fault, and to answer the close."""

ALLOWANCE_BYTES = 64 << 10
"""The slow-client limit is for this much of a frame: a large picture may take longer than a word."""

NORMAL, GOING_AWAY, POLICY, TOO_BIG, OUR_FAULT = 1000, 1001, 1008, 1009, 1011


class RunConnection(Protocol):
    """`engine.session.windowing.run_connection`, and what tests put in its place."""

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd: ...


class SocketGoneError(Exception):
    """The client has left."""


class SocketFaultError(Exception):
    """The client sent what no message can be made of; nothing more will be received until it leaves."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Socket(Protocol):
    """What a door needs of a WebSocket, whatever stack it comes from."""

    async def receive(self) -> str | bytes:
        """The next message.

        Raises:
            SocketGoneError, SocketFaultError
        """
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message, whole or, when the client has gone, not at all; may wait as long as the client takes."""
        ...

    async def close(self, code: int, reason: str) -> None: ...


@attrs.frozen
class AsgiSocket:
    """An accepted WebSocket of an ASGI server."""

    _receive: Receive
    _send: Send

    async def receive(self) -> str | bytes:
        event = await self._receive()
        match event["type"]:
            case "websocket.receive":
                data: bytes | None = event.get("bytes")
                text: str = event["text"] if data is None else ""
                return text if data is None else data
            case kind if kind == FAULT:
                raise SocketFaultError(event["code"], event["reason"])
            case _:
                raise SocketGoneError

    async def send(self, message: str | bytes) -> None:
        if isinstance(message, str):
            await self._send({"type": "websocket.send", "text": message})
        else:
            await self._send({"type": "websocket.send", "bytes": message})

    async def close(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})


@attrs.define(eq=False)
class Door:
    """The tasks of one connection. `configuration.key` opens the first session at once; without it `#ready` does."""

    socket: Socket
    configuration: PipelineConfiguration
    line: ClientLine
    settings: Settings
    _encoder: WireEncoder = attrs.field(init=False)
    _session: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _writing: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _frame_due: float | None = attrs.field(default=None, init=False)
    """When the frame that is being sent has to be taken."""
    _verdict: ConnectionEnd | None = attrs.field(default=None, init=False)
    """How the connection ended, once it has: nothing is handed in any more."""
    _in_session: bool = attrs.field(init=False)
    """Whether the client's leaving now would cut a session off: it has asked for one and not ended it."""
    _client_left: trio.Event = attrs.field(factory=trio.Event, init=False)
    _all_sent: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._encoder = WireEncoder(self.configuration.wire, self.configuration.output_encoding)
        self._in_session = bool(self.configuration.key)

    async def run(self, converse: Callable[[], Awaitable[ConnectionEnd]]) -> ConnectionEnd:
        """Run the connection until it is closed, and say how it ended. Nothing of it is left afterwards."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, name="client reader")
            nursery.start_soon(self._write, name="client writer")
            nursery.start_soon(self._watch, name="slow client watch")
            try:
                end = await self._converse(converse)
                await self._close(end)
            except BaseException:  # the server stops: a cancellation, alone or in groups of it
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await self.socket.close(GOING_AWAY, "the server is going away")
                raise
            nursery.cancel_scope.cancel(reason="the connection was closed")
        return end

    async def _converse(self, converse: Callable[[], Awaitable[ConnectionEnd]]) -> ConnectionEnd:
        end: ConnectionEnd | None = None
        try:
            with self._session:
                end = await converse()
        except Exception:  # the fence: nothing that a session raises goes beyond its connection
            logger.exception("a connection failed")
            self._tell(ErrorCode.INTERNAL, "Something went wrong on our side.", Whose.SERVER)
            end = ConnectionEnd(OUR_FAULT, "internal error")
        if self._verdict is None:  # without an end it was the deadline that `_leave` set
            self._verdict = end or ConnectionEnd(
                GOING_AWAY, "the session did not end in time after its client had left"
            )
        self.line.end_output()
        return self._verdict

    async def _close(self, end: ConnectionEnd) -> None:
        if self._client_left.is_set():
            return
        seconds = self.settings.slow_client_seconds if end.code == NORMAL else CLOSE_SECONDS
        with trio.move_on_after(seconds):
            await self._all_sent.wait()
        await self.socket.close(end.code, end.reason)
        with trio.move_on_after(CLOSE_SECONDS):
            await self._client_left.wait()

    # the reader

    async def _read(self) -> None:
        while True:  # noqa: ASYNC913 - every way round waits, or ends
            try:
                frame = await self.socket.receive()
            except SocketFaultError as fault:
                code = ErrorCode.TOO_LARGE if fault.code == TOO_BIG else ErrorCode.BAD_ELEMENT
                self._stop(ConnectionEnd(fault.code, fault.reason), code, f"The connection is closed: {fault.reason}.")
                continue
            except SocketGoneError:
                self._leave()
                return
            if self._verdict is None:  # else it is read for the client's leaving only
                element = decode_text(frame) if isinstance(frame, str) else decode_binary(frame)
                if element is not None:
                    await self._hand_in(element)

    async def _hand_in(self, element: InputElement) -> None:
        if isinstance(element, ControlToken):
            if element.name == "ready":
                self._in_session = True
            elif element.name in ("exit", "end"):
                self._in_session = False
        if not self.line.inbox.has_room(element):
            with trio.move_on_after(self.settings.inbox_wait_seconds) as waiting:
                await self.line.put_input(element)
            if waiting.cancelled_caught:
                end = ConnectionEnd(POLICY, "more was sent than can be worked off")
                self._stop(end, ErrorCode.TOO_BUSY, "More was sent than can be worked off; the connection is closed.")
            return
        await self.line.put_input(element)

    def _stop(self, end: ConnectionEnd, code: ErrorCode, message: str) -> None:
        """The client is at fault and the connection ends: it is told why, behind what is already on its way."""
        if self._verdict is None:
            self._verdict = end
            self._tell(code, message, Whose.CLIENT)
            self._session.cancel(reason=end.reason)

    def _tell(self, code: ErrorCode, message: str, whose: Whose) -> None:
        try:
            self.line.put_output(OutError(code, message, recoverable=False, whose=whose))
        except OutboxFullError:
            logger.debug("no room to say %s", code)  # the close code still says it

    def _leave(self) -> None:
        """The client has left. What it sent before is still worked off when it had ended its session."""
        self._client_left.set()
        self._writing.cancel(reason="the client has left")
        if self._in_session:
            if self._verdict is None:
                self._verdict = ConnectionEnd(GOING_AWAY, "the client has vanished")
            self._session.cancel(reason="the client has vanished")
        else:
            self.line.end_input()
            seconds = self.settings.session_end_timeout_seconds + self.settings.cleanup_seconds
            self._session.deadline = trio.current_time() + seconds

    # the writer

    async def _write(self) -> None:
        with self._writing:
            while (element := await self.line.take_output()) is not None:
                for frame in self._encoder.encode(element):
                    seconds = self.settings.slow_client_seconds * (1 + len(frame) // ALLOWANCE_BYTES)
                    self._frame_due = trio.current_time() + seconds
                    await self.socket.send(frame)
                    self._frame_due = None
        self._all_sent.set()

    async def _watch(self) -> None:
        """End the session of a client that takes nothing, exactly when the frame under way is due.

        It sleeps at most one limit at a time and looks then, so that a frame costs no deadline of its own (5 µs on a scope).
        """
        while True:
            due = self._frame_due
            await trio.sleep_until(trio.current_time() + self.settings.slow_client_seconds if due is None else due)
            if self._frame_due is not None and trio.current_time() >= self._frame_due:
                message = "This client takes nothing; the connection is closed."
                self._stop(ConnectionEnd(POLICY, "slow_client"), ErrorCode.SLOW_CLIENT, message)
                return
