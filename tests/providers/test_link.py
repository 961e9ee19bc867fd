"""A provider's WebSocket as a service, over streams in memory and over a real socket."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, wrap_server_stream

from engine.protocol.frames import encode_close, encode_message
from providers.link import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    MESSAGE_QUEUE,
    PONG_SECONDS,
    QUEUED_FRAMES,
    QUIET_SECONDS,
    Link,
    LinkClosedError,
    LinkRefusedError,
    OpenStream,
    open_link,
)
from tests.engine.hook_server import make_certificate

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


class TappedStream(SlowStream):
    """Keeps what was sent, byte for byte; more can be put among what the peer sends."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.sent = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data
        await super().send_all(data)


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


async def test_a_refusal_that_does_not_come_to_its_end(autojump_clock: trio.testing.MockClock) -> None:
    async def open_stream(url: str) -> trio.abc.Stream:
        client, server = trio.testing.memory_stream_pair()
        await server.send_all(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\nas")
        return client

    refusal = await refusal_of(open_stream)
    assert (refusal.status, refusal.retry_after) == (503, 7.0)
    assert trio.current_time() == CONNECT_SECONDS


@pytest.mark.parametrize("answer", [b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"220 mail.test ready\r\n\r\n"])
async def test_who_answers_speaks_something_else(answer: bytes, autojump_clock: trio.testing.MockClock) -> None:
    async def open_stream(url: str) -> trio.abc.Stream:
        client, server = trio.testing.memory_stream_pair()
        await server.send_all(answer)
        return client

    assert (await refusal_of(open_stream)).status is None
    assert trio.current_time() == 0


async def test_a_key_that_no_header_can_carry(autojump_clock: trio.testing.MockClock) -> None:
    async with no_task_left() as nursery:
        with pytest.RaisesGroup(LinkRefusedError):
            async with open_link(URL, {"X-Key": "k\n"}, open_stream=to_server(nursery, accepting(read_all))):
                pass


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


async def test_what_came_before_the_end_is_given(autojump_clock: trio.testing.MockClock) -> None:
    async def serve(connection: WebSocketConnection) -> None:
        for number in range(100):
            await connection.send_message(f"frame {number}")
        await connection.aclose(1008, "enough")

    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(serve))) as link:
            await trio.sleep(1)
            link.send("I write on")
            got = [await link.receive() for _ in range(100)]
            assert got == [f"frame {number}" for number in range(100)]
            with pytest.raises(LinkClosedError) as caught:
                await link.receive()
            assert (caught.value.code, caught.value.reason) == (1008, "enough")


async def test_why_a_provider_left_is_read_though_it_takes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """It closes, and its socket is gone when something is sent to it before that was read."""

    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            await (await wrap_server_stream(readers, stream)).accept()
            readers.cancel_scope.cancel(reason="nobody reads any more")
        await stream.send_all(encode_close(1008, "policy"))
        await trio.aclose_forcefully(stream)

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(handle, server)
            return client

        async with open_link(URL, {}, open_stream=open_stream) as link:
            await trio.testing.wait_all_tasks_blocked()
            link.send("into nothing")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(LinkClosedError) as caught:
                await link.receive()
            assert (caught.value.code, caught.value.reason) == (1008, "policy")
        assert trio.current_time() == 0


@pytest.mark.parametrize("bad", [b"\x83\x00", b"\xc1\x00", b"\x81\x80abcd", b"\x81\x01\xff"])
async def test_what_is_no_frame_ends_the_link(bad: bytes, autojump_clock: trio.testing.MockClock) -> None:
    got: list[str | bytes] = []

    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, stream)).accept()
            await connection.send_message("good")
            await stream.send_all(bad + encode_message("never read"))
            await read_all(connection, got)

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(handle, server)
            return client

        async with open_link(URL, {}, open_stream=open_stream) as link:
            assert await link.receive() == "good"
            with pytest.raises(LinkClosedError) as caught:
                await link.receive()
            assert caught.value.code is None
        await trio.testing.wait_all_tasks_blocked()
        assert got == ["closed 1007" if bad == b"\x81\x01\xff" else "closed 1002"]
        assert trio.current_time() == 0


