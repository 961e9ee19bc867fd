"""A connection that was upgraded to a WebSocket, as the two functions of an ASGI application: `receive` and `send`.

Both run in the tasks of the application and go straight to the socket; no task of the server stands between them. Beyond ASGI,
what no message can be made of arrives as an event of its own (`FAULT`), so that the application can say what was wrong before
it closes, and a peer is taken as gone when it is silent after a ping or takes nothing for too long.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from hashlib import sha1

import attrs
import trio

from engine.protocol.frames import (
    NO_STATUS,
    PING,
    PONG,
    Close,
    Fault,
    FrameReader,
    Ping,
    Pong,
    encode_close,
    encode_frame,
    encode_message,
)
from engine.transport.asgi import FAULT, Event

logger = logging.getLogger(__name__)

READ_BYTES = 16 << 10
"""What is asked of the socket at once: several frames of audio, and little to set aside for each read."""
PIECE_BYTES = 64 << 10
"""What is given to a stream that is no socket at once, and has to be taken within the stall time."""
EVENTS_A_TURN = 32
"""Events that are given out before other tasks get their turn, when many came in one piece."""
ABNORMAL, INTERNAL_ERROR = 1006, 1011

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


def check_handshake(headers: dict[bytes, bytes]) -> tuple[int, str] | None:
    """Status and reason to refuse an upgrade with; None when the handshake is right. Names are lowered."""
    if headers.get(b"sec-websocket-version") != b"13":
        return 426, "Only version 13 of the WebSocket protocol is spoken here."
    try:
        if len(b64decode(headers.get(b"sec-websocket-key", b""), validate=True)) == 16:
            return None
    except ValueError:
        pass
    return 400, "Sec-WebSocket-Key has to be the base64 of 16 bytes."


class _State(Enum):
    HANDSHAKE = auto()
    REFUSING = auto()
    """The head of a refusal was given."""
    OPEN = auto()
    CLOSING = auto()
    """Our close was sent."""
    OVER = auto()


Headers = list[tuple[bytes, bytes]]
Respond = Callable[[int, Headers, bytes | None], Awaitable[None]]
"""Sends the answer to the request of the upgrade: status, headers and body. 101 has none."""


@attrs.define(eq=False)
class UpgradedConnection:
    stream: trio.abc.HalfCloseableStream
    key: bytes
    """The client's Sec-WebSocket-Key."""
    respond: Respond
    reader: FrameReader
    ping_seconds: float
    """Time between pings, and the time a silent peer then has."""
    stall_seconds: float
    """How long a peer may take nothing while something is being sent."""
    _socket: trio.socket.SocketType | None = attrs.field(init=False)
    _state: _State = attrs.field(default=_State.HANDSHAKE, init=False)
    _refusal: tuple[int, Headers] = attrs.field(factory=lambda: (500, Headers()), init=False)
    _is_announced: bool = attrs.field(default=False, init=False)
    _has_left: bool = attrs.field(default=False, init=False)
    _heard: bool = attrs.field(default=True, init=False)
    """Whether anything came since the last ping."""
    _events: int = attrs.field(default=0, init=False)
    _sending_since: float | None = attrs.field(default=None, init=False)
    _sent: trio.Event | None = attrs.field(default=None, init=False)
    """Set when the one who sends is done, when anybody waits for it."""

    def __attrs_post_init__(self) -> None:
        self._socket = self.stream.socket if isinstance(self.stream, trio.SocketStream) else None

    async def end(self) -> None:
        """The application is done; it may have forgotten to say so, or have failed."""
        if self._state in (_State.HANDSHAKE, _State.REFUSING):
            self._state = _State.OVER
            await self.respond(500, [], b"")
        elif self._state is _State.OPEN:
            await self.send({"type": "websocket.close", "code": INTERNAL_ERROR, "reason": "internal error"})

    # ASGI

    async def receive(self) -> Event:
        if not self._is_announced:
            self._is_announced = True
            await trio.lowlevel.checkpoint()
            return {"type": "websocket.connect"}
        while not self._has_left:
            event = self.reader.next()
            if event is None:
                data = await self._read()
                if not data:
                    break
                self._heard = True
                self.reader.feed(data)
                continue
            self._events += 1
            if self._events % EVENTS_A_TURN == 0:
                await trio.lowlevel.checkpoint()
            match event:
                case bytes():
                    return {"type": "websocket.receive", "bytes": event, "text": None}
                case str():
                    return {"type": "websocket.receive", "bytes": None, "text": event}
                case Ping(payload):
                    await self._write(encode_frame(PONG, payload))
                case Pong():
                    pass
                case Fault(code, reason):
                    return {"type": FAULT, "code": code, "reason": reason}
                case Close(code):
                    if self._state is _State.OPEN:
                        self._state = _State.CLOSING
                        await self._write(encode_close(code))
                    self._has_left = True
                    return {"type": "websocket.disconnect", "code": code}
        self._has_left = True
        await trio.lowlevel.checkpoint()
        return {"type": "websocket.disconnect", "code": ABNORMAL if self._state is _State.OPEN else NO_STATUS}

    async def send(self, event: Event) -> None:
        kind = event["type"]
        if kind == "websocket.send" and self._state is _State.OPEN:
            data: bytes | None = event.get("bytes")
            await self._write(encode_message(event["text"] if data is None else data))
        elif kind == "websocket.accept" and self._state is _State.HANDSHAKE:
            await self._accept(event)
        elif kind == "websocket.http.response.start" and self._state is _State.HANDSHAKE:
            self._state = _State.REFUSING
            self._refusal = (event["status"], list(event.get("headers", ())))
        elif kind == "websocket.http.response.body" and self._state is _State.REFUSING:
            self._state = _State.OVER
            await self.respond(*self._refusal, event.get("body", b""))
        elif kind == "websocket.close" and self._state is _State.HANDSHAKE:
            self._state = _State.OVER
            await self.respond(403, [], b"")
        elif kind == "websocket.close" and self._state is _State.OPEN:
            self._state = _State.CLOSING
            await self._write(encode_close(event.get("code", 1000), event.get("reason") or ""))
        else:
            await trio.lowlevel.checkpoint()  # too late: the connection is closing

    async def _accept(self, event: Event) -> None:
        accepted = b64encode(sha1(self.key + _GUID, usedforsecurity=False).digest())
        headers: Headers = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", accepted),
        ]
        subprotocol: str | None = event.get("subprotocol")
        if subprotocol is not None:
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        self._state = _State.OPEN
        await self.respond(101, [*headers, *event.get("headers", ())], None)

    # the socket

    async def _read(self) -> bytes:
        """What has come; nothing when the peer has left."""
        try:
            if self._socket is not None:
                return await self._socket.recv(READ_BYTES)
            return bytes(await self.stream.receive_some(READ_BYTES))
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _write(self, frame: bytes) -> None:
        """Send a whole frame, or nothing when the peer has left. One at a time, in the order they ask."""
        while self._sending_since is not None:
            if self._sent is None:
                self._sent = trio.Event()
            await self._sent.wait()
        if self._has_left:
            await trio.lowlevel.checkpoint()
            return
        self._sending_since = trio.current_time()
        try:
            await self._write_all(frame)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            self._has_left = True  # the reader finds out by itself
        finally:
            self._sending_since = None
            if self._sent is not None:
                self._sent.set()
                self._sent = None

    async def _write_all(self, frame: bytes) -> None:
        if self._socket is None:
            try:
                for start in range(0, len(frame), PIECE_BYTES):
                    await self.stream.send_all(frame[start : start + PIECE_BYTES])
                    self._sending_since = trio.current_time()  # something was taken
            except trio.Cancelled:
                self._has_left = True  # half a frame may be on its way, and nothing can follow it
                with trio.move_on_after(1, shield=True):
                    await trio.aclose_forcefully(self.stream)
                raise
            return
        sent = await self._socket.send(frame)  # a send that is cancelled has sent nothing
        if sent < len(frame):
            await self._write_rest(self._socket, memoryview(frame)[sent:])

    async def _write_rest(self, socket: trio.socket.SocketType, rest: memoryview) -> None:
        """A frame that was begun is ended, even when its sender is cancelled; if that cannot be, the connection is."""
        with trio.move_on_after(self.stall_seconds, shield=True) as scope:
            while rest:
                rest = rest[await socket.send(rest) :]
                self._sending_since = trio.current_time()  # something was taken
                scope.deadline = self._sending_since + self.stall_seconds
        if rest:
            await self._abort("took nothing")

    async def _abort(self, why: str) -> None:
        logger.info("a client %s and is taken as gone", why)
        self._has_left = True
        await trio.aclose_forcefully(self.stream)

    async def watch(self) -> None:
        """Ask a quiet peer whether it is there, and end the connection with one that is silent or takes nothing."""
        next_ping = trio.current_time() + self.ping_seconds
        has_asked = False
        while True:
            since = self._sending_since
            await trio.sleep_until(
                min(next_ping, (trio.current_time() if since is None else since) + self.stall_seconds)
            )
            now, since = trio.current_time(), self._sending_since
            if since is not None and now - since >= self.stall_seconds:
                await self._abort("took nothing")
                return
            if now < next_ping:
                continue
            if has_asked and not self._heard:
                await self._abort("was silent after a ping")
                return
            next_ping = now + self.ping_seconds
            has_asked = self._state is _State.OPEN and since is None
            if has_asked:
                self._heard = False
                with trio.move_on_after(self.stall_seconds) as asking:
                    await self._write(encode_frame(PING, b""))
                if asking.cancelled_caught:
                    await self._abort("took no ping")
                    return
