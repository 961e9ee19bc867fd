"""Recognition by any endpoint that speaks OpenAI's transcriptions: whole utterances, found by the offline voice's endpointing.

Two tasks: one listens and never waits for words, one has them found, utterance by utterance, so that the elements of two never
mix. A new utterance is told behind the words of the last one: nothing is being said by then that it could cut, and told so it
cuts the answer to those words at its first sound.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, cast

import attrs
import openai
import trio
from pydantic import Field

from engine.config import CamelModel
from engine.elements import EmotionalState, InputAudio, SpeakingState, Transcript
from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput
from engine.protocol.audio import bytes_for_ms
from engine.protocol.wav import wav_bytes
from providers.compatible import (
    BrokenAnswer,
    Endpoint,
    PartErrors,
    Patience,
    api_key,
    have_connections,
    load_connections,
    read_configuration,
    request_headers,
    run_tries,
    sdk_client,
)
from providers.local.endpointing import Endpointer, EndpointEvent, SpeechEnded, SpeechStarted, TurnDetection
from providers.local.voice_activity import VoiceActivity, load_detector
from providers.recognition.loudness import Loudness

logger = logging.getLogger(__name__)

SAMPLE_RATE = 16000
"""What these models, and the voice detector, work on."""
EVENTS = 16
"""Beginnings and ends of utterances waiting for the words of earlier ones. Behind them the audio waits: eight utterances is more
than somebody says within the endpoint's time limit."""
SHORTEST_MS = 500
"""Shorter utterances are filled up with silence: endpoints refuse less than 100 ms, and models guess at less than this."""
NO_SPEECH = 0.6
"""Whisper's own doubt about a segment above which it is left out: "you" and "Thank you." out of silence."""


class TurnDetectionConfiguration(CamelModel):
    """The `turnDetection` of a project file, in milliseconds."""

    silence_ms: int = Field(default=500, ge=100, le=5000)
    min_speech_ms: int = Field(default=200, ge=32, le=2000)


class RecognitionConfiguration(Endpoint):
    """The `stt` part of a project file."""

    model: str = Field(default="gpt-4o-mini-transcribe", min_length=1)
    language: str = Field(default="", pattern=r"^([a-z]{2,3}(-[A-Za-z]{2,4})?)?$")
    """Of the speech, such as "en"; left out, the model finds it out, sometimes wrongly in short utterances."""
    prompt: str = ""
    """Words to expect, such as names."""
    response_format: Literal["json", "verbose_json"] = "json"
    """`verbose_json`, which only Whisper models give, tells how sure it is that there was speech at all."""
    detector: Literal["neural", "loudness"] = "neural"
    """What hears whether there is speech. Without the package of the neural detector it is loudness, whatever is said here."""
    turn_detection: TurnDetectionConfiguration = TurnDetectionConfiguration()


def make_recognizer(configuration: Mapping[str, Any]) -> "OpenAIRecognizer":
    """The part from its configuration.

    Raises:
        ConfigurationError: a field or the key is missing or wrong; the message says what to set.
    """
    settings = read_configuration(RecognitionConfiguration, configuration, "stt")
    return OpenAIRecognizer(settings, api_key(settings, "stt"))


