"""The OpenAI-compatible speech part against a strict server."""

import io
import wave
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from engine.interfaces import Voice
from providers.synthesis.openai import MAX_HEADER_BYTES, OpenAISynthesizer, Samples, make_synthesizer
from tests.providers.openai_server import KEY, OpenAIServer, Pause, Piece, Reply, cut, error

PCM = bytes(range(256)) * 8
NOBODY = Voice()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


@pytest.fixture
async def server(nursery: trio.Nursery) -> OpenAIServer:
    server = OpenAIServer()
    await nursery.start(server.run)
    return server


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock()


def synthesizer(server: OpenAIServer, **settings: object) -> OpenAISynthesizer:
    return make_synthesizer({"provider": "OpenAI", "baseUrl": server.url, "apiKey": "env:TEST_KEY", **settings})


def sound(*pieces: Piece, content_type: str = "audio/pcm") -> Reply:
    return Reply(pieces, content_type=content_type)


async def speak(part: OpenAISynthesizer, text: str = "Good day.", voice: Voice = NOBODY) -> list[bytes]:
    """The chunks, taken as they come."""
    chunks: list[bytes] = []
    send, receive = trio.open_memory_channel[bytes](0)

    async def listen() -> None:
        chunks.extend([chunk async for chunk in receive])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        with send:
            await part.speak(text, voice, send)
    return chunks


def wav(rate: int = 24000, channels: int = 1, width: int = 2, frames: bytes = PCM) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(frames)
    return file.getvalue()


# --- the endpoint ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"baseUrl": "https://example.com/v1"}, r'tts\.apiKey: write "env:NAME"'),
        ({"apiKey": "none", "sampleRate": 4000}, r"tts\.sampleRate"),
        ({"apiKey": "none", "responseFormat": "mp3"}, r"tts\.responseFormat"),
    ],
)
def test_a_faulty_configuration_says_what_to_set(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_synthesizer(settings)


@pytest.mark.sockets
async def test_speech_comes_in_whole_samples_over_one_connection(server: OpenAIServer) -> None:
    part = synthesizer(server)
    server.add(sound(b"\x01", b"\x02\x03", b"\x04\x05\x06\x07"), sound(PCM))
    assert await speak(part) == [b"\x01\x02", b"\x03\x04\x05\x06"]
    assert b"".join(await speak(part)) == PCM
    assert server.accepted == 1
    assert part.sample_rate == 24000
    assert server.requests[0].body == {
        "input": "Good day.",
        "model": "gpt-4o-mini-tts",
        "voice": "alloy",
        "response_format": "pcm",
    }


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("configured", "voice", "used"),
    [
        ("", Voice(gender="female"), "nova"),
        ("", Voice(gender="male"), "onyx"),
        ("marin", Voice(gender="male"), "marin"),
        ("marin", Voice("cedar"), "cedar"),
    ],
)
async def test_whose_voice_it_is(server: OpenAIServer, configured: str, voice: Voice, used: str) -> None:
    server.add(sound(PCM))
    await speak(synthesizer(server, voice=configured, speed=1.5, instructions="Whisper."), "Hi.", voice)
    body = server.requests[0].body
    assert (body["voice"], body["speed"], body["instructions"]) == (used, 1.5, "Whisper.")


@pytest.mark.sockets
async def test_an_endpoint_without_keys(server: OpenAIServer) -> None:
    server.key = None
    server.add(sound(PCM))
    assert await speak(synthesizer(server, apiKey="none"))


async def test_nothing_is_asked_when_there_is_nothing_to_say() -> None:
    part = make_synthesizer({"baseUrl": "http://127.0.0.1:1/v1", "apiKey": "none"})
    for text in ("", " ", "…", "🙂"):
        assert await speak(part, text) == []


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("reply", "code", "tries", "hint"),
    [
        (error(401), ErrorCode.PROVIDER_AUTH, 1, "tts.apiKey"),
        (error(429, "insufficient_quota"), ErrorCode.PROVIDER_QUOTA, 1, "no quota left"),
        (error(404, "model_not_found"), ErrorCode.MODEL_NOT_FOUND, 1, "tts.model"),
        (error(400), ErrorCode.SYNTHESIS_FAILED, 1, "HTTP 400"),
        (error(500, retry_after="0"), ErrorCode.SYNTHESIS_FAILED, 2, "HTTP 500"),
        (sound(), ErrorCode.SYNTHESIS_FAILED, 2, "broken"),
        (sound(Pause.DROP), ErrorCode.SYNTHESIS_FAILED, 2, "connection"),
        (sound(b"ID3", content_type="audio/mpeg"), ErrorCode.SYNTHESIS_FAILED, 1, "audio/mpeg"),
        (sound(b"{}", content_type="application/json; charset=utf-8"), ErrorCode.SYNTHESIS_FAILED, 1, "json"),
        (sound(wav(rate=16000)), ErrorCode.SYNTHESIS_FAILED, 1, "tts.sampleRate to 16000"),
    ],
)
async def test_failures_are_typed_and_say_what_to_do(
    server: OpenAIServer, clock: trio.testing.MockClock, reply: Reply, code: ErrorCode, tries: int, hint: str
) -> None:
    part = synthesizer(server)
    server.add(sound(PCM))
    await speak(part)
    clock.autojump_threshold = 0.02
    server.add(reply, reply, sound(PCM))
    with pytest.RaisesGroup(pytest.RaisesExc(RealtimeException, match=hint, check=lambda exc: exc.code is code)):
        await speak(part)
    assert len(server.requests) == 1 + tries


