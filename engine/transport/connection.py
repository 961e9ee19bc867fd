"""One TCP connection: hypercorn's HTTP/1.1 and WebSocket protocol, with our rules where its own leave a door open.

What is ours, and why (hypercorn 0.18, whose inner classes these are; the version is pinned below 0.19):

- hypercorn shields its writes, so a client that stops reading would hold its connection for ever: `BoundedStream`.
- It lets a message that is too large go on growing, tells the application nothing of it, and drops a client whose text is not
  UTF-8 without a word: here either becomes an event of its own, so that the application can say what was wrong and close.
- Its pings ask and nobody listens for the answer, and they outlive their connection by up to one interval.
- It offers compression, which audio does not want and which lets 64 KiB swell to 64 MiB before any limit is looked at.
- HTTP/2 without TLS would carry WebSockets past all of this; no browser speaks it.
- A client that sends frames before the upgrade was answered is forgotten with its application still running.
- A connection that is closed while idle is held until the keep-alive time is over.
"""

import logging
from collections.abc import Awaitable, Callable
from io import BytesIO, StringIO
from typing import Any, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.events import Data, Request, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ASGISendEvent, ConnectionState, WebsocketAcceptEvent
from wsproto.connection import ConnectionState as WebSocketState
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from engine.transport.asgi import FAULT

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 << 10
"""What a client has to take within the stall time: large enough that almost every frame is one piece."""

CLOSE_SECONDS = 2.0
"""Bound of closing a stream, which waits for nobody."""

Address = tuple[str, int]


class ServerConfig(Config):
    """Hypercorn's settings, and the one it does not have."""

    ping_seconds: float = 20.0
    """Time between pings, and the time a silent peer then has."""


