"""From one sample rate to another, block by block, as if it were one piece.

Laws (acceptance case C27), for mono 16-bit PCM of whole samples:
 - any chunking of an input gives the same bytes, with a fixed ratio on any machine;
 - `feed` and then `flush` give n * rate_out / rate_in samples, rounded, where soxr would put them in time;
 - `flush` and `reset` leave the object as new;
 - two objects share coefficients, which nobody writes to, and nothing else.

Between 8, 16, 24 and 48 kHz a polyphase filter of our own does the work (`engine.protocol.lowpass`), since soxr HQ
holds back 20 to 115 ms of the input. Every other ratio, a rare guest on a wire, goes through soxr HQ.

Measured at each fixed ratio with 16-bit samples and sines at 0.9 of full scale (in brackets: soxr HQ 1.1):

    held back               12 samples of the lower rate: 1.5 ms at 8 kHz, 0.75 at 16, 0.5 at 24
    signal to noise         94.1 to 96.6 dB (91.1 to 92.3)
    passband                to 0.913 of the lower Nyquist frequency, within 0.032 dB (the same, within 0.001)
    tones above it          -96 dB or less from the Nyquist frequency on (-91); the filter alone -99, from 1.02 on -109
    phase                   straight up to 0.75 of the Nyquist frequency: noise below 0.7 differs from soxr's by -54 dB.
                            Above, tones come later: 0.35 ms at 0.85 and 1.2 ms at 0.9 with 8 kHz, half that with 16
    time for 20 ms          7 to 11 µs (3 to 14)

So nothing but the phase of the top quarter of the band is given up for 20 ms of delay.
"""

import math
from typing import Protocol

import numpy as np
import soxr  # type: ignore[import-untyped]  # the package ships no type marker
from numpy.typing import NDArray

from engine.protocol.lowpass import LOOKAHEAD, bank

FIXED_RATES = frozenset({8000, 16000, 24000, 48000})

PRODUCTS_AT_ONCE = 200_000
"""Multiplications in one matrix product. From about a million on OpenBLAS shares a product among threads, which with
the other cores busy was 30 times slower; a fifth of that fits in the cache."""


_PCM = np.dtype("<i2")
_EXACT = np.dtype(np.float64)
_LEAST, _MOST = np.array(-32768.0), np.array(32767.0)
"""Made once: with plain numbers and names numpy makes them anew for every frame, which costs a tenth of its work."""


class _Method(Protocol):
    @property
    def delay_seconds(self) -> float: ...
    def feed(self, pcm: bytes) -> bytes: ...
    def flush(self) -> bytes: ...
    def reset(self) -> None: ...


class Resampler:
    """One direction of one conversation, from `rate_in` to `rate_out` (Hz).

    Takes whole samples: a `SampleCarry` stands before it where odd bytes may come. Gives uneven blocks: a `Framer`
    stands behind it where frames are wanted.

    Raises `ValueError` for a rate that is not positive, and from `feed` for half a sample: both are our own fault.
    """

    __slots__ = ("_method", "rate_in", "rate_out")

    def __init__(self, rate_in: int, rate_out: int) -> None:
        if rate_in <= 0 or rate_out <= 0:
            raise ValueError(f"a sample rate is above 0 Hz, not {rate_in} and {rate_out}")
        self.rate_in = rate_in
        self.rate_out = rate_out
        self._method: _Method
        if rate_in == rate_out:
            self._method = _Same()
        elif {rate_in, rate_out} <= FIXED_RATES:
            self._method = _Polyphase(rate_in, rate_out)
        else:
            self._method = _Soxr(rate_in, rate_out)

    @property
    def delay_seconds(self) -> float:
        """How much of the input is held back: constant, except with soxr, which tells what it holds now."""
        return self._method.delay_seconds

    def feed(self, pcm: bytes) -> bytes:
        """Whatever of the output this input completes; with equal rates the very object that came in."""
        if len(pcm) & 1:
            raise ValueError(f"PCM of whole 16-bit samples is expected here, not {len(pcm)} bytes")
        return self._method.feed(pcm)

    def flush(self) -> bytes:
        """The end of a response or of the input: the held tail, as if silence followed. A new signal may come next."""
        return self._method.flush()

    def reset(self) -> None:
        """Barge-in: forget what is held. A new signal may come next."""
        self._method.reset()


