"""WAV files in every shape a speech service sends, and the refusals."""

import io
import struct
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.wav import read_wav, wav_bytes

RAMP = np.arange(-500, 500).astype("<i2").tobytes()


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def fmt(kind: int = 1, channels: int = 1, rate: int = 24000, bits: int = 16, extra: bytes = b"") -> bytes:
    frame = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", kind, channels, rate, rate * frame, frame, bits) + extra)


def riff(*chunks: bytes, size: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


def by_the_library(raw: bytes, channels: int, width: int, rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(raw)
    return file.getvalue()


# --- read --------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=99).map(lambda raw: raw[: len(raw) // 2 * 2]), st.sampled_from([8000, 24000, 44100]))
def test_what_is_written_is_read_here_and_by_the_library(pcm: bytes, rate: int) -> None:
    file = wav_bytes(pcm, rate)
    assert read_wav(file) == (pcm, rate)
    assert file == by_the_library(pcm, 1, 2, rate)


def test_stereo_is_mixed_down() -> None:
    stereo = np.array([[100, 300], [-32768, -32768], [32767, 32767], [32767, -32768]], "<i2").tobytes()
    pcm, rate = read_wav(by_the_library(stereo, 2, 2, 16000))
    assert np.frombuffer(pcm, "<i2").tolist() == [200, -32768, 32767, 0]
    assert rate == 16000


def test_8_bit_samples_are_unsigned() -> None:
    pcm, _ = read_wav(by_the_library(bytes([0, 128, 255]), 1, 1, 8000))
    assert np.frombuffer(pcm, "<i2").tolist() == [-32768, 0, 127 * 256]


def test_24_bit_samples_are_rounded() -> None:
    values = [0, 256, -256, 127, 129, -129, 2**23 - 1, -(2**23)]
    raw = b"".join(value.to_bytes(3, "little", signed=True) for value in values)
    pcm, _ = read_wav(by_the_library(raw, 1, 3, 48000))
    assert np.frombuffer(pcm, "<i2").tolist() == [0, 1, -1, 0, 1, -1, 32767, -32768]


@pytest.mark.parametrize(
    "format_chunk",
    [fmt(3, bits=32), fmt(0xFFFE, bits=32, extra=struct.pack("<HHIH", 22, 32, 0, 3) + bytes(14))],
    ids=["float", "extensible float"],
)
def test_float_samples_are_scaled_and_clipped(format_chunk: bytes) -> None:
    raw = np.array([0, 0.5, -1, 1, 3, -3, np.inf, -np.inf, np.nan], "<f4").tobytes()
    pcm, _ = read_wav(riff(format_chunk, chunk(b"data", raw)))
    assert np.frombuffer(pcm, "<i2").tolist() == [0, 16384, -32768, 32767, 32767, -32768, 32767, -32768, 0]


def test_chunks_of_no_interest_are_passed_over() -> None:
    file = riff(chunk(b"JUNK", b"odd"), fmt(), chunk(b"LIST", b"INFO"), chunk(b"data", RAMP), chunk(b"id3 ", b"tail"))
    assert read_wav(file) == (RAMP, 24000)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
@pytest.mark.parametrize("whole", [0, 36, 0xFFFFFFFF])
def test_a_streamed_file_reaches_to_its_end(size: int, whole: int) -> None:
    assert read_wav(riff(fmt(), chunk(b"data", RAMP, size), size=whole)) == (RAMP, 24000)


def test_an_empty_file_is_not_a_streamed_one() -> None:
    assert read_wav(riff(fmt(), chunk(b"data", b""), chunk(b"LIST", b"INFO"))) == (b"", 24000)


def test_a_cut_file_gives_what_is_there() -> None:
    assert read_wav(wav_bytes(RAMP, 24000)[:-501]) == (RAMP[:-502], 24000)
    stereo = by_the_library(RAMP, 2, 2, 24000)
    assert len(read_wav(stereo[:-1])[0]) == 2 * 499


# --- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (b"", "does not start like one"),
        (b"OggS" + bytes(60), "does not start like one"),
        (b"RIFF\0\0\0\0AVI " + bytes(60), "does not start like one"),
        (riff(), "neither format nor samples"),
        (riff(fmt()), "holds no samples"),
        (riff(fmt(), b"data\0\0"), "holds no samples"),
        (riff(chunk(b"data", RAMP), fmt()), "before their format"),
        (riff(chunk(b"fmt ", bytes(14)), chunk(b"data", RAMP)), "format chunk is cut"),
        (riff(fmt(7, bits=8), chunk(b"data", RAMP)), "format 7 with 8 bits"),
        (riff(fmt(bits=32), chunk(b"data", RAMP)), "format 1 with 32 bits"),
        (riff(fmt(3, bits=64), chunk(b"data", RAMP)), "format 3 with 64 bits"),
        (riff(fmt(0xFFFE), chunk(b"data", RAMP)), "format 65534 with 16 bits"),
        (riff(fmt(channels=3), chunk(b"data", RAMP)), "3 channels"),
        (riff(fmt(channels=0), chunk(b"data", RAMP)), "0 channels"),
        (riff(chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 0, 4, 24)), chunk(b"data", RAMP)), "frames of 4 bytes"),
        (riff(fmt(rate=0), chunk(b"data", RAMP)), "sample rate is 0"),
    ],
)
def test_the_refusal_says_that_the_file_is_at_fault(file: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"the WAV file that was sent cannot be used: .*{why}"):
        read_wav(file)


def test_half_a_sample_is_not_written() -> None:
    with pytest.raises(ValueError, match="whole 16-bit samples"):
        wav_bytes(b"\x01", 8000)


@given(st.binary(max_size=120), st.integers(0, 60), st.binary(min_size=1, max_size=8))
def test_no_damage_raises_anything_else(tail: bytes, at: int, patch: bytes) -> None:
    file = bytearray(riff(fmt(), chunk(b"LIST", b"INFO"), chunk(b"data", tail)))
    file[at : at + len(patch)] = patch
    said, pcm, rate = "the WAV file that was sent cannot be used: ", b"", 1
    try:
        pcm, rate = read_wav(bytes(file))
    except ValueError as refusal:
        said = str(refusal)
    assert said.startswith("the WAV file that was sent cannot be used: ")
    assert len(pcm) % 2 == 0
    assert rate > 0
