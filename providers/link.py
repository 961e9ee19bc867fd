"""A provider's WebSocket as a service: one reader, one writer, a heartbeat, one owner.

    async with open_link(url, headers) as link:
        link.send(frame)                  # queues; never waits, never half a frame
        message = await link.receive()    # raises LinkClosed

The writer is a task of its own: whoever sends may be cancelled at any time without leaving half a frame on the wire. What the
far side does not take for too long, or a ping it does not answer, ends the link as a closed one.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import attrs
import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    connect_websocket_url,
)

logger = logging.getLogger(__name__)

MESSAGE_QUEUE = 64
"""Messages read and not yet taken; the reader of the session takes them at once."""
MAX_MESSAGE_BYTES = 16 << 20
"""A whole answer's audio may come back in one message."""
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.0
PING_SECONDS = 20.0
"""Between pings, and what the far side has to answer."""
QUEUED_FRAMES = 4096
QUEUED_BYTES = 16 << 20
"""What waits to be sent; a provider that far behind is taken for dead."""


class LinkClosedError(Exception):
    """The connection is over. `code` is the WebSocket close code, None when there was no close."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"closed with {code}" if code is not None else "the connection was lost")
        self.code = code
        self.reason = reason


class LinkRefusedError(Exception):
    """The provider did not open the connection. `status` is the HTTP status, None when nobody answered."""

    def __init__(self, status: int | None, retry_after: float | None = None) -> None:
        super().__init__(f"refused with status {status}" if status is not None else "nobody answered")
        self.status = status
        self.retry_after = retry_after


class Link(Protocol):
    """What a session needs of a connection, whatever stack it comes from."""

    def send(self, frame: str) -> None:
        """Queue a frame. Raises LinkClosedError when the link is over, or too much waits."""
        ...

    async def receive(self) -> str | bytes:
        """The next message. Raises LinkClosedError."""
        ...


@attrs.define(eq=False)
class WebSocketLink:
    """See the module; made by `open_link`."""

    _connection: WebSocketConnection
    _queue: deque[str] = attrs.field(factory=deque[str], init=False)
    _queued_bytes: int = attrs.field(default=0, init=False)
    _more: trio.Event = attrs.field(factory=trio.Event, init=False)
    _sent: trio.Event = attrs.field(factory=trio.Event, init=False)
    _over: LinkClosedError | None = attrs.field(default=None, init=False)

    def send(self, frame: str) -> None:
        if self._over is not None:
            raise self._over
        if len(self._queue) >= QUEUED_FRAMES or self._queued_bytes + len(frame) > QUEUED_BYTES:
            raise LinkClosedError(None, "the provider takes nothing")
        self._queue.append(frame)
        self._queued_bytes += len(frame)
        self._more.set()

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.get_message()
        except ConnectionClosed as exc:
            raise self._close(exc) from exc

    async def write(self) -> None:
        """The writer's task: until the link is over."""
        while self._over is None:
            while self._queue:
                frame = self._queue.popleft()
                self._queued_bytes -= len(frame)
                try:
                    await self._connection.send_message(frame)
                except ConnectionClosed as exc:
                    self._close(exc)
                    return
            self._sent.set()
            self._more = trio.Event()
            await self._more.wait()

    async def keep_alive(self) -> None:
        """Ask a quiet provider whether it is there, and end the link with one that does not answer."""
        while self._over is None:
            await trio.sleep(PING_SECONDS)
            with trio.move_on_after(PING_SECONDS) as limit:
                try:
                    await self._connection.ping()
                except ConnectionClosed as exc:
                    self._close(exc)
                    return
            if limit.cancelled_caught:
                logger.warning("the provider did not answer a ping in %g s; the connection is given up", PING_SECONDS)
                self._over = LinkClosedError(None, "no answer to a ping")
                await trio.aclose_forcefully(self._connection._stream)  # it has no public way
                return

    async def flush(self) -> None:
        """Until everything queued is sent; the caller bounds it."""
        while self._queue and self._over is None:
            self._sent = trio.Event()
            await self._sent.wait()

    def _close(self, exc: ConnectionClosed) -> LinkClosedError:
        reason = exc.reason
        self._over = self._over or LinkClosedError(
            None if reason is None else reason.code, "" if reason is None else (reason.reason or "")
        )
        self._more.set()
        self._sent.set()
        return self._over


Connect = Callable[[trio.Nursery, str, Mapping[str, str]], Awaitable[WebSocketConnection]]
"""Opens a WebSocket whose reader runs in the nursery; tests connect over streams in memory."""


async def connect_socket(nursery: trio.Nursery, url: str, headers: Mapping[str, str]) -> WebSocketConnection:
    """Raises what trio-websocket raises."""
    return await connect_websocket_url(
        nursery,
        url,
        extra_headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        message_queue_size=MESSAGE_QUEUE,
        max_message_size=MAX_MESSAGE_BYTES,
        receive_buffer_size=None,
    )


@asynccontextmanager
async def open_link(
    url: str, headers: Mapping[str, str], *, connect: Connect = connect_socket, connect_seconds: float = CONNECT_SECONDS
) -> AsyncGenerator[WebSocketLink]:
    """Connect; the link is flushed and closed on the way out, in bounded time.

    Raises:
        LinkRefusedError: there is no connection. In a group, as everything that leaves the context.
    """
    async with trio.open_nursery() as nursery:
        connection = await _connected(nursery, url, headers, connect, connect_seconds)
        link = WebSocketLink(connection)
        nursery.start_soon(link.write, name="provider writer")
        nursery.start_soon(link.keep_alive, name="provider heartbeat")
        try:
            yield link
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await link.flush()
                await connection.aclose()
            nursery.cancel_scope.cancel(reason="the link is closed")


async def _connected(
    nursery: trio.Nursery, url: str, headers: Mapping[str, str], connect: Connect, seconds: float
) -> WebSocketConnection:
    try:
        with trio.move_on_after(seconds):
            return await connect(nursery, url, headers)
    except ConnectionRejected as exc:
        named = {name.decode("latin-1").lower(): value for name, value in exc.headers or ()}
        retry = named.get("retry-after", b"").decode("latin-1")
        raise LinkRefusedError(exc.status_code, float(retry) if retry.isdigit() else None) from exc
    except (HandshakeError, OSError) as exc:
        raise LinkRefusedError(None) from exc
    raise LinkRefusedError(None)
