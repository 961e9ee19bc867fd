"""The OpenAI-compatible transcription part against a strict server."""

import io
import json
import wave

import attrs
import numpy as np
import pytest
import trio
import trio.testing

from engine.elements import Commit, EmotionalState, InputAudio, SpeakingState, Transcript
from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from engine.interfaces import RecognitionElement, RecognizerInput
from providers.recognition.openai import OpenAIRecognizer, make_recognizer
from tests.providers.openai_server import KEY, OpenAIServer, Pause, Reply, error

SPEAKING = EmotionalState(SpeakingState.USER_SPEAKING)
NOT_SPEAKING = EmotionalState(SpeakingState.USER_NOT_SPEAKING)
INTERIM = Transcript(".", is_interim=True, provider="OpenAI")


def sound(milliseconds: int, amplitude: float) -> InputAudio:
    samples = np.random.default_rng(1).normal(0, amplitude, 16 * milliseconds)
    return InputAudio(samples.astype("<i2").tobytes())


PATIENCE = 10
"""Seconds until a test that waits for an element in vain fails."""
VOICE = sound(608, 3000)
QUIET = sound(608, 5)


def words(text: str, **more: object) -> Reply:
    return Reply((json.dumps({"text": text, **more}).encode(),), content_type="application/json")


def final(text: str) -> Transcript:
    return Transcript(text, provider="OpenAI")


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


def recognizer(server: OpenAIServer, **settings: object) -> OpenAIRecognizer:
    made_up = {"detector": "loudness"}  # the sounds of these tests are noise, which no neural detector takes for speech
    return make_recognizer(
        {"provider": "OpenAI", "baseUrl": server.url, "apiKey": "env:TEST_KEY", **made_up, **settings}
    )


@attrs.define(eq=False)
class Line:
    """A recognizer that runs, with its two ends."""

    audio: trio.MemorySendChannel[RecognizerInput]
    elements: trio.MemoryReceiveChannel[RecognitionElement]

    async def say(self, *items: RecognizerInput) -> None:
        for item in items:
            await self.audio.send(item)

    async def take(self, count: int) -> list[RecognitionElement]:
        taken: list[RecognitionElement] = []
        with trio.fail_after(PATIENCE):
            while len(taken) < count:
                taken.append(await self.elements.receive())
        return taken

    async def finish(self) -> list[RecognitionElement]:
        """The rest, after the audio has ended."""
        self.audio.close()
        with trio.fail_after(PATIENCE):
            return [element async for element in self.elements]


async def recognize(
    part: OpenAIRecognizer,
    frames: trio.MemoryReceiveChannel[RecognizerInput],
    said: trio.MemorySendChannel[RecognitionElement],
) -> None:
    with frames, said:
        await part.run(frames, said)


def open_line(part: OpenAIRecognizer, nursery: trio.Nursery) -> Line:
    audio, frames = trio.open_memory_channel[RecognizerInput](2)
    said, elements = trio.open_memory_channel[RecognitionElement](4)
    nursery.start_soon(recognize, part, frames, said)
    return Line(audio, elements)


@pytest.fixture
async def line(server: OpenAIServer, nursery: trio.Nursery) -> Line:
    return open_line(recognizer(server, language="en", prompt="Souffleur"), nursery)


# --- utterances ------------------------------------------------------------------------------------------------------


@pytest.mark.sockets
async def test_an_utterance_from_start_to_words(server: OpenAIServer, line: Line) -> None:
    server.add(words(" A table \n for two. "))
    await line.say(QUIET, VOICE)
    assert await line.take(2) == [SPEAKING, INTERIM]
    await line.say(QUIET)
    assert await line.take(2) == [NOT_SPEAKING, final("A table for two.")]
    body = dict(server.requests[0].body)
    file = body.pop("file")
    assert body == {
        "model": "gpt-4o-mini-transcribe",
        "language": "en",
        "prompt": "Souffleur",
        "response_format": "json",
    }
    with wave.open(io.BytesIO(file)) as recorded:
        assert recorded.getframerate() == 16000
        assert VOICE.data in recorded.readframes(recorded.getnframes())
    assert await line.finish() == []


@pytest.mark.sockets
async def test_a_commit_ends_it_and_the_end_flushes_it(server: OpenAIServer, line: Line) -> None:
    server.add(words("one"), words("two"))
    await line.say(QUIET, VOICE, Commit())
    assert await line.take(4) == [SPEAKING, INTERIM, NOT_SPEAKING, final("one")]
    await line.say(Commit(), QUIET, VOICE)
    assert await line.finish() == [SPEAKING, INTERIM, NOT_SPEAKING, final("two")]


@pytest.mark.sockets
async def test_a_short_word_is_long_enough_for_the_endpoint(server: OpenAIServer, line: Line) -> None:
    server.add(words("No."))
    await line.say(QUIET, sound(96, 3000), Commit())
    assert (await line.take(4))[-1] == final("No.")


