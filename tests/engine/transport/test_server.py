"""Listening, serving and stopping in bounded time."""

import errno
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from engine.config import PipelineConfiguration, Settings
from engine.elements import OutSpeech, OutText
from engine.errors import ConfigurationError
from engine.pipeline.line import ClientLine
from engine.principal import Principal
from engine.session.services import Services
from engine.session.windowing import ConnectionEnd
from engine.transport.app import create_app
from engine.transport.asgi import AsgiApp, Event, Receive, Scope, Send
from engine.transport.connection import BoundedStream
from engine.transport.server import BoundAddress, Server, YieldingListener, open_listeners, run_server
from tests.engine.transport.stack import (
    HOST,
    UPGRADE,
    Recorder,
    all_frames,
    ask,
    close_of,
    frame,
    hear,
    new_services,
    open_client,
    open_stack,
    say,
    upgraded,
)

CLOSE = 8


# --- stopping ------------------------------------------------------------------------------------------------------------


class Firehose:
    """Speaks without end, and takes three seconds to save itself."""

    def __init__(self) -> None:
        self.saved_at: list[float] = []

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        try:
            while True:
                line.put_output(OutSpeech(bytes(4800), 24000, "t1", "r1"))
                await trio.sleep(1 / 8)
        finally:
            with trio.move_on_after(10, shield=True):
                await trio.sleep(3)
                self.saved_at.append(trio.current_time())


async def test_a_stop_cuts_running_sessions_after_the_grace_and_lets_them_save(autojump_clock: MockClock) -> None:
    firehose = Firehose()
    async with open_stack(firehose, graceful_seconds=5) as stack:
        client = await stack.connect()
        stack.server.stop()
        assert await close_of(client) == (1001, "the server is going away")
        await stack.wait_idle()
        assert trio.current_time() == 8
    assert firehose.saved_at == [8]


async def test_a_stuck_client_does_not_hold_up_a_stop(autojump_clock: MockClock) -> None:
    firehose = Firehose()
    async with open_stack(firehose, graceful_seconds=5) as stack:
        await upgraded(stack.dial(takes_nothing=True))
        await trio.sleep(1)
        stack.server.stop()
        await stack.wait_idle()
        assert trio.current_time() == 9  # the frame under way is given up with the session
    assert firehose.saved_at == [9]


async def test_a_session_that_ends_within_the_grace_ends_well(autojump_clock: MockClock) -> None:
    async def brief(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        await trio.sleep(4)
        return ConnectionEnd(1000, "done")

    async with open_stack(brief, graceful_seconds=5) as stack:
        client = await stack.connect()
        stack.server.stop()
        assert await close_of(client) == (1000, "done")
        await stack.wait_idle()
        assert trio.current_time() == 4


async def test_an_idle_connection_is_closed_by_a_stop_at_once(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await trio.sleep(1)
        stack.server.stop()
        assert await stream.receive_some() == b""
        await stack.wait_idle()
        assert trio.current_time() == 1


# --- connections that are no conversations ----------------------------------------------------------------------------


async def test_a_connection_that_is_closed_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        assert (await stack.request("/healthz")).status == 200
        stream = stack.dial()
        await stream.aclose()
        await stack.wait_idle()
        assert trio.current_time() == 0


async def test_who_asks_nothing_is_hung_up_on(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await stream.send_all(b"GET / HTTP/1.1\r\n")
        assert await stream.receive_some() == b""
        await stack.wait_idle()
        assert trio.current_time() == 5


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (32 << 10), b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"4"),
    ],
)
async def test_what_is_no_request_of_ours_is_refused(
    request_bytes: bytes, status: bytes, autojump_clock: MockClock
) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await stream.send_all(request_bytes)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 " + status)


