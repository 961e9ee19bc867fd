"""Generated conversations through the whole door: a WebSocket client over a byte stream with mishaps, the server's connection, our
application, the door, and a session behind it. What the door took to send is judged as in every world; what the client read of it has to
be the frames of exactly that, in order, up to where its stream broke."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from engine.config import PipelineConfiguration, Settings
from engine.elements import (
    Action,
    ControlToken,
    InputAudio,
    InputElement,
    InputText,
    OutCommand,
    OutputElement,
    Playback,
    Sensory,
)
from engine.interfaces import Environment, Recognizer
from engine.pipeline.line import ClientLine, open_line
from engine.principal import Principal
from engine.protocol.outbox import Outbox
from engine.protocol.wire import WireEncoder
from engine.session.services import Services
from engine.session.windowing import ConnectionEnd, run_connection
from engine.store.contract import Store
from engine.testing.boundaries import ShakyStream
from engine.testing.explore import Found, explore
from engine.testing.mishaps import ClosedByMishapError, Mishap, Mishaps
from engine.testing.scripted import ScriptedClient, ScriptedModel
from engine.testing.stage import ScriptedManager, Stage, scripted_services
from tests.engine.transport.stack import open_stack


def explore_door(seed: int) -> Found:
    """The conversation of a seed, judged."""
    return explore(seed, opener=open_door)


@attrs.define(eq=False)
class KeptOutbox(Outbox):
    """Tells of everything that is taken to be sent."""

    taken: Callable[[OutputElement], None] = attrs.field(kw_only=True)

    def take(self, now: float) -> OutputElement | None:
        element = super().take(now)
        if element is not None:
            self.taken(element)
        return element


@attrs.define(eq=False)
class SocketClient(ScriptedClient):
    """A client at the far end of a socket. What it hears is what the door takes to send; `frames` are what it reads."""

    frames: list[str | bytes] = attrs.field(factory=list[str | bytes], init=False)
    socket: WebSocketConnection | None = attrs.field(default=None, init=False)
    _before: Mishaps | None = attrs.field(default=None, init=False)

    def take(self, element: OutputElement) -> None:
        self.heard.append((trio.current_time(), element))
        if isinstance(element, OutCommand):
            self.counts[element.name] += 1
        self._changed.set()

    async def send(self, *elements: InputElement) -> None:
        """Raises ClosedByMishapError when the socket is gone."""
        assert self.socket is not None
        for element in elements:
            self.sent.append((trio.current_time(), element))
            try:
                if (
                    self.mishaps is not self._before
                ):  # what was overtaken arrives behind this, and not behind what comes now
                    self._before = self.mishaps
                    await self.socket.send_message(frame_of(Playback("none", 0)))
                await self.socket.send_message(frame_of(element))
            except (ConnectionClosed, trio.ClosedResourceError) as exc:
                raise ClosedByMishapError("the socket was closed") from exc

    async def read(self) -> None:
        """Until the socket is closed."""
        assert self.socket is not None
        try:
            while True:  # noqa: ASYNC913 - every way round waits
                self.frames.append(await self.socket.get_message())
        except ConnectionClosed:
            return

    def link(self) -> Mishaps:
        """Those of the client, on what it sends behind the handshake, whichever it has then."""

        def choose(number: int) -> Mishap | None:
            return None if number == 1 else self.mishaps.choose(number)

        link = Mishaps(choose, self.mishaps.delay_seconds, self.mishaps.stall_seconds)
        link.happened = self.mishaps.happened
        return link


def frame_of(element: InputElement) -> str | bytes:
    """As a client sends it (protocol page, section 2)."""
    match element:
        case InputAudio(data):
            return data
        case InputText(text):
            message: dict[str, Any] = {"type": "text", "text": text}
        case ControlToken(name, value):
            message = {"type": "token", "text": f"#{name}:{value}" if value else f"#{name}"}
        case Action(name, parameters):
            message = {"type": "action", "name": name, "parameters": dict(parameters)}
        case Sensory(data):
            message = {"type": "sensory", "data": data}
        case Playback(response_id, played_ms):
            message = {"type": "playback", "responseId": response_id, "playedMs": played_ms}
        case _:
            raise AssertionError(f"no frame for {element}")
    return json.dumps(message)


@attrs.define(eq=False)
class DoorStage(Stage):
    """A stage whose client may be gone without a word."""

    hang_up: Callable[[], None] = attrs.field(kw_only=True)

    def vanish(self) -> None:
        if self.asked_to_end is None:
            self.asked_to_end = trio.current_time()
        self.hang_up()


@asynccontextmanager
async def open_door(
    *,
    model: ScriptedModel,
    manager: ScriptedManager,
    recognizer: Recognizer | None,
    store: Store,
    settings: Settings,
    environment: Environment,
    mishaps: Mishaps,
    seconds_per_element: float = 0.0,
    tokens: bool = False,
    partials: bool = False,
    text_only: bool = False,
    unjudged: str,
) -> AsyncGenerator[Stage]:
    """As `open_stage`, with a door between the client and its session. A slow client is none here: memory takes everything."""
    services = scripted_services(
        model=model,
        managers=[manager],
        recognizer=recognizer,
        store=store,
        settings=settings,
        environment=environment,
    )
    wishes = PipelineConfiguration(
        key="agent:tester",
        input_sample_rate=24000,
        output_sample_rate=24000,
        tokens=tokens,
        partials=partials,
        text_only=text_only,
    )
    client = SocketClient(open_line(wishes, settings), mishaps)

    async def run(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> ConnectionEnd:
        box = line.outbox
        line.outbox = KeptOutbox(box.hearing, box.max_speech_ms, box.max_elements, taken=client.take)
        client.line = line
        try:
            stage.end = await run_connection(configuration, line, services, principal=principal)
        finally:
            stage.ended_at = trio.current_time()
        return stage.end

    fields = {"tokens": wishes.tokens, "partials": wishes.partials, "textOnly": wishes.text_only}
    query = "&".join(f"{name}={str(value).lower()}" for name, value in fields.items())
    async with open_stack(run, services=services) as stack:
        wire = stack.dial()

        def hang_up() -> None:
            wire.send_stream.close()
            wire.receive_stream.close()

        stage = DoorStage(client, model, manager, store, services, recognizer, wishes=wishes, hang_up=hang_up)
        stream = ShakyStream(wire, client.link())
        path = f"/api/pipeline/agent:tester?{query}&inputSampleRate=24000&outputSampleRate=24000&deviceRef=test"
        client.socket = await stack.connect(path, stream=stream)

        async def read() -> None:
            await client.read()
            await stack.wait_idle()
            whole = len(client.heard)
            while (element := client.line.outbox.take(trio.current_time())) is not None:
                assert client.heard[-1][1] is element  # nobody is there to read it; it is told all the same
            check_frames(client, [each for _, each in client.heard[:whole]])
            stage.over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, name="client")
            try:
                yield stage
            finally:
                stage.vanish()


def check_frames(client: SocketClient, taken: list[OutputElement]) -> None:
    """What was read is how the frames of all that was sent begin; all of it, when the connection was closed in order."""
    encoder = WireEncoder("json", "pcm16")
    frames = [frame for element in taken for frame in encoder.encode(element)]
    assert client.frames == frames[: len(client.frames)], "the client read what was not sent"
    assert client.socket is not None
    closed = client.socket.closed
    if closed is not None and closed.code == 1000:
        assert len(client.frames) == len(frames), f"{len(frames)} frames were sent, {len(client.frames)} were read"
