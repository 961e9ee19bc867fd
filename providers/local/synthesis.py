"""The offline synthesizer: Kokoro speaks (SPEC P9). No key, no network.

Sound is sent as soon as it exists, stretch by stretch, while the next is made. Between two stretches another session may have
its turn, so that many who begin to speak at once all begin soon.
"""

import logging
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
import trio
from pydantic import ValidationError

from engine.config import CamelModel
from engine.errors import ConfigurationError, ErrorCode, RealtimeException, Whose
from engine.interfaces import Synthesizer, Voice
from providers.local.kokoro import VOICES, Kokoro, Speech, chunks
from providers.local.models import (
    KOKORO_VOCABULARY,
    PREPARE,
    PREPARED,
    PRONUNCIATION,
    directory_from,
    require_package,
)
from providers.local.normalizer import normalize
from providers.local.phrases import pieces
from providers.local.repertoire import Repertoire
from providers.local.seams import SAMPLE_RATE
from providers.local.worker import Stop, Worker

logger = logging.getLogger(__name__)

NAME: Final = "Local"
CHUNK_SAMPLES: Final = SAMPLE_RATE // 10
"""100 ms: what one frame to the client may hold."""
AHEAD: Final = 1
"""Stretches made before the reader has taken the one before."""
MESSAGE: Final = "Speech synthesis failed."
VOICE_BY_GENDER: Final = {"female": "jf_gongitsune", "male": "jm_kumo"}


class _Configuration(CamelModel):
    provider: str = NAME
    models_directory: str = ""
    voice: str = ""
    """Used when the session names no voice of its own; without it a voice is chosen by gender."""


@cache
def kokoro_worker(directory: Path) -> Worker[Kokoro]:
    """The process's one synthesis engine (one for each models directory)."""
    return Worker("synthesis engine", partial(Kokoro, directory))


@cache
def repertoire(directory: Path) -> Repertoire:
    """What the process has said lately."""
    return Repertoire()


def make_synthesizer(configuration: Mapping[str, Any]) -> "LocalSynthesizer":
    """The part from its configuration; imports and loads nothing yet.

    Raises:
        ConfigurationError: a field is wrong, a package is not installed, or the models were not prepared.
    """
    try:
        settings = _Configuration.model_validate(dict(configuration))
    except ValidationError as exc:
        faults = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg'].lower()}" for error in exc.errors())
        raise ConfigurationError(f"the offline synthesizer is not configured properly: {faults}") from exc
    if settings.voice and settings.voice not in VOICES:
        raise ConfigurationError(f"the offline synthesizer has no voice {settings.voice!r}; it has {', '.join(VOICES)}")
    for package in ("onnxruntime", KOKORO_VOCABULARY.package, PRONUNCIATION[0].package):
        require_package(package)
    directory = directory_from(configuration)
    for file in PREPARED:
        if not (directory / file.name).is_file():
            raise ConfigurationError(f"the models of the offline voice are not in {directory}: run `{PREPARE}`")
    return LocalSynthesizer(kokoro_worker(directory), repertoire(directory), settings.voice)


@attrs.define(eq=False)
class LocalSynthesizer(Synthesizer):
    name: ClassVar[str] = NAME
    _worker: Worker[Kokoro]
    _repertoire: Repertoire
    voice: str = ""
    sample_rate: int = attrs.field(default=SAMPLE_RATE, init=False)

    @property
    def is_ready(self) -> bool:
        """Whether the process's engine is loaded and warm."""
        return self._worker.is_loaded

    async def load(self) -> None:
        """Load and warm the process's engine: about 3 s, once.

        Raises:
            ConfigurationError: a package or a model file is missing or damaged.
        """
        await self._worker.run(lambda engine, stop: None)

    async def speak(self, text: str, voice: Voice, audio: trio.MemorySendChannel[bytes]) -> None:
        await trio.lowlevel.checkpoint()
        spoken = pieces(normalize(text))
        if not spoken:
            return
        send, receive = trio.open_memory_channel[bytes](AHEAD)
        failures: list[Exception] = []

        async def make() -> None:
            """Keeps a failure, so that it is raised as itself and not in a group."""
            with send:
                try:
                    await self._make(spoken, self._choose(voice), send)
                except Exception as exc:
                    failures.append(exc)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(make, name="synthesis")
            try:
                with receive:
                    async for pcm in receive:
                        for chunk in chunks(pcm, CHUNK_SAMPLES):
                            await audio.send(chunk)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                failures.insert(0, exc)
                nursery.cancel_scope.cancel(reason="nobody listens")
        for failure in failures:
            raise self._explain(failure) from failure

    async def _make(self, spoken: list[str], voice: str, made: trio.MemorySendChannel[bytes]) -> None:
        for piece in spoken:
            if remembered := self._repertoire.find(voice, piece):
                for pcm in remembered:
                    await made.send(pcm)
                continue
            speech, pcm = await self._worker.run(partial(_begin, piece, voice))
            stretches = [pcm]
            await made.send(pcm)
            while not speech.is_complete:
                stretches.append(await self._worker.run(partial(_go_on, speech)))
                await made.send(stretches[-1])
            self._repertoire.add(voice, piece, stretches)

    def _choose(self, voice: Voice) -> str:
        if voice.name in VOICES:
            return voice.name
        if voice.name:
            logger.warning("the offline synthesizer has no voice %r", voice.name)
        return self.voice or VOICE_BY_GENDER.get(voice.gender or "", VOICES[0])

    def _explain(self, failure: Exception) -> Exception:
        match failure:
            case trio.BrokenResourceError() | trio.ClosedResourceError() | RealtimeException():
                return failure
            case ConfigurationError():
                message = f"Nothing can be spoken on this server: {failure}."
            case _:
                message = MESSAGE
        return RealtimeException(ErrorCode.SYNTHESIS_FAILED, message, whose=Whose.SERVER)


def _begin(piece: str, voice: str, engine: Kokoro, stop: Stop) -> tuple[Speech, bytes]:
    """In one job, so that who begins to speak waits for another's stretch once, not twice."""
    speech = engine.begin(piece, voice)
    stop.check()
    return speech, b"" if speech.is_complete else engine.go_on(speech, stop)


def _go_on(speech: Speech, engine: Kokoro, stop: Stop) -> bytes:
    return engine.go_on(speech, stop)
