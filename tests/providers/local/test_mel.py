"""The spectrogram against its definition, and its edges."""

import numpy as np
import pytest

from providers.local.mel import BANDS, HOP, SAMPLE_RATE, Samples, log_mel, samples_from


def test_a_tone_is_in_its_band() -> None:
    peaks = [int(log_mel(tone(hertz), 100)[:, 50].argmax()) for hertz in (200, 1000, 4000)]
    # 80 bands over 45.2 mel: 200 Hz is 3 mel, 1 kHz 15, 4 kHz 35.2; each band is 0.559 mel wide.
    assert peaks == [pytest.approx(mel / 0.5585 - 1, abs=1) for mel in (3, 15, 35.16)]


def tone(hertz: float) -> Samples:
    return np.sin(2 * np.pi * hertz * np.arange(SAMPLE_RATE) / SAMPLE_RATE).astype(np.float32)


def test_loudness_does_not_matter_but_range_does() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
    loud, soft = log_mel(noise, 100), log_mel(noise * np.float32(0.01), 100)
    assert np.allclose(loud - soft, 1.0, atol=1e-3)  # 4 decades of power, a quarter each
    assert loud.max() - loud.min() <= 2.0 + 1e-6


@pytest.mark.parametrize("samples", [0, 1, HOP - 1, HOP, 16_000, 200_000])
def test_any_length_fills_the_window(samples: int) -> None:
    mel = log_mel(np.zeros(samples, dtype=np.float32), 1000)
    assert mel.shape == (BANDS, 1000)
    assert mel.dtype == np.float32
    assert np.isfinite(mel).all()
    assert np.ptp(mel) < 1e-6


def test_what_is_missing_is_silence() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
    padded = np.concatenate([noise, np.zeros(SAMPLE_RATE, dtype=np.float32)])
    short, long = log_mel(noise, 200), log_mel(padded, 200)
    assert np.array_equal(short[:, :98], long[:, :98])
    assert np.array_equal(short[:, 103:], long[:, 103:])


def test_pcm_is_read_as_it_is_written() -> None:
    assert samples_from(b"\x00\x00\x00\x40\x00\x80").tolist() == [0.0, 0.5, -1.0]
