"""One TCP connection: hypercorn's HTTP/1.1 protocol, and WebSockets of our own beside it.

What is ours, and why (hypercorn 0.18, whose inner classes these are; the version is pinned below 0.19):

- hypercorn shields its writes, so a client that stops reading would hold its connection for ever: `BoundedStream`.
- Its WebSockets cost 75 µs a message at each end, let a message that is too large go on growing, tell the application nothing
  of it, drop a client whose text is not UTF-8 without a word, never look for the answer to a ping, and forget a client that
  sends before the upgrade was answered: `engine.transport.upgrade` takes their place.
- HTTP/2 without TLS would carry WebSockets past all of this; no browser speaks it.
- A connection that is closed while idle is held until the keep-alive time is over.
- When an application has answered, the connection is closed, or made to wait for the next request, in the application's task.
  quart-trio cancels that just then, and the connection would stay as it is for ever.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast
from urllib.parse import unquote

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ConnectionState

from engine.protocol.frames import FrameReader
from engine.transport.asgi import AsgiApp, Problem, Scope
from engine.transport.upgrade import Headers, UpgradedConnection, check_handshake

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 << 10
"""What a client has to take within the stall time: large enough that almost every frame is one piece."""

CLOSE_SECONDS = 2.0
"""Bound of closing a stream, which waits for nobody."""

Address = tuple[str, int]


class ServerConfig(Config):
    """Hypercorn's settings, and those it does not have."""

    ping_seconds: float = 20.0
    """Time between pings, and the time a silent peer then has."""
    stall_seconds: float = 12.0
    """How long a client may take nothing while something is being sent."""


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
        app: AsgiApp,
        config: ServerConfig,
        context: WorkerContext,
        state: dict[str, Any],
        stream: trio.abc.HalfCloseableStream,
        client: Address | None,
        server: Address | None,
    ) -> None:
        bounded = cast("trio.SSLStream[trio.SocketStream]", BoundedStream(stream, config.stall_seconds))
        super().__init__(ASGIWrapper(cast("ASGIFramework", app)), config, context, state, bounded)
        self._asgi_app = app
        self._server_config = config
        self._raw_stream = stream
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
                self.protocol.protocol = _Http1(self._upgrade, *arguments)
                idle_task: Any = self.idle_task
                await idle_task.restart(task_group, self._idle_timeout)
                await self._read_data()
                await idle_task.stop()
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._close()

    async def protocol_send(self, event: Event) -> None:
        """Closing, and waiting for the next request, are brought to their end in whichever task they begin."""
        if isinstance(event, RawData):
            await super().protocol_send(event)
            return
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await super().protocol_send(event)

    async def _upgrade(self, request: h11.Request, connection: h11.Connection) -> None:
        """Speak WebSocket until that is over. The task that reads HTTP waits here, so the socket is the WebSocket's alone."""
        headers = list(request.headers)
        fields = dict(headers)
        respond = partial(self._respond, connection)
        refusal = check_handshake(fields)
        if refusal is not None:
            problem = Problem(*refusal, headers={"Sec-WebSocket-Version": "13"})
            await respond(problem.status, problem.raw_headers(), problem.document())
            return
        upgraded = UpgradedConnection(
            self._raw_stream,
            fields[b"sec-websocket-key"],
            respond,
            FrameReader(self._server_config.websocket_max_message_size),
            self._server_config.ping_seconds,
            self._server_config.stall_seconds,
        )
        upgraded.reader.feed(bytes(connection.trailing_data[0]))  # sent before the answer to the upgrade
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upgraded.watch, name="client watch")
            try:
                await self._asgi_app(self._scope(request, headers), upgraded.receive, upgraded.send)
            except Exception:  # the fence: what an application raises goes no further than its connection
                logger.exception("an application failed")
            await upgraded.end()
            nursery.cancel_scope.cancel(reason="the connection is over")

    def _scope(self, request: h11.Request, headers: Headers) -> Scope:
        path, _, query = request.target.partition(b"?")
        offered = b",".join(value for name, value in headers if name == b"sec-websocket-protocol").decode("latin-1")
        return {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "scheme": "ws",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self._client,
            "server": self._server,
            "state": dict(self.state),
            "subprotocols": [each.strip() for each in offered.split(",") if each.strip()],
            "extensions": {"websocket.http.response": {}},
        }

    async def _respond(self, connection: h11.Connection, status: int, headers: Headers, body: bytes | None) -> None:
        headers = [*headers, *self.config.response_headers("h11")]
        if body is None:
            data = connection.send(h11.InformationalResponse(status_code=status, headers=headers))
        else:
            names = {name.lower() for name, _ in headers}
            if b"content-length" not in names:
                headers.append((b"content-length", str(len(body)).encode()))
            data = connection.send(h11.Response(status_code=status, headers=[*headers, (b"connection", b"close")]))
            data = (data or b"") + (connection.send(h11.Data(data=body)) or b"")
        await self.protocol_send(RawData(data or b""))


class _Http1(H11Protocol):
    def __init__(self, upgrade: Callable[[h11.Request, h11.Connection], Awaitable[None]], *args: Any) -> None:
        super().__init__(*args)
        self._upgrade = upgrade

    async def _check_protocol(self, event: h11.Request) -> None:
        """No upgrade to HTTP/2, asked for or assumed."""

    async def _create_stream(self, request: h11.Request) -> None:
        if _asks_for_websocket(request):
            await self._upgrade(request, cast("h11.Connection", self.connection))
            await self.send(Closed())
        else:
            await super()._create_stream(request)


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