@pytest.mark.sockets
async def test_utterances_do_not_mix_and_the_audio_does_not_wait_for_words(server: OpenAIServer, line: Line) -> None:
    server.add(Reply((Pause.HOLD, b'{"text": "one"}'), content_type="application/json"), words("two"))
    await line.say(QUIET, VOICE, QUIET, VOICE, QUIET, QUIET)
    assert await line.take(3) == [SPEAKING, INTERIM, NOT_SPEAKING]
    server.released.set()
    assert await line.take(5) == [final("one"), SPEAKING, INTERIM, NOT_SPEAKING, final("two")]


@pytest.mark.sockets
async def test_what_is_likely_no_speech_is_left_out(server: OpenAIServer, nursery: trio.Nursery) -> None:
    line = open_line(recognizer(server, model="whisper-1", responseFormat="verbose_json"), nursery)
    segments = [{"text": " Yes. ", "no_speech_prob": 0.1}, {"text": " Thank you.", "no_speech_prob": 0.9}]
    server.add(words("Yes. Thank you.", segments=segments), words("you", segments=[segments[1]]))
    await line.say(QUIET, VOICE, Commit())
    assert (await line.take(4))[-1] == final("Yes.")
    await line.say(QUIET, VOICE, Commit())
    assert (await line.take(4))[-1] == final("")


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_faulty_configuration_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match=r"stt\.language: .*; stt\.turnDetection\.silenceMs: "):
        make_recognizer({"apiKey": "none", "language": "English, please", "turnDetection": {"silenceMs": 1}})
    with pytest.raises(ConfigurationError, match=r"stt\.apiKey"):
        make_recognizer({"baseUrl": "https://example.com/v1"})


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("reply", "code", "tries"),
    [
        (error(401), ErrorCode.PROVIDER_AUTH, 1),
        (error(429, "insufficient_quota"), ErrorCode.PROVIDER_QUOTA, 1),
        (error(404, "model_not_found"), ErrorCode.MODEL_NOT_FOUND, 1),
        (error(500, retry_after="0"), ErrorCode.RECOGNITION_FAILED, 2),
        (Reply((b'{"words": 1}',), content_type="application/json"), ErrorCode.RECOGNITION_FAILED, 2),
        (Reply((b"<html>",), content_type="text/html"), ErrorCode.RECOGNITION_FAILED, 2),
        (Reply((b"{oops",), content_type="application/json"), ErrorCode.RECOGNITION_FAILED, 2),
        (Reply((b"{", Pause.DROP), content_type="application/json"), ErrorCode.RECOGNITION_FAILED, 2),
    ],
)
async def test_a_failure_ends_it_as_it_is(
    server: OpenAIServer, clock: trio.testing.MockClock, reply: Reply, code: ErrorCode, tries: int
) -> None:
    server.add(words("warm"), reply, reply, words("too late"))

    async def speak(line: Line) -> None:
        await line.say(QUIET, VOICE, Commit())
        assert (await line.take(4))[-1] == final("warm")
        clock.autojump_threshold = 0.02
        await line.say(QUIET, VOICE, Commit())
        assert await line.take(3) == [SPEAKING, INTERIM, NOT_SPEAKING]

    with pytest.RaisesGroup(pytest.RaisesExc(RealtimeException, check=lambda exc: exc.code is code)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak, open_line(recognizer(server), nursery))
    assert len(server.requests) == 1 + tries


@pytest.mark.sockets
async def test_one_failure_is_tried_again(server: OpenAIServer, line: Line) -> None:
    server.add(error(503, retry_after="0"), words("again"))
    await line.say(QUIET, VOICE, Commit())
    assert (await line.take(4))[-1] == final("again")


@pytest.mark.sockets
@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_cancelled_while_the_endpoint_hangs_nothing_is_left(server: OpenAIServer) -> None:
    async with trio.open_nursery() as nursery:
        line = open_line(recognizer(server), nursery)
        server.add(words("warm"))
        await line.say(QUIET, VOICE, Commit())
        assert len(await line.finish()) == 4
    before = trio.lowlevel.current_statistics().tasks_living - 1  # that of the warm connection
    server.add(Reply((b"{", Pause.STALL), content_type="application/json"))
    async with trio.open_nursery() as nursery:
        await open_line(recognizer(server), nursery).say(QUIET, VOICE, Commit())
        await server.wait_stalled()
        nursery.cancel_scope.cancel()
    await server.wait_connections(0)
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before


@pytest.mark.voice
async def test_the_neural_detector_takes_no_noise_for_speech(nursery: trio.Nursery) -> None:
    line = open_line(make_recognizer({"baseUrl": "http://127.0.0.1:1/v1", "apiKey": "none"}), nursery)
    await line.say(VOICE, VOICE, QUIET)
    assert await line.finish() == []


async def test_without_the_neural_detector_loudness_takes_its_place(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> object:
        raise ConfigurationError("not installed")

    monkeypatch.setattr("providers.recognition.openai.load_detector", load)
    line = open_line(make_recognizer({"baseUrl": "http://127.0.0.1:1/v1", "apiKey": "none"}), nursery)
    await line.say(QUIET, VOICE)
    assert await line.take(2) == [SPEAKING, INTERIM]
    nursery.cancel_scope.cancel()
