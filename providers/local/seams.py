"""Speech that is made in stretches, so that its beginning can be heard before its end exists.

Sans-I/O. A stretch of features is given to the generator with some context on both sides, and where two stretches meet they are
blended. They are cut where nothing is voiced if there is such a place near, so that no tone is interrupted; where there is none,
the second stretch is moved by less than a period of the voice until both waves agree.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE: Final = 24_000
STEP_SAMPLES: Final = 300
"""Samples for one step of the features (80 a second)."""
FRAME_STEPS: Final = 2
"""Steps in one frame of the durations (40 a second)."""
CONTEXT: Final = 4
"""Steps of context, 50 ms: with more, what is near a border is no more like the undivided sound than what is far from it."""
FIRST_STEPS: Final = 36
"""The first stretch: 0.45 s of speech, the time in which two idle cores make the second and a third of them to spare."""
GROWTH: Final = 1.5
LONGEST_STEPS: Final = 120
"""1.5 s, made in half a second: as long as another session waits for its turn."""
VOICED_HERTZ: Final = 20.0
LEAD_FRAMES: Final = 5
"""Of the silence before speech: sound begins about 3 frames before the first phoneme."""
TAIL_FRAMES: Final = 12
"""Of the silence behind the last phoneme, 14 to 24 frames long: so many are left out."""
FADE_SAMPLES: Final = 240
OVERLAP_STEPS: Final = 2
SHIFT_SAMPLES: Final = 240
"""A period of the lowest voice, 100 Hz."""
AUDIBLE: Final = 0.01

Wave = NDArray[np.float32]


def plan(pitch: NDArray[np.float32], durations: Sequence[int]) -> list[int]:
    """Where the stretches begin and end, in steps: the first is where the first begins, the last where the last ends."""
    steps = len(pitch)
    begin = min(max(0, durations[0] - LEAD_FRAMES) * FRAME_STEPS, steps - 1)
    end = max(steps - TAIL_FRAMES * FRAME_STEPS, begin + 1)
    cuts = [begin]
    length = float(FIRST_STEPS)
    while end - cuts[-1] > 1.5 * length:
        low, high = cuts[-1] + round(0.8 * length), cuts[-1] + round(1.25 * length)
        cuts.append(low + _quietest(pitch[low:high], round(0.2 * length)))
        length = min(GROWTH * length, LONGEST_STEPS)
    return [*cuts, end]


def _quietest(pitch: NDArray[np.float32], preferred: int) -> int:
    """The middle of the longest unvoiced run, else the preferred place."""
    best, best_length, start = preferred, 0, 0
    for index in range(len(pitch) + 1):
        if index == len(pitch) or pitch[index] >= VOICED_HERTZ:
            if index - start > best_length:
                best, best_length = (start + index) // 2, index - start
            start = index + 1
    return best


class Joiner:
    """Stretches in, one wave out; what may still be blended with the next stretch is held back."""

    def __init__(self) -> None:
        self._held: Wave = np.zeros(0, dtype=np.float32)

    def add(self, wave: Wave, start: int, *, is_last: bool) -> Wave:
        """`wave[start]` is the sample where the one before ends; unless it is the last, it ends `OVERLAP_STEPS` too late."""
        tail = self._held[:FADE_SAMPLES]
        begin = start + _shift(tail, wave, start) if len(tail) else start
        ready = wave[begin:].copy()
        fade = np.linspace(1, 0, min(len(tail), len(ready)), dtype=np.float32)
        ready[: len(fade)] += (tail[: len(fade)] - ready[: len(fade)]) * fade
        kept = len(ready) if is_last else len(ready) - OVERLAP_STEPS * STEP_SAMPLES
        self._held = ready[kept:]
        return ready[:kept]


def _shift(tail: Wave, wave: Wave, start: int) -> int:
    """How far to move so that `wave` at `start` goes on like `tail`."""
    low = max(-SHIFT_SAMPLES, -start)
    around = wave[start + low : start + SHIFT_SAMPLES + len(tail)]
    if len(around) < len(tail):
        return 0
    windows = np.lib.stride_tricks.sliding_window_view(around, len(tail))
    likeness = windows @ tail / (np.sqrt(np.square(windows).sum(axis=1)) + 1e-6)
    return low + int(np.argmax(likeness))


def trim_end(wave: Wave, pause: int) -> Wave:
    """The wave with a pause of so many samples behind its last audible one, or less when it has less."""
    audible = np.flatnonzero(np.abs(wave) > AUDIBLE)
    return wave[: (int(audible[-1]) if len(audible) else 0) + pause]
