"""Audio as the service takes and gives it: its formats, how loud it is, and speech that is made once and said again and again."""

import math
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pybase64

Samples = npt.NDArray[np.float64]


class Format(Enum):
    """The name on the wire, samples a second, bytes of a sample."""

    PCM = ("audio/pcm", 24000, 2)
    PCMU = ("audio/pcmu", 8000, 1)
    PCMA = ("audio/pcma", 8000, 1)

    def __init__(self, wire_name: str, rate: int, sample_bytes: int) -> None:
        self.wire_name = wire_name
        self.rate = rate
        self.sample_bytes = sample_bytes
        self.bytes_per_ms = rate // 1000 * sample_bytes

    @property
    def described(self) -> str:
        return "mono PCM16 at 24kHz" if self is Format.PCM else f"G.711 at 8kHz, {self.wire_name}"

    def ms(self, size: int) -> float:
        """The length of so many bytes, in milliseconds."""
        return size / self.bytes_per_ms

    @staticmethod
    def of(settings: dict[str, Any]) -> "Format":
        """From `{"type": "audio/pcm", …}`."""
        return _FORMATS[settings["type"]]


_FORMATS = {one.wire_name: one for one in Format}

Voice = Callable[[Format, int, int], bytes]
"""Makes the audio of a delta: its format, its place in the message (from 0), its length in milliseconds."""

FULL_SCALE = 32768.0


@cache
def _g711_levels(of: Format) -> Samples:
    """The sample that each code of a G.711 law stands for, by the definition of the law."""
    codes = np.arange(256)
    if of is Format.PCMU:
        bits = ~codes & 0xFF
        magnitudes = ((((bits & 0x0F) << 3) + 0x84) << ((bits & 0x70) >> 4)) - 0x84
    else:
        bits = codes ^ 0x55
        exponents, mantissas = (bits & 0x70) >> 4, (bits & 0x0F) << 4
        magnitudes = np.where(exponents == 0, mantissas + 8, (mantissas + 0x108) << np.maximum(exponents - 1, 0))
    negative = (bits & 0x80 != 0) if of is Format.PCMU else (bits & 0x80 == 0)
    return np.where(negative, -magnitudes, magnitudes).astype(np.float64)


@cache
def _g711_squares(of: Format) -> Samples:
    return _g711_levels(of) ** 2


def loudness(audio: bytes, of: Format) -> float:
    """The root mean square of whole samples, of 1 for the loudest there can be; 0 for nothing."""
    if not audio:
        return 0.0
    if of is Format.PCM:
        samples = np.frombuffer(audio, dtype="<i2").astype(np.float32)
        return math.sqrt(float(np.dot(samples, samples)) / len(samples)) / FULL_SCALE
    return math.sqrt(float(_g711_squares(of)[np.frombuffer(audio, dtype=np.uint8)].mean())) / FULL_SCALE


def encode(samples: Samples, of: Format) -> bytes:
    """Samples of PCM16 range in a format."""
    if of is Format.PCM:
        return np.rint(samples).astype("<i2").tobytes()
    levels = _g711_levels(of)
    order = np.argsort(levels, kind="stable")
    nearest = np.searchsorted((levels[order][1:] + levels[order][:-1]) / 2, samples)
    return order[nearest].astype(np.uint8).tobytes()


@cache
def tone(of: Format, ms: int, *, hertz: int = 250, level: float = 0.2) -> bytes:
    """A sine: speech, as far as anybody here can tell."""
    times = np.arange(of.rate * ms // 1000) / of.rate
    return encode(np.sin(2 * math.pi * hertz * times) * level * (FULL_SCALE - 1), of)


def silence(of: Format, ms: int) -> bytes:
    return encode(np.zeros(of.rate * ms // 1000), of)


def plain_voice(of: Format, index: int, ms: int) -> bytes:
    """The voice of the simulator: the same tone in every delta."""
    return tone(of, ms)


@cache
def _prepared(of: Format, ms: int) -> str:
    return pybase64.b64encode_as_string(tone(of, ms))


def spoken_delta(voice: Voice, of: Format, index: int, ms: int) -> str:
    """A delta as base64; that of the plain voice is made once for each format and length."""
    if voice is plain_voice:
        return _prepared(of, ms)
    return pybase64.b64encode_as_string(voice(of, index, ms))
