"""Whole samples, even frames, µ-law, levels and lengths."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.audio import (
    SILENCE_DBFS,
    Framer,
    SampleCarry,
    bytes_for_ms,
    duration_ms,
    is_silent,
    mulaw_decode,
    mulaw_encode,
    rms_dbfs,
)


def pcm_of(*samples: int) -> bytes:
    return np.array(samples, "<i2").tobytes()


# --- whole samples -----------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=9)))
def test_a_carry_loses_and_adds_nothing(chunks: list[bytes]) -> None:
    carry = SampleCarry()
    data = b"".join(chunks)
    out = [carry.feed(chunk) for chunk in chunks]
    assert all(len(chunk) % 2 == 0 for chunk in out)
    assert b"".join(out) == data[: len(data) // 2 * 2]


def test_an_even_chunk_passes_uncopied() -> None:
    chunk = bytes(range(6))
    assert SampleCarry().feed(chunk) is chunk


def test_flush_drops_half_a_sample() -> None:
    carry = SampleCarry()
    assert carry.feed(b"\x01\x02\x03") == b"\x01\x02"
    carry.flush()
    assert carry.feed(b"\x05\x06") == b"\x05\x06"


# --- frames ------------------------------------------------------------------------------------------------------------


@given(blocks=st.lists(st.binary(max_size=30)), frame=st.integers(1, 6), sample_bytes=st.sampled_from([1, 2]))
def test_frames_are_full_and_in_order(blocks: list[bytes], frame: int, sample_bytes: int) -> None:
    framer = Framer(frame * sample_bytes, sample_bytes=sample_bytes)
    data = b"".join(blocks)
    frames = [out for block in blocks for out in framer.feed(block)]
    assert {len(out) for out in frames} <= {framer.bytes_per_frame}
    rest = framer.flush()
    assert len(rest) < framer.bytes_per_frame
    assert b"".join(frames) + rest == data[: len(data) - len(data) % sample_bytes]
    assert framer.flush() == b""


def test_a_block_that_is_a_frame_passes_uncopied() -> None:
    block = bytes(640)
    framer = Framer(640)
    assert framer.feed(block)[0] is block
    assert framer.feed(block[:2]) == []
    assert framer.feed(block) == [block]
    assert framer.flush() == block[:2]


@pytest.mark.parametrize("size", [0, -2, 3])
def test_a_frame_holds_whole_samples(size: int) -> None:
    with pytest.raises(ValueError, match="one or more samples of 2 bytes"):
        Framer(size)


# --- µ-law, against G.711 spelled out ----------------------------------------------------------------------------------


def encoded(sample: int) -> int:
    sign = 0x80 if sample < 0 else 0
    magnitude = min(abs(sample), 32635) + 132
    segment = 7
    while segment and not magnitude & (128 << segment):
        segment -= 1
    step = (magnitude >> (segment + 3)) & 0x0F
    return ~(sign | segment << 4 | step) & 0xFF


def decoded(code: int) -> int:
    code = ~code & 0xFF
    magnitude = (((code & 0x0F) << 3) + 132 << (code >> 4 & 7)) - 132
    return -magnitude if code & 0x80 else magnitude


def test_mulaw_encodes_every_sample_as_g711_says() -> None:
    every = range(-32768, 32768)
    assert mulaw_encode(pcm_of(*every)) == bytes(encoded(sample) for sample in every)


def test_mulaw_decodes_every_byte_as_g711_says() -> None:
    assert mulaw_decode(bytes(range(256))) == pcm_of(*(decoded(code) for code in range(256)))


def test_mulaw_landmarks() -> None:
    assert mulaw_encode(pcm_of(0, 32767, -32768)) == b"\xff\x80\x00"
    assert mulaw_decode(b"\xff\x7f\x80\x00") == pcm_of(0, 0, 32124, -32124)
    assert mulaw_encode(b"") == mulaw_decode(b"") == b""


def test_mulaw_keeps_its_own_values() -> None:
    codes = bytes(set(range(256)) - {0x7F})  # 0x7F is the zero from below, which comes back as 0xFF
    assert mulaw_encode(mulaw_decode(codes)) == codes


def test_mulaw_is_off_by_half_a_step_at_most_and_never_falls() -> None:
    samples = np.arange(-32768, 32768)
    back = np.frombuffer(mulaw_decode(mulaw_encode(samples.astype("<i2").tobytes())), "<i2").astype(int)
    inner = np.abs(samples) <= 32635
    half_step = 4 * 2 ** np.floor(np.log2((np.abs(samples) + 132) / 128))
    assert np.all(np.abs(back - samples)[inner] <= half_step[inner])
    assert np.all(np.diff(back) >= 0)


def test_mulaw_refuses_half_a_sample() -> None:
    with pytest.raises(ValueError, match="multiple of element size"):
        mulaw_encode(b"\x00")


# --- levels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "threshold", "silent"),
    [
        ((), 0, True),
        ((0, 0), 0, True),
        ((0, 1), 0, False),
        ((0, -1), 0, False),
        ((5, -5), 5, True),
        ((0, 6), 5, False),
        ((-6, 0), 5, False),
        ((-32768,), 32767, False),
    ],
)
def test_silence_is_a_matter_of_the_furthest_sample(samples: tuple[int, ...], threshold: int, silent: bool) -> None:
    assert is_silent(pcm_of(*samples), threshold) is silent


def test_half_a_sample_is_no_sound() -> None:
    assert is_silent(b"\x07")
    assert is_silent(b"\x00\x00\x07")
    assert rms_dbfs(b"\x07") == SILENCE_DBFS


def test_levels_in_decibels() -> None:
    assert rms_dbfs(b"") == SILENCE_DBFS
    assert rms_dbfs(bytes(640)) == SILENCE_DBFS
    assert rms_dbfs(pcm_of(-32768, -32768)) == 0
    assert rms_dbfs(pcm_of(16384, -16384) + b"\x07") == pytest.approx(20 * math.log10(0.5))
    assert rms_dbfs(pcm_of(1, -1)) == pytest.approx(-90.309, abs=0.001)
    assert rms_dbfs(pcm_of(1) + bytes(2000)) == SILENCE_DBFS


@given(st.lists(st.integers(-32768, 32767), max_size=50))
def test_levels_stay_between_nothing_and_full_scale(samples: list[int]) -> None:
    level = rms_dbfs(pcm_of(*samples))
    assert SILENCE_DBFS <= level <= 0
    assert is_silent(pcm_of(*samples)) is not any(samples)


# --- lengths -----------------------------------------------------------------------------------------------------------

rates = st.sampled_from([8000, 11025, 16000, 22050, 24000, 44100, 48000])


def test_lengths_of_a_frame() -> None:
    assert bytes_for_ms(20, 16000) == 640
    assert bytes_for_ms(20, 8000, sample_bytes=1) == 160
    assert duration_ms(640, 16000) == 20
    assert duration_ms(160, 8000, sample_bytes=1) == 20
    assert duration_ms(639, 16000) == 19
    assert bytes_for_ms(7, 11025) == 154


@given(rates, st.integers(0, 10**9), st.sampled_from([1, 2]))
def test_lengths_are_exact_and_rounded_down(rate: int, milliseconds: int, sample_bytes: int) -> None:
    size = bytes_for_ms(milliseconds, rate, sample_bytes=sample_bytes)
    assert size % sample_bytes == 0
    assert 0 <= milliseconds * rate - size // sample_bytes * 1000 < 1000
    back = duration_ms(size, rate, sample_bytes=sample_bytes)
    assert back == milliseconds if rate % 1000 == 0 else back in {milliseconds - 1, milliseconds}
