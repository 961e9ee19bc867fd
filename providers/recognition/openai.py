"""Recognition by any endpoint that speaks OpenAI's transcriptions: whole utterances, found by the engine's own endpointing.

Speech start and end are told at once, whatever the endpoint is doing; the transcripts follow in the order of the utterances.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import attrs
import openai
import trio
from pydantic import Field

from engine.elements import EmotionalState, InputAudio, SpeakingState, Transcript
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput
from engine.protocol.audio import bytes_for_ms
from engine.protocol.wav import wav_bytes
from providers.compatible import (
    BrokenAnswer,
    Endpoint,
    Part,
    Patience,
    api_key,
    read_configuration,
    request_headers,
    run_tries,
    sdk_client,
)
from providers.recognition.endpointing import Endpointer, Loudness, SpeechStarted, TurnDetection

SAMPLE_RATE = 16000
"""What these models work on; more would only be uploaded."""
UTTERANCES = 8
"""Utterances waiting for their words. Behind them audio waits, and with it the next barge-in; at eight, somebody has spoken on for
longer than the endpoint's time limit."""
SHORTEST_MS = 500
"""Shorter utterances are filled up with silence: endpoints refuse less than 100 ms, and models guess at less than this."""
NO_SPEECH = 0.6
"""Whisper's own doubt about a segment above which it is left out: "you" and "Thank you." out of silence."""


class RecognitionConfiguration(Endpoint):
    """The `stt` part of a project file."""

    model: str = Field(default="gpt-4o-mini-transcribe", min_length=1)
    language: str = Field(default="", pattern=r"^([a-z]{2,3}(-[A-Za-z]{2,4})?)?$")
    """Of the speech, such as "en"; left out, the model finds it out, sometimes wrongly in short utterances."""
    prompt: str = ""
    """Words to expect, such as names."""
    response_format: Literal["json", "verbose_json"] = "json"
    """`verbose_json`, which only Whisper models give, tells how sure it is that there was speech at all."""
    turn_detection: TurnDetection = TurnDetection()


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

    async def run(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        failure: RealtimeException | None = None
        waiting, utterances = trio.open_memory_channel[bytes](UTTERANCES)

        async def transcribe_all() -> None:
            nonlocal failure
            with utterances:
                try:
                    async for pcm in utterances:
                        text = await self._transcribe(pcm)
                        await elements.send(Transcript(text, provider=self.name))
                except RealtimeException as exc:
                    failure = exc  # raised below as it is, not in a group
                    nursery.cancel_scope.cancel(reason="recognition failed")

        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transcribe_all, name="transcription")
            with waiting:
                await self._listen(audio, elements, waiting)
        if failure is not None:
            raise failure

    async def _listen(
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        utterances: trio.MemorySendChannel[bytes],
    ) -> None:
        endpointer = Endpointer(self.sample_rate, self._settings.turn_detection, Loudness())

        async def tell(events: list[Any]) -> None:
            for event in events:
                if isinstance(event, SpeechStarted):
                    await elements.send(EmotionalState(SpeakingState.USER_SPEAKING))
                    await elements.send(Transcript(".", is_interim=True, provider=self.name))
                else:
                    await elements.send(EmotionalState(SpeakingState.USER_NOT_SPEAKING))
                    await utterances.send(event.pcm)

        async for item in audio:
            await tell(endpointer.feed(item.data) if isinstance(item, InputAudio) else endpointer.commit())
        await tell(endpointer.commit())

    async def _transcribe(self, pcm: bytes) -> str:
        """The words of an utterance; "" for none."""
        if not pcm:
            return ""
        settings = self._settings
        part = Part("recognition", "stt", ErrorCode.RECOGNITION_FAILED, settings.model)
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

        await run_tries(once, part, settings.timeout_seconds)
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
