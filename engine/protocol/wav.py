"""WAV files, read into mono 16-bit PCM and written from it.

Read with patience, as speech services stream WAV files whose length nobody knew when the header was written: a data
chunk that is cut, or that claims 0 or 0xFFFFFFFF bytes, reaches to the end of the file. The standard library's `wave`
reads neither those rightly nor float samples.
"""

import struct

import numpy as np
from numpy.typing import NDArray

_PCM = 1
_FLOAT = 3
_EXTENSIBLE = 0xFFFE
_UNKNOWN_SIZES = (0, 0xFFFFFFFF)


def read_wav(data: bytes) -> tuple[bytes, int]:
    """Mono PCM16 and its rate in Hz, from 8, 16 or 24-bit or float32 samples, mono or stereo (mixed down).

    Raises `ValueError`, with a message fit for whoever sent the file, for anything else.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _fault("it does not start like one (RIFF … WAVE)")
    layout: tuple[int, int, int, int] | None = None
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = at + 8
        if name == b"fmt ":
            layout = _layout(data[body : body + size])
        elif name == b"data":
            if layout is None:
                raise _fault("its samples come before their format")
            kind, channels, rate, bits = layout
            end = len(data) if size == 0xFFFFFFFF or (size == 0 and _is_streamed(data)) else body + size
            return _to_mono(data[body:end], kind, channels, bits), rate
        at = body + size + size % 2
    raise _fault("it holds no samples" if layout else "it holds neither format nor samples")


def wav_bytes(pcm: bytes, rate: int) -> bytes:
    """A WAV file of mono PCM16. Raises `ValueError` for half a sample, which is our own fault."""
    if len(pcm) % 2:
        raise ValueError(f"PCM of whole 16-bit samples is expected here, not {len(pcm)} bytes")
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        36 + len(pcm),
        b"WAVE",
        b"fmt ",
        16,
        _PCM,
        1,
        rate,
        2 * rate,
        2,
        16,
        b"data",
        len(pcm),
    )
    return header + pcm


def _fault(why: str) -> ValueError:
    return ValueError(f"the WAV file that was sent cannot be used: {why}")


def _is_streamed(data: bytes) -> bool:
    """Whether the file's own length was unknown too: else a data chunk of 0 bytes is just an empty one."""
    size = int.from_bytes(data[4:8], "little")
    return size in _UNKNOWN_SIZES or size + 8 < len(data)


def _layout(chunk: bytes) -> tuple[int, int, int, int]:
    """Kind of number, channels, rate, bits in a sample."""
    if len(chunk) < 16:
        raise _fault("its format chunk is cut")
    kind, channels, rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == _EXTENSIBLE and len(chunk) >= 26:
        kind = int.from_bytes(chunk[24:26], "little")  # the first two bytes of the sub-format's GUID
    if (kind, bits) not in {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_FLOAT, 32)}:
        raise _fault(f"format {kind} with {bits} bits is not read; PCM of 8, 16 or 24 bits and float of 32 are")
    if channels not in {1, 2} or frame_bytes != channels * bits // 8:
        raise _fault(f"{channels} channels in frames of {frame_bytes} bytes are not read; mono and stereo are")
    if not rate:
        raise _fault("its sample rate is 0")
    return kind, channels, rate, bits


def _to_mono(raw: bytes, kind: int, channels: int, bits: int) -> bytes:
    """Whole frames of `raw` as mono PCM16; the part of a frame a cut leaves at the end is dropped."""
    frame = channels * bits // 8
    raw = raw[: len(raw) - len(raw) % frame]
    if bits == 16 and channels == 1:
        return raw
    samples = _to_floats(raw, kind, bits)
    if channels == 2:
        samples = samples.reshape(-1, 2).mean(axis=1)
    return np.clip(np.rint(samples), -32768, 32767).astype("<i2").tobytes()


def _to_floats(raw: bytes, kind: int, bits: int) -> NDArray[np.float64]:
    """Samples on the scale of 16 bits."""
    if kind == _FLOAT:
        return np.nan_to_num(np.frombuffer(raw, "<f4").astype(np.float64) * 32768, nan=0.0)
    if bits == 8:
        return (np.frombuffer(raw, np.uint8).astype(np.float64) - 128) * 256  # 8 bits are unsigned
    if bits == 16:
        return np.frombuffer(raw, "<i2").astype(np.float64)
    wide = np.zeros((len(raw) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0] / 65536
