"""Speech from any endpoint that speaks OpenAI's text-to-speech.

Raw PCM is asked for, as it starts sooner and needs no decoder. An endpoint that answers with a WAV file instead is understood;
one that answers with compressed audio fails with a clear message rather than as noise in somebody's ear.
"""

import struct
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, ClassVar, Literal

import attrs
import openai
import trio
from pydantic import Field

from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import Synthesizer, Voice
from providers.compatible import (
    BrokenAnswer,
    Endpoint,
    PartErrors,
    Patience,
    api_key,
    have_connections,
    load_connections,
    open_pump,
    pump_stream,
    read_configuration,
    request_headers,
    run_tries,
    sdk_client,
)

CHUNKS = 4
"""Chunks held for the reader. Speech comes much faster than it is played; who takes it decides how far it runs ahead."""
VOICES = {"female": "nova", "male": "onyx", "neutral": "alloy"}
"""Voices that every speech model of OpenAI has; other endpoints usually know the names too."""
SAMPLE_BYTES = 2
MAX_HEADER_BYTES = 1 << 16
"""A WAV file whose sound has not begun by then is none."""


class SynthesisConfiguration(Endpoint):
    """The `tts` part of a project file."""

    model: str = Field(default="gpt-4o-mini-tts", min_length=1)
    voice: str = ""
    """Used when the session names no voice of its own; without it a voice is chosen by gender."""
    sample_rate: int = Field(default=24000, ge=8000, le=48000)
    """Hz, of what the endpoint sends: raw PCM does not say it itself. OpenAI's is 24 kHz."""
    response_format: Literal["pcm", "wav"] = "pcm"
    instructions: str = ""
    """How to speak; only newer models take it."""
    speed: float | None = Field(default=None, ge=0.25, le=4)


def make_synthesizer(configuration: Mapping[str, Any]) -> "OpenAISynthesizer":
    """The part from its configuration.

    Raises:
        ConfigurationError: a field or the key is missing or wrong; the message says what to set.
    """
    settings = read_configuration(SynthesisConfiguration, configuration, "tts")
    return OpenAISynthesizer(settings, api_key(settings, "tts"))


@attrs.define(eq=False)
class OpenAISynthesizer(Synthesizer):
    name: ClassVar[str] = "OpenAI"
    _settings: SynthesisConfiguration
    _key: str | None = attrs.field(repr=False)
    sample_rate: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sample_rate = self._settings.sample_rate

    @property
    def is_ready(self) -> bool:
        return have_connections()

    async def load(self) -> None:
        await load_connections()

    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        if not any(character.isalnum() for character in text):
            return  # there is nothing to say in an ellipsis or a smile, and endpoints refuse or hum
        async with open_pump(partial(self._stream, text, voice), CHUNKS, "speech") as chunks:
            async for chunk in chunks:
                await audio.send(chunk)

    async def _stream(self, text: str, voice: Voice, chunks: trio.MemorySendChannel[bytes]) -> None:
        errors = PartErrors("synthesis", "tts", ErrorCode.SYNTHESIS_FAILED, self._settings.model)
        client = sdk_client(self._settings.base_url, self._key)
        settings = self._settings

        async def once(patience: Patience) -> None:
            samples = Samples(self.sample_rate)

            async def give(data: bytes) -> None:
                if chunk := samples.feed(data):
                    patience.started = True
                    await chunks.send(chunk)

            async with AsyncExitStack() as stack:
                with patience.waiting():
                    response = await stack.enter_async_context(
                        client.audio.speech.with_streaming_response.create(
                            extra_headers=request_headers(self._key),
                            input=text,
                            model=settings.model,
                            voice=voice.name or settings.voice or VOICES[voice.gender or "neutral"],
                            response_format=settings.response_format,
                            instructions=settings.instructions or openai.omit,
                            speed=openai.omit if settings.speed is None else settings.speed,
                        )
                    )
                check_media_type(response.headers.get("content-type", ""))
                await pump_stream(response.iter_bytes(), patience, give)
            if not patience.started:
                raise BrokenAnswer

        await run_tries(once, errors, settings.timeout_seconds)


# --- the bytes as they come ------------------------------------------------------------------------------------------


def not_speech(what: str) -> RealtimeException:
    return RealtimeException(ErrorCode.SYNTHESIS_FAILED, f"The synthesis endpoint {what}.")


def check_media_type(content_type: str) -> None:
    """Refuse what cannot be PCM. Many endpoints give no type, or a general one, for what is.

    Raises:
        RealtimeException: the endpoint says it sends something else.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind in ("application/json", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/opus"):
        raise not_speech(f"sent {kind} instead of raw PCM: set tts.responseFormat to a format it supports")


@attrs.define(eq=False)
class Samples:
    """Bytes in pieces of any length to whole samples; the header of a WAV file is checked and taken off. Sans-I/O."""

    sample_rate: int
    _pending: bytes = attrs.field(default=b"", init=False)
    _in_sound: bool = attrs.field(default=False, init=False)
    _left: int | None = attrs.field(default=None, init=False)
    """Bytes of sound still to come when a WAV header says so: notes may follow the sound."""

    def feed(self, data: bytes) -> bytes:
        """The whole samples that are complete now.

        Raises:
            RealtimeException: it is a WAV file of another kind than PCM16 mono at the configured rate.
        """
        self._pending += data
        if not self._in_sound and not self._skip_header():
            return b""
        if self._left is not None:
            self._pending = self._pending[: self._left]
        whole = len(self._pending) - len(self._pending) % SAMPLE_BYTES
        samples, self._pending = self._pending[:whole], self._pending[whole:]
        if self._left is not None:
            self._left -= len(samples)
        return samples

    def _skip_header(self) -> bool:
        """Whether the sound has begun."""
        head = self._pending
        if not head.startswith(b"RIFF"[: len(head)]):
            self._in_sound = True  # raw PCM
            return True
        place = 12
        while place + 8 <= len(head):
            name, size = struct.unpack_from("<4sI", head, place)
            place += 8
            if name == b"data":
                # A file that is written while it is sent cannot know its length, and says 0 or the largest number there is.
                self._left = size if 0 < size < 0x7FFFFFFF else None
                self._pending = head[place:]
                self._in_sound = True
                return True
            if name == b"fmt " and place + 16 <= len(head):
                self._check_format(struct.unpack_from("<HHIIHH", head, place))
            place += size + size % 2
        if len(head) > MAX_HEADER_BYTES:
            raise not_speech("sent a WAV file without sound")
        return False

    def _check_format(self, fields: tuple[int, ...]) -> None:
        kind, channels, rate, _, _, bits = fields
        if kind not in (1, 0xFFFE) or channels != 1 or bits != 16:
            raise not_speech("sent a WAV file that is not 16 bit mono PCM")
        if rate != self.sample_rate:
            raise not_speech(f"speaks at {rate} Hz: set tts.sampleRate to {rate}")
