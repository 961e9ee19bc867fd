"""Audio: the laws of G.711, how loud something is, how long."""

import numpy as np
import pytest

from providers.openai.simulation.sound import encode, loudness, plain_voice, spoken_delta
from providers.openai.simulator import Format, silence, tone


def test_known_codes_of_g711() -> None:
    """The ends and the middle of both laws, from the tables of the recommendation, scaled to 16 bits."""
    samples = np.array([0.0, 8.0, 32124.0, -32124.0])
    assert encode(samples, Format.PCMU)[1:] == bytes([0xFE, 0x80, 0x00])
    assert encode(samples, Format.PCMU)[0] in (0xFF, 0x7F)  # two codes stand for nothing
    samples = np.array([8.0, -8.0, 32256.0, -32256.0])
    assert encode(samples, Format.PCMA) == bytes([0xD5, 0x55, 0xAA, 0x2A])


@pytest.mark.parametrize("of", list(Format))
def test_loudness_is_the_same_in_every_format(of: Format) -> None:
    assert loudness(tone(of, 100, level=0.5), of) == pytest.approx(0.5 / 2**0.5, rel=0.02)
    assert loudness(silence(of, 100), of) < 0.001
    assert loudness(b"", of) == 0.0


@pytest.mark.parametrize(("of", "size"), [(Format.PCM, 48), (Format.PCMU, 8), (Format.PCMA, 8)])
def test_lengths(of: Format, size: int) -> None:
    assert len(tone(of, 20)) == 20 * size
    assert of.ms(20 * size) == 20


def test_the_plain_voice_is_made_once() -> None:
    first = spoken_delta(plain_voice, Format.PCM, 0, 20)
    assert spoken_delta(plain_voice, Format.PCM, 7, 20) is first


def test_another_voice_is_asked_for_every_delta() -> None:
    asked: list[tuple[Format, int, int]] = []

    def voice(of: Format, index: int, ms: int) -> bytes:
        asked.append((of, index, ms))
        return bytes([index, 0])

    assert [spoken_delta(voice, Format.PCM, index, 20) for index in (0, 1)] == ["AAA=", "AQA="]
    assert asked == [(Format.PCM, 0, 20), (Format.PCM, 1, 20)]
