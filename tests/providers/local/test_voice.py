"""The engines themselves: what they say they also understand."""

import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.elements import Commit, InputAudio, Partial, Transcript
from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from engine.interfaces import RecognitionElement, RecognizerInput, Voice
from providers.local import recognition
from providers.local.kokoro import VOICES, Kokoro, Phonemizer, Speech
from providers.local.models import PREPARED, default_directory
from providers.local.normalizer import normalize
from providers.local.phrases import TOKEN_LIMIT
from providers.local.recognition import LocalRecognizer, make_recognizer
from providers.local.synthesis import CHUNK_SAMPLES, kokoro_worker, make_synthesizer, repertoire
from providers.local.whisper import Heard, Whisper
from providers.local.worker import Stop, Stopped, Worker
from tests.providers.local.support import (
    RATE,
    clip,
    finals,
    listening,
    pcm,
    recognize,
    say,
    shape,
    speech_end,
    split,
    synthesizer,
)
from tests.providers.local.test_normalizer import SPOKEN
from tests.providers.local.wer import word_error_rate, word_errors

pytestmark = pytest.mark.voice

SENTENCES = [
    "Good morning.",
    "Two coffees, please.",
    "A table by the window.",
    "We close at 9:30.",
    "My name is Robert.",
    "Can I pay by card?",
    "That is $12.50.",
    "Turn left at the corner.",
    "Yes, of course.",
    "No, thank you.",
    "How much is it?",
    "We are closed on Sunday.",
    "Could you repeat that?",
    "I am sorry.",
    "It is on its way.",
    "I lost my password.",
    "The weather is beautiful.",
    "Where is the pharmacy?",
    "Send it by email.",
    "Let me check that.",
]


def quiet_recognizer() -> LocalRecognizer:
    return make_recognizer({"provider": "Local", "partials": False})


async def test_what_is_said_is_heard() -> None:
    pairs: list[tuple[str, str]] = []
    for index, sentence in enumerate(SENTENCES):
        speech = await clip(sentence, VOICES[index % 2])
        elements = await recognize(pcm(0.5, speech, 0.8), quiet_recognizer())
        pairs.append((normalize(sentence), normalize(" ".join(finals(elements)))))
    wrong = [pair for pair in pairs if word_errors(*pair)]
    assert word_error_rate(pairs) < 0.10, wrong


async def test_an_utterance_is_told_in_order_however_its_audio_is_cut() -> None:
    audio = pcm(0.4, await clip(SENTENCES[1]), 0.8, await clip(SENTENCES[4]), 0.8)
    order = ["userSpeaking", "interim", "userNotSpeaking", "final"]
    results = [await recognize(split(audio, size)) for size in (640, 1000, len(audio))]
    for elements in results:
        assert shape(elements) == order * 2
        assert finals(elements) == finals(results[0])
        interim = next(element for element in elements if isinstance(element, Transcript))
        assert interim == Transcript(".", is_interim=True, provider="Local")


async def test_words_come_while_the_user_speaks() -> None:
    speech = await clip("Please send me two large coffees and the password by email.")
    async with listening() as (audio, elements):
        partials: list[str] = []

        async def watch() -> None:
            async for element in elements:
                match element:
                    case Partial(text=text):
                        partials.append(text)
                    case Transcript(is_interim=False):
                        return
                    case _:
                        pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            for frame in split(pcm(0.3, speech, 0.7)):
                await audio.send(frame)
                await trio.sleep(0.01)  # twice as fast as it is spoken
    assert partials
    assert partials[0].lower().startswith("please")
    without = await recognize(pcm(0.3, speech, 0.7), quiet_recognizer())
    assert not any(isinstance(element, Partial) for element in without)


@pytest.mark.parametrize("sound", ["silence", "hiss", "hum", "clicks", "loud hiss"])
async def test_what_is_no_speech_gives_no_words(sound: str) -> None:
    random = np.random.default_rng(1)
    time = np.arange(6 * RATE) / RATE
    samples = {
        "silence": np.zeros(6 * RATE),
        "hiss": random.normal(0, 0.01, 6 * RATE),
        "loud hiss": random.normal(0, 0.1, 6 * RATE),
        "hum": 0.1 * np.sin(2 * np.pi * 50 * time) + 0.05 * np.sin(2 * np.pi * 150 * time),
        "clicks": np.where(np.arange(6 * RATE) % 9000 < 40, 0.8, 0.0),
    }[sound].astype(np.float32)
    audio = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    assert [text for text in finals(await recognize(audio)) if text] == []
    # The recognizer itself makes words up; whoever says that there was speech gets none of them, either.
    committed = await recognize([*split(audio), Commit()])
    assert [text for text in finals(committed) if text] == []


