"""Whisper (tiny, English) as an engine: audio in, words and how sure it is of them out. Blocking; runs in a thread.

One thread for the arithmetic: with two, the encoder of a 10 s window takes as long (55 ms) and the other core is lost. The
window is as long as the audio but never shorter than 10 s, below which the model repeats itself; 30 s, which it was trained on,
would cost seven times as much.
"""

from typing import Any, Final

import attrs
import numpy as np

from providers.local.mel import BANDS, FRAMES_A_SECOND, SAMPLE_RATE, log_mel, samples_from
from providers.local.models import WHISPER, load_package
from providers.local.worker import Stop

SHORTEST_WINDOW: Final = 10 * FRAMES_A_SECOND
LONGEST_WINDOW: Final = 30 * FRAMES_A_SECOND
TRAILING_SILENCE: Final = FRAMES_A_SECOND // 2
"""Silence behind longer audio, so that its last word does not end with the window."""
PROMPT: Final = ("<|startoftranscript|>", "<|notimestamps|>")
TOKENS_A_SECOND: Final = 8
TOKENS_AT_LEAST: Final = 16
"""Nobody speaks more (5 words a second are fast). It bounds the time a decoder that repeats itself takes."""
SPECIAL: Final = "<|"


@attrs.frozen
class Heard:
    text: str
    no_speech_probability: float
    average_log_probability: float


class Whisper:
    """The model in memory: 75 MB on disk, about 100 MB resident."""

    def __init__(self) -> None:
        """Raises ConfigurationError when a package or file is missing or damaged."""
        ctranslate2 = load_package("ctranslate2")
        for file in WHISPER:
            file.check()
        folder = WHISPER[0].locate().parent
        self._view = ctranslate2.StorageView.from_array
        self._model = ctranslate2.models.Whisper(
            str(folder), device="cpu", compute_type="int8", intra_threads=1, inter_threads=1
        )
        self.transcribe(bytes(2 * SAMPLE_RATE), Stop())  # the first time is slow

    def transcribe(self, pcm: bytes, stop: Stop) -> Heard:
        """The words of at most 30 s of PCM16 at 16 kHz.

        Raises:
            Stopped: between two of the three steps, each of which takes up to 100 ms for a short utterance.
        """
        seconds = len(pcm) / 2 / SAMPLE_RATE
        frames = round(seconds * FRAMES_A_SECOND) + TRAILING_SILENCE
        frames = min(max(SHORTEST_WINDOW, frames + frames % 2), LONGEST_WINDOW)
        mel = log_mel(samples_from(pcm), frames)
        stop.check()
        encoded = self._model.encode(self._view(np.ascontiguousarray(mel.reshape(1, BANDS, frames))))
        stop.check()
        result: Any = self._model.generate(
            encoded,
            [list(PROMPT)],
            beam_size=1,
            max_length=TOKENS_AT_LEAST + round(TOKENS_A_SECOND * seconds),
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        tokens: list[str] = result.sequences[0]
        return Heard(decode(tokens), float(result.no_speech_prob), float(result.scores[0]))


def decode(tokens: list[str]) -> str:
    """The text of tokens of GPT-2's byte alphabet, in which each character stands for one byte."""
    data = bytes(_BYTES[character] for token in tokens if not token.startswith(SPECIAL) for character in token)
    return data.decode("utf-8", errors="ignore").strip()


def _byte_alphabet() -> dict[str, int]:
    """Printable bytes stand for themselves, the others are moved to behind U+0100 in their order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {chr(byte): byte for byte in printable}
    moved = (byte for byte in range(0x100) if byte not in printable)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(moved)}


_BYTES: Final = _byte_alphabet()
