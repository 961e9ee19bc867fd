"""Small rules for mono 16-bit little-endian PCM: whole samples, even frames, µ-law, levels, lengths.

Resampling is in `engine.protocol.resample`, WAV files in `engine.protocol.wav`.
"""

import numpy as np
from numpy.typing import NDArray

SAMPLE_BYTES = 2
"""Bytes in a sample of PCM16; µ-law has 1."""

SILENCE_DBFS = -100.0
"""The level of nothing at all, and the lowest one told: a signal of one step of 16 bits is at -90."""


class SampleCarry:
    """Bytes of any chunk size in, whole samples out; the odd byte waits for the next chunk (acceptance case C26).

    Each direction, and within it each response, has its own: call `flush` where a response ends or is cut.
    """

    __slots__ = ("_odd",)

    def __init__(self) -> None:
        self._odd = b""

    def feed(self, data: bytes) -> bytes:
        """The samples that are whole by now; the very object that came in where nothing is carried."""
        if self._odd:
            data = self._odd + data
            self._odd = b""
        if len(data) % SAMPLE_BYTES:
            self._odd = data[-1:]
            return data[:-1]
        return data

    def flush(self) -> None:
        """Drop half a sample: its other half will not come."""
        self._odd = b""


class Framer:
    """Uneven blocks in, frames of `bytes_per_frame` out.

    `sample_bytes` is 2 for PCM16 and 1 for µ-law; a frame holds whole samples, else `ValueError`.
    """

    __slots__ = ("_held", "bytes_per_frame", "sample_bytes")

    def __init__(self, bytes_per_frame: int, *, sample_bytes: int = SAMPLE_BYTES) -> None:
        if bytes_per_frame <= 0 or bytes_per_frame % sample_bytes:
            raise ValueError(f"a frame is one or more samples of {sample_bytes} bytes, not {bytes_per_frame} bytes")
        self.bytes_per_frame = bytes_per_frame
        self.sample_bytes = sample_bytes
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are full by now, in order. A block that is a frame comes back as it is."""
        size = self.bytes_per_frame
        if self._held:
            data = self._held + data
        elif len(data) == size:
            return [data]
        whole = len(data) - len(data) % size
        self._held = data[whole:]
        return [data[start : start + size] for start in range(0, whole, size)]

    def flush(self) -> bytes:
        """The whole samples that fill no frame, possibly none. What is fed next starts a new frame."""
        rest, self._held = self._held, b""
        return rest[: len(rest) - len(rest) % self.sample_bytes]


# --- µ-law (ITU-T G.711) ---------------------------------------------------------------------------------------------

_BIAS = 132
"""Added to the magnitude, so that each of the eight segments starts at a power of two."""

_CLIP = 32635
"""The largest magnitude that leaves room for the bias."""


def _decode_table() -> NDArray[np.int16]:
    code = ~np.arange(256, dtype=np.uint8)  # on the line all bits are inverted
    segment = (code >> 4 & 7).astype(np.int16)
    step = (code & 15).astype(np.int16)
    magnitude = ((step * 8 + _BIAS) << segment) - _BIAS
    return np.where(code & 0x80, -magnitude, magnitude).astype("<i2")


def _encode_table() -> NDArray[np.uint8]:
    """By the sample's bits read as unsigned: that needs no offset."""
    sample = np.arange(65536).astype(np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.minimum(np.abs(sample), _CLIP) + _BIAS
    segment = np.searchsorted(256 << np.arange(7), magnitude, side="right")
    step = magnitude >> (segment + 3) & 15
    code: NDArray[np.int64] = np.where(sample < 0, 0x80, 0) | segment << 4 | step
    return (~code).astype(np.uint8)


_DECODE = _decode_table()
_ENCODE = _encode_table()


def mulaw_encode(pcm: bytes) -> bytes:
    """One byte for each sample. Half a sample at the end raises `ValueError`: a `SampleCarry` belongs before this."""
    return _ENCODE.take(np.frombuffer(pcm, "<u2")).tobytes()


def mulaw_decode(data: bytes) -> bytes:
    """One sample for each byte."""
    return _DECODE.take(np.frombuffer(data, np.uint8)).tobytes()


# --- levels ----------------------------------------------------------------------------------------------------------


def is_silent(pcm: bytes, threshold: int = 0) -> bool:
    """Whether no sample is further from zero than `threshold` steps; nothing at all is silent.

    Half a sample at the end is not looked at.
    """
    if len(pcm) < SAMPLE_BYTES:
        return True
    samples = np.frombuffer(pcm, "<i2", len(pcm) // SAMPLE_BYTES)
    return bool(samples.max() <= threshold and samples.min() >= -threshold)


def rms_dbfs(pcm: bytes) -> float:
    """Level in dB, 0 for a full-scale square wave, never less than `SILENCE_DBFS`. Half a sample is not looked at."""
    if len(pcm) < SAMPLE_BYTES:
        return SILENCE_DBFS
    samples = np.frombuffer(pcm, "<i2", len(pcm) // SAMPLE_BYTES).astype(np.float64)
    power = float(np.dot(samples, samples)) / (len(samples) * 32768.0**2)
    return max(SILENCE_DBFS, 10 * float(np.log10(power))) if power else SILENCE_DBFS


# --- lengths ---------------------------------------------------------------------------------------------------------


def duration_ms(byte_count: int, rate: int, *, sample_bytes: int = SAMPLE_BYTES) -> int:
    """Whole milliseconds in `byte_count` bytes at `rate` Hz, rounded down; in whole numbers, so that nothing drifts."""
    return byte_count // sample_bytes * 1000 // rate


def bytes_for_ms(milliseconds: int, rate: int, *, sample_bytes: int = SAMPLE_BYTES) -> int:
    """Bytes of the whole samples that fit in `milliseconds` at `rate` Hz."""
    return milliseconds * rate // 1000 * sample_bytes
