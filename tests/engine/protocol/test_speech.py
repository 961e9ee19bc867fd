"""A response's speech comes out whole, at the connection's rate, in frames of 100 ms at most; nothing of it gets into the next."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.resample import Resampler
from engine.protocol.speech import SpeechShaper
from engine.testing.scripted import speech


def test_at_the_same_rate_nothing_is_changed() -> None:
    shaper = SpeechShaper(24000, 100)
    assert shaper.feed(speech(100), 24000, "r1") == [speech(100)]
    assert shaper.feed(speech(250), 24000, "r1") == [speech(100), speech(100), speech(50)]
    assert shaper.feed(b"", 24000, "r1") == []
    assert shaper.finish("r1") == []


def test_a_stray_byte_is_not_carried_into_the_next_response() -> None:
    """Case C26 c."""
    shaper = SpeechShaper(24000, 100)
    assert shaper.feed(b"\1\2\3", 24000, "r1") == [b"\1\2"]
    shaper.drop("r1")
    assert shaper.feed(b"\5\6", 24000, "r2") == [b"\5\6"]
    assert shaper.feed(b"\7", 24000, "r2") == []
    assert shaper.feed(b"\7\6", 24000, "r3") == [b"\7\6"]


def test_finishing_or_dropping_another_response_does_nothing() -> None:
    shaper = SpeechShaper(8000, 100)
    assert shaper.finish("r1") == []
    shaper.drop("r1")
    whole = b"".join(shaper.feed(speech(30), 24000, "r1"))
    assert shaper.finish("r0") == []
    shaper.drop("r0")
    whole += b"".join(shaper.finish("r1"))
    assert len(whole) == 2 * 8000 * 30 // 1000
    assert shaper.finish("r1") == [], "once"


@pytest.mark.parametrize(("rate_in", "rate_out"), [(24000, 24000), (24000, 8000), (16000, 24000), (44100, 16000)])
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 9000), min_size=1, max_size=12))
def test_a_response_comes_out_as_if_in_one_piece(rate_in: int, rate_out: int, cuts: list[int]) -> None:
    """However it is cut, and with another response cut short before it."""
    pcm = speech(150, rate_in)
    shaper = SpeechShaper(rate_out, 100)
    shaper.feed(speech(37, rate_in) + b"\1", rate_in, "r0")
    frames: list[bytes] = []
    at = 0
    for size in [*cuts, len(pcm)]:
        frames += shaper.feed(pcm[at : at + size], rate_in, "r1")
        at += size
    frames += shaper.finish("r1")
    assert all(len(frame) % 2 == 0 and len(frame) <= 2 * rate_out // 10 for frame in frames)
    reference = Resampler(rate_in, rate_out)
    assert b"".join(frames) == reference.feed(pcm) + reference.flush()


def test_a_model_may_change_its_rate() -> None:
    shaper = SpeechShaper(8000, 100)
    shaper.feed(speech(20, 24000), 24000, "r1")
    frames = shaper.feed(speech(20, 16000), 16000, "r1") + shaper.finish("r1")
    assert len(b"".join(frames)) == 2 * 8000 * 20 // 1000