async def test_long_speech_is_cut_and_no_sentence_is_lost() -> None:
    sentences = SENTENCES * 2
    speech = [await clip(sentence, VOICES[index % 2]) for index, sentence in enumerate(sentences)]
    joined = np.concatenate([part[: speech_end(part) + RATE // 10] for part in speech])
    assert len(joined) > 32 * RATE
    elements = await recognize(pcm(0.3, joined, 0.8))
    texts = finals(elements)
    assert len(texts) >= 2
    assert shape(elements) == ["userSpeaking", "interim", "userNotSpeaking", "final"] * len(texts)
    assert word_error_rate([(normalize(" ".join(sentences)), normalize(" ".join(texts)))]) < 0.15


async def test_a_commit_ends_the_utterance_at_once_and_an_empty_one_is_nothing() -> None:
    speech = await clip("Where is the pharmacy?")
    spoken = split(pcm(0.4, speech[: speech_end(speech)]))
    async with listening() as (audio, elements):
        for item in [Commit(), *spoken, Commit(), Commit()]:
            await audio.send(item)
        found = [await elements.receive() for _ in range(2)]
        while not finals(found):
            found.append(await elements.receive())  # the audio has not ended, and no silence has come
        assert shape(found) == ["userSpeaking", "interim", "userNotSpeaking", "final"]
        assert "pharmacy" in finals(found)[0]
        for frame in split(pcm(1.0)):
            await audio.send(frame)
        audio.close()
        assert [element async for element in elements] == []


async def test_the_end_of_the_audio_flushes_the_utterance() -> None:
    speech = await clip("Let me check that.", VOICES[1])
    elements = await recognize(pcm(0.4, speech[: speech_end(speech)]))
    assert shape(elements) == ["userSpeaking", "interim", "userNotSpeaking", "final"]
    assert "check" in finals(elements)[0]


async def test_audio_that_stops_coming_is_recognized_before_it_is_known_to_be_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the words are there as soon as the silence that the engine makes of the gap arrives."""
    transcribe, called, count = Whisper.transcribe, trio.Event(), 0

    def counted(self: Whisper, pcm: bytes, stop: Stop) -> Heard:
        nonlocal count
        count += 1
        trio.from_thread.run_sync(called.set)
        return transcribe(self, pcm, stop)

    monkeypatch.setattr(Whisper, "transcribe", counted)
    speech = await clip("Where is the pharmacy?")
    async with listening(quiet_recognizer()) as (audio, elements):
        for frame in split(pcm(0.4, speech[: speech_end(speech)])):
            await audio.send(frame)
        await called.wait()
        await audio.send(InputAudio(bytes(2 * RATE * 2)))
        found = [await elements.receive()]
        while not finals(found):
            found.append(await elements.receive())
    assert "pharmacy" in finals(found)[0]
    assert count == 1


async def test_a_cancelled_recognizer_leaves_the_engine_usable() -> None:
    audio = pcm(0.4, await clip(SENTENCES[1], VOICES[1]), 0.8)
    before = finals(await recognize(audio))
    for stop_at in ("interim", "userNotSpeaking"):
        async with listening() as (feed, elements):
            for frame in split(audio):
                await feed.send(frame)
            while shape([await elements.receive()]) != [stop_at]:
                pass
    assert finals(await recognize(audio)) == before


class Broken(Whisper):
    def __init__(self) -> None:
        pass

    def transcribe(self, pcm: bytes, stop: Stop) -> Heard:
        raise RuntimeError("out of memory")


async def test_a_recognition_that_fails_is_a_realtime_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Worker[Whisper]("broken engine", Broken)
    monkeypatch.setattr(recognition, "whisper_worker", lambda: broken)
    audio, inputs = trio.open_memory_channel[RecognizerInput](1000)
    outputs, elements = trio.open_memory_channel[RecognitionElement](100)
    for frame in split(pcm(0.4, await clip(SENTENCES[4]), 0.8)):
        audio.send_nowait(frame)
    with audio, inputs, outputs, elements, pytest.raises(RealtimeException) as caught:
        await make_recognizer({"provider": "Local"}).run(inputs, outputs)
    assert caught.value.code is ErrorCode.RECOGNITION_FAILED
    assert "memory" not in caught.value.message


# --- speaking --------------------------------------------------------------------------------------------------------


async def test_speech_comes_in_small_chunks_of_whole_samples() -> None:
    send, receive = trio.open_memory_channel[bytes](1000)
    with send, receive:
        await synthesizer().speak("Good morning, what can I do for you today?", Voice(gender="male"), send)
        count = receive.statistics().current_buffer_used
        chunks = [receive.receive_nowait() for _ in range(count)]
    assert all(0 < len(chunk) <= 2 * CHUNK_SAMPLES and len(chunk) % 2 == 0 for chunk in chunks)
    assert 1.5 < sum(map(len, chunks)) / 2 / 24_000 < 4
    samples = np.frombuffer(b"".join(chunks), dtype="<i2")
    assert np.abs(samples).max() > 3000
    assert np.abs(samples[:480]).max() < 1000  # no click at the beginning
    assert np.abs(samples[-480:]).max() < 1000


async def test_the_first_sound_is_there_long_before_the_last() -> None:
    send, receive = trio.open_memory_channel[bytes](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(synthesizer().speak, " ".join(SENTENCES[:6]), Voice(), send)
        start = trio.current_time()
        await receive.receive()
        assert trio.current_time() - start < 3  # all of it takes 5 s on an idle machine
        nursery.cancel_scope.cancel()


async def test_voices_are_chosen_by_name_then_configuration_then_gender() -> None:
    part = make_synthesizer({"provider": "Local", "voice": "jm_kumo"})
    said: list[bytes] = []
    for maker, voice in [
        (synthesizer(), Voice()),
        (synthesizer(), Voice("no such voice", gender="female")),
        (part, Voice("jf_gongitsune")),
        (part, Voice(gender="female")),
        (synthesizer(), Voice(gender="male")),
    ]:
        send, receive = trio.open_memory_channel[bytes](100)
        with receive:
            with send:
                await maker.speak("Yes.", voice, send)
            said.append(b"".join([chunk async for chunk in receive]))
    assert said[0] == said[1] == said[2]
    assert said[3] == said[4] != said[0]


@pytest.mark.parametrize("text", ["", "   ", "...", "😀", "Привет", "---"])
async def test_what_cannot_be_said_makes_no_sound_and_no_error(text: str) -> None:
    assert await say(text) == b""


async def test_very_long_text_without_a_place_to_breathe_is_spoken() -> None:
    send, receive = trio.open_memory_channel[bytes](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(synthesizer().speak, "HTML " * 300, Voice(), send)
        for _ in range(8):
            assert await receive.receive()
        nursery.cancel_scope.cancel()


async def test_a_cancelled_speaker_leaves_the_engine_usable_and_free() -> None:
    before = await say("Let me check that.")
    repertoire(default_directory()).clear()
    for chunks in (0, 1, 6):
        send, receive = trio.open_memory_channel[bytes](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(synthesizer().speak, " ".join(SENTENCES), Voice(), send)
            for _ in range(chunks):
                await receive.receive()
            await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    repertoire(default_directory()).clear()
    assert await say("Let me check that.") == before


async def test_what_was_said_before_needs_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = await say("Of course, one moment.")

    def fail(engine: Kokoro, speech: Speech, stop: Stop) -> bytes:
        raise AssertionError("it was made again")

    monkeypatch.setattr(Kokoro, "go_on", fail)
    assert await say("Of course,  one moment.") == before
    with pytest.raises(RealtimeException, match="Speech synthesis failed"):
        await say("Of course, one moment.", VOICES[1])


async def test_a_reader_that_left_ends_the_speaking() -> None:
    send, receive = trio.open_memory_channel[bytes](0)
    receive.close()
    with pytest.raises(trio.BrokenResourceError):
        await synthesizer().speak("Yes.", Voice(), send)


async def test_an_interrupted_engine_stops_within_its_work() -> None:
    await synthesizer().load()
    await kokoro_worker(default_directory()).run(lambda engine, _: interrupt(engine))


def interrupt(engine: Kokoro) -> None:
    speech = engine.begin("I would like two large coffees, please.", VOICES[0])
    stop = Stop()
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    with pytest.raises(Stopped):
        while not speech.is_complete:
            engine.go_on(speech, stop)
    timer.join()
    assert engine.go_on(engine.begin("Yes.", VOICES[0]), Stop())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.text(max_size=60), st.sampled_from([written for written, _ in SPOKEN])))
def test_the_phonemizer_takes_whatever_the_normalizer_gives(text: str) -> None:
    said = normalize(text)
    for phonemes in phonemizer().phonemes(said) if said else []:
        assert 0 < len(phonemes) <= TOKEN_LIMIT
        assert len(phonemizer().tokens(phonemes)) == len(phonemes)


phonemizer = cache(Phonemizer)


# --- parts that cannot be had ----------------------------------------------------------------------------------------


def test_a_wrong_configuration_names_its_faults() -> None:
    with pytest.raises(ConfigurationError, match=r"turnDetection\.silenceMs: input should be greater"):
        make_recognizer({"provider": "Local", "turnDetection": {"silenceMs": 5}})
    with pytest.raises(ConfigurationError, match=r"speed: extra inputs"):
        make_recognizer({"provider": "Local", "speed": 5})
    with pytest.raises(ConfigurationError, match=r"no voice 'marin'; it has jf_gongitsune, jm_kumo"):
        make_synthesizer({"provider": "Local", "voice": "marin"})


async def test_models_that_are_missing_or_damaged_are_a_clear_sentence(tmp_path: Path) -> None:
    configuration = {"provider": "Local", "modelsDirectory": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=r"run `python -m providers\.local\.models prepare"):
        make_synthesizer(configuration)
    for file in PREPARED:
        (tmp_path / file.name).write_bytes(b"damaged")
    part = make_synthesizer(configuration)
    assert not part.is_ready
    with pytest.raises(ConfigurationError, match="is damaged: run"):
        await part.load()
    send, receive = trio.open_memory_channel[bytes](0)
    with (
        send,
        receive,
        pytest.raises(RealtimeException, match=r"Nothing can be spoken on this server: .* is damaged") as caught,
    ):
        await part.speak("Yes.", Voice(), send)
    assert caught.value.code is ErrorCode.SYNTHESIS_FAILED


async def test_the_parts_are_ready_once_loaded() -> None:
    for part in (synthesizer(), make_recognizer({"provider": "Local"})):
        await part.load()
        assert part.is_ready
