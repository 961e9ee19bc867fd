"""The simulator on Trio: it only moves data between streams and the sans-I/O service, and takes the time for it."""

import socket
import struct
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress

import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, wrap_server_stream
from wsproto.utilities import LocalProtocolError

from providers.openai.simulation.admission import Handshake, admit, body_of, headers_of
from providers.openai.simulation.connection import ClientClose, Connection, Observer
from providers.openai.simulation.core import Opening, RealtimeCore
from providers.openai.simulation.faults import Faults
from providers.openai.simulation.script import ECHO, Drop, Refusal, Script
from providers.openai.simulation.sound import Voice, plain_voice
from providers.openai.simulation.wire import Closing, Frame

HANDSHAKE_SECONDS = 10.0
"""The longest a client may take for its request."""
CLOSE_SECONDS = 5.0
"""The longest a client may take to answer a close frame, or to take the end of a refusal."""
MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""More than an append of 15 MiB as base64, so that what is too large is refused and not cut off."""
QUEUED_MESSAGES = 16
"""Unread messages before the client is held back."""
ABNORMAL = 1006

Scripts = Script | Sequence[Script] | Callable[[int], Script]
"""One script for all connections, one for each in turn and the last one for the rest, or a function of the connection's number."""


class CutStream(trio.abc.Stream):
    """A stream that can be lost in ways in which streams are lost."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.ended = trio.Event()
        """The other side has left."""
        self._stream = stream
        self._is_silent = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.ended.set()
            raise
        if self._is_silent:
            await trio.sleep_forever()
        if not data:
            self.ended.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_silent:
            await trio.lowlevel.checkpoint()
        else:
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def silence(self) -> None:
        """From now on nothing is read, and what is sent goes nowhere."""
        self._is_silent = True

    async def reset(self) -> None:
        """Leave without a word: by a reset, where there is a socket."""
        if isinstance(self._stream, trio.SocketStream):
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self._stream)


class Simulator:
    """The Realtime API, simulated. Connections are served on TCP (`open_simulator`, `run`) or on any stream (`serve_stream`).

    Args:
        scripts: What happens on the connections.
        keys: The API keys that are known; None for any.
        tokens: The Entra tokens that are known, on Azure's paths. None: any when `keys` is None too, else none.
        models: The models or deployments that are known; None for all.
        faults: What goes wrong by chance.
        voice: Makes the model's audio.
        keeps_records: Connections keep everything that was sent and received.
        keeps_audio: Items keep their audio, for `conversation.item.retrieve`.
        observer: Is told of every message.
        wall_clock: Seconds since the epoch, for `expires_at`.
    """

    def __init__(
        self,
        scripts: Scripts = ECHO,
        *,
        keys: Collection[str] | None = None,
        tokens: Collection[str] | None = None,
        models: Collection[str] | None = None,
        faults: Faults | None = None,
        voice: Voice = plain_voice,
        keeps_records: bool = True,
        keeps_audio: bool = True,
        observer: Observer | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.connections: list[Connection] = []
        """All there ever were, refused ones too. Without records, those that have ended are forgotten."""
        self.url = ""
        """`ws://host:port`, when it is served on TCP."""
        self._scripts = scripts
        self._keys = keys
        self._tokens = tokens
        self._models = models
        self.faults = faults
        self._voice = voice
        self.keeps_records = keeps_records
        self._keeps_audio = keeps_audio
        self._observer = observer or Observer()
        self._wall_clock = wall_clock
        self._count = 0
        self._arrival = trio.Event()

    @property
    def base_url(self) -> str:
        """What the official SDK takes as `base_url`."""
        return f"{self.url.replace('ws://', 'http://')}/v1"

    @property
    def connection(self) -> Connection:
        """The newest connection."""
        return self.connections[-1]

    async def wait_connection(self, number: int = 0) -> Connection:
        """The connection of that number, as soon as its handshake has begun."""
        while len(self.connections) <= number:
            self._arrival = trio.Event()
            await self._arrival.wait()
        return self.connections[number]

    # --- being served

    async def run(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve on TCP until cancelled; reports `url` when it is ready."""
        (listener,) = await trio.open_tcp_listeners(port, host=host)
        address = listener.socket.getsockname()
        self.url = f"ws://{host}:{address[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self.serve_stream, [listener])
            task_status.started(self.url)

    def connect(self, nursery: trio.Nursery) -> trio.abc.Stream:
        """A connection in memory, which a mock clock may drive; gives the client's end. The nursery serves the other one."""
        client, server = trio.testing.memory_stream_pair()
        nursery.start_soon(self.serve_stream, server, name="simulated connection")
        return client

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends."""
        number, self._count = self._count, self._count + 1
        connection = Connection(number, self.script_of(number), self.keeps_records)
        self.connections.append(connection)
        self._arrival.set()
        cut = CutStream(stream)
        try:
            async with trio.open_nursery() as nursery:
                request = await self._request(nursery, cut)
                if request is not None:
                    await self._serve_request(connection, request, cut)
                nursery.cancel_scope.cancel(reason="the connection is over")
        except* LocalProtocolError:
            pass  # a ping came while the connection was being closed, and the library would have answered it
        finally:
            connection.ended.set()
            if not self.keeps_records:
                self.connections.remove(connection)
            with trio.move_on_after(CLOSE_SECONDS, shield=True):  # or an error above would be lost for a cancellation
                await trio.aclose_forcefully(stream)

    def script_of(self, number: int) -> Script:
        """The script of the connection of that number."""
        if isinstance(self._scripts, Script):
            return self._scripts
        if callable(self._scripts):
            return self._scripts(number)
        return self._scripts[min(number, len(self._scripts) - 1)]

    # --- the handshake

    async def _request(self, nursery: trio.Nursery, stream: CutStream) -> WebSocketRequest | None:
        """The client's request; None when it sends none."""
        with trio.move_on_after(HANDSHAKE_SECONDS) as opening:
            nursery.start_soon(_cancel_at_end, stream, opening, name="watch for the client's leaving")
            return await wrap_server_stream(
                nursery,
                stream,
                message_queue_size=QUEUED_MESSAGES,
                max_message_size=MAX_MESSAGE_BYTES,
                receive_buffer_size=None,
            )
        return None

    async def _serve_request(self, connection: Connection, request: WebSocketRequest, stream: CutStream) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
        handshake = Handshake(request.path, headers, request.proposed_subprotocols)
        connection.handshake = handshake
        with trio.CancelScope() as waiting:
            if connection.script.accepts_after is not None:
                waiting.deadline = trio.current_time() + connection.script.accepts_after
            await stream.ended.wait()
        if stream.ended.is_set():
            return
        outcome = connection.script.refusal or admit(handshake, self._keys, self._models, self._tokens)
        connection.outcome = outcome
        if isinstance(outcome, Refusal):
            with trio.move_on_after(CLOSE_SECONDS), suppress(ConnectionClosed):  # the client may have left just now
                await request.reject(outcome.status, extra_headers=headers_of(outcome), body=body_of(outcome))
            return
        try:
            websocket = await request.accept(subprotocol=outcome.protocol)
        except ConnectionClosed:
            return  # the client has left just now
        opening = Opening(
            connection.number,
            outcome.kind,
            outcome.model,
            outcome.azure,
            outcome.preview,
            int(self._wall_clock() + connection.script.session_seconds),
            outcome.trouble,
        )
        connection.core = core = RealtimeCore(
            connection.script, opening, faults=self.faults, voice=self._voice, keeps_audio=self._keeps_audio
        )
        core.open(trio.current_time())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, connection, core, websocket, stream, nursery.cancel_scope, name="writer")
            await self._read(connection, core, websocket)
            if not core.is_closed:  # or the writer still closes, and ends the session when it has
                nursery.cancel_scope.cancel(reason="the client has left")

    # --- the session

    async def _read(self, connection: Connection, core: RealtimeCore, websocket: WebSocketConnection) -> None:
        try:
            while True:
                message = await websocket.get_message()
                waits_for = core.next_at()
                event = core.receive(message, trio.current_time())
                connection.note_received(message, event)
                if event is not None and self._observer.received is not None:
                    self._observer.received(connection, event)
                if core.next_at() != waits_for:
                    connection.wake()
        except ConnectionClosed as closed:
            if not core.is_closed:
                code, reason = (closed.reason.code, closed.reason.reason) if closed.reason else (ABNORMAL, None)
                connection.client_close = ClientClose(trio.current_time(), code, reason or "")

    async def _write(
        self,
        connection: Connection,
        core: RealtimeCore,
        websocket: WebSocketConnection,
        stream: CutStream,
        session: trio.CancelScope,
    ) -> None:
        try:
            while True:
                for outgoing in core.take(trio.current_time()):
                    if isinstance(outgoing, Closing):
                        await self._close(outgoing, websocket, stream)
                        session.cancel(reason="the service has closed")
                        return
                    await self._send(connection, outgoing, websocket)
                await connection.wait_until(core.next_at())
        except ConnectionClosed:
            pass  # the reader sees it too, and ends the session

    async def _send(self, connection: Connection, frame: Frame, websocket: WebSocketConnection) -> None:
        connection.note_sent(frame.type, frame.text)
        if self._observer.sent is not None:
            self._observer.sent(connection, frame.type, frame.text)
        await websocket.send_message(frame.text)

    async def _close(self, closing: Closing, websocket: WebSocketConnection, stream: CutStream) -> None:
        match closing.how:
            case Drop.CLOSE:
                with trio.move_on_after(CLOSE_SECONDS):
                    await websocket.aclose(closing.code, closing.reason)
            case Drop.ABRUPT:
                await stream.reset()
            case Drop.SILENT:
                stream.silence()
                await trio.sleep_forever()


async def _cancel_at_end(stream: CutStream, opening: trio.CancelScope) -> None:
    await stream.ended.wait()
    opening.cancel(reason="the client has left")


@asynccontextmanager
async def open_simulator(simulator: Simulator, *, port: int = 0, host: str = "127.0.0.1") -> AsyncGenerator[Simulator]:
    """Serve a simulator on TCP while the context is open."""
    async with trio.open_nursery() as nursery:
        await nursery.start(simulator.run, port, host)
        yield simulator
        nursery.cancel_scope.cancel(reason="the simulator is closed")