async def test_an_upgrade_to_http_2_is_not_taken_up(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        headers = {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA",
        }
        assert (await stack.request("/healthz", headers=headers)).status == 200


async def test_who_does_not_read_an_answer_is_hung_up_on(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial(takes_nothing=True)
        await stream.send_all(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        await stack.wait_idle()
        assert trio.current_time() == 12


async def test_a_connection_may_ask_before_it_upgrades(autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        stream = stack.dial()
        await stream.send_all(f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        await trio.testing.wait_all_tasks_blocked()
        while not (await stream.receive_some()).endswith(b"}"):
            pass
        await upgraded(stream)


async def test_what_goes_wrong_in_a_connection_stays_in_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(trio.abc.HalfCloseableStream):
        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("on purpose")

        async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...
        async def wait_send_all_might_not_block(self) -> None: ...
        async def send_eof(self) -> None: ...
        async def aclose(self) -> None: ...

    server = Server(create_app(new_services(), run=Recorder()), Settings(), loopback_only=True)
    await server.handle(Broken())
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["a connection failed"]


@pytest.mark.parametrize("kind", ["websocket", "http"])
async def test_an_application_that_fails_is_answered_for(
    kind: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
        raise RuntimeError("on purpose")

    app: AsgiApp = fail
    server = Server(app, Settings(), loopback_only=True)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, theirs)
        if kind == "http":
            assert (await ask(ours, "/")).status == 500
        else:
            await upgraded(ours)
            ((opcode, payload),) = await all_frames(ours)
            assert (opcode, payload[:2]) == (CLOSE, (1011).to_bytes(2, "big"))
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


START: Event = {"type": "websocket.http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]}
BODY: Event = {"type": "websocket.http.response.body", "body": b"no"}
NO_ANSWER: list[Event] = []
REFUSED_WITH_A_CLOSE: list[Event] = [{"type": "websocket.close"}]
REFUSED_BY_HALF: list[Event] = [START]
REFUSED: list[Event] = [START, BODY, {"type": "websocket.accept"}]


@pytest.mark.parametrize(
    ("events", "status"), [(NO_ANSWER, 500), (REFUSED_WITH_A_CLOSE, 403), (REFUSED_BY_HALF, 500), (REFUSED, 401)]
)
async def test_an_application_may_refuse_an_upgrade_or_forget_to_answer(
    events: list[Event], status: int, autojump_clock: MockClock
) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        for event in events:
            await send(event)

    server = Server(answer, Settings(), loopback_only=True)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, theirs)
        found = await ask(ours, "/", headers=UPGRADE)
        assert found.status == status
        assert found.headers["connection"] == "close"


async def test_an_application_that_does_not_close_is_closed(autojump_clock: MockClock) -> None:
    async def forget(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hi"})

    server = Server(forget, Settings(), loopback_only=True)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, theirs)
        await upgraded(ours)
        text, close = await all_frames(ours)
        assert text == (1, b"hi")
        assert close == (CLOSE, (1011).to_bytes(2, "big") + b"internal error")


async def test_an_application_hears_of_a_client_that_left_as_often_as_it_asks(autojump_clock: MockClock) -> None:
    heard: list[Event] = []

    async def ask_on(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        while len(heard) < 4:
            heard.append(await receive())
        await send({"type": "websocket.send", "text": "too late"})

    server = Server(ask_on, Settings(), loopback_only=True)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, theirs)
        await upgraded(ours)
        await ours.send_all(frame(CLOSE, (4001).to_bytes(2, "big") + b"bye"))
        assert await all_frames(ours) == [(CLOSE, (4001).to_bytes(2, "big"))]
    assert [event["type"] for event in heard] == ["websocket.connect", *["websocket.disconnect"] * 3]
    assert heard[1]["code"] == 4001


async def test_a_large_answer_is_sent_in_pieces_that_each_have_their_time(autojump_clock: MockClock) -> None:
    sent, received = trio.testing.lockstep_stream_one_way_pair()
    stream = BoundedStream(trio.StapledStream(sent, trio.testing.memory_stream_one_way_pair()[1]), stall_seconds=12)
    data = bytes(range(256)) * 1024
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        taken = b""
        for _ in range(4):
            await trio.sleep(11)
            taken += await received.receive_some(64 << 10)
    assert taken == data
    with pytest.raises(trio.BrokenResourceError, match="took nothing for 12 s"):
        await stream.send_all(b"more")
    assert trio.current_time() == 44 + 12


# --- real sockets --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(recorder: Recorder, host: str = HOST) -> AsyncGenerator[BoundAddress]:
    settings = Settings()
    app = create_app(new_services(settings), run=recorder)

    async with trio.open_nursery() as nursery:
        address = await nursery.start(partial(run_server, app, host, 0, settings=settings))
        yield address
        nursery.cancel_scope.cancel()


@pytest.mark.sockets
async def test_a_conversation_over_real_sockets() -> None:
    recorder = Recorder()
    with trio.fail_after(10):
        async with running(recorder) as address:
            assert address.url == f"http://{HOST}:{address.port}"
            async with open_client(address.port, "/api/pipeline/agent:a?wire=binary") as client:
                await say(client, type="text", text="hi")
                assert (await hear(client))["text"] == "hi"
                await client.send_message(bytes(1 << 20))
                assert (await hear(client))["type"] == "speech-start"
                assert len(await client.get_message()) == 1 << 20
                await say(client, type="token", text="#end")
                assert await close_of(client) == (1000, "the session has ended")
            stream = await trio.open_tcp_stream(HOST, address.port)
            assert (await ask(stream, "/healthz")).json == {"status": "ok"}


@pytest.mark.sockets
async def test_a_client_that_sends_16_mib_reads_why_it_is_closed() -> None:
    with trio.fail_after(20):
        async with running(Recorder()) as address:
            for message in (bytes(16 << 20), "a" * (16 << 20)):
                async with open_client(address.port, "/api/pipeline/agent:a") as client:
                    await client.send_message(message)
                    assert (await hear(client))["code"] == "too_large"
                    assert (await close_of(client))[0] == 1009


@pytest.mark.sockets
async def test_a_client_that_dies_is_seen_at_once() -> None:
    recorder = Recorder()
    with trio.fail_after(10):
        async with running(recorder) as address:
            stream = await trio.open_tcp_stream(HOST, address.port)
            await upgraded(stream)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # the next close is a reset
            start = trio.current_time()
            await stream.aclose()
            while not recorder.ends:
                await trio.testing.wait_all_tasks_blocked()
            assert recorder.ends[0][0] == "cancelled"
            assert trio.current_time() - start < 5


class Picture:
    """Shows one picture that the socket buffers cannot hold, and goes on until it is cancelled."""

    SIZE = 1 << 20

    def __init__(self) -> None:
        self.cancelled = trio.Event()

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        line.put_output(OutText("a" * self.SIZE, "t1", "r1"))
        with trio.CancelScope() as scope:
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled.set()
        return ConnectionEnd(1000, str(scope))


@asynccontextmanager
async def narrow_client(
    settings: Settings, picture: Picture
) -> AsyncGenerator[tuple[trio.SocketStream, trio.CancelScope, trio.Event]]:
    """A client with a small receive buffer that has taken the first bytes of the picture; the server's scope and its end."""
    app = create_app(new_services(settings), run=picture)
    ended = trio.Event()

    async def serve(*, task_status: trio.TaskStatus[tuple[BoundAddress, trio.CancelScope]]) -> None:
        async with trio.open_nursery() as inner:
            address = await inner.start(partial(run_server, app, HOST, 0, settings=settings, graceful_seconds=0))
            task_status.started((address, inner.cancel_scope))
        ended.set()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            address, scope = await nursery.start(serve)
            narrow = trio.socket.socket()
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await narrow.connect((HOST, address.port))
            async with trio.SocketStream(narrow) as stream:
                await upgraded(stream)
                assert await stream.receive_some(1) == b"\x81"
                yield stream, scope, ended
            scope.cancel()


@pytest.mark.sockets
async def test_a_frame_that_was_begun_is_ended_when_the_server_stops() -> None:
    picture = Picture()
    async with narrow_client(Settings(), picture) as (stream, server_scope, ended):
        server_scope.cancel()
        await picture.cancelled.wait()
        text, close = await all_frames(stream, b"\x81")
        assert len(text[1]) > Picture.SIZE
        assert close == (CLOSE, (1001).to_bytes(2, "big") + b"the server is going away")
        await ended.wait()


@pytest.mark.sockets
async def test_a_real_client_that_wakes_up_in_time_reads_why() -> None:
    picture = Picture()
    async with narrow_client(Settings(slow_client_seconds=0.01), picture) as (stream, _, _):
        await picture.cancelled.wait()  # after 17 times the limit, as it is a large frame
        text, error, close = await all_frames(stream, b"\x81")
        assert len(text[1]) > Picture.SIZE
        assert b"slow_client" in error[1]
        assert close == (CLOSE, (1008).to_bytes(2, "big") + b"slow_client")


@pytest.mark.sockets
async def test_a_real_client_that_takes_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.transport.server.LAST_WORDS_SECONDS", 0.01)
    picture = Picture()
    async with narrow_client(Settings(slow_client_seconds=0.01), picture) as (_, server_scope, ended):
        await picture.cancelled.wait()
        server_scope.cancel()
        await ended.wait()


@pytest.mark.sockets
async def test_accepted_sockets_send_small_frames_at_once() -> None:
    (listener,) = await open_listeners(HOST, 0)
    async with await trio.open_tcp_stream(HOST, listener.socket.getsockname()[1]), await listener.accept() as stream:
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert (
            stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 16 << 10
        )  # or a cut waits behind speech
    await listener.aclose()


@pytest.mark.sockets
async def test_a_taken_port_is_one_clear_sentence() -> None:
    (listener,) = await open_listeners(HOST, 0)
    port = listener.socket.getsockname()[1]
    with pytest.raises(ConfigurationError, match=f"port {port} of {HOST} is in use"):
        await run_server(create_app(new_services(), run=Recorder()), HOST, port, settings=Settings())
    await listener.aclose()


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("no-such-host.invalid", 0, "is not known"),
        ("192.0.2.1", 0, "is not an address of this computer"),
        (HOST, 70_000, "70000 is no port"),
    ],
)
async def test_a_bad_address_is_one_clear_sentence(host: str, port: int, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        await open_listeners(host, port)


async def test_a_forbidden_port_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(port: int, *, host: str) -> None:
        await trio.lowlevel.checkpoint()
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(trio, "open_tcp_listeners", refuse)
    with pytest.raises(ConfigurationError, match=r"port 80 of .* is not allowed to this user"):
        await open_listeners(HOST, 80)


@pytest.mark.sockets
async def test_a_free_port_is_taken_on_one_address() -> None:
    listeners = await open_listeners("localhost", 0)
    assert len(listeners) == 1
    await listeners[0].aclose()


def test_an_address_is_a_url() -> None:
    assert BoundAddress("::1", 80).url == "http://[::1]:80"


@pytest.mark.sockets
async def test_who_has_more_to_do_leaves_connections_to_the_others() -> None:
    (listener,) = await open_listeners(HOST, 0)
    port = listener.socket.getsockname()[1]
    twin = trio.SocketListener(listener.socket.dup())
    idle, busy = YieldingListener(listener, lambda: 0), YieldingListener(twin, lambda: 0.05)
    taken: list[str] = []
    took_one = trio.Event()

    async def accept(name: str, door: YieldingListener) -> None:
        while True:
            async with await door.accept():
                taken.append(name)
                took_one.set()

    async def knock() -> None:
        nonlocal took_one
        took_one = trio.Event()
        async with await trio.open_tcp_stream(HOST, port):
            await took_one.wait()

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery, busy, idle:
            nursery.start_soon(accept, "busy", busy)
            with trio.CancelScope() as while_both_accept:
                async with trio.open_nursery() as inner:
                    inner.start_soon(accept, "idle", idle)
                    for _ in range(5):
                        await knock()
                    while_both_accept.cancel()
            await knock()
            nursery.cancel_scope.cancel()
    assert taken == [*["idle"] * 5, "busy"]


@pytest.mark.sockets
async def test_a_client_that_has_gone_before_it_was_accepted_is_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (listener,) = await open_listeners(HOST, 0)
    port = listener.socket.getsockname()[1]
    real_accept = socket.socket.accept
    failures = [ConnectionAbortedError(), BlockingIOError()]

    def accept(self: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return real_accept(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with trio.fail_after(20):
        async with YieldingListener(listener, lambda: 0) as door, await trio.open_tcp_stream(HOST, port):
            await (await door.accept()).aclose()
    assert not failures
