"""The offline recognizer: Silero hears when the user speaks, Whisper what (SPEC P9). No key, no network.

Two tasks. One listens: it takes the audio as it comes and never waits for words. One writes: it has the words found and sends
them, utterance by utterance, so that the elements of two never mix. Recognizing begins while the user is perhaps still pausing
(`endpointing.PAUSE_MS`); when the silence goes on to be the end, the words are there already.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, ClassVar, Final, assert_never

import attrs
import numpy as np
import trio
from pydantic import Field, ValidationError

from engine.config import CamelModel
from engine.elements import Commit, EmotionalState, InputAudio, Partial, SpeakingState, Transcript
from engine.errors import ConfigurationError, ErrorCode, RealtimeException, Whose
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput
from providers.local.endpointing import (
    PAUSE_MS,
    Endpointer,
    EndpointEvent,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    TurnDetection,
    Utterance,
)
from providers.local.mel import SAMPLE_RATE, samples_from
from providers.local.models import VOICE_ACTIVITY, WHISPER, require_package
from providers.local.plausibility import Evidence, plausible_text
from providers.local.voice_activity import CHUNK_MS, VoiceActivity, load_detector
from providers.local.whisper import Whisper
from providers.local.worker import Stop, Worker

logger = logging.getLogger(__name__)

NAME: Final = "Local"
INTERIM_TEXT: Final = "."
PARTIAL_MS: Final = 500
"""Audio between two partials, and a twentieth of the utterance more: the longer it is, the longer each takes."""
EVENTS: Final = 16
"""Events between listening and writing: about two utterances. Then the audio waits."""
MESSAGE: Final = "Speech recognition failed."
COMPLETE: Final = (".", "?", "!")
"""How a complete sentence ends."""
LEVEL_SAMPLES: Final = SAMPLE_RATE // 10


class _TurnDetectionConfiguration(CamelModel):
    silence_ms: int = Field(default=500, ge=100, le=5000)
    min_speech_ms: int = Field(default=200, ge=32, le=2000)
    complete_silence_ms: int | None = Field(default=None, ge=100, le=5000)


class _Configuration(CamelModel):
    provider: str = NAME
    models_directory: str = ""
    """Unused here: recognition needs no prepared file. The `stt` and `tts` parts take the same one."""
    partials: bool = True
    """Words while the user speaks: up to a fifth of a core for each user who speaks."""
    turn_detection: _TurnDetectionConfiguration = _TurnDetectionConfiguration()


@cache
def whisper_worker() -> Worker[Whisper]:
    """The process's one recognition engine."""
    return Worker("recognition engine", Whisper)


def make_recognizer(configuration: Mapping[str, Any]) -> "LocalRecognizer":
    """The part from its configuration; imports and loads nothing yet.

    Raises:
        ConfigurationError: a field is wrong, or a package is not installed.
    """
    try:
        settings = _Configuration.model_validate(dict(configuration))
    except ValidationError as exc:
        faults = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg'].lower()}" for error in exc.errors())
        raise ConfigurationError(f"the offline recognizer is not configured properly: {faults}") from exc
    for package in ("ctranslate2", VOICE_ACTIVITY.package, WHISPER[0].package):
        require_package(package)
    return LocalRecognizer(TurnDetection(**settings.turn_detection.model_dump()), settings.partials)


@attrs.define(eq=False)
class LocalRecognizer(Recognizer):
    name: ClassVar[str] = NAME
    detection: TurnDetection = attrs.field(factory=TurnDetection)
    sends_partials: bool = True
    sample_rate: int = attrs.field(default=SAMPLE_RATE, init=False)

    @property
    def is_ready(self) -> bool:
        """Whether the process's engine is loaded and warm."""
        return whisper_worker().is_loaded

    async def load(self) -> None:
        """Load and warm the process's engine: about 0.6 s, once.

        Raises:
            ConfigurationError: a package or a model file is missing or damaged.
        """
        await whisper_worker().run(lambda engine, stop: None)

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            detector = await whisper_worker().run(lambda engine, stop: load_detector())
        except Exception as exc:
            reason = f"on this server: {exc}" if isinstance(exc, ConfigurationError) else "now"
            message = f"Speech cannot be recognized {reason}."
            raise RealtimeException(ErrorCode.RECOGNITION_FAILED, message, whose=Whose.SERVER) from exc
        task_status.started()
        send, events = trio.open_memory_channel[_Event](EVENTS)
        endpointer = Endpointer(self.detection)
        failures: list[Exception] = []

        async def guard(work: Callable[[], Awaitable[None]]) -> None:
            """Keep a failure, so that it is raised as itself and not in a group."""
            try:
                await work()
            except Exception as exc:
                failures.append(exc)
                nursery.cancel_scope.cancel(reason="recognition failed")

        async with trio.open_nursery() as nursery:
            ear = _Ear(VoiceActivity(detector), endpointer, self.sends_partials)
            pen = _Pen(elements, endpointer, nursery)
            nursery.start_soon(guard, partial(ear.listen, audio, send), name="listening")
            nursery.start_soon(guard, partial(pen.write, events), name="writing")
        # A broken channel says that nobody wants the words any more.
        for failure in failures:
            if not isinstance(failure, trio.BrokenResourceError):
                raise RealtimeException(ErrorCode.RECOGNITION_FAILED, MESSAGE, whose=Whose.SERVER) from failure


@attrs.frozen
class _PartialDue:
    utterance: Utterance


_Event = EndpointEvent | _PartialDue


