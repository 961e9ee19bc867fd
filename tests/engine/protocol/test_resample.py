"""The resampler: its laws on any chunking, its polyphase against a plain convolution, and its quality against soxr HQ."""

import itertools
import math

import numpy as np
import pytest
import soxr  # type: ignore[import-untyped]  # the package ships no type marker
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.protocol.lowpass import LOOKAHEAD, lowpass
from engine.protocol.resample import FIXED_RATES, Resampler

Floats = NDArray[np.float64]

FIXED = list(itertools.permutations(sorted(FIXED_RATES), 2))
OTHERS = [(44100, 16000), (11025, 8000), (24000, 44100), (8000, 12345)]
AMPLITUDE = 29491  # 0.9 of full scale


def pcm_of(samples: Floats) -> bytes:
    return np.round(samples).astype("<i2").tobytes()


def samples_of(pcm: bytes) -> Floats:
    return np.frombuffer(pcm, "<i2").astype(np.float64)


def noise(count: int, seed: int, loudest: int = 32767) -> bytes:
    return np.random.default_rng(seed).integers(-loudest - 1, loudest + 1, count).astype("<i2").tobytes()


def resampled(pcm: bytes, rate_in: int, rate_out: int) -> bytes:
    resampler = Resampler(rate_in, rate_out)
    return resampler.feed(pcm) + resampler.flush()


def by_soxr(samples: Floats, rate_in: int, rate_out: int) -> Floats:
    """soxr HQ as the wire would have it: 16 bits in, 16 bits out."""
    out: NDArray[np.int16] = soxr.resample(np.round(samples).astype(np.int16), rate_in, rate_out, quality="HQ")
    return out.astype(np.float64)


def by_us(samples: Floats, rate_in: int, rate_out: int) -> Floats:
    return samples_of(resampled(pcm_of(samples), rate_in, rate_out))


def sine(frequency: float, rate: int) -> Floats:
    """One second."""
    wave: Floats = AMPLITUDE * np.sin(2 * np.pi * frequency / rate * np.arange(rate))
    return wave


