"""Our own voice speaks to our own ears."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cache

import numpy as np
import soxr  # type: ignore[import-untyped]  # the package ships no type marker
import trio
from numpy.typing import NDArray

from engine.elements import EmotionalState, InputAudio, Partial, Transcript
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput, Voice
from providers.local import models
from providers.local.recognition import make_recognizer
from providers.local.synthesis import LocalSynthesizer, make_synthesizer

RATE = 16_000
FRAME = 640
"""Bytes in 20 ms."""
_clips: dict[tuple[str, str], bytes] = {}


@cache
def synthesizer() -> LocalSynthesizer:
    models.prepare(models.default_directory())
    return make_synthesizer({"provider": "Local"})


async def say(text: str, voice: str = "jf_gongitsune") -> bytes:
    """PCM16 at 24 kHz."""
    send, receive = trio.open_memory_channel[bytes](1000)
    with send:
        await synthesizer().speak(text, Voice(voice), send)
    with receive:
        return b"".join([chunk async for chunk in receive])


async def clip(text: str, voice: str = "jf_gongitsune") -> NDArray[np.float32]:
    """The same at 16 kHz; each is made once."""
    if (text, voice) not in _clips:
        _clips[text, voice] = await say(text, voice)
    samples = np.frombuffer(_clips[text, voice], dtype="<i2").astype(np.float32) / 32768
    resampled: NDArray[np.float32] = soxr.resample(samples, 24_000, RATE)
    return resampled


def speech_end(samples: NDArray[np.float32]) -> int:
    """The sample behind the last one of speech (-34 dBFS)."""
    return int(np.flatnonzero(np.abs(samples) > 0.02)[-1]) + 1


def pcm(*parts: NDArray[np.float32] | float) -> bytes:
    """PCM16 of speech and of seconds of silence, over a faint hiss as of a microphone."""
    joined = np.concatenate(
        [np.zeros(round(part * RATE), dtype=np.float32) if isinstance(part, float) else part for part in parts]
    )
    hiss = np.random.default_rng(0).normal(0, 0.0003, len(joined))
    return (np.clip(joined + hiss, -1, 1) * 32767).astype("<i2").tobytes()


async def recognize(
    inputs: bytes | Sequence[RecognizerInput], recognizer: Recognizer | None = None
) -> list[RecognitionElement]:
    """All elements for some audio, given as fast as it is taken."""
    items = split(inputs) if isinstance(inputs, bytes) else inputs
    async with listening(recognizer) as (audio, elements):

        async def feed() -> None:
            with audio:
                for item in items:
                    await audio.send(item)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            found = [element async for element in elements]
        return found


def split(audio: bytes, size: int = FRAME) -> list[RecognizerInput]:
    return [InputAudio(audio[at : at + size]) for at in range(0, len(audio), size)]


class Ready(trio.TaskStatus[None]):
    """Set when a service says that it has started."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def started(self, value: None = None) -> None:
        self.event.set()


@asynccontextmanager
async def listening(
    recognizer: Recognizer | None = None,
) -> AsyncGenerator[tuple[trio.MemorySendChannel[RecognizerInput], trio.MemoryReceiveChannel[RecognitionElement]]]:
    """A running recognizer: where its audio goes, and where its elements come from, until it has returned."""
    audio, inputs = trio.open_memory_channel[RecognizerInput](32)
    outputs, elements = trio.open_memory_channel[RecognitionElement](100)
    part = recognizer or make_recognizer({"provider": "Local"})

    ready = Ready()

    async def hear() -> None:
        with inputs, outputs:
            await part.run(inputs, outputs, task_status=ready)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        await ready.event.wait()
        with audio, elements:
            yield audio, elements
        nursery.cancel_scope.cancel()


def finals(elements: Sequence[RecognitionElement]) -> list[str]:
    return [element.text for element in elements if isinstance(element, Transcript) and not element.is_interim]


def shape(elements: Sequence[RecognitionElement]) -> list[str]:
    """The kinds of elements in their order, without the partials."""
    names: list[str] = []
    for element in elements:
        match element:
            case Transcript(is_interim=is_interim):
                names.append("interim" if is_interim else "final")
            case EmotionalState(state=state) if state is not None:
                names.append(state.value)
            case Partial() | EmotionalState():
                pass
    return names
