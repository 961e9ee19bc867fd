"""The resampler's filter: where its coefficients come from, its band, and why its sums are exact."""

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.protocol.lowpass import FRACTION_BITS, LOOKAHEAD, SPAN, bank, lowpass

Reals = NDArray[np.floating]

PASS_EDGE = 0.913  # of the lower Nyquist frequency: where soxr HQ's passband ends
KNEE = 0.75  # of the lower Nyquist frequency: where the phase may start to bend
STOP_WEIGHT = 2000  # how much more an error counts in the stopband than in the passband
TRANSITION_WEIGHT = 0.1  # between the bands: enough to keep the gain there from rising over 1
GRID = 6144  # points round the circle: ten a coefficient, and one at the lower Nyquist frequency for each factor
ROUNDS = 100
MOMENTUM = 0.9  # without it the search takes ten times as many rounds

each_factor = pytest.mark.parametrize("factor", [2, 3, 6])


def minimum_phase_delay(magnitude: Reals) -> Reals:
    """Group delay, in samples, of the minimum-phase filter with this magnitude (real cepstrum, causal half)."""
    cepstrum = np.fft.irfft(np.log(np.maximum(magnitude, 1e-5)))  # a floor at -100 dB keeps the logarithm finite
    cepstrum[1 : GRID // 2] *= 2
    cepstrum[GRID // 2 + 1 :] = 0
    return np.fft.rfft(cepstrum * np.arange(GRID)).real


def designed(factor: int) -> Reals:
    """The filter that follows the target's magnitude everywhere and its phase below the knee.

    Above the knee the phase is whatever suits the length best. It is found by turns: take the phase the filter has, fit
    the filter to it (weighted least squares), and again; from the minimum phase, delayed where that is too quick.
    """
    size = SPAN * factor
    turns = np.arange(GRID // 2 + 1) / GRID
    band = turns * 2 * factor  # 1 = Nyquist frequency of the lower rate
    slope = np.clip((band - PASS_EDGE) / (1 - PASS_EDGE), 0, 1)
    magnitude: Reals = (0.5 + 0.5 * np.cos(np.pi * slope)) ** 2
    weight = np.where(band <= PASS_EDGE, 1, np.where(band >= 1, STOP_WEIGHT, TRANSITION_WEIGHT)) ** 2
    delay = LOOKAHEAD * factor
    straight = np.exp(-2j * np.pi * turns * delay)
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    solve = np.linalg.inv(np.fft.irfft(weight)[distance])

    phase = np.exp(-2j * np.pi / GRID * np.cumsum(np.maximum(minimum_phase_delay(magnitude), delay)))
    taps = before = np.zeros(size)
    for _ in range(ROUNDS):
        phase[band <= KNEE] = straight[band <= KNEE]
        before, taps = taps, solve @ np.fft.irfft(weight * magnitude * phase)[:size]
        response = np.fft.rfft(taps + MOMENTUM * (taps - before), GRID)
        phase = response / np.maximum(np.abs(response), 1e-30)
    normal: Reals = taps / taps.sum()
    return normal


@each_factor
def test_the_table_is_what_the_design_finds(factor: int) -> None:
    # 1e-8 apart between processors, and rounded to 2**-24
    np.testing.assert_allclose(lowpass(factor, factor), designed(factor) * factor, rtol=0, atol=1e-6)


@each_factor
def test_the_filter_has_the_band_of_soxr_hq(factor: int) -> None:
    taps = lowpass(factor)
    assert len(taps) == SPAN * factor
    size = 1 << 16
    response = np.fft.rfft(taps, size)
    band = np.arange(size // 2 + 1) * 2 * factor / size
    decibels = 20 * np.log10(np.abs(response) + 1e-15)
    assert np.abs(decibels[band <= PASS_EDGE]).max() < 0.035
    assert decibels.max() < 0.035
    assert decibels[band >= 1].max() < -99
    assert decibels[band >= 1.02].max() < -109
    straight = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size * LOOKAHEAD * factor)
    assert 20 * np.log10(np.abs(response - straight)[band <= KNEE].max()) < -42


@pytest.mark.parametrize("ratio", [(2, 1), (1, 2), (3, 1), (1, 3), (6, 1), (1, 6), (3, 2), (2, 3)])
def test_sums_are_exact_in_float64(ratio: tuple[int, int]) -> None:
    matrix = bank(*ratio).matrix
    units = matrix * 2**FRACTION_BITS
    np.testing.assert_array_equal(units, np.round(units))
    assert np.abs(units).sum(axis=0).max() * 32768 < 2**53
    with pytest.raises(ValueError, match="read-only"):
        matrix[0, 0] = 1  # shared by all sessions
