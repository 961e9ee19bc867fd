"""C27: resampling each small chunk on its own gives clicks at every border and a drifting length.

440 Hz, 2 s, in chunks of 20 ms, 7 ms, one sample and random sizes, against the same resampler fed in one piece.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.protocol.resample import Resampler

FREQUENCY = 440
SECONDS = 2
AMPLITUDE = 20000
RATES = [(8000, 16000), (8000, 24000), (24000, 8000), (48000, 16000), (44100, 16000)]
CHUNKS = ["20 ms", "7 ms", "1 sample", "random"]

each_rate = pytest.mark.parametrize(("rate_in", "rate_out"), RATES)
each_chunk = pytest.mark.parametrize("chunk", CHUNKS)


def sine(rate: int, frequency: float = FREQUENCY) -> bytes:
    angle = 2 * np.pi * frequency / rate * np.arange(SECONDS * rate)
    pcm: bytes = np.round(AMPLITUDE * np.sin(angle)).astype("<i2").tobytes()
    return pcm


def sizes(chunk: str, rate: int) -> Iterator[int]:
    """Samples in each chunk, without end."""
    match chunk:
        case "20 ms":
            return itertools.repeat(rate * 20 // 1000)
        case "7 ms":
            return itertools.repeat(rate * 7 // 1000)
        case "1 sample":
            return itertools.repeat(1)
        case _:
            random = np.random.default_rng(27)
            return (int(random.integers(1, rate // 20)) for _ in itertools.count())


def in_chunks(pcm: bytes, chunk: str, rate: int) -> Iterator[bytes]:
    at = 0
    for size in sizes(chunk, rate):
        if at >= len(pcm):
            return
        yield pcm[at : at + 2 * size]
        at += 2 * size


def resampled(pcm: bytes, chunk: str, rate_in: int, rate_out: int) -> NDArray[np.int32]:
    resampler = Resampler(rate_in, rate_out)
    out = [resampler.feed(piece) for piece in in_chunks(pcm, chunk, rate_in)]
    return np.frombuffer(b"".join([*out, resampler.flush()]), "<i2").astype(np.int32)


def in_one_piece(pcm: bytes, rate_in: int, rate_out: int) -> NDArray[np.int32]:
    resampler = Resampler(rate_in, rate_out)
    return np.frombuffer(resampler.feed(pcm) + resampler.flush(), "<i2").astype(np.int32)


@each_rate
@each_chunk
def test_c27_chunked_is_one_piece_in_samples_and_length_and_never_jumps(
    rate_in: int, rate_out: int, chunk: str
) -> None:
    pcm = sine(rate_in)
    whole = in_one_piece(pcm, rate_in, rate_out)
    out = resampled(pcm, chunk, rate_in, rate_out)
    # at most 1 LSB and the same length
    assert len(out) == len(whole)
    assert np.abs(out - whole).max() <= 1
    # within 1 sample in all, not 1 a chunk
    assert abs(len(out) - SECONDS * rate_out) <= 1
    # no click: 5 ms aside, no step over 1.5 times the largest one of the ideal sine
    largest = 2 * AMPLITUDE * math.sin(math.pi * FREQUENCY / rate_out)
    assert np.abs(np.diff(out[rate_out * 5 // 1000 :])).max() <= 1.5 * largest


@each_rate
def test_c27_two_sessions_at_once_share_no_filter_state(rate_in: int, rate_out: int) -> None:
    inputs = [sine(rate_in), sine(rate_in, 1000)]
    sessions = [Resampler(rate_in, rate_out) for _ in inputs]
    outputs = [bytearray(), bytearray()]
    for pieces in zip(*(in_chunks(pcm, "7 ms", rate_in) for pcm in inputs), strict=True):
        for session, output, piece in zip(sessions, outputs, pieces, strict=True):
            output += session.feed(piece)
    for session, output, pcm in zip(sessions, outputs, inputs, strict=True):
        output += session.flush()
        np.testing.assert_array_equal(np.frombuffer(output, "<i2"), in_one_piece(pcm, rate_in, rate_out))
