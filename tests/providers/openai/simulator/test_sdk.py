"""Whole conversations with the official SDK's own client, over a real socket. It knows nothing of Trio, so it gets a thread."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import trio
from openai import AsyncAzureOpenAI, AsyncOpenAI, OpenAIError
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import ResponseTextDoneEvent
from openai.types.websocket_reconnection import ReconnectingEvent
from websockets.exceptions import ConnectionClosed, InvalidStatus

from providers.openai.simulator import (
    Call,
    Format,
    Pace,
    Refusal,
    Reply,
    Rule,
    Script,
    Simulator,
    Utterance,
    open_simulator,
    silence,
    tone,
)
from tests.providers.openai.simulator.conftest import MakeSimulator
from tests.providers.openai.simulator.gate import hold_server_frame

pytestmark = pytest.mark.sockets

TALK_SECONDS = 60.0
"""Nothing here takes a second; this is for machines that stand still."""
Result = TypeVar("Result")
Talk = Callable[["Session"], Awaitable[Result]]
FAST = Pace(token_seconds=0.002, audio_speed=20.0, delta_ms=100)


class Session:
    """An open connection of the SDK; every frame goes through the gate before the SDK reads it."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.events: list[Any] = []
        """As the SDK reads them; which of the union's classes an event is, `type` tells, and the class does not."""

    async def next(self) -> Any:
        frame = await self.connection.recv_bytes()
        hold_server_frame(frame.decode())
        self.events.append(self.connection.parse_event(frame))
        return self.events[-1]

    async def until(self, event_type: str, count: int = 0) -> Any:
        """The next event of a type, or the `count`th there is, which may have been read before."""
        while True:
            found = [event for event in self.events if event.type == event_type]
            if count and len(found) >= count:
                return found[count - 1]
            if (await self.next()).type == event_type and not count:
                return self.events[-1]

    async def update(self, **session: Any) -> None:
        settings: Any = {"type": "realtime", **session}
        await self.connection.session.update(session=settings)
        await self.until("session.updated")

    async def append(self, audio: bytes) -> None:
        for start in range(0, len(audio), 4800):
            part = base64.b64encode(audio[start : start + 4800]).decode()
            await self.connection.input_audio_buffer.append(audio=part)

    def text(self, kind: str) -> str:
        return "".join(event.delta for event in self.events if event.type == kind)


async def talk_to(simulator: Simulator, talk: Talk[Result]) -> Result:
    """Hold a conversation by the SDK, on asyncio in a thread."""

    async def converse() -> Result:
        async with AsyncOpenAI(api_key="sk-1", base_url=simulator.base_url) as client:
            async with client.realtime.connect(model="gpt-realtime") as connection:
                return await talk(Session(connection))

    return await in_thread(converse)


async def in_thread(converse: Callable[[], Awaitable[Result]]) -> Result:
    async def bounded() -> Result:
        return await asyncio.wait_for(converse(), TALK_SECONDS)

    return await trio.to_thread.run_sync(lambda: asyncio.run(bounded()), abandon_on_cancel=True)


async def test_a_text_turn(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> str:
        assert (await session.next()).type == "session.created"
        await session.update(output_modalities=["text"], instructions="Be brief.")
        await session.connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Good morning"}]}
        )
        await session.connection.response.create()
        done = await session.until("response.done")
        assert done.response.status == "completed"
        assert done.response.usage.total_tokens > 0
        await session.until("rate_limits.updated")
        return session.text("response.output_text.delta")

    async with open_simulator(make_simulator()) as simulator:
        assert await talk_to(simulator, talk) == "You said: Good morning"
    assert simulator.connections[0].broken == []
    assert simulator.connections[0].client_close is not None


