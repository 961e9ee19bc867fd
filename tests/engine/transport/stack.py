"""The real server stack over memory streams: hypercorn's connection, our application, and clients of other makes.

Only what lies behind the doors is played: a conversation is any function with the signature of `run_connection`.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

import attrs
import h11
import trio
from trio.testing import lockstep_stream_one_way_pair, memory_stream_pair
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from engine.config import PipelineConfiguration, RealtimeProperties, Settings
from engine.elements import (
    BadInput,
    ControlToken,
    InputAudio,
    InputElement,
    InputText,
    OutError,
    OutSpeech,
    OutText,
)
from engine.errors import Whose
from engine.interfaces import Agent, Environment, RealtimeModel, Webhook
from engine.pipeline.line import ClientLine
from engine.principal import Principal, ProjectAccess
from engine.session.services import Services
from engine.session.windowing import ConnectionEnd
from engine.store.contract import Store, StoreError
from engine.transport.app import App, create_app
from engine.transport.http import Readiness
from engine.transport.metrics import Metrics
from engine.transport.server import Server
from engine.transport.websocket import RunConnection

HOST = "127.0.0.1"


# --- what lies behind the doors ----------------------------------------------------------------------------------------


@attrs.frozen
class FakeAgent:
    ref: str
    name: str
    published: bool = True
    realtime_configuration_id: str = ""
    recording: bool = False
    post_session_webhooks: tuple[Webhook, ...] = ()
    show_steering: bool = True
    max_session_minutes: float | None = None
    user_idle_seconds: float | None = None


@attrs.frozen
class FakeCatalog:
    agents: tuple[FakeAgent, ...] = ()

    async def published_agents(self) -> Sequence[Agent]:
        await trio.lowlevel.checkpoint()
        return [agent for agent in self.agents if agent.published]

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        await trio.lowlevel.checkpoint()
        return next(((agent, "p") for agent in self.agents if agent.ref == ref), None)

    async def realtime_configuration(self, configuration_id: str) -> None:
        await trio.lowlevel.checkpoint()

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        await trio.lowlevel.checkpoint()
        return ()

    async def project(self, ref: str) -> ProjectAccess | None:
        await trio.lowlevel.checkpoint()
        return ProjectAccess(ref, is_public=True)

    async def shared_agents(self, ref: str) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return {}

    async def user(self, name: str) -> None:
        await trio.lowlevel.checkpoint()


@attrs.define
class FakeStore:
    """All that the doors ask of a store: whether it is well."""

    trouble: StoreError | None = None
    seconds: float = 0.0

    async def check(self) -> None:
        await trio.sleep(self.seconds)
        if self.trouble is not None:
            raise self.trouble


def new_environment() -> Environment:
    counter = count(1)
    return Environment(
        wall_clock=lambda: datetime(2030, 1, 1, tzinfo=UTC),
        new_id=lambda kind: f"{kind}-{next(counter)}",
        random=Random(0),
    )


def new_services(
    settings: Settings | None = None, agents: tuple[FakeAgent, ...] = (), store: FakeStore | None = None
) -> Services:
    models: Mapping[str, RealtimeModel] = {}
    return Services(
        settings=settings or Settings(),
        catalog=FakeCatalog(agents),
        store=cast("Store", store or FakeStore()),
        environment=new_environment(),
        models=models,
        managers=(),
    )


@attrs.define(eq=False)
class Recorder:
    """A conversation that writes down what happens to it. `react` is what it does with an input; the default repeats it."""

    react: Callable[[InputElement, ClientLine], Awaitable[None]] | None = None
    seen: list[InputElement] = attrs.field(factory=list[InputElement])
    configurations: list[PipelineConfiguration] = attrs.field(factory=list[PipelineConfiguration])
    owners: list[str] = attrs.field(factory=list[str])
    ends: list[tuple[str, float]] = attrs.field(factory=list[tuple[str, float]])
    """How each conversation ended, and when."""

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        self.configurations.append(configuration)
        self.owners.append(principal.owner)
        how = "cancelled"
        try:
            how = await self._converse(line)
        except Exception:
            how = "failed"
            raise
        finally:
            self.ends.append((how, trio.current_time()))
            line.end_output()
        return ConnectionEnd(1000, "the session has ended")

    async def _converse(self, line: ClientLine) -> str:
        while True:  # noqa: ASYNC913 - every way round waits, or ends
            try:
                element = await line.take_input()
            except trio.EndOfChannel:
                return "input ended"
            self.seen.append(element)
            if self.react is not None:
                await self.react(element, line)
            else:
                repeat(element, line)
            if isinstance(element, ControlToken) and element.name == "end":
                return "ended by the client"


def repeat(element: InputElement, line: ClientLine) -> None:
    match element:
        case InputText(text):
            line.put_output(OutText(text, "t1", "r1"))
        case InputAudio(data):
            line.put_output(OutSpeech(data, 24000, "t1", "r1"))
        case BadInput(code, message):
            line.put_output(OutError(code, message, True, Whose.CLIENT))
        case _:
            pass


# --- the stack ---------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Stack:
    """A server, and clients as they are asked for."""

    app: App
    server: Server
    clients: trio.Nursery
    connections: trio.Nursery
    client: str = HOST
    """The address that clients come from."""
    _open: int = 0
    _idle: trio.Event = attrs.field(factory=trio.Event)

    def dial(self, *, takes_nothing: bool = False) -> trio.StapledStream[Any, Any]:
        """A byte stream to the server. With `takes_nothing` the server's bytes wait until the client receives them."""
        ours: trio.StapledStream[Any, Any]
        theirs: trio.StapledStream[Any, Any]
        ours, theirs = memory_stream_pair()
        if takes_nothing:
            send, receive = lockstep_stream_one_way_pair()
            ours = trio.StapledStream(ours.send_stream, receive)
            theirs = trio.StapledStream(send, theirs.receive_stream)
        self._open += 1
        self._idle = trio.Event()
        self.connections.start_soon(self._handle, theirs)
        return ours

    async def _handle(self, stream: trio.abc.HalfCloseableStream) -> None:
        try:
            await self.server.handle(stream, (self.client, 50000), (HOST, 8000))
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()
            await trio.aclose_forcefully(stream)  # as trio's own listener does

    async def connect(
        self,
        path: str = "/api/pipeline/agent:echo",
        *,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] | None = None,
        takes_nothing: bool = False,
        queue: int = 20_000,
        stream: Any = None,
    ) -> WebSocketConnection:
        """`stream`: one that was dialled before, for a test that does something to it."""
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        stream = stream or self.dial(takes_nothing=takes_nothing)
        with trio.fail_after(5):
            return await wrap_client_stream(
                self.clients,
                stream,
                HOST,
                path,
                subprotocols=subprotocols,
                extra_headers=extra,
                message_queue_size=queue,
                max_message_size=1 << 30,
                receive_buffer_size=None,
            )

    async def request(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> "Answer":
        return await ask(self.dial(), path, method=method, headers=headers, body=body)

    async def wait_idle(self) -> None:
        """Until nothing of any connection runs on the server."""
        with trio.fail_after(60):
            await self._idle.wait()


@asynccontextmanager
async def open_client(port: int, path: str) -> AsyncGenerator[WebSocketConnection]:
    """A client over a real socket, which is closed at the end: trio-websocket leaves it open when the server closes first."""
    async with await trio.open_tcp_stream(HOST, port) as stream, trio.open_nursery() as nursery:
        yield await wrap_client_stream(nursery, stream, HOST, path, max_message_size=1 << 30, receive_buffer_size=None)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_stack(
    run: RunConnection,
    *,
    services: Services | None = None,
    settings: Settings | None = None,
    agents: tuple[FakeAgent, ...] = (),
    store: FakeStore | None = None,
    readiness: Readiness | None = None,
    metrics: Metrics | None = None,
    client: str = HOST,
    loopback_only: bool = True,
    graceful_seconds: float = 30,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    capsules_directory: Path | None = None,
) -> AsyncGenerator[Stack]:
    services = services or new_services(settings, agents, store)
    app = create_app(
        services,
        run=run,
        readiness=readiness,
        metrics=metrics,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        capsules_directory=capsules_directory,
    )
    server = Server(app, services.settings, loopback_only=loopback_only)
    async with trio.open_nursery() as server_nursery:
        connections = await server_nursery.start(server.hold_connections, graceful_seconds)
        try:
            async with trio.open_nursery() as clients:
                yield Stack(app, server, clients, connections, client)
                clients.cancel_scope.cancel()
        finally:
            server.stop()
    assert app.connections == 0


# --- clients -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    stream: trio.abc.Stream,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """One HTTP request with h11."""
    connection = h11.Connection(h11.CLIENT)
    fields = {"host": HOST, **{name.lower(): value for name, value in (headers or {}).items()}}
    if body:
        fields["content-length"] = str(len(body))
    request = h11.Request(method=method, target=path, headers=list(fields.items()))
    await stream.send_all(
        connection.send(request) + connection.send(h11.Data(body)) + connection.send(h11.EndOfMessage())
    )
    response: h11.Response | h11.InformationalResponse | None = None
    received = b""
    with trio.fail_after(60):
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Response | h11.InformationalResponse):
                response = event
            elif isinstance(event, h11.Data):
                received += bytes(event.data)
            else:  # the end, or the switch to another protocol
                break
    await stream.aclose()
    assert response is not None
    found = {name.decode(): value.decode() for name, value in response.headers}
    return Answer(response.status_code, found, received)


UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def upgraded(stream: trio.abc.Stream, path: str = "/api/pipeline/agent:echo") -> None:
    """The handshake by hand, for clients that will break the rules of frames. Leaves what follows unread."""
    lines = [f"GET {path} HTTP/1.1", f"host: {HOST}", *(f"{name}: {value}" for name, value in UPGRADE.items())]
    await stream.send_all(("\r\n".join(lines) + "\r\n\r\n").encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await stream.receive_some(1)
    assert head.startswith(b"HTTP/1.1 101 ")


def frame(opcode: int, payload: bytes, *, is_final: bool = True, announce: int | None = None) -> bytes:
    """A client's frame with a mask of zeros. `announce` is the length it claims to have."""
    first = bytes([(0x80 if is_final else 0) | opcode])
    length = len(payload) if announce is None else announce
    if length < 126:
        return first + bytes([0x80 | length]) + bytes(4) + payload
    if length < 65536:
        return first + b"\xfe" + length.to_bytes(2, "big") + bytes(4) + payload
    return first + b"\xff" + length.to_bytes(8, "big") + bytes(4) + payload


async def all_frames(stream: trio.abc.Stream, data: bytes = b"") -> list[tuple[int, bytes]]:
    """Opcode and payload of what the server still sends, after `data`, until it closes the stream."""
    received = bytearray(data)
    async for chunk in stream:
        received += chunk
    data = bytes(received)
    frames: list[tuple[int, bytes]] = []
    while data:
        length, start = data[1], 2
        if length == 126:
            length, start = int.from_bytes(data[2:4], "big"), 4
        elif length == 127:
            length, start = int.from_bytes(data[2:10], "big"), 10
        frames.append((data[0] & 15, data[start : start + length]))
        data = data[start + length :]
    return frames


async def say(client: WebSocketConnection, **message: Any) -> None:
    await client.send_message(json.dumps(message))


async def hear(client: WebSocketConnection) -> Any:
    """The next message: JSON parsed, binary as it is."""
    message = await client.get_message()
    return json.loads(message) if isinstance(message, str) else message


async def hear_all(client: WebSocketConnection) -> list[Any]:
    """What still comes until the connection is closed."""
    messages: list[Any] = []
    try:
        while True:
            messages.append(await hear(client))
    except ConnectionClosed:
        return messages


async def close_of(client: WebSocketConnection) -> tuple[int, str | None]:
    """The code and reason with which the server closes."""
    await hear_all(client)
    assert client.closed is not None
    return client.closed.code, client.closed.reason
