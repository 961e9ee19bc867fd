"""The simulator on Trio: it only moves bytes between streams and the sans-I/O service, and takes the time for it."""

import socket
import struct
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

import h11
import trio
import trio.testing

from providers.chat.simulation.core import ChatService, Model, RateLimit, Request
from providers.chat.simulation.faults import Faults
from providers.chat.simulation.script import ECHO, Drop, Script
from providers.chat.simulation.steps import Body, End, Head, Lose, Step, Wait

KEEPALIVE_SECONDS = 75.0
"""The longest a client may take for its next request."""
CLOSE_SECONDS = 5.0
"""The longest it may take to take the end of what it is sent."""
MAX_BODY_BYTES = 64 * 1024 * 1024
"""More than any request with pictures has."""
READ_BYTES = 64 * 1024
KEPT_REQUESTS = 1000
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class ChatSimulator:
    """Chat completions, simulated. Connections are served on TCP (`open_chat_simulator`, `run`) or on any stream (`serve_stream`).

    Args:
        script: What the models answer.
        keys: The API keys that are known; None for any.
        needs_key: Whether a request without a key is refused.
        models: The models that are known; None for all.
        rate_limit: Requests beyond it get HTTP 429 with `retry-after`.
        faults: What goes wrong by chance.
        keeps: How many requests are remembered, the newest.
        keeps_events: Whether they remember what was sent.
        wall_clock: Seconds since the epoch, for `created`.
    """

    def __init__(
        self,
        script: Script = ECHO,
        *,
        keys: Collection[str] | None = None,
        needs_key: bool = True,
        models: Iterable[str | Model] | None = None,
        rate_limit: RateLimit | None = None,
        faults: Faults | None = None,
        keeps: int = KEPT_REQUESTS,
        keeps_events: bool = True,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.requests: deque[Request] = deque(maxlen=keeps)
        """The newest requests, in the order of their completion."""
        self.received = 0
        """How many there ever were."""
        self.connections = 0
        """How many are open."""
        self.accepted = 0
        """How many there ever were."""
        self.url = ""
        """`http://host:port`, when it is served on TCP."""
        self.keeps_events = keeps_events
        self._service = ChatService(
            script,
            keys=keys,
            needs_key=needs_key,
            models=models,
            rate_limit=rate_limit,
            faults=faults,
            wall_clock=wall_clock,
        )
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def base_url(self) -> str:
        """What the official SDK takes as `base_url`."""
        return f"{self.url}/v1"

    @property
    def broken(self) -> list[Request]:
        """The remembered requests that broke a rule."""
        return [request for request in self.requests if request.broken is not None]

    def rewrite(self, script: Script) -> None:
        """From the next request on, another script is played, from its beginning."""
        self._service.play(script)

    def trouble(self, faults: Faults | None) -> None:
        """From the next request on, these faults happen, or none."""
        self._service.faults = faults

    async def wait_requests(self, count: int) -> None:
        """Until so many requests have come, since the beginning."""
        while self.received < count:
            await self._changed.park()

    async def wait_connections(self, count: int) -> None:
        """Until so many connections are open."""
        while self.connections != count:
            await self._changed.park()

    async def wait_over(self, request: Request) -> None:
        """Until the request has its outcome."""
        while request.outcome == "pending":
            await self._changed.park()

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
        self.url = f"http://{host}:{listener.socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self.serve_stream, [listener])
            task_status.started(self.url)

    def connect(self, nursery: trio.Nursery) -> trio.abc.HalfCloseableStream:
        """A connection in memory, which a mock clock may drive; gives the client's end. The nursery serves the other one."""
        client, server = trio.testing.memory_stream_pair()
        nursery.start_soon(self.serve_stream, server, name="simulated connection")
        return client

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends.

        Raises:
            ScriptError: the script contradicts a request.
        """
        self.connections += 1
        self.accepted += 1
        try:
            await _Connection(self, stream).run()
        except (*_GONE, h11.RemoteProtocolError):
            pass  # the client has left, or speaks no HTTP
        finally:
            self.connections -= 1
            self.note_change()
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await trio.aclose_forcefully(stream)

    def take(self, head: h11.Request, data: bytes) -> Request:
        """Give a request to the service, and remember it."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
        request = self._service.receive(method, target, headers, data, trio.current_time())
        self.requests.append(request)
        self.received += 1
        self.note_change()
        return request

    def note_change(self) -> None:
        """Wake those who wait for requests, connections or outcomes."""
        self._changed.unpark_all()


class _Connection:
    """The requests and answers of one connection."""

    def __init__(self, simulator: ChatSimulator, stream: trio.abc.Stream) -> None:
        self._simulator = simulator
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=READ_BYTES)

    async def run(self) -> None:
        while True:
            received: tuple[h11.Request, bytes] | None = None
            with trio.move_on_after(KEEPALIVE_SECONDS):
                received = await self._receive()
            if received is None:
                return
            head, data = received
            request = self._simulator.take(head, data)
            try:
                can_go_on = await self._answer(request)
            finally:
                if request.outcome == "pending":
                    request.outcome = "left"
                self._simulator.note_change()
            if not can_go_on or self._http.our_state is not h11.DONE:
                return
            if self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    # --- requests

    async def _receive(self) -> tuple[h11.Request, bytes] | None:
        """The next request and its body; None when there is none."""
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        data = bytearray()
        while isinstance(part := await self._next_event(), h11.Data):
            data += part.data
            if len(data) > MAX_BODY_BYTES:
                return None
        return head, bytes(data)

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(READ_BYTES)))
        return event

    # --- answers

    async def _answer(self, request: Request) -> bool:
        """Take all steps; whether the connection can go on."""
        pending = bytearray()
        """What is sent together as nothing has to be waited for in between."""
        due = trio.current_time()
        """When the last wait was to end: waits follow each other without a drift, however long the work between them takes."""
        for step in request.steps:
            match step:
                case Wait():
                    await self._flush(pending)
                    due += step.seconds or 0.0
                    if not await self._wait(None if step.seconds is None else due):
                        return False
                case Lose():
                    await self._lose(request, step, pending)
                    return False
                case _:
                    pending += self._encode(request, step)
        await self._flush(pending)
        request.outcome = "answered"
        return True

    def _encode(self, request: Request, step: Step) -> bytes:
        match step:
            case Head():
                request.status = step.status
                headers = [*step.headers, ("transfer-encoding", "chunked")]
                return self._bytes(h11.Response(status_code=step.status, headers=headers, reason=b"Simulated"))
            case Body():
                if self._simulator.keeps_events:
                    request.sent.append(step.data)
                return self._bytes(h11.Data(data=step.data))
            case End():
                return self._bytes(h11.EndOfMessage())
            case _:
                return b""

    def _bytes(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    async def _send(self, event: h11.Event) -> None:
        await self._stream.send_all(self._bytes(event))

    async def _flush(self, pending: bytearray) -> None:
        if pending:
            await self._stream.send_all(bytes(pending))
            pending.clear()

    async def _wait(self, until: float | None) -> bool:
        """Let time pass, for ever when there is no end to it; whether the client is still there."""
        with trio.CancelScope() as waiting:
            if until is not None:
                waiting.deadline = until
            while data := await self._stream.receive_some(READ_BYTES):
                self._http.receive_data(bytes(data))  # the next request, come early
        return waiting.cancelled_caught

    async def _lose(self, request: Request, step: Lose, pending: bytearray) -> None:
        if step.how is Drop.TORN and step.next is not None:
            half = self._encode(request, step.next)
            pending += half[: len(half) // 2]
            if isinstance(step.next, Body) and request.sent:
                request.sent.pop()
        if step.how is Drop.CLEAN and self._http.our_state is h11.SEND_BODY:
            pending += self._bytes(h11.EndOfMessage())
        await self._flush(pending)
        request.outcome = "lost"
        if step.how is Drop.ABRUPT and isinstance(self._stream, trio.SocketStream):
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self._stream)


@asynccontextmanager
async def open_chat_simulator(
    script: Script | ChatSimulator = ECHO, *, port: int = 0, host: str = "127.0.0.1"
) -> AsyncGenerator[ChatSimulator]:
    """Serve a script, or a simulator, on TCP while the context is open."""
    simulator = script if isinstance(script, ChatSimulator) else ChatSimulator(script)
    async with trio.open_nursery() as nursery:
        await nursery.start(simulator.run, port, host)
        yield simulator
        nursery.cancel_scope.cancel(reason="the simulator is closed")