async def test_a_burst_leaves_others_their_turns(autojump_clock: trio.testing.MockClock) -> None:
    async def serve(connection: WebSocketConnection) -> None:
        for number in range(500):
            await connection.send_message(f"frame {number}")
        await read_all(connection)

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(serve))) as link:
            await trio.testing.wait_all_tasks_blocked()
            async with trio.open_nursery() as others:
                others.start_soon(other)
                for number in range(500):
                    assert await link.receive() == f"frame {number}"
                others.cancel_scope.cancel(reason="all was read")
    assert turns >= 500 // 50


async def test_a_receive_that_is_cancelled_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async def serve(connection: WebSocketConnection) -> None:
        for number in range(100):
            await trio.sleep(0.1)
            await connection.send_message(f"frame {number}")
        await read_all(connection)

    got: list[str | bytes] = []
    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(serve))) as link:
            while len(got) < 100:
                with trio.move_on_after(0.07):
                    got.append(await link.receive())
    assert got == [f"frame {number}" for number in range(100)]


async def test_two_may_receive(autojump_clock: trio.testing.MockClock) -> None:
    """Each message goes to one of them, and the end to both."""

    async def serve(connection: WebSocketConnection) -> None:
        for number in range(10):
            await trio.sleep(0.1)
            await connection.send_message(str(number))

    got: list[str | bytes] = []
    ends = 0

    async def receive(link: Link) -> None:
        nonlocal ends
        with pytest.raises(LinkClosedError):
            while True:
                got.append(await link.receive())
        ends += 1

    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(serve))) as link:
            async with trio.open_nursery() as receivers:
                receivers.start_soon(receive, link)
                receivers.start_soon(receive, link)
    assert sorted(got) == [str(number) for number in range(10)]
    assert ends == 2


async def test_a_ping_is_answered_while_nobody_receives(autojump_clock: trio.testing.MockClock) -> None:
    """As it is with a connection that waits for its turn."""
    answered_at: list[float] = []

    async def serve(connection: WebSocketConnection) -> None:
        await connection.send_message("wait")
        for at in (1.0, 62.0, 303.0):
            await trio.sleep_until(at)
            await connection.ping()
            answered_at.append(trio.current_time())
        await read_all(connection)

    async with no_task_left() as nursery:
        async with open_link(URL, {}, open_stream=to_server(nursery, accepting(serve))) as link:
            await trio.sleep(1000)
            assert await link.receive() == "wait"
    assert len(answered_at) == 3
    assert all(at - asked <= QUIET_SECONDS for at, asked in zip(answered_at, (1.0, 62.0, 303.0), strict=True))


async def test_a_half_open_connection_is_found_out_while_nobody_receives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def handle(stream: trio.abc.Stream) -> None:
        async with trio.open_nursery() as readers:
            await read_all(await (await wrap_server_stream(readers, stream)).accept())

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(handle, SlowStream(server, silent_from=60))
            return client

        async with open_link(URL, {}, open_stream=open_stream) as link:
            await trio.sleep(60 + QUIET_SECONDS + PONG_SECONDS)
            with trio.fail_after(0), pytest.raises(LinkClosedError):
                await link.receive()
        nursery.cancel_scope.cancel(reason="the server hangs")


async def test_an_owner_that_takes_nothing_is_not_read_for_without_end(autojump_clock: trio.testing.MockClock) -> None:
    """It finds all of it when it comes back, and an owner's being slow is no reason to take the provider for dead."""
    sent = 0

    async def serve(connection: WebSocketConnection) -> None:
        nonlocal sent
        async with trio.open_nursery() as reading:
            reading.start_soon(read_all, connection)
            for sent in range(5000):
                await connection.send_message(str(sent))

    async with no_task_left() as nursery:

        async def handle(stream: trio.abc.Stream) -> None:
            async with trio.open_nursery() as readers:
                await serve(await (await wrap_server_stream(readers, stream)).accept())

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.lockstep_stream_pair()
            nursery.start_soon(handle, server)
            return client

        async with open_link(URL, {}, open_stream=open_stream) as link:
            await trio.sleep(3600)
            assert sent <= 2 * MESSAGE_QUEUE
            assert [await link.receive() for _ in range(5000)] == [str(number) for number in range(5000)]


