"""The filter behind the resampler: soxr HQ's band with a fraction of its delay.

A linear-phase filter with soxr HQ's band (flat to 0.913 of the lower rate's Nyquist frequency, stopped from 1.0 on)
needs 9.2 ms of delay at 8 kHz, whatever one does: delay is half its length. A minimum-phase filter with the same
magnitude needs 0.3 ms, but bends the phase everywhere. This one keeps the phase straight up to 0.75, at `LOOKAHEAD`
samples of the lower rate (1.5 ms at 8 kHz, 0.75 at 16, 0.5 at 24), and lets it bend between there and the band edge,
where the delay grows to 2.2 times that: a few periods of tones so high that no ear can tell.

Law: every coefficient of a bank is a whole number of 2**-`FRACTION_BITS`, so that a sum of products with 16-bit samples
is exact in float64 in whatever order it is added up: any chunking, and any machine, gives the same bytes.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from engine.protocol.lowpass_taps import TAPS

LOOKAHEAD = 12
"""Delay of the filter, in samples of the lower rate. 10 doubles the ripple, 14 gains nothing."""

SPAN = 96
"""Length of the filter, in samples of the lower rate. 88 costs 3 dB of rejection, 72 ripples by 0.6 dB."""

FRACTION_BITS = 24
"""15 bits of sample, 24 of coefficient and 2 for the sum stay below the 53 that float64 holds exactly. Rounding the
coefficients adds an error of -134 dB, far below the filter's own."""


def lowpass(factor: int, gain: int = 1) -> NDArray[np.float64]:
    """`SPAN * factor` coefficients with the sum `gain`, at a rate `factor` (2, 3 or 6) times the lower one."""
    units = np.array(TAPS[factor].split(), np.float64)
    taps: NDArray[np.float64] = np.round(units * (gain / factor)) / 2**FRACTION_BITS
    return taps


class Bank:
    """The filter, cut and laid out for one ratio `up`/`down`: a block of inputs times `matrix` is a block of outputs.

    Block `b` turns the `width` input samples from `b * step + first` on into the `OUTPUTS` output samples from
    `b * OUTPUTS` on. Outputs stand at the instants of soxr: output `j` at input `j * down / up`.
    """

    OUTPUTS = 24
    """Outputs in a block: a multiple of every `up`. Fewer copy more, more multiply more zeros; 24 was quickest."""

    def __init__(self, up: int, down: int) -> None:
        factor = max(up, down)
        self.up, self.down = up, down
        self.step = self.OUTPUTS // up * down
        self.lookahead = LOOKAHEAD * factor
        """In units of 1/up input samples (and of 1/down output samples)."""
        size = SPAN * factor
        self.first = -((size - 1 - self.lookahead) // up)
        last = ((self.OUTPUTS - 1) * down + self.lookahead) // up
        self.width = last - self.first + 1
        outputs = np.arange(self.OUTPUTS) * down + self.lookahead
        inputs = np.arange(self.first, last + 1) * up
        index = np.subtract.outer(outputs, inputs).T
        taps = lowpass(factor, up)
        self.matrix = np.where((index >= 0) & (index < size), taps[np.clip(index, 0, size - 1)], 0.0)
        self.matrix.flags.writeable = False


@functools.cache
def bank(up: int, down: int) -> Bank:
    """The one bank of a ratio, shared by all sessions."""
    return Bank(up, down)
