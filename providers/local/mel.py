"""The spectrogram Whisper listens to: 80 mel bands of 25 ms windows, 100 a second, as the logarithm of their power.

The numbers are those of Whisper's own training: 16 kHz, 400-point Hann windows 160 samples apart, Slaney's mel scale and area
normalization, at most 8 decades below the loudest point, then (x + 4) / 4.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE: Final = 16_000
HOP: Final = 160
FRAMES_A_SECOND: Final = SAMPLE_RATE // HOP
BANDS: Final = 80
_WINDOW: Final = 400
_DECADES: Final = 8.0

Samples = NDArray[np.float32]
"""[n] between -1 and 1."""


def samples_from(pcm: bytes) -> Samples:
    """PCM16, little-endian, as numbers between -1 and 1."""
    return np.frombuffer(pcm, dtype="<i2").astype(np.float32) / np.float32(32768)


def log_mel(samples: Samples, frames: int) -> NDArray[np.float32]:
    """[80, frames]; what is longer is left out, what is missing is silence, which costs nothing to compute."""
    samples = samples[: frames * HOP]
    count = -(-len(samples) // HOP)
    if count == 0:
        return np.full((BANDS, frames), _scale(np.float32(-10), np.float32(-10)), dtype=np.float32)
    padded = np.zeros(_WINDOW // 2 + count * HOP + _WINDOW // 2, dtype=np.float32)
    padded[_WINDOW // 2 : _WINDOW // 2 + len(samples)] = samples
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[: count * HOP : HOP]
    spectrum = np.fft.rfft(windows * _hann(), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    logarithm = np.log10(np.maximum(power @ _filters(), np.float32(1e-10)))
    top = logarithm.max()
    mel = np.full((BANDS, frames), _scale(np.float32(-10), top), dtype=np.float32)
    mel[:, :count] = _scale(logarithm, top).T
    return mel


def _scale(logarithm: NDArray[np.float32] | np.float32, top: np.float32) -> NDArray[np.float32]:
    return (np.maximum(logarithm, top - np.float32(_DECADES)) + np.float32(4)) / np.float32(4)


@cache
def _hann() -> NDArray[np.float32]:
    return np.hanning(_WINDOW + 1)[:-1].astype(np.float32)


@cache
def _filters() -> NDArray[np.float32]:
    """[201, 80]: triangles between neighbouring points of the mel scale, each of the same area."""
    points = _hertz(np.linspace(0.0, _mel(SAMPLE_RATE / 2), BANDS + 2))
    frequencies = np.fft.rfftfreq(_WINDOW, 1 / SAMPLE_RATE)[:, None]
    rising = (frequencies - points[:-2]) / (points[1:-1] - points[:-2])
    falling = (points[2:] - frequencies) / (points[2:] - points[1:-1])
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.ascontiguousarray(triangles * (2.0 / (points[2:] - points[:-2])), dtype=np.float32)


# Slaney's scale: linear below 1 kHz (15 mel), logarithmic above.
_LINEAR: Final = 200.0 / 3.0
_KNEE_HERTZ: Final = 1000.0
_KNEE_MEL: Final = _KNEE_HERTZ / _LINEAR
_STEP: Final = float(np.log(6.4)) / 27.0


def _mel(hertz: float) -> float:
    return hertz / _LINEAR if hertz < _KNEE_HERTZ else _KNEE_MEL + float(np.log(hertz / _KNEE_HERTZ)) / _STEP


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(mel < _KNEE_MEL, mel * _LINEAR, _KNEE_HERTZ * np.exp(_STEP * (mel - _KNEE_MEL)))