class BoundedStream:
    """A client's byte stream that gives up when nothing is taken: what is written takes at most `stall_seconds` a piece.

    After that the stream is closed, as half a frame may be on its way and nothing sensible can follow it.
    """

    def __init__(self, stream: trio.abc.HalfCloseableStream, stall_seconds: float) -> None:
        self._stream = stream
        self._stall_seconds = stall_seconds

    async def send_all(self, data: bytes) -> None:
        """Raises trio.BrokenResourceError when the peer takes nothing, as when it has gone."""
        if len(data) <= PIECE_BYTES:
            await self._send(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            await self._send(view[start : start + PIECE_BYTES])

    async def _send(self, data: bytes | memoryview) -> None:
        with trio.move_on_after(self._stall_seconds) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError(f"the client took nothing for {self._stall_seconds:g} s")

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class ServerConnection(TCPServer):
    """Serves one accepted connection until it is closed."""

    stream: Any  # hypercorn knows only a socket's; this one is anything with the four methods of a BoundedStream

    def __init__(
        self,
        app: AppWrapper,
        config: ServerConfig,
        context: WorkerContext,
        state: dict[str, Any],
        stream: BoundedStream,
        client: Address | None,
        server: Address | None,
    ) -> None:
        super().__init__(app, config, context, state, cast("trio.SSLStream[trio.SocketStream]", stream))
        self._client = client
        self._server = server

    async def run(self) -> None:
        try:
            async with TaskGroup() as task_group:
                self._task_group = task_group
                arguments = (
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState(self.state),
                    False,
                    self._client,
                    self._server,
                    self.protocol_send,
                )
                self.protocol = ProtocolWrapper(*arguments)
                self.protocol.protocol = _Http1(*arguments)
                idle_task: Any = self.idle_task
                await idle_task.restart(task_group, self._idle_timeout)
                await self._read_data()
                await idle_task.stop()
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._close()


class _Http1(H11Protocol):
    async def _check_protocol(self, event: h11.Request) -> None:
        """No upgrade to HTTP/2, asked for or assumed."""

    async def _create_stream(self, request: h11.Request) -> None:
        if not _asks_for_websocket(request):
            await super()._create_stream(request)
            return
        stream = _WebSocketStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        self.stream = stream
        self.connection = H11WSConnection(cast("h11.Connection", self.connection))
        await stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method="GET",
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()


def _asks_for_websocket(request: h11.Request) -> bool:
    """As hypercorn judges it, so that none of the requests left to it becomes a WebSocket."""
    upgrade = connection = ""
    for name, value in request.headers:
        if name == b"upgrade":
            upgrade = value.decode("latin-1").strip().lower()
        elif name == b"connection":
            connection = value.decode("latin-1").lower()
    tokens = [token.strip() for token in connection.split(",")]
    return request.method == b"GET" and upgrade == "websocket" and "upgrade" in tokens


class _WebSocketStream(WSStream):
    """One WebSocket. Its faults reach the application as events, its silence ends it."""

    app_put: Callable[[Any], Awaitable[None]] | None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._answered = trio.Event()
        """The application has accepted or refused the upgrade."""
        self._pinging = trio.CancelScope()
        self._heard = True
        """Whether anything came since the last ping."""
        self._is_faulty = False
        """What comes now is read and thrown away, so that the client can read why."""
        self._is_broken = False
        """Frames cannot be told apart any more."""

    async def handle(self, event: StreamEvent) -> None:
        if isinstance(event, Data):
            self._heard = True
            if not self._answered.is_set():
                await self._answered.wait()
            if self._is_broken or not self.handshake.accepted:
                return
        elif isinstance(event, StreamClosed):
            self._pinging.cancel(reason="the connection was closed")
        await super().handle(event)

    async def app_send(self, message: ASGISendEvent | None) -> None:
        await super().app_send(message)
        self._answered.set()

    async def _accept(self, message: WebsocketAcceptEvent) -> None:
        self.handshake.extensions = None
        await super()._accept(message)
        task_group: Any = self.task_group
        task_group.spawn(self._ping)

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, BytesMessage | TextMessage):
                if not self._is_faulty:
                    await self._take(event)
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                if self.connection.state is WebSocketState.REMOTE_CLOSING:
                    await self._send_wsproto_event(event.response())
                elif self.connection.state is not WebSocketState.CLOSED:
                    self._is_broken = True  # no close frame of the client's: wsproto could not read on
                    await self._report(int(event.code), event.reason or "the frames cannot be read")
                    return
                await self.send(StreamClosed(stream_id=self.stream_id))

    async def _take(self, event: BytesMessage | TextMessage) -> None:
        data = event.data if isinstance(event, TextMessage) else bytes(event.data)
        buffer = self.buffer
        buffer.length += len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode())
        if buffer.length > buffer.max_length:
            buffer.clear()
            await self._report(CloseReason.MESSAGE_TOO_BIG, f"a message has at most {buffer.max_length} bytes")
        elif event.message_finished and buffer.value is None:
            buffer.clear()
            await self._put(data)
        else:
            if buffer.value is None:
                buffer.value = StringIO() if isinstance(data, str) else BytesIO()
            buffer.value.write(cast("Any", data))  # all parts of one message are of one kind
            if event.message_finished:
                whole = buffer.value.getvalue()
                buffer.clear()
                await self._put(whole)

    async def _put(self, data: str | bytes) -> None:
        is_text = isinstance(data, str)
        await self._tell(
            {"type": "websocket.receive", "text": data if is_text else None, "bytes": None if is_text else data}
        )

    async def _report(self, code: int, reason: str) -> None:
        self._is_faulty = True
        await self._tell({"type": FAULT, "code": code, "reason": reason})

    async def _tell(self, event: Any) -> None:
        if self.app_put is not None:
            await self.app_put(event)

    async def _ping(self) -> None:
        seconds = cast("ServerConfig", self.config).ping_seconds
        with self._pinging:
            await trio.sleep(seconds)
            while True:
                self._heard = False
                await self._send_wsproto_event(Ping())
                await trio.sleep(seconds)
                if not self._heard:
                    break
        if not self._pinging.cancelled_caught:
            logger.info("a client was silent for %g s after a ping: taken as gone", seconds)
            await self.send(StreamClosed(stream_id=self.stream_id))