async def test_every_frame_is_masked_with_another_mask(autojump_clock: trio.testing.MockClock) -> None:
    taps: list[TappedStream] = []

    async with no_task_left() as nursery:
        connect = to_server(nursery, accepting(read_all))

        async def open_stream(url: str) -> trio.abc.Stream:
            taps.append(TappedStream(await connect(url)))
            return taps[0]

        async with open_link(URL, {}, open_stream=open_stream) as link:
            for _ in range(20):
                link.send("hello")
    frames = bytes(taps[0].sent).partition(b"\r\n\r\n")[2]
    masks = {frames[at + 2 : at + 6] for at in range(0, 20 * 11, 11)}
    assert len(masks) == 20


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
    """An answer is not allowed any more."""

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


@pytest.mark.parametrize("is_known", [True, False])
async def test_over_tls(
    is_known: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """Over memory; a provider whose certificate nobody vouches for gets nothing, the key above all."""
    server_context = make_certificate(tmp_path, "provider.test")()
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem" if is_known else None)
    got: list[str | bytes] = []

    async def handle(stream: trio.abc.Stream) -> None:
        secure = trio.SSLStream(stream, server_context, server_side=True, https_compatible=True)
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, secure)).accept()
            await connection.send_message(await connection.get_message())
            await read_all(connection, got)

    async with no_task_left() as nursery:

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            client, server = trio.testing.memory_stream_pair()
            nursery.start_soon(handle, server)
            return trio.SSLStream(client, context, server_hostname="provider.test", https_compatible=True)

        if is_known:
            async with open_link("wss://provider.test", {}, open_stream=open_stream) as link:
                link.send("echo" * 50_000)
                assert await link.receive() == "echo" * 50_000
                link.send("last")
        else:
            with pytest.RaisesGroup(LinkRefusedError):
                async with open_link("wss://provider.test", {}, open_stream=open_stream):
                    pass
        await trio.testing.wait_all_tasks_blocked()
    assert got == (["last", "closed 1000"] if is_known else [])
    assert ("certificate verify failed" in caplog.text) is not is_known


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


@pytest.mark.sockets
async def test_a_socket_that_takes_only_a_part_is_written_on() -> None:
    """What it does not take at once is written by the service, in order, whole frames all of them."""
    got: list[str | bytes] = []
    sent = [f"{number} " + "x" * (number * 997 % 100_000) for number in range(200)]

    async def serve(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, SlowStream(stream))).accept()
            await read_all(connection, got)

    async with trio.open_nursery() as nursery:
        client, server = trio.socket.socketpair()
        nursery.start_soon(serve, trio.SocketStream(server))

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            return trio.SocketStream(client)

        with trio.fail_after(30):
            async with open_link(URL, {}, open_stream=open_stream) as link:
                for number, frame in enumerate(sent):
                    link.send(frame)
                    if number % 20 == 0:
                        await trio.sleep(0.001)
            while len(got) <= len(sent):
                await trio.testing.wait_all_tasks_blocked(0.001)
        nursery.cancel_scope.cancel(reason="all was read")
    assert got == [*sent, "closed 1000"]


@pytest.mark.sockets
async def test_a_socket_that_is_gone() -> None:
    """What is sent into it is lost, and the end is told to whoever receives."""

    async def serve(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as readers:
            connection = await (await wrap_server_stream(readers, stream)).accept()
            await connection.send_message("last words")
            readers.cancel_scope.cancel(reason="the server dies")
        await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        client, server = trio.socket.socketpair()
        nursery.start_soon(serve, trio.SocketStream(server))

        async def open_stream(url: str) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            return trio.SocketStream(client)

        with trio.fail_after(10):
            async with open_link(URL, {}, open_stream=open_stream) as link:
                await trio.testing.wait_all_tasks_blocked(0.01)
                for _ in range(3):
                    link.send("into nothing")
                assert await link.receive() == "last words"
                with pytest.raises(LinkClosedError) as caught:
                    await link.receive()
                assert caught.value.code is None
