"""A caller with a voice: speaks what a text says into a running connection, in real time, and listens."""

import re
import unicodedata
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from engine.boundary import Keep
from engine.composition import open_services
from engine.config import PipelineConfiguration
from engine.elements import (
    Action,
    InputAudio,
    OutCommand,
    OutputElement,
    OutSpeech,
    OutText,
    OutTranscript,
    Transcript,
)
from engine.interfaces import RecognitionElement, Recognizer, RecognizerInput, Synthesizer, Voice
from engine.pipeline.line import ClientLine, open_line
from engine.principal import Principal
from engine.protocol.audio import bytes_for_ms, rms_dbfs
from engine.protocol.player import PlayedLine
from engine.protocol.resample import Resampler
from engine.session.windowing import run_connection

MICROPHONE_RATE = 16000
FRAME_MS = 20
AUDIBLE_DBFS = -50.0


@attrs.define(eq=False)
class Caller:
    """A microphone that is always open, and a loudspeaker that stops on an interim transcript."""

    line: ClientLine
    player: PlayedLine = attrs.field(factory=lambda: PlayedLine(24000))
    heard: list[tuple[float, OutputElement]] = attrs.field(factory=list[tuple[float, OutputElement]])
    speech: dict[str, bytearray] = attrs.field(factory=dict[str, bytearray])
    """The speech of each response that came, as it was played."""
    began: float = attrs.field(factory=trio.current_time)
    _to_say: bytearray = attrs.field(factory=bytearray)
    _said: trio.Event = attrs.field(factory=trio.Event)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    @property
    def now(self) -> float:
        return trio.current_time() - self.began

    async def say(self, pcm: bytes) -> float:
        """Speak; returns when the last sound has left the mouth, and that time."""
        self._said = trio.Event()
        self._to_say += pcm
        await self._said.wait()
        return self.now

    async def hold_the_line(self) -> None:
        """The microphone: a frame every 20 ms, silence when nobody speaks."""
        frame = bytes_for_ms(FRAME_MS, MICROPHONE_RATE)
        frames = 0
        while True:
            data = bytes(self._to_say[:frame])
            del self._to_say[:frame]
            await self.line.put_input(InputAudio(data.ljust(frame, b"\0")))
            if not self._to_say:
                self._said.set()
            frames += 1
            await trio.sleep_until(self.began + frames * FRAME_MS / 1000)

    async def listen(self) -> None:
        while (element := await self.line.take_output()) is not None:
            self.heard.append((self.now, element))
            if isinstance(element, OutTranscript) and element.is_interim:
                self.player.stop(self.now)
            if isinstance(element, OutSpeech):
                self.speech.setdefault(element.response_id, bytearray()).extend(element.data)
                self.player.play(element.data, self.now)
            self._changed.set()
            self._changed = trio.Event()

    async def wait_for_exits(self, count: int) -> None:
        while sum(isinstance(e, OutCommand) and e.name == "exit" for _, e in self.heard) < count:
            await self._changed.wait()

    async def wait_for_speech(self, after: float) -> float:
        """When the first speech after a time came."""
        while True:
            for time, element in self.heard:
                if time >= after and isinstance(element, OutSpeech) and element.data:
                    return time
            await self._changed.wait()

    async def wait_for_tool(self, name: str) -> None:
        """Until that tool has done what it does."""
        while not any(
            isinstance(e, OutCommand) and e.name == "tool-success" and e.parameters["name"] == name
            for _, e in self.heard
        ):
            await self._changed.wait()

    async def wait_until_played(self) -> None:
        await trio.sleep_until(self.began + self.player.ends_at)

    @property
    def words_understood(self) -> list[str]:
        """What was recognized of the caller."""
        return [e.text for _, e in self.heard if isinstance(e, OutTranscript) and not (e.is_interim or e.is_synthetic)]

    def sentences(self, response_id: str) -> list[str]:
        return [e.text for _, e in self.heard if isinstance(e, OutText) and e.response_id == response_id]


@asynccontextmanager
async def open_call(store: str, keep: Keep | None = None) -> AsyncGenerator[Caller]:
    """A call to the demo café over the engine with its real voice."""
    configuration = PipelineConfiguration(key="agent:barista", session_id="call", input_sample_rate=MICROPHONE_RATE)
    async with open_services(store=store, keep=keep) as services:
        line = open_line(configuration, services.settings)
        caller = Caller(line)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.listen, name="listen")

            async def connect() -> None:
                await run_connection(configuration, line, services, principal=Principal("device:caller"))

            nursery.start_soon(connect, name="connection")
            microphone = trio.CancelScope()
            nursery.start_soon(_hold, caller, microphone, name="microphone")
            await line.put_input(Action("intro"))
            yield caller
            microphone.cancel(reason="the caller hangs up")
            line.end_input()


async def _hold(caller: Caller, microphone: trio.CancelScope) -> None:
    with microphone:
        await caller.hold_the_line()


async def transcribe(recognizer: Recognizer, pcm: bytes, rate: int) -> str:
    """What a recognizer makes of some speech."""
    resampler = Resampler(rate, recognizer.sample_rate)
    sound = resampler.feed(pcm) + resampler.flush() + bytes(2 * recognizer.sample_rate)
    audio, frames = trio.open_memory_channel[RecognizerInput](0)
    said, elements = trio.open_memory_channel[RecognitionElement](0)
    words: list[str] = []

    async def feed() -> None:
        with audio:
            size = bytes_for_ms(FRAME_MS, recognizer.sample_rate)
            for at in range(0, len(sound), size):
                await audio.send(InputAudio(sound[at : at + size]))

    async def recognize() -> None:
        with said:
            await recognizer.run(frames, said)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        nursery.start_soon(recognize)
        words = [e.text async for e in elements if isinstance(e, Transcript) and not e.is_interim]
    return " ".join(words)


async def make_speech(voice: Synthesizer, text: str) -> bytes:
    """What a caller says, as a microphone hears it: PCM16 at `MICROPHONE_RATE`."""
    made, audio = trio.open_memory_channel[bytes](4)
    chunks: list[bytes] = []

    async def speak() -> None:
        with made:
            await voice.speak(text, Voice("jm_kumo"), made)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak)
        with audio:
            chunks = [pcm async for pcm in audio]
    resampler = Resampler(voice.sample_rate, MICROPHONE_RATE)
    return without_silence_behind(resampler.feed(b"".join(chunks)) + resampler.flush())


def without_silence_behind(pcm: bytes) -> bytes:
    """Up to the last 10 ms that can be heard, so that the end of the speech is the end of the sound."""
    size = bytes_for_ms(10, MICROPHONE_RATE)
    end = len(pcm) - len(pcm) % size
    while end and rms_dbfs(pcm[end - size : end]) < AUDIBLE_DBFS:
        end -= size
    return pcm[:end]


NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def normalized(text: str) -> list[str]:
    """Words to compare: in small letters without accents, "7pm" as "7 pm", small numbers as words."""
    plain = unicodedata.normalize("NFKD", text.lower()).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z']+|[0-9]+", plain)
    return [NUMBERS[int(word)] if word.isdigit() and int(word) < len(NUMBERS) else word for word in words]


def word_errors(said: Sequence[str], understood: Sequence[str]) -> int:
    """Words inserted, left out or changed (Levenshtein)."""
    row = list(range(len(understood) + 1))
    for i, word in enumerate(said, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(understood, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (word != other))
    return row[-1]
