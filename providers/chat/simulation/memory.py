"""The simulator without sockets: a transport for the SDK's HTTP client whose connections are in memory, for a mock clock to drive.

The pool, its connections and their HTTP are the real ones; only the network below them is not.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2
import trio
import trio.testing

from providers.chat.simulation.server import ChatSimulator

MEMORY_URL = "http://simulator.invalid/v1"
"""What the SDK takes as `base_url`; any address leads to the simulator."""
NO_TIMEOUT_SECONDS = 3600.0
"""The longest wait of a client that sets no bound."""


@contextmanager
def _mapped(late: type[Exception], broken: type[Exception]) -> Generator[None]:
    try:
        yield
    except trio.TooSlowError as exc:
        raise late from exc
    except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
        raise broken from exc


class MemoryStream(httpcore2.AsyncNetworkStream):
    """The client's end of a connection."""

    def __init__(self, stream: trio.abc.Stream, ended: trio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the pool's
        with _mapped(httpcore2.ReadTimeout, httpcore2.ReadError), trio.fail_after(_seconds(timeout)):
            return bytes(await self._stream.receive_some(max_bytes))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the pool's
        with _mapped(httpcore2.WriteTimeout, httpcore2.WriteError), trio.fail_after(_seconds(timeout)):
            await self._stream.send_all(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        """The pool asks whether an idle connection has been closed by the other side."""
        return self._ended.is_set() if info == "is_readable" else None


def _seconds(timeout: float | None) -> float:
    """A deadline has to be somewhere: an hour where there is none."""
    return NO_TIMEOUT_SECONDS if timeout is None else timeout


class MemoryNetwork(httpcore2.AsyncNetworkBackend):
    """All addresses are the simulator's."""

    def __init__(self, simulator: ChatSimulator, nursery: trio.Nursery) -> None:
        self._simulator = simulator
        self._nursery = nursery

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the pool's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        await trio.lowlevel.checkpoint()
        client, server = trio.testing.memory_stream_pair()
        ended = trio.Event()
        self._nursery.start_soon(self._serve, server, ended, name="simulated connection")
        return MemoryStream(client, ended)

    async def _serve(self, stream: trio.abc.Stream, ended: trio.Event) -> None:
        try:
            await self._simulator.serve_stream(stream)
        finally:
            ended.set()


class MemoryTransport(httpx2.AsyncBaseTransport):
    """For `http_client=DefaultAsyncHttpxClient(transport=...)`. The nursery serves the connections."""

    def __init__(self, simulator: ChatSimulator, nursery: trio.Nursery) -> None:
        self._pool = httpcore2.AsyncConnectionPool(network_backend=MemoryNetwork(simulator, nursery))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        with _in_the_clients_words():
            response = await self._pool.handle_async_request(
                httpcore2.Request(
                    request.method,
                    target,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        assert isinstance(response.stream, AsyncIterable)
        return httpx2.Response(
            response.status, headers=response.headers, stream=_Content(response.stream, response.aclose)
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Content(httpx2.AsyncByteStream):
    """The body of a response. Its own iterator, as the pool's would live on when a reader leaves."""

    def __init__(self, content: AsyncIterable[bytes], close: Callable[[], Awaitable[None]]) -> None:
        self._parts = aiter(content)
        self._close = close

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _in_the_clients_words():
            return await anext(self._parts)

    async def aclose(self) -> None:
        await self._close()


@contextmanager
def _in_the_clients_words() -> Generator[None]:
    """The two packages name the same exceptions each for itself."""
    try:
        yield
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as exc:
        raise getattr(httpx2, type(exc).__name__)(str(exc)) from exc
