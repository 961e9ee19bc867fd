"""A provider's WebSocket as a service: one writer, a heartbeat, one owner.

    async with open_link(url, headers) as link:
        link.send(frame)                  # never waits, never half a frame
        message = await link.receive()    # raises LinkClosedError

A frame goes to the socket in the task that sends it, when the socket takes it at once; what it does not take is written by the
service. That is shielded from whoever is cancelled: what has begun to be sent is sent as a whole, and the close follows it. The
owner reads in its own task, too. While it does not, the service does, when nothing was heard for a while. What the far side does not
take, or a ping that it does not answer, ends the link as a closed one.
"""

import logging
import os
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Protocol
from urllib.parse import urlsplit

import attrs
import trio

from engine.protocol.frames import (
    NORMAL,
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
from engine.protocol.opening import Opening, OpeningRefusedError

logger = logging.getLogger(__name__)

MESSAGE_QUEUE = 64
"""With so many messages that the owner has not taken, nothing more is read for it."""
MESSAGES_A_TURN = 16
"""Messages that are given out before other tasks get their turn, when many came in one piece."""
READ_BYTES = 32 << 10
"""What is asked of the socket at once."""
MAX_MESSAGE_BYTES = 16 << 20
"""A whole answer's audio may come back in one message."""
CONNECT_SECONDS = 5.0
"""Names, TCP, TLS and the WebSocket's handshake together; a connection across the world takes one."""
CLOSE_SECONDS = 2.0
"""What is queued and the closing handshake may take so long; then the connection is dropped."""
QUIET_SECONDS = 5.0
"""Without a message for so long, the far side is asked whether it is there …"""
PONG_SECONDS = 10.0
"""… and has so long to answer: less than the silence of 20 s that ends a response, so that a dead connection is known before."""
LONGEST_RETRY = 24 * 3600.0
"""Seconds; a longer `Retry-After` is a mistake."""
QUEUED_FRAMES = 4096
QUEUED_BYTES = 16 << 20
"""What waits to be sent; a provider that far behind is taken for dead."""


class LinkClosedError(Exception):
    """The connection is over. `code` is the WebSocket close code; None when it was lost without a close."""

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        super().__init__(f"closed with {code}" if code is not None else "the connection was lost")
        self.code = code
        self.reason = reason


class LinkRefusedError(Exception):
    """There is no connection. `status` is the HTTP status, None when nobody answered; `retry_after` is in seconds."""

    def __init__(self, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(f"refused with status {status}" if status is not None else "nobody answered")
        self.status = status
        self.retry_after = retry_after


class Link(Protocol):
    """What a session needs of a connection, whatever stack it comes from."""

    def send(self, frame: str) -> None:
        """Queue a frame. One that is sent after the end is lost: whoever receives is told of the end."""
        ...

    async def receive(self) -> str | bytes:
        """The next message. Raises LinkClosedError."""
        ...


OpenStream = Callable[[str], Awaitable[trio.abc.Stream]]
"""Connects to where a `ws:` or `wss:` URL points, TLS included. Raises OSError."""


@cache
def _tls() -> ssl.SSLContext:
    """One for all: to read the certificates of the world takes tens of milliseconds."""
    return ssl.create_default_context()


async def open_stream(url: str) -> trio.abc.Stream:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "ws":
        return await trio.open_tcp_stream(host, parts.port or 80)
    return await trio.open_ssl_over_tcp_stream(host, parts.port or 443, ssl_context=_tls(), https_compatible=True)


@attrs.define(eq=False)
class WebSocketLink:
    """See the module; made by `open_link`."""

    _stream: trio.abc.Stream | None = attrs.field(default=None, init=False)
    """When the connection is open."""
    _socket: trio.socket.SocketType | None = attrs.field(default=None, init=False)
    """Of the stream, when there is nothing between."""
    _reader: FrameReader = attrs.field(factory=lambda: FrameReader(MAX_MESSAGE_BYTES, from_client=False), init=False)
    # what came
    _messages: deque[str | bytes] = attrs.field(factory=deque[str | bytes], init=False)
    _given: int = attrs.field(default=0, init=False)
    _heard_at: float = attrs.field(default=0.0, init=False)
    _is_reading: bool = attrs.field(default=False, init=False)
    _was_read: trio.Event | None = attrs.field(default=None, init=False)
    """Set when the one who reads is done, when anybody waits for it."""
    # what goes
    _queue: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    """Frames; of the first a part may have been written."""
    _queued: int = attrs.field(default=0, init=False)
    """Bytes."""
    _is_deaf: bool = attrs.field(default=False, init=False)
    """The far side takes nothing any more, or our close was sent."""
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    """There is something to write, or nothing will be any more."""
    # its end
    _is_leaving: bool = attrs.field(default=False, init=False)
    _over: LinkClosedError | None = attrs.field(default=None, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Of the service. Shielded once the connection is there."""
    _served: trio.Event = attrs.field(factory=trio.Event, init=False)

    # --- the owner's side

    def send(self, frame: str) -> None:
        self._put(encode_message(frame, _mask()))

    async def receive(self) -> str | bytes:
        while not self._messages:
            if self._over is not None:
                raise self._over
            await self._read()
        self._given += 1
        if self._given % MESSAGES_A_TURN == 0:
            await trio.lowlevel.checkpoint()
        return self._messages.popleft()

    async def leave(self) -> None:
        """Have what is queued written and the connection closed; the caller bounds it."""
        self._is_leaving = True
        self._wake.set()
        await self._served.wait()

    def abandon(self) -> None:
        """End the service, if it has not ended by now."""
        self._scope.cancel(reason="the link is left")

    # --- the service

    async def serve(
        self,
        url: str,
        headers: Mapping[str, str],
        open_: OpenStream,
        seconds: float,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, then write and keep alive until the owner leaves.

        Raises:
            LinkRefusedError: there is no connection.
        """
        deadline = trio.current_time() + seconds
        stream = await _open(url, open_, deadline)
        try:
            with self._scope:
                behind = await _shake_hands(stream, url, headers, deadline)
                self._scope.shield = True
                self._begin(stream, behind)
                task_status.started()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_alive, name="provider heartbeat")
                    await self._write()
                    await self._close()
                    nursery.cancel_scope.cancel(reason="the link is closed")
        finally:
            self._end(LinkClosedError())
            self._served.set()
            await trio.aclose_forcefully(stream)

    def _begin(self, stream: trio.abc.Stream, behind: bytes) -> None:
        self._stream = stream
        if isinstance(stream, trio.SocketStream) and os.name == "posix":
            self._socket = stream.socket
        self._heard_at = trio.current_time()
        if behind:
            self._take(behind)

    async def _keep_alive(self) -> None:
        """Ask a quiet provider whether it is there, and give up one that does not answer."""
        while self._over is None:
            if trio.current_time() < self._heard_at + QUIET_SECONDS:
                await trio.sleep_until(self._heard_at + QUIET_SECONDS)
                continue
            if len(self._messages) >= MESSAGE_QUEUE:
                self._heard_at = trio.current_time()  # it is the owner who is slow
                continue
            self._put(encode_frame(PING, b"", _mask()))
            heard_at = self._heard_at
            with trio.move_on_after(PONG_SECONDS) as limit:
                while self._heard_at == heard_at and self._over is None:
                    await self._read()
            if limit.cancelled_caught:
                logger.warning("the provider did not answer a ping in %g s; the connection is given up", PONG_SECONDS)
                self._give_up()

    def _give_up(self) -> None:
        self._end(LinkClosedError())
        self._scope.cancel(reason="the link is dead")

    def _end(self, why: LinkClosedError) -> None:
        self._over = self._over or why
        self._wake.set()

    # --- reading

    async def _read(self) -> None:
        """Have something come, or the end. One task reads, and any other waits for it."""
        if self._is_reading:
            self._was_read = self._was_read or trio.Event()
            await self._was_read.wait()
            return
        self._is_reading = True
        try:
            data = await self._receive_some()
        finally:
            self._is_reading = False
            if self._was_read is not None:
                self._was_read.set()
                self._was_read = None
        self._take(data)

    async def _receive_some(self) -> bytes:
        """Nothing when the far side has left, or the stream was closed."""
        assert self._stream is not None, "the link is open"
        try:
            if self._socket is not None:
                return await self._socket.recv(READ_BYTES)
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    def _take(self, data: bytes) -> None:
        if not data:
            self._end(LinkClosedError())
            return
        self._heard_at = trio.current_time()
        self._reader.feed(data)
        while (event := self._reader.next()) is not None:
            match event:
                case str() | bytes():
                    self._messages.append(event)
                case Ping(payload):
                    self._put(encode_frame(PONG, payload, _mask()))
                case Pong():
                    pass
                case Close(code, reason):
                    self._put(encode_close(code, "", _mask()))
                    self._end(LinkClosedError(code, reason))
                    return
                case Fault(code, reason):
                    logger.warning("the provider sent %s; the connection is given up", reason)
                    self._put(encode_close(code, reason, _mask()))
                    self._end(LinkClosedError())
                    return

    # --- writing

    def _put(self, frame: bytes) -> None:
        """Write it now, or have it written; nothing that comes after the end is."""
        if self._is_deaf or self._over is not None:
            return
        if not self._queue and self._socket is not None:
            frame = self._write_now(self._socket, frame)
            if not frame:
                return
        if len(self._queue) >= QUEUED_FRAMES or self._queued + len(frame) > QUEUED_BYTES:
            logger.warning("the provider takes nothing; the connection is given up")
            self._give_up()
            return
        self._queue.append(frame)
        self._queued += len(frame)
        self._wake.set()

    def _write_now(self, socket: trio.socket.SocketType, frame: bytes) -> bytes:
        """Gives what the socket does not take."""
        try:
            return frame[os.write(socket.fileno(), frame) :]
        except BlockingIOError:
            return frame
        except OSError:
            self._fall_silent()
            return b""

    def _fall_silent(self) -> None:
        """The far side takes nothing any more; what it has said before is still read, maybe it says why."""
        self._is_deaf = True
        self._wake.set()

    async def _write(self) -> None:
        """Until nothing can be written any more, or the owner leaves and all is written."""
        while True:
            while self._queue and not self._is_deaf:
                await self._write_all(self._queue[0])
                self._queued -= len(self._queue.popleft())
            if self._is_deaf or self._is_leaving or self._over is not None:
                return
            self._wake = trio.Event()
            await self._wake.wait()

    async def _write_all(self, frame: bytes) -> None:
        assert self._stream is not None, "the link is open"
        try:
            await self._stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._fall_silent()

    async def _close(self) -> None:
        """Say that the link is left, when it is, and wait for the far side's end of it."""
        if self._over is None and not self._is_deaf:
            self._is_deaf = True
            await self._write_all(encode_close(NORMAL, "", _mask()))
        while self._over is None:
            await self._read()
            if self._is_leaving:
                self._messages.clear()


def _mask() -> bytes:
    return os.urandom(4)


async def _open(url: str, open_: OpenStream, deadline: float) -> trio.abc.Stream:
    with trio.move_on_at(deadline):
        try:
            return await open_(url)
        except OSError as exc:
            raise LinkRefusedError from exc
    raise LinkRefusedError


async def _shake_hands(stream: trio.abc.Stream, url: str, headers: Mapping[str, str], deadline: float) -> bytes:
    """What came behind the handshake.

    Raises:
        LinkRefusedError: the far side says no, or nothing, or leaves.
    """
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        opening = Opening(parts.netloc.rpartition("@")[2], target, headers, os.urandom(16))
        with trio.move_on_at(deadline):
            await stream.send_all(opening.request)
            while True:
                behind = opening.feed(bytes(await stream.receive_some(READ_BYTES)))
                if behind is not None:
                    return behind
        raise opening.refusal or OpeningRefusedError("no answer in time")
    except OpeningRefusedError as exc:
        if exc.status is None:
            logger.warning("there is no WebSocket at %s: %s", parts.hostname, exc)
        raise LinkRefusedError(exc.status, _seconds(exc.headers.get("retry-after", ""))) from exc
    except (ValueError, trio.BrokenResourceError) as exc:
        logger.warning("no WebSocket could be opened at %s: %s", parts.hostname, exc.__cause__ or exc)
        raise LinkRefusedError from exc


def _seconds(retry_after: str) -> float | None:
    """A date is left out: providers send seconds."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return seconds if 0 <= seconds < LONGEST_RETRY else None


@asynccontextmanager
async def open_link(
    url: str,
    headers: Mapping[str, str],
    *,
    open_stream: OpenStream = open_stream,
    connect_seconds: float = CONNECT_SECONDS,
) -> AsyncGenerator[WebSocketLink]:
    """Connect; the link is flushed and closed on the way out, in bounded time.

    Raises:
        LinkRefusedError: there is no connection. In a group, as everything that leaves the context.
    """
    async with trio.open_nursery() as nursery:
        link = WebSocketLink()
        await nursery.start(link.serve, url, headers, open_stream, connect_seconds, name="provider link")
        try:
            yield link
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await link.leave()
            link.abandon()
