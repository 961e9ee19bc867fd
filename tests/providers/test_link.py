"""A provider's WebSocket as a service, over streams in memory and over a real socket."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, wrap_server_stream

from providers.link import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    PONG_SECONDS,
    QUEUED_FRAMES,
    QUIET_SECONDS,
    LinkClosedError,
    LinkRefusedError,
    OpenStream,
    open_link,
)

Serve = Callable[[WebSocketConnection], Awaitable[None]]
URL = "ws://provider.test/v1/talk?model=m"


async def read_all(connection: WebSocketConnection, got: list[str | bytes] | None = None) -> None:
    """Read to the end; the last thing in `got` says how it closed."""
    got = [] if got is None else got
    try:
        while True:
            got.append(await connection.get_message())
    except ConnectionClosed as closed:
        got.append(f"closed {closed.reason.code}" if closed.reason else "lost")


async def stop_reading(stream: trio.abc.Stream) -> None:
    """A server that accepts, and then reads nothing any more."""
    async with trio.open_nursery() as readers:
        await (await wrap_server_stream(readers, stream)).accept()
        readers.cancel_scope.cancel(reason="nobody reads any more")
    await trio.sleep_forever()


def to_server(nursery: trio.Nursery, serve: Callable[[WebSocketRequest], Awaitable[None]]) -> OpenStream:
    """Connects to a server that is asked with each request."""

    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            await serve(await wrap_server_stream(readers, stream))
            readers.cancel_scope.cancel(reason="served")
        await trio.aclose_forcefully(stream)

    async def open_stream(url: str) -> trio.abc.Stream:
        assert url == URL
        await trio.lowlevel.checkpoint()
        client, server = trio.testing.memory_stream_pair()
        nursery.start_soon(handle, server)
        return client

    return open_stream


def accepting(serve: Serve) -> Callable[[WebSocketRequest], Awaitable[None]]:
    async def accept(request: WebSocketRequest) -> None:
        await serve(await request.accept())

    return accept


class SlowStream(trio.abc.Stream):
    """Reads a little at a time, or late; from a time on sends nothing on."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        read_seconds: float = 0.0,
        late_seconds: float = 0.0,
        silent_from: float = 1e9,
    ) -> None:
        self.stream = stream
        self.read_seconds = read_seconds
        self.late_seconds = late_seconds
        self.silent_from = silent_from

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        await trio.sleep(self.read_seconds)
        data = await self.stream.receive_some(1000)
        await trio.sleep(self.late_seconds)
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if trio.current_time() < self.silent_from:
            await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.stream.aclose()


@asynccontextmanager
async def no_task_left() -> AsyncGenerator[trio.Nursery]:
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        yield nursery
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel(reason="the test is over")
    assert trio.lowlevel.current_statistics().tasks_living == before


async def refusal_of(open_stream: OpenStream) -> LinkRefusedError:
    with pytest.RaisesGroup(LinkRefusedError) as caught:
        async with open_link(URL, {}, open_stream=open_stream):
            pass
    error = caught.value.exceptions[0]
    assert isinstance(error, LinkRefusedError)
    return error


async def test_frames_go_both_ways_in_order(autojump_clock: trio.testing.MockClock) -> None:
    got: list[str | bytes] = []
    asked: list[WebSocketRequest] = []

    async def serve(request: WebSocketRequest) -> None:
        asked.append(request)
        connection = await request.accept()
        await connection.send_message("hello")
        await read_all(connection, got)

    async with no_task_left() as nursery:
        async with open_link(URL, {"X-Key": "k"}, open_stream=to_server(nursery, serve)) as link:
            for number in range(100):
                link.send(f"frame {number}")
            assert await link.receive() == "hello"
        await trio.testing.wait_all_tasks_blocked()
    assert got == [*(f"frame {number}" for number in range(100)), "closed 1000"], "what was queued is sent, then closed"
    headers = dict(asked[0].headers)
    assert headers[b"x-key"] == b"k"
    assert b"origin" not in headers
    assert asked[0].path == "/v1/talk?model=m"
    assert trio.current_time() == 0


async def test_the_status_of_a_refusal(autojump_clock: trio.testing.MockClock) -> None:
    async def reject(request: WebSocketRequest) -> None:
        await request.reject(429, extra_headers=[(b"Retry-After", b"7")], body=b"slow down")

    async with no_task_left() as nursery:
        refusal = await refusal_of(to_server(nursery, reject))
        assert (refusal.status, refusal.retry_after) == (429, 7.0)


@pytest.mark.parametrize(("header", "seconds"), [(b"Wed, 21 Oct 2026 07:28:00 GMT", None), (b"-1", None), (b"0", 0.0)])
async def test_odd_waits(header: bytes, seconds: float | None, autojump_clock: trio.testing.MockClock) -> None:
    async def reject(request: WebSocketRequest) -> None:
        await request.reject(503, extra_headers=[(b"retry-after", header)])

    async with no_task_left() as nursery:
        assert (await refusal_of(to_server(nursery, reject))).retry_after == seconds