@attrs.define(eq=False)
class _Ear:
    """Audio in, events out."""

    voice_activity: VoiceActivity
    endpointer: Endpointer
    sends_partials: bool
    _since_partial_ms: int = attrs.field(default=0, init=False)

    async def listen(
        self, audio: trio.MemoryReceiveChannel[RecognizerInput], events: trio.MemorySendChannel[_Event]
    ) -> None:
        with events:
            while True:
                item: RecognizerInput | None = None
                with trio.CancelScope() as gap:
                    if self.endpointer.may_pause:  # audio that stops coming may be all there is
                        gap.deadline = trio.current_time() + PAUSE_MS / 1000
                    try:
                        item = await audio.receive()
                    except trio.EndOfChannel:
                        break
                await self._hear(item, events)
            for event in self.endpointer.flush(self.voice_activity.take_rest()):
                await events.send(event)

    async def _hear(self, item: RecognizerInput | None, events: trio.MemorySendChannel[_Event]) -> None:
        match item:
            case None:
                found = self.endpointer.pause()
            case Commit():
                found = self.endpointer.commit(self.voice_activity.take_rest())
            case InputAudio(data=data):
                found = []
                for pcm, probability in self.voice_activity.feed(data):
                    for event in self.endpointer.feed(pcm, probability):
                        await events.send(event)
                    self._consider_partial(events)
                    await trio.lowlevel.checkpoint()  # much audio may have come at once
            case _:
                assert_never(item)
        for event in found:
            await events.send(event)

    def _consider_partial(self, events: trio.MemorySendChannel[_Event]) -> None:
        """Partials never wait, and nothing waits for them: what cannot be done now is left out."""
        if not (self.sends_partials and self.endpointer.is_heard):
            self._since_partial_ms = self._since_partial_ms if self.endpointer.is_speaking else 0
            return
        self._since_partial_ms += CHUNK_MS
        if self._since_partial_ms >= PARTIAL_MS + self.endpointer.length_ms / 20 and not whisper_worker().is_busy:
            self._since_partial_ms = 0
            with suppress(trio.WouldBlock):
                events.send_nowait(_PartialDue(self.endpointer.utterance()))


@attrs.define(eq=False)
class _Words:
    """Words being found, in a task of their own."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)
    text: str = ""
    failure: Exception | None = None

    async def find(self, utterance: Utterance) -> None:
        """Sets the text, or the failure for who waits for it."""
        try:
            self.text = await whisper_worker().run(partial(_recognize, utterance))
        except Exception as exc:
            self.failure = exc


@attrs.define(eq=False)
class _Pen:
    """Events in, elements out."""

    elements: trio.MemorySendChannel[RecognitionElement]
    endpointer: Endpointer
    nursery: trio.Nursery
    _guess: _Words | None = attrs.field(default=None, init=False)
    """The words up to the pause under way."""
    _partial: _Words | None = attrs.field(default=None, init=False)

    async def write(self, events: trio.MemoryReceiveChannel[_Event]) -> None:
        with events:
            async for event in events:
                match event:
                    case SpeechStarted():
                        await self.elements.send(EmotionalState(SpeakingState.USER_SPEAKING))
                        await self.elements.send(Transcript(INTERIM_TEXT, is_interim=True, provider=NAME))
                    case _PartialDue(utterance=utterance):
                        if not whisper_worker().is_busy:
                            self._partial = _Words()
                            self.nursery.start_soon(self._send_partial, self._partial, utterance, name="partial")
                    case SpeechPaused(utterance=utterance):
                        self._guess = self._begin(utterance)
                    case SpeechResumed():
                        self._drop_guess()
                    case SpeechEnded(utterance=utterance):
                        await self._finish(utterance)
                    case _:
                        assert_never(event)
        self.nursery.cancel_scope.cancel(reason="no more audio")  # a partial may be left

    async def _finish(self, utterance: Utterance) -> None:
        if self._partial is not None:
            self._partial.scope.cancel(reason="the utterance is over")
        await self.elements.send(EmotionalState(SpeakingState.USER_NOT_SPEAKING))
        words = self._guess or self._begin(utterance)
        await words.done.wait()
        self._guess = self._partial = None
        if words.failure is not None:
            raise words.failure
        await self.elements.send(Transcript(words.text, provider=NAME))

    def _begin(self, utterance: Utterance) -> _Words:
        words = _Words()
        self.nursery.start_soon(self._recognize, words, utterance, name="recognition")
        return words

    def _drop_guess(self) -> None:
        if self._guess is not None:
            self._guess.scope.cancel(reason="the user goes on")
            self._guess = None

    async def _recognize(self, words: _Words, utterance: Utterance) -> None:
        with words.scope:
            await words.find(utterance)
            if words is self._guess and words.text.endswith(COMPLETE):
                self.endpointer.complete()
        words.done.set()

    async def _send_partial(self, words: _Words, utterance: Utterance) -> None:
        with words.scope:
            await words.find(utterance)
            if words.failure is not None:
                logger.warning("a partial failed: %s", type(words.failure).__name__)
            elif words.text:
                await self.elements.send(Partial(words.text, provider=NAME))


def _recognize(utterance: Utterance, engine: Whisper, stop: Stop) -> str:
    """In the engine's thread."""
    heard = engine.transcribe(utterance.audio, stop)
    evidence = Evidence(
        heard.no_speech_probability, heard.average_log_probability, utterance.speech_ms, level_dbfs(utterance.audio)
    )
    return plausible_text(heard.text, evidence)


def level_dbfs(pcm: bytes) -> float:
    """Of the loudest tenth of a second of PCM16 at 16 kHz; 0 is a full-scale square wave, -120 is silence."""
    samples = samples_from(pcm)
    whole = len(samples) // LEVEL_SAMPLES * LEVEL_SAMPLES
    if not whole:
        return -120.0
    power = np.square(samples[:whole]).reshape(-1, LEVEL_SAMPLES).mean(axis=1).max()
    return float(10 * np.log10(max(float(power), 1e-12)))
