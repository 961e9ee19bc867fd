"""How loud a client was: the peak of each 50 ms of what it sent, at the time it was spoken."""

import base64
from collections.abc import Sequence

import attrs
import numpy as np

from engine.elements import JsonObject
from engine.protocol.audio import mulaw_decode

BIN_SECONDS = 0.05
MOST_BINS = 432_000
"""Six hours."""
GAP_SECONDS = 0.25
"""Sound that is that much off where it should follow begins a run of its own: there was a pause, or the network was late."""
BLOCK_BYTES = 1 << 20
"""Sound is measured in pieces of this size."""
FULL_SCALE = 32768


@attrs.define(eq=False)
class _Run:
    at: float
    peaks: bytearray = attrs.field(factory=bytearray)


@attrs.define(eq=False)
class Loudness:
    """Fed with what arrived, in its order."""

    sample_rate: int
    is_mulaw: bool = False
    _runs: list[_Run] = attrs.field(factory=list[_Run], init=False)
    _ends: float = attrs.field(default=-1.0, init=False)
    """Where the sound so far ends."""
    _waiting: bytearray = attrs.field(factory=bytearray, init=False)
    _bins: int = attrs.field(default=0, init=False)
    seconds: float = attrs.field(default=0.0, init=False)
    """Of sound that came."""

    @property
    def _sample_bytes(self) -> int:
        return 1 if self.is_mulaw else 2

    def add(self, at: float, data: bytes) -> None:
        """Sound that had arrived by then."""
        seconds = len(data) / self._sample_bytes / self.sample_rate
        self.seconds += seconds
        starts = at - seconds
        if not self._runs or abs(starts - self._ends) > GAP_SECONDS:
            self._measure(is_last=True)
            starts = max(starts, self._ends, 0.0)
            self._runs.append(_Run(starts))
            self._ends = starts
        self._ends += seconds
        self._waiting += data
        if len(self._waiting) >= BLOCK_BYTES:
            self._measure(is_last=False)

    def _measure(self, *, is_last: bool) -> None:
        size = max(1, round(self.sample_rate * BIN_SECONDS)) * self._sample_bytes
        length = len(self._waiting) if is_last else len(self._waiting) // size * size
        taken = bytes(self._waiting[: length // self._sample_bytes * self._sample_bytes])
        del self._waiting[:length]
        if not taken or self._bins >= MOST_BINS:
            return
        pcm = mulaw_decode(taken) if self.is_mulaw else taken
        samples = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32))
        bin_samples = size // self._sample_bytes
        samples = np.pad(samples, (0, -len(samples) % bin_samples))
        # The square root shows quiet speech, as ears do, and fits one byte.
        peaks = np.sqrt(samples.reshape(-1, bin_samples).max(axis=1) / FULL_SCALE) * 255
        self._runs[-1].peaks += peaks.clip(0, 255).astype(np.uint8).tobytes()
        self._bins += len(peaks)

    def shown(self) -> Sequence[JsonObject]:
        """Runs of sound: when each begins, and its peaks as base64 of one byte each, the square root of full scale."""
        self._measure(is_last=True)
        return [
            {"at": round(run.at, 3), "peaks": base64.b64encode(run.peaks).decode()} for run in self._runs if run.peaks
        ]