async def test_nobody_answers(autojump_clock: trio.testing.MockClock) -> None:
    async def say_nothing(request: WebSocketRequest) -> None:
        await trio.sleep_forever()

    async with no_task_left() as nursery:
        assert (await refusal_of(to_server(nursery, say_nothing))).status is None
        assert trio.current_time() == CONNECT_SECONDS


async def test_a_provider_that_leaves_before_it_answers(autojump_clock: trio.testing.MockClock) -> None:
    async def leave(request: WebSocketRequest) -> None:
        await trio.lowlevel.checkpoint()

    async with no_task_left() as nursery:
        assert (await refusal_of(to_server(nursery, leave))).status is None
        assert trio.current_time() == 0, "it is not waited for"


async def test_an_address_that_is_none(autojump_clock: trio.testing.MockClock) -> None:
    async def fail(url: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        raise ConnectionRefusedError

    async def hang(url: str) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    assert (await refusal_of(fail)).status is None
    assert (await refusal_of(hang)).status is None
    assert trio.current_time() == CONNECT_SECONDS


async def test_how_a_connection_ended(autojump_clock: trio.testing.MockClock) -> None:
    async def close(connection: WebSocketConnection) -> None:
        await connection.aclose(1011, "no more")

    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(close))) as link:
            for _ in range(2):
                with pytest.raises(LinkClosedError) as caught:
                    await link.receive()
                assert (caught.value.code, caught.value.reason) == (1011, "no more")
            link.send("too late")
        assert trio.current_time() == 0, "there is nothing to wait for"


async def test_a_connection_that_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    async def leave(connection: WebSocketConnection) -> None:
        await trio.sleep(3)

    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(leave))) as link:
            with pytest.raises(LinkClosedError) as caught:
                await link.receive()
            assert caught.value.code is None
        assert trio.current_time() == 3


async def test_a_provider_that_is_there_and_says_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(read_all))) as link:
            with trio.move_on_after(3600) as limit:
                await link.receive()
            assert limit.cancelled_caught
        assert trio.current_time() == 3600


async def test_a_half_open_connection_is_found_out(autojump_clock: trio.testing.MockClock) -> None:
    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            request = await wrap_server_stream(readers, stream)
            await read_all(await request.accept())

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(handle, SlowStream(server, silent_from=60))
            return client

        async with open_link(URL, {}, open_stream=open_stream) as link:
            with pytest.raises(LinkClosedError):
                await link.receive()
            assert trio.current_time() <= 60 + QUIET_SECONDS + PONG_SECONDS
        assert trio.current_time() <= 60 + QUIET_SECONDS + PONG_SECONDS
        nursery.cancel_scope.cancel(reason="the server hangs")


async def test_a_provider_that_takes_nothing_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.lockstep_stream_pair()
            nursery.start_soon(stop_reading, server)
            return client

        async with open_link(URL, {}, open_stream=open_stream) as link:
            await trio.testing.wait_all_tasks_blocked()
            for number in range(QUEUED_FRAMES + 2):
                link.send(f"frame {number}")
            with pytest.raises(LinkClosedError):
                await link.receive()
        assert trio.current_time() == 0
        nursery.cancel_scope.cancel(reason="the server hangs")


async def test_no_half_frame_when_the_owner_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    """The writer finishes its frame, and the close follows it."""
    got: list[str | bytes] = []

    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, SlowStream(stream, read_seconds=0.001))).accept()
            await read_all(connection, got)

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.lockstep_stream_pair()
            nursery.start_soon(handle, server)
            return client

        with trio.move_on_after(0.5):
            async with open_link(URL, {}, open_stream=open_stream) as link:
                link.send("x" * 1_000_000)
                link.send("last")
                await trio.sleep_forever()
        await trio.testing.wait_all_tasks_blocked()
    assert got == ["x" * 1_000_000, "last", "closed 1000"]


async def test_a_provider_that_answers_no_close_is_left_all_the_same(autojump_clock: trio.testing.MockClock) -> None:
    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(stop_reading, server)
            return client

        with trio.move_on_after(1):
            async with open_link(URL, {}, open_stream=open_stream) as link:
                link.send("bye")
                await trio.sleep_forever()
        assert trio.current_time() == 1 + CLOSE_SECONDS
        nursery.cancel_scope.cancel(reason="the server hangs")


async def test_a_ping_that_crosses_the_close(autojump_clock: trio.testing.MockClock) -> None:
    """The library would answer it, which is not allowed any more."""

    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, SlowStream(stream, late_seconds=0.5))).accept()
            await trio.sleep(1.25)
            try:
                await connection.ping()
            except ConnectionClosed:
                readers.cancel_scope.cancel(reason="it is closed")

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(handle, server)
            return client

        async with open_link(URL, {}, open_stream=open_stream):
            await trio.sleep_until(1.6)
        assert trio.current_time() <= 1.6 + CLOSE_SECONDS
        nursery.cancel_scope.cancel(reason="the server waits for an answer")


@pytest.mark.sockets
async def test_over_a_real_socket() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, stream)).accept()
            await connection.send_message(await connection.get_message())
            await read_all(connection)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        port = listeners[0].socket.getsockname()[1]
        async with open_link(f"ws://localhost:{port}", {}) as link:
            link.send("echo")
            assert await link.receive() == "echo"
        nursery.cancel_scope.cancel(reason="the test is over")
