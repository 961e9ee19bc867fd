"""C26: a PCM chunk with an odd number of bytes raises, is dropped, or turns everything after it into noise."""

from collections.abc import Iterator

import numpy as np
import pytest

from engine.protocol.audio import Framer, SampleCarry
from engine.protocol.resample import Resampler

SIZES = (3, 1, 1, 1001, 0, 994)
SAMPLES = np.arange(1000).astype("<i2").tobytes()


def cut(data: bytes, sizes: tuple[int, ...]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    assert at == len(data)


def test_c26_output_samples_are_the_input_samples_in_order() -> None:
    carry = SampleCarry()
    out = [carry.feed(chunk) for chunk in cut(SAMPLES, SIZES)]
    carry.flush()
    assert all(len(chunk) % 2 == 0 for chunk in out)
    assert b"".join(out) == SAMPLES


@pytest.mark.parametrize(("rate_in", "rate_out"), [(16000, 24000), (24000, 16000), (44100, 16000)])
def test_c26_the_whole_way_through_resampling_and_framing(rate_in: int, rate_out: int) -> None:
    carry, resampler, framer = SampleCarry(), Resampler(rate_in, rate_out), Framer(320)
    frames: list[bytes] = []
    for chunk in cut(SAMPLES, SIZES):
        frames += framer.feed(resampler.feed(carry.feed(chunk)))
    carry.flush()
    frames += framer.feed(resampler.flush())
    assert all(len(frame) == 320 for frame in frames)
    even = Resampler(rate_in, rate_out)
    assert b"".join(frames) + framer.flush() == even.feed(SAMPLES) + even.flush()


def test_c26_b_the_last_single_byte_is_dropped_without_an_error() -> None:
    carry = SampleCarry()
    out = b"".join(carry.feed(chunk) for chunk in cut(SAMPLES + b"\x7f", (*SIZES, 1)))
    carry.flush()
    assert out == SAMPLES
    assert carry.feed(SAMPLES) == SAMPLES


def test_c26_c_the_stray_byte_of_a_cut_response_stays_out_of_the_next() -> None:
    carry = SampleCarry()
    assert carry.feed(SAMPLES[:501]) == SAMPLES[:500]
    carry.flush()  # barge-in
    assert carry.feed(SAMPLES) == SAMPLES


def test_c26_c_directions_do_not_share_the_carry() -> None:
    up, down = SampleCarry(), SampleCarry()
    heard, said = bytearray(), bytearray()
    spoken = SAMPLES[::-1]
    for ours, theirs in zip(cut(SAMPLES, SIZES), cut(spoken, SIZES[::-1]), strict=True):
        heard += up.feed(ours)
        said += down.feed(theirs)
    assert heard == SAMPLES
    assert said == spoken