def tone_and_noise_db(samples: Floats, frequency: float, rate: int) -> tuple[float, float]:
    """Gain of a tone of `AMPLITUDE`, and its power over all that is not the tone, a tenth of a second aside at both ends."""
    samples = samples[rate // 10 : -rate // 10]
    angle = 2 * np.pi * frequency / rate * np.arange(len(samples))
    basis = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    tone = basis @ np.linalg.lstsq(basis, samples)[0]
    power = float(np.mean(tone**2))
    rest = float(np.mean((samples - tone) ** 2))
    return 10 * math.log10(power / (AMPLITUDE**2 / 2)), 10 * math.log10(power / rest)


def level_db(samples: Floats, rate: int) -> float:
    """Power against a tone of `AMPLITUDE`, a tenth of a second aside at both ends."""
    inner = samples[rate // 10 : -rate // 10]
    return 10 * math.log10(float(np.mean(inner**2)) / (AMPLITUDE**2 / 2) + 1e-20)


# --- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    rates=st.sampled_from(FIXED + OTHERS),
    count=st.integers(0, 3000),
    seed=st.integers(0, 99),
    chunks=st.lists(st.integers(0, 700), max_size=30),
)
def test_any_chunking_gives_the_bytes_of_one_piece(
    rates: tuple[int, int], count: int, seed: int, chunks: list[int]
) -> None:
    pcm = noise(count, seed)
    whole = resampled(pcm, *rates)
    resampler = Resampler(*rates)
    out = bytearray()
    at = 0
    for chunk in chunks:
        out += resampler.feed(pcm[2 * at : 2 * (at + chunk)])
        at += chunk
    out += resampler.feed(pcm[2 * at :])
    out += resampler.flush()
    assert out == whole
    assert abs(len(whole) // 2 - count * rates[1] / rates[0]) < 1


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED + OTHERS)
def test_after_a_flush_or_a_reset_it_is_as_new(rate_in: int, rate_out: int) -> None:
    first, second = noise(rate_in // 10, 1), noise(rate_in // 7, 2)
    alone = resampled(second, rate_in, rate_out)
    resampler = Resampler(rate_in, rate_out)
    assert resampler.flush() == b""
    resampler.feed(first)
    resampler.flush()
    assert resampler.feed(second) + resampler.flush() == alone
    resampler.feed(first)
    resampler.reset()
    assert resampler.feed(second) + resampler.flush() == alone
    assert resampler.flush() == b""


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED + OTHERS)
def test_full_scale_clips_and_never_wraps(rate_in: int, rate_out: int) -> None:
    square = np.where(np.arange(rate_in // 5) // (rate_in // 400) % 2, 32767.0, -32768.0)
    beyond: Floats = soxr.resample(square, rate_in, rate_out, quality="HQ")
    out = by_us(square, rate_in, rate_out)
    loud = np.abs(beyond) > 10000
    assert np.abs(beyond).max() > 34000
    np.testing.assert_array_equal(np.sign(out[loud]), np.sign(beyond[loud]))
    assert out.max() == 32767
    assert out.min() == -32768


def test_equal_rates_pass_the_very_object_through() -> None:
    resampler = Resampler(44100, 44100)
    pcm = noise(100, 0)
    assert resampler.feed(pcm) is pcm
    resampler.reset()
    assert resampler.flush() == b""
    assert resampler.delay_seconds == 0


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED)
def test_a_fixed_ratio_holds_back_its_delay_and_no_more(rate_in: int, rate_out: int) -> None:
    resampler = Resampler(rate_in, rate_out)
    assert resampler.delay_seconds == 12 / min(rate_in, rate_out) <= 0.0015
    held = rate_out / 50 - len(resampler.feed(noise(rate_in // 50, 0))) / 2
    assert 0 <= resampler.delay_seconds * rate_out - held < 1
    for _ in range(5):
        assert len(resampler.feed(noise(rate_in // 50, 0))) == 2 * rate_out // 50


def test_soxr_tells_what_it_holds() -> None:
    resampler = Resampler(44100, 16000)
    assert resampler.delay_seconds == 0
    given_out = len(resampler.feed(noise(4410, 0))) / 2
    assert resampler.delay_seconds == pytest.approx(0.1 - given_out / 16000)
    resampler.flush()
    assert resampler.delay_seconds == 0


@pytest.mark.parametrize("rates", [(0, 8000), (8000, 0), (-8000, 8000)])
def test_a_rate_is_positive(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="above 0 Hz"):
        Resampler(*rates)


@pytest.mark.parametrize("rates", [(8000, 8000), (8000, 16000), (44100, 16000)])
def test_half_a_sample_is_refused_before_it_turns_into_noise(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="whole 16-bit samples"):
        Resampler(*rates).feed(b"\x01\x02\x03")


# --- the polyphase is the filter, exactly ------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED)
def test_polyphase_equals_a_plain_convolution(rate_in: int, rate_out: int) -> None:
    common = math.gcd(rate_in, rate_out)
    up, down = rate_out // common, rate_in // common
    factor = max(up, down)
    samples = samples_of(noise(701, 5, 12000))
    stuffed = np.zeros(len(samples) * up)
    stuffed[::up] = samples
    delayed = np.convolve(stuffed, lowpass(factor, up))[LOOKAHEAD * factor :]
    expected = np.round(delayed[::down][: math.floor(len(samples) * up / down + 0.5)])
    np.testing.assert_array_equal(by_us(samples, rate_in, rate_out), expected)


# --- held against soxr HQ ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED)
def test_sines_in_the_passband_are_as_clean_as_those_of_soxr(rate_in: int, rate_out: int) -> None:
    for share in (0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.91):
        frequency = share * min(rate_in, rate_out) / 2 + 0.37
        tone = sine(frequency, rate_in)
        gain, clean = tone_and_noise_db(by_us(tone, rate_in, rate_out), frequency, rate_out)
        _, reference = tone_and_noise_db(by_soxr(tone, rate_in, rate_out), frequency, rate_out)
        assert abs(gain) < 0.04
        assert clean > 93
        assert clean > reference


@pytest.mark.parametrize(("rate_in", "rate_out"), [pair for pair in FIXED if pair[0] > pair[1]])
def test_tones_above_the_new_band_are_as_quiet_as_those_of_soxr(rate_in: int, rate_out: int) -> None:
    shares = [1.0, 1.01, 1.05, *np.arange(1.1, rate_in / rate_out, 0.2)]
    for share in shares:
        tone = sine(share * rate_out / 2, rate_in)
        alias = level_db(by_us(tone, rate_in, rate_out), rate_out)
        assert alias < -95
        assert alias < level_db(by_soxr(tone, rate_in, rate_out), rate_out)


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED)
def test_outputs_stand_where_soxr_puts_them(rate_in: int, rate_out: int) -> None:
    samples = samples_of(noise(rate_in // 10, 3, 6000))
    ours, theirs = by_us(samples, rate_in, rate_out), by_soxr(samples, rate_in, rate_out)
    assert len(ours) == len(theirs)
    lags = range(-30, 31)
    inner = slice(100, -100)
    match = [float(np.dot(ours[inner], np.roll(theirs, lag)[inner])) for lag in lags]
    assert lags[int(np.argmax(match))] == 0


@pytest.mark.parametrize(("rate_in", "rate_out"), FIXED)
def test_below_the_knee_the_waveform_is_that_of_soxr(rate_in: int, rate_out: int) -> None:
    spectrum = np.fft.rfft(np.random.default_rng(4).standard_normal(rate_in))  # 1 Hz a line
    spectrum[int(0.7 * min(rate_in, rate_out) / 2) :] = 0
    samples = np.fft.irfft(spectrum)
    samples *= 5000 / samples.std()
    theirs = by_soxr(samples, rate_in, rate_out)
    difference = (by_us(samples, rate_in, rate_out) - theirs)[100:-100]
    assert 20 * math.log10(difference.std() / theirs.std()) < -52


@pytest.mark.parametrize(("rate_in", "rate_out"), OTHERS)
def test_other_ratios_are_soxr_without_its_dither(rate_in: int, rate_out: int) -> None:
    samples = samples_of(noise(rate_in // 4, 6, 9000))
    exact: Floats = soxr.resample(samples, rate_in, rate_out, quality="HQ")
    out = by_us(samples, rate_in, rate_out)
    assert len(out) == len(exact)
    assert np.abs(out - exact).max() < 0.51