@pytest.mark.sockets
async def test_the_second_try_succeeds(server: OpenAIServer, clock: trio.testing.MockClock) -> None:
    part = synthesizer(server)
    server.add(sound(PCM))
    await speak(part)
    clock.autojump_threshold = 0.02
    server.add(error(503), sound(PCM))
    assert b"".join(await speak(part)) == PCM
    assert trio.current_time() == 0.25


@pytest.mark.sockets
async def test_there_is_no_second_try_after_the_first_sound(server: OpenAIServer) -> None:
    server.add(sound(PCM, Pause.DROP), sound(PCM))
    with pytest.RaisesGroup(pytest.RaisesExc(RealtimeException, match="connection broke")):
        await speak(synthesizer(server))
    assert len(server.requests) == 1


@pytest.mark.sockets
@pytest.mark.parametrize("pieces", [(Pause.STALL,), (PCM, Pause.STALL)])
async def test_silence_has_a_bound(
    server: OpenAIServer, clock: trio.testing.MockClock, pieces: tuple[Piece, ...]
) -> None:
    part = synthesizer(server, timeoutSeconds=9)
    server.add(sound(PCM))
    await speak(part)
    clock.autojump_threshold = 0.02
    server.add(sound(*pieces))
    with pytest.RaisesGroup(pytest.RaisesExc(RealtimeException, match="gave nothing for 9 s")):
        await speak(part)
    assert trio.current_time() == 9
    await server.wait_connections(0)


@pytest.mark.sockets
async def test_a_listener_who_takes_his_time_is_waited_for(server: OpenAIServer, clock: trio.testing.MockClock) -> None:
    part = synthesizer(server, timeoutSeconds=1)
    server.add(sound(PCM))
    await speak(part)
    clock.autojump_threshold = 0.02
    pieces = [PCM] * 12
    server.add(sound(*pieces))
    send, receive = trio.open_memory_channel[bytes](0)
    heard = b""

    async def listen() -> None:
        nonlocal heard
        async for chunk in receive:
            await trio.sleep(5)
            heard += chunk

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        with send:
            await part.speak("A long story.", NOBODY, send)
    assert heard == b"".join(pieces)


# --- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.sockets
@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("pieces", [(Pause.STALL,), (PCM, Pause.STALL), (*[PCM] * 50, Pause.STALL)])
async def test_a_cancelled_sentence_closes_its_connection(server: OpenAIServer, pieces: Sequence[Piece]) -> None:
    part = synthesizer(server)
    server.add(sound(PCM, Pause.DROP))
    with pytest.RaisesGroup(RealtimeException):
        await speak(part)
    await server.wait_connections(0)
    before = trio.lowlevel.current_statistics().tasks_living
    server.add(sound(*pieces))
    send, receive = trio.open_memory_channel[bytes](1)
    with send, receive:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(part.speak, "Never mind.", NOBODY, send)
            await server.wait_stalled()
            await trio.testing.wait_all_tasks_blocked()
            assert server.connections == 1
            nursery.cancel_scope.cancel()
    await server.wait_connections(0)
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.sockets
async def test_a_listener_who_has_gone_ends_it(server: OpenAIServer) -> None:
    server.add(sound(PCM, Pause.STALL))
    send, receive = trio.open_memory_channel[bytes](0)
    receive.close()
    with pytest.raises(trio.BrokenResourceError):
        await synthesizer(server).speak("Hello?", NOBODY, send)
    await server.wait_connections(0)


# --- samples ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.binary(max_size=300), st.booleans(), st.lists(st.integers(0, 400), max_size=8), st.binary(max_size=9))
def test_any_cut_gives_the_same_whole_samples(sound: bytes, in_file: bool, places: list[int], after: bytes) -> None:
    if sound.startswith(b"R"):
        sound = b"\0" + sound
    frames = sound[: len(sound) // 2 * 2]
    # A chunk after the sound, such as its title, must not be heard.
    body = wav(frames=frames) + after if in_file and frames else sound
    samples = Samples(24000)
    chunks = [samples.feed(piece) for piece in cut(body, places)]
    assert b"".join(chunks) == frames
    assert all(len(chunk) % 2 == 0 for chunk in chunks)


def test_a_file_of_unknown_length_and_with_notes_before_the_sound() -> None:
    file = wav()
    note = b"LIST\x05\0\0\0title\0"
    streamed = file[:36] + note + b"data\xff\xff\xff\xff" + PCM
    assert Samples(24000).feed(streamed) == PCM


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (wav(channels=2), "16 bit mono"),
        (wav(width=1), "16 bit mono"),
        (wav(rate=8000), r"tts\.sampleRate to 8000"),
        (b"RIFF\0\0\0\0WAVEnote\xff\xff\xff\x7f" + bytes(MAX_HEADER_BYTES), "without sound"),
    ],
)
def test_other_files_are_refused(file: bytes, message: str) -> None:
    with pytest.raises(RealtimeException, match=message):
        Samples(24000).feed(file)


@given(st.binary(max_size=200))
def test_noise_in_a_file_fails_in_no_other_way(noise: bytes) -> None:
    with suppress(RealtimeException):
        Samples(24000).feed(b"RIFF" + noise)
