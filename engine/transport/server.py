"""Serving: listeners, connections, and an end in bounded time.

Cancelling `run_server` is how it is stopped. It then accepts nobody, lets the running connections finish for the grace time,
and cancels the rest; each of those saves its session within the clean-up limit and says why it closes.
"""

import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio
from hypercorn.trio.worker_context import WorkerContext

from engine.config import Settings
from engine.errors import ConfigurationError
from engine.transport.asgi import AsgiApp
from engine.transport.connection import Address, ServerConfig, ServerConnection
from engine.transport.guard import LOOPBACK_STATE, is_loopback

logger = logging.getLogger(__name__)

LAST_WORDS_SECONDS = 2.0
"""What a client that has stalled gets beyond the limit of its session, to take the rest of a frame and the close."""

HEAD_BYTES = 16 << 10
"""The largest request line with headers; more is answered with 431."""


@attrs.frozen
class BoundAddress:
    """Where a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class YieldingListener(trio.abc.Listener[trio.SocketStream]):
    """A listening socket that several processes share: before it accepts, it leaves others the time to be faster.

    All processes are woken by a connection, and of idle ones it is always the same that is first. A process that pauses the
    longer the more it has to do leaves new connections to those with less. A listener that is passed in is used up.
    """

    def __init__(self, listener: trio.SocketListener, pause: Callable[[], float]) -> None:
        """`pause` is in seconds."""
        self._raw = socket.socket(fileno=listener.socket.detach())
        self._pause = pause
        self.socket = trio.socket.from_stdlib_socket(self._raw)

    async def accept(self) -> trio.SocketStream:
        """Raises OSError, as `trio.serve_listeners` expects it, when there is no room for another connection."""
        while True:
            await trio.lowlevel.wait_readable(self._raw)
            await trio.sleep(self._pause())
            try:
                accepted, _ = self._raw.accept()
            except BlockingIOError:
                continue  # another process was faster
            except ConnectionAbortedError:
                continue  # the client was
            return trio.SocketStream(trio.socket.from_stdlib_socket(accepted))

    async def aclose(self) -> None:
        self.socket.close()
        await trio.lowlevel.checkpoint()


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen on every address of a host; port 0 picks a free one, and then the first address only.

    Raises:
        ConfigurationError: the host is unknown or not of this computer, or the port is taken or not allowed.
    """
    if not 0 <= port <= 65535:  # else the system takes it modulo 65536
        raise ConfigurationError(f"{port} is no port; choose one from 1 to 65535, or 0 for a free one")
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except socket.gaierror as exc:
        raise ConfigurationError(f"the host {host!r} is not known; use a name or address of this computer") from exc
    except OSError as exc:
        raise ConfigurationError(_why_not(host, port, exc)) from exc
    if port == 0:
        for listener in listeners[1:]:
            await trio.aclose_forcefully(listener)
        del listeners[1:]
    return listeners


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use; choose another port, or 0 for a free one"
        case errno.EACCES:
            return f"port {port} of {host} is not allowed to this user; choose one above 1023"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this computer; use 127.0.0.1, or 0.0.0.0 for all of its addresses"
        case _:
            return f"cannot listen on port {port} of {host}: {error}"


async def run_server(
    app: AsgiApp,
    host: str,
    port: int,
    *,
    settings: Settings,
    listeners: Sequence[trio.SocketListener | YieldingListener] | None = None,
    accepting: trio.CancelScope | None = None,
    graceful_seconds: float | None = None,
    hurry: trio.Event | None = None,
    task_status: trio.TaskStatus[BoundAddress] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; reports the address once connections are accepted.

    `listeners`, when they are given, are open already and used in place of host and port; they are closed at the end.
    `accepting`, once it is cancelled, closes them earlier: the connections go on.
    `graceful_seconds` is how long running connections may go on after the cancellation; None is what a session that is
    ending needs.

    `hurry`, once it is set, ends the grace time: sessions are then cut, and saved.

    Raises:
        ConfigurationError: see `open_listeners`.
    """
    listeners = listeners or await open_listeners(host, port)
    bound_host, bound_port = listeners[0].socket.getsockname()[:2]
    loopback_only = all(is_loopback(listener.socket.getsockname()[0]) for listener in listeners)
    server = Server(app, settings, loopback_only=loopback_only)
    if hurry is not None:
        server.hurry = hurry
    if graceful_seconds is None:
        graceful_seconds = settings.session_end_timeout_seconds + settings.cleanup_seconds
    async with trio.open_nursery() as nursery:
        connections = await nursery.start(server.hold_connections, graceful_seconds, name="connections")
        try:
            task_status.started(BoundAddress(bound_host, bound_port))
            with accepting or trio.CancelScope():
                await trio.serve_listeners(server.handle_socket, list(listeners), handler_nursery=connections)
            await trio.sleep_forever()
        finally:
            server.stop()


class Server:
    """What all connections of one server share."""

    def __init__(self, app: AsgiApp, settings: Settings, *, loopback_only: bool) -> None:
        self._app = app
        self._config = _config(settings)
        self._context = WorkerContext(None)
        self._state = {LOOPBACK_STATE: loopback_only}
        self._stopping = trio.Event()
        self.hurry = trio.Event()
        """Set by who cannot wait for the grace time."""

    def stop(self) -> None:
        """Let the connections finish; from now on they have the grace time."""
        self._stopping.set()

    async def hold_connections(
        self, graceful_seconds: float, *, task_status: trio.TaskStatus[trio.Nursery] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Own the nursery of the connections, which nothing but the end of the grace time cancels."""
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as watching:
                watching.start_soon(self._cut_short, scope, name="hurry")
                async with trio.open_nursery() as connections:
                    task_status.started(connections)
                    await self._stopping.wait()
                    await self._context.terminated.set()  # hypercorn closes what is idle, and what becomes it
                    scope.deadline = trio.current_time() + graceful_seconds
                watching.cancel_scope.cancel(reason="every connection has ended")
        if scope.cancelled_caught:
            logger.warning("some connections had to be cut")

    async def _cut_short(self, connections: trio.CancelScope) -> None:
        await self.hurry.wait()
        connections.cancel(reason="the grace time was cut short")

    async def handle_socket(self, stream: trio.SocketStream) -> None:
        try:
            client, server = _address(stream.socket.getpeername()), _address(stream.socket.getsockname())
        except OSError:
            return  # gone before it was looked at
        await self.handle(stream, client, server)

    async def handle(
        self, stream: trio.abc.HalfCloseableStream, client: Address | None = None, server: Address | None = None
    ) -> None:
        """Serve one connection until it is closed. Whatever goes wrong in it stays in it."""
        try:
            await ServerConnection(self._app, self._config, self._context, self._state, stream, client, server).run()
        except Exception:
            logger.exception("a connection failed")


def _address(name: tuple[Any, ...]) -> Address:
    return name[0], name[1]


def _config(settings: Settings) -> ServerConfig:
    config = ServerConfig()
    config.accesslog = None
    config.errorlog = logging.getLogger("engine.transport.hypercorn")
    config.include_server_header = False
    config.h11_max_incomplete_size = HEAD_BYTES
    config.websocket_max_message_size = settings.max_frame_bytes
    config.ping_seconds = settings.ping_seconds
    config.stall_seconds = settings.slow_client_seconds + LAST_WORDS_SECONDS
    return config