async def test_a_spoken_turn_with_server_detection(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> tuple[str, int]:
        await session.update(audio={"input": {"transcription": {"model": "gpt-realtime-whisper"}}})
        await session.append(silence(Format.PCM, 400) + tone(Format.PCM, 800) + silence(Format.PCM, 400))
        started = await session.until("input_audio_buffer.speech_started")
        assert started.audio_start_ms == 100
        transcript = await session.until("conversation.item.input_audio_transcription.completed")
        assert transcript.item_id == started.item_id
        audio = [event for event in session.events if event.type == "response.output_audio.delta"]
        return transcript.transcript, sum(len(base64.b64decode(event.delta)) for event in audio)

    script = Script(utterances=[Utterance("when do you open", transcribed_after=0.1)])
    async with open_simulator(make_simulator(script)) as simulator:
        words, size = await talk_to(simulator, talk)
    assert words == "when do you open"
    assert size == 6 * 300 * Format.PCM.bytes_per_ms  # "You said: when do you open"
    assert simulator.connections[0].broken == []


async def test_push_to_talk(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> str:
        await session.update(audio={"input": {"turn_detection": None, "transcription": {"model": "gpt-4o-transcribe"}}})
        await session.connection.input_audio_buffer.commit()
        assert (await session.until("error")).error.code == "input_audio_buffer_commit_empty"
        await session.append(tone(Format.PCM, 300))
        await session.connection.input_audio_buffer.commit()
        await session.until("conversation.item.input_audio_transcription.completed")
        await session.connection.response.create()
        await session.until("response.done")
        return session.text("response.output_audio_transcript.delta")

    async with open_simulator(make_simulator(Script(utterances=[Utterance("two please")]))) as simulator:
        assert await talk_to(simulator, talk) == "You said: two please"
    assert [broken.rule for broken in simulator.connections[0].broken] == [Rule.COMMIT_TOO_SHORT]


async def test_function_calls(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> str:
        await session.update(
            output_modalities=["text"],
            tools=[{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        )
        await session.connection.response.create()
        done = await session.until("response.done")
        calls = [item for item in done.response.output if item.type == "function_call"]
        assert [call.arguments for call in calls] == ['{"city":"Brno"}', '{"city":"Plzen"}']
        for call in calls:
            await session.connection.conversation.item.create(
                item={"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
            )
        await session.connection.response.create(response={"metadata": {"turn": "2"}})
        done = await session.until("response.done")
        assert done.response.metadata == {"turn": "2"}
        return session.text("response.output_text.delta")

    script = Script(
        replies=[
            Reply([Call("weather", {"city": "Brno"}), Call("weather", {"city": "Plzen"})], pace=FAST),
            Reply("It rains.", pace=FAST),
        ]
    )
    async with open_simulator(make_simulator(script)) as simulator:
        assert await talk_to(simulator, talk) == "It rains."
    assert simulator.connections[0].broken == []


async def test_an_interruption_with_truncation(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> None:
        await session.update(audio={"input": {"transcription": {"model": "gpt-realtime-whisper"}}})
        await session.connection.response.create()
        item = await session.until("response.output_item.added")
        await session.until("input_audio_buffer.speech_started")
        heard = sum(event.type == "response.output_audio.delta" for event in session.events) * 100
        assert heard >= 200
        await session.connection.conversation.item.truncate(
            item_id=item.item.id, content_index=0, audio_end_ms=heard - 100
        )
        truncated = await session.until("conversation.item.truncated")
        assert truncated.audio_end_ms == heard - 100
        assert (await session.until("response.done", 1)).response.status_details.reason == "turn_detected"
        await session.connection.conversation.item.retrieve(item_id=item.item.id)
        retrieved = await session.until("conversation.item.retrieved")
        audio = base64.b64decode(retrieved.item.content[0].audio)
        assert len(audio) == (heard - 100) * Format.PCM.bytes_per_ms
        assert (await session.until("response.done", 2)).response.status == "completed"

    reply = Reply(
        "The first option is the blue room, which looks over the river.",
        pace=Pace(token_seconds=0.02, audio_speed=5.0, delta_ms=100),
        barge_in=Utterance("and Friday?", at=0.15, seconds=0.2),
    )
    async with open_simulator(make_simulator(Script(replies=[reply]))) as simulator:
        await talk_to(simulator, talk)
    assert simulator.connections[0].broken == []


async def test_a_cancellation(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> None:
        await session.connection.response.create()
        await session.until("response.output_audio.delta")
        await session.connection.response.cancel()
        assert (await session.until("response.done")).response.status_details.reason == "client_cancelled"
        await session.connection.response.cancel(event_id="mine")
        error = (await session.until("error")).error
        assert (error.code, error.event_id) == ("response_cancel_not_active", "mine")

    reply = Reply("Long. " * 20, pace=Pace(audio_speed=1.0))
    async with open_simulator(make_simulator(Script(replies=[reply]))) as simulator:
        await talk_to(simulator, talk)


async def test_images_and_what_is_out_of_band(make_simulator: MakeSimulator) -> None:
    image = f"data:image/png;base64,{base64.b64encode(b'png').decode()}"

    async def talk(session: Session) -> None:
        await session.connection.conversation.item.create(
            item={
                "type": "message",
                "role": "user",
                "id": "picture",
                "content": [{"type": "input_image", "image_url": image, "detail": "low"}],
            }
        )
        added = await session.until("conversation.item.added")
        assert added.item.content[0].detail == "low"
        await session.connection.response.create(
            response={
                "conversation": "none",
                "output_modalities": ["text"],
                "metadata": {"topic": "picture"},
                "input": [{"type": "item_reference", "id": "picture"}],
            }
        )
        done = await session.until("response.done")
        assert done.response.conversation_id is None
        assert done.response.metadata == {"topic": "picture"}
        await session.connection.conversation.item.delete(item_id="picture")
        await session.until("conversation.item.deleted")

    async with open_simulator(make_simulator()) as simulator:
        await talk_to(simulator, talk)
    assert simulator.connections[0].broken == []


async def test_the_sdk_dispatches_and_raises_errors(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> list[str]:
        said: list[str] = []

        def note(event: ResponseTextDoneEvent) -> None:
            said.append(event.text)

        session.connection.on("response.output_text.done", note)
        await session.connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        await session.connection.response.create()
        await session.connection.response.cancel(response_id="resp_none")
        with pytest.raises(OpenAIError, match="response_cancel_not_active"):
            await session.connection.dispatch_events()
        return said

    async with open_simulator(make_simulator()) as simulator:
        assert await talk_to(simulator, talk) == ["Hello."]


async def test_a_handshake_is_refused(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> None:
        await session.next()

    script = Script(refusal=Refusal(429, "rate_limit_exceeded", retry_after=7))
    async with open_simulator(make_simulator(script)) as simulator:
        with pytest.raises(InvalidStatus) as caught:
            await talk_to(simulator, talk)
    response = caught.value.response
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert b"rate_limit_exceeded" in (response.body or b"")


async def test_the_end_of_a_session(make_simulator: MakeSimulator) -> None:
    async def talk(session: Session) -> None:
        assert (await session.until("error")).error.code == "session_expired"
        with pytest.raises(ConnectionClosed) as caught:
            await session.next()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1001
        assert caught.value.rcvd.reason.startswith("Your session hit the maximum duration of ")

    async with open_simulator(make_simulator(Script(session_seconds=0.2))) as simulator:
        await talk_to(simulator, talk)


async def test_the_sdk_comes_again(make_simulator: MakeSimulator) -> None:
    """1001 is one of the codes after which it tries again; the second session is a new one."""
    simulator = make_simulator([Script(session_seconds=0.2), Script()])
    attempts: list[int] = []

    def again(event: ReconnectingEvent) -> None:
        attempts.append(event.close_code)

    async def converse() -> list[str]:
        created: list[str] = []
        async with AsyncOpenAI(api_key="sk-1", base_url=simulator.base_url) as client:
            async with client.realtime.connect(
                model="gpt-realtime", on_reconnecting=again, initial_delay=0.01
            ) as connection:
                async for event in connection:
                    if event.type == "session.created":
                        snapshot: Any = event.session
                        created.append(snapshot.id)
                    if len(created) == 2:
                        break
        return created

    async with open_simulator(simulator):
        first, second = await in_thread(converse)
    assert first != second
    assert attempts == [1001]


async def test_the_sdk_speaks_to_azure(make_simulator: MakeSimulator) -> None:
    """Its Azure client asks for the preview path; the GA path is that of the plain client with another base URL."""
    simulator = make_simulator()

    async def preview() -> str:
        async with AsyncAzureOpenAI(
            api_key="k",
            api_version="2025-04-01-preview",
            azure_endpoint=simulator.url.replace("ws:", "http:"),
            websocket_base_url=f"{simulator.url}/openai",  # it would take TLS otherwise
        ) as client:
            async with client.realtime.connect(model="mine") as connection:
                return (await connection.recv()).type

    async def ga() -> str:
        base_url = f"{simulator.url.replace('ws:', 'http:')}/openai/v1"
        async with AsyncOpenAI(api_key="k", base_url=base_url) as client:
            async with client.realtime.connect(model="mine") as connection:
                return (await connection.recv()).type

    async with open_simulator(simulator):
        assert await in_thread(preview) == "session.created"
        assert await in_thread(ga) == "session.created"
    first, second = (connection.handshake for connection in simulator.connections)
    assert first is not None
    assert second is not None
    assert first.target == "/openai/realtime?api-version=2025-04-01-preview&deployment=mine"
    assert first.headers["api-key"] == "k"
    assert second.target == "/openai/v1/realtime?model=mine"
