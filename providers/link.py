"""A provider's WebSocket as a service: one reader, one writer, a heartbeat, one owner.

    async with open_link(url, headers) as link:
        link.send(frame)                  # queues; never waits, never half a frame
        message = await link.receive()    # raises LinkClosedError

The writer is shielded from whoever is cancelled: what has begun to be sent is sent as a whole, and the close follows it. What the
far side does not take, or a ping that it does not answer, ends the link as a closed one.
"""

import logging
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import attrs
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.utilities import LocalProtocolError

logger = logging.getLogger(__name__)

MESSAGE_QUEUE = 64
"""Messages read and not yet taken; the reader of the session takes them at once."""
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
ABNORMAL = 1006
"""What a lost connection counts as; never sent."""
QUEUED_FRAMES = 4096
QUEUED_CHARACTERS = 16 << 20
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


class _WatchedStream(trio.abc.Stream):
    """A stream that tells when the other side has left: trio-websocket would wait on for the answer to its handshake."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.ended = trio.Event()
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.ended.set()
            raise
        if not data:
            self.ended.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


@attrs.define(eq=False)
class WebSocketLink:
    """See the module; made by `open_link`."""

    _connection: WebSocketConnection | None = attrs.field(default=None, init=False)
    _queue: deque[str] = attrs.field(factory=deque[str], init=False)
    _queued: int = attrs.field(default=0, init=False)
    """Characters."""
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    """There is something to write, or nothing will be any more."""
    _is_leaving: bool = attrs.field(default=False, init=False)
    _over: LinkClosedError | None = attrs.field(default=None, init=False)
    _heard_at: float = attrs.field(default=0.0, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Of the service. Shielded once the connection is there."""
    _served: trio.Event = attrs.field(factory=trio.Event, init=False)

    # --- the owner's side

    def send(self, frame: str) -> None:
        if self._over is not None:
            return
        if len(self._queue) >= QUEUED_FRAMES or self._queued + len(frame) > QUEUED_CHARACTERS:
            logger.warning("the provider takes nothing; the connection is given up")
            self._give_up()
            return
        self._queue.append(frame)
        self._queued += len(frame)
        self._wake.set()

    async def receive(self) -> str | bytes:
        assert self._connection is not None, "the link is open"
        try:
            message = await self._connection.get_message()
        except ConnectionClosed as exc:
            raise self._ended(exc) from exc
        self._heard_at = trio.current_time()
        return message

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
        refusal: LinkRefusedError | None = None
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._connection = await _shake_hands(nursery, stream, url, headers, deadline)
                    self._scope.shield = True
                    self._heard_at = trio.current_time()
                    task_status.started()
                    nursery.start_soon(self._keep_alive, self._connection, name="provider heartbeat")
                    await self._write(self._connection)
                    await self._connection.aclose()
                    nursery.cancel_scope.cancel(reason="the link is closed")
        except* ConnectionRejected as group:
            refusal = _rejection(group)
        except* LinkRefusedError:
            refusal = LinkRefusedError()
        except* LocalProtocolError:
            logger.debug("a ping came while the connection was being closed")  # and the library would have answered it
        finally:
            self._over = self._over or LinkClosedError()
            self._served.set()
            await trio.aclose_forcefully(stream)
        if refusal is not None:
            raise refusal

    async def _write(self, connection: WebSocketConnection) -> None:
        """Until the link is over, or its owner leaves and all is written."""
        while self._over is None:
            while self._queue:
                frame = self._queue.popleft()
                self._queued -= len(frame)
                try:
                    await connection.send_message(frame)
                except ConnectionClosed as exc:
                    self._ended(exc)
                    break
            else:
                if self._is_leaving:
                    return
                self._wake = trio.Event()
                await self._wake.wait()

    async def _keep_alive(self, connection: WebSocketConnection) -> None:
        """Ask a quiet provider whether it is there, and give up one that does not answer."""
        while self._over is None:
            if trio.current_time() < self._heard_at + QUIET_SECONDS:
                await trio.sleep_until(self._heard_at + QUIET_SECONDS)
                continue
            with trio.move_on_after(PONG_SECONDS) as limit:
                try:
                    await connection.ping()
                except ConnectionClosed as exc:
                    self._ended(exc)
                    return
                self._heard_at = trio.current_time()
            if limit.cancelled_caught:
                logger.warning("the provider did not answer a ping in %g s; the connection is given up", PONG_SECONDS)
                self._give_up()

    def _give_up(self) -> None:
        self._over = self._over or LinkClosedError()
        self._scope.cancel(reason="the link is dead")

    def _ended(self, exc: ConnectionClosed) -> LinkClosedError:
        if self._over is None:
            reason = exc.reason
            if reason is None or reason.code == ABNORMAL:
                self._over = LinkClosedError()
            else:
                self._over = LinkClosedError(reason.code, reason.reason or "")
        self._wake.set()
        return self._over


async def _open(url: str, open_: OpenStream, deadline: float) -> _WatchedStream:
    with trio.move_on_at(deadline):
        try:
            return _WatchedStream(await open_(url))
        except OSError as exc:
            raise LinkRefusedError from exc
    raise LinkRefusedError


async def _shake_hands(
    nursery: trio.Nursery, stream: _WatchedStream, url: str, headers: Mapping[str, str], deadline: float
) -> WebSocketConnection:
    """The connection, whose reader runs in the nursery; that raises ConnectionRejected when the far side says no.

    Raises:
        LinkRefusedError: it says nothing, or leaves.
    """
    parts = urlsplit(url)
    with trio.move_on_at(deadline) as opening:
        nursery.start_soon(_cancel_at_end, stream, opening, name="watch for the provider's leaving")
        return await wrap_client_stream(
            nursery,
            cast("Any", stream),
            parts.netloc,
            f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/",
            extra_headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            message_queue_size=MESSAGE_QUEUE,
            max_message_size=MAX_MESSAGE_BYTES,
            receive_buffer_size=None,
        )
    raise LinkRefusedError


async def _cancel_at_end(stream: _WatchedStream, opening: trio.CancelScope) -> None:
    await stream.ended.wait()
    opening.cancel(reason="the provider has left")


def _rejection(group: BaseExceptionGroup[ConnectionRejected]) -> LinkRefusedError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ConnectionRejected)
    named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in error.headers or ()}
    return LinkRefusedError(error.status_code, _seconds(named.get("retry-after", "")))


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