class _Same:
    __slots__ = ()

    delay_seconds = 0.0

    def feed(self, pcm: bytes) -> bytes:
        return pcm

    def flush(self) -> bytes:
        return b""

    def reset(self) -> None:
        pass


class _Polyphase:
    """A block of inputs times a matrix is a block of outputs (`Bank`).

    The state is what the block under way needs: `_held`, the input from the start of its window on, and `_emitted`, how
    many of its outputs have gone out. Both count from the block's own zero: no number grows with the conversation.
    """

    __slots__ = ("_emitted", "_filters", "_held", "_silence", "delay_seconds")

    def __init__(self, rate_in: int, rate_out: int) -> None:
        common = math.gcd(rate_in, rate_out)
        self._filters = bank(rate_out // common, rate_in // common)
        self.delay_seconds = LOOKAHEAD / min(rate_in, rate_out)
        self._silence = bytes(-2 * self._filters.first)
        self._held = self._silence
        self._emitted = 0

    def feed(self, pcm: bytes) -> bytes:
        filters = self._filters
        data = self._held + pcm
        known = len(data) // 2 + filters.first
        complete = -((filters.lookahead - known * filters.up) // filters.down)  # outputs that are fully known
        if complete <= self._emitted:
            self._held = data
            return b""
        out = self._outputs(data, complete)
        blocks, self._emitted = divmod(complete, filters.OUTPUTS)
        self._held = data[2 * blocks * filters.step :]
        return out

    def flush(self) -> bytes:
        filters = self._filters
        known = len(self._held) // 2 + filters.first
        total = (2 * known * filters.up + filters.down) // (2 * filters.down)
        out = self._outputs(self._held, total) if total > self._emitted else b""
        self.reset()
        return out

    def reset(self) -> None:
        self._held = self._silence
        self._emitted = 0

    def _outputs(self, data: bytes, end: int) -> bytes:
        """Outputs `_emitted` to `end`, counted from the block `data` starts with; what `data` lacks is silence."""
        filters = self._filters
        rows = -(-end // filters.OUTPUTS)
        missing = 2 * ((rows - 1) * filters.step + filters.width) - len(data)
        if missing > 0:
            data += bytes(missing)
        windows = np.ndarray((rows, filters.width), _PCM, data, 0, (2 * filters.step, 2))
        at_once = PRODUCTS_AT_ONCE // filters.matrix.size
        if rows <= at_once:
            out = _to_pcm(windows.astype(_EXACT).dot(filters.matrix))
        else:
            pieces = (windows[row : row + at_once].astype(_EXACT) for row in range(0, rows, at_once))
            out = b"".join([_to_pcm(piece.dot(filters.matrix)) for piece in pieces])
        return out[2 * self._emitted : 2 * end]


class _Soxr:
    """soxr HQ in float32: with 16-bit samples it dithers, and two chunkings of one input differ by 2 LSB."""

    __slots__ = ("_rate_out", "_stream")

    def __init__(self, rate_in: int, rate_out: int) -> None:
        self._rate_out = rate_out
        self._stream = soxr.ResampleStream(rate_in, rate_out, 1, dtype="float32", quality="HQ")

    @property
    def delay_seconds(self) -> float:
        return float(self._stream.delay()) / self._rate_out

    def feed(self, pcm: bytes) -> bytes:
        return _to_pcm(self._stream.resample_chunk(np.frombuffer(pcm, "<i2").astype(np.float32)))

    def flush(self) -> bytes:
        tail = _to_pcm(self._stream.resample_chunk(np.empty(0, np.float32), last=True))
        self._stream.clear()
        return tail

    def reset(self) -> None:
        self._stream.clear()


def _to_pcm(samples: NDArray[np.float64] | NDArray[np.float32]) -> bytes:
    """Rounded and clipped, in place."""
    np.rint(samples, out=samples)
    np.maximum(samples, _LEAST, out=samples)
    np.minimum(samples, _MOST, out=samples)
    return samples.astype(_PCM).tobytes()