@attrs.define(eq=False)
class OpenAIRecognizer(Recognizer):
    name: ClassVar[str] = "OpenAI"
    _settings: RecognitionConfiguration
    _key: str | None = attrs.field(repr=False)
    sample_rate: int = attrs.field(default=SAMPLE_RATE, init=False)

    @property
    def is_ready(self) -> bool:
        return have_connections()

    async def load(self) -> None:
        await load_connections()

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        failure: RealtimeException | None = None
        send, events = trio.open_memory_channel[SpeechStarted | SpeechEnded](EVENTS)

        async def write() -> None:
            nonlocal failure
            try:
                await self._write(events, elements)
            except RealtimeException as exc:
                failure = exc  # raised below as it is, not in a group
                nursery.cancel_scope.cancel(reason="recognition failed")

        voice_activity = VoiceActivity(self._make_detector())
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, name="transcription")
            await self._listen(audio, voice_activity, send)
        if failure is not None:
            raise failure

    def _make_detector(self) -> Any:
        if self._settings.detector == "neural":
            try:
                return load_detector()
            except ConfigurationError as exc:
                logger.warning("speech is told from noise by its loudness: %s", exc)
        return Loudness()

    async def _listen(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        voice_activity: VoiceActivity,
        events: trio.MemorySendChannel[SpeechStarted | SpeechEnded],
    ) -> None:
        settings = self._settings.turn_detection
        endpointer = Endpointer(TurnDetection(settings.silence_ms, settings.min_speech_ms))

        async def tell(found: Iterable[EndpointEvent]) -> None:
            for event in found:
                if isinstance(
                    event, SpeechStarted | SpeechEnded
                ):  # a pause is for those who recognize ahead of the end
                    await events.send(event)

        with events:
            async for item in audio:
                if isinstance(item, InputAudio):
                    for chunk, probability in voice_activity.feed(item.data):
                        await tell(endpointer.feed(chunk, probability))
                        await trio.lowlevel.checkpoint()  # much audio may have come at once
                else:
                    await tell(endpointer.commit(voice_activity.take_rest()))
            await tell(endpointer.flush(voice_activity.take_rest()))

    async def _write(
        self,
        events: trio.MemoryReceiveChannel[SpeechStarted | SpeechEnded],
        elements: trio.MemorySendChannel[RecognitionElement],
    ) -> None:
        with events:
            async for event in events:
                match event:
                    case SpeechStarted():
                        await elements.send(EmotionalState(SpeakingState.USER_SPEAKING))
                        await elements.send(Transcript(".", is_interim=True, provider=self.name))
                    case SpeechEnded(utterance):
                        await elements.send(EmotionalState(SpeakingState.USER_NOT_SPEAKING))
                        text = await self._transcribe(utterance.audio)
                        await elements.send(Transcript(text, provider=self.name))

    async def _transcribe(self, pcm: bytes) -> str:
        """The words of an utterance; "" for none."""
        settings = self._settings
        errors = PartErrors("recognition", "stt", ErrorCode.RECOGNITION_FAILED, settings.model)
        client = sdk_client(settings.base_url, self._key)
        file = wav_bytes(pcm.ljust(bytes_for_ms(SHORTEST_MS, self.sample_rate), b"\0"), self.sample_rate)
        text = ""

        async def once(patience: Patience) -> None:
            nonlocal text
            with patience.waiting():
                answer = await client.audio.transcriptions.create(
                    extra_headers=request_headers(self._key),
                    file=("utterance.wav", file, "audio/wav"),
                    model=settings.model,
                    language=settings.language or openai.omit,
                    prompt=settings.prompt or openai.omit,
                    response_format=settings.response_format,
                )
            text = read_answer(answer)

        await run_tries(once, errors, settings.timeout_seconds)
        return text


def read_answer(answer: object) -> str:
    """The words, of the segments that are likely to hold speech when the answer tells. The SDK does not validate what it gives.

    Raises:
        BrokenAnswer: it has no words at all, not even blank ones.
    """
    text: object = getattr(answer, "text", None)
    segments: object = getattr(answer, "segments", None)
    if not isinstance(text, str):
        raise BrokenAnswer
    if isinstance(segments, list) and segments:
        spoken = [segment for segment in cast("list[object]", segments) if _is_speech(segment)]
        text = " ".join(words for segment in spoken if isinstance(words := getattr(segment, "text", None), str))
    return " ".join(text.split())


def _is_speech(segment: object) -> bool:
    doubt: object = getattr(segment, "no_speech_prob", None)
    return not isinstance(doubt, int | float) or doubt <= NO_SPEECH
