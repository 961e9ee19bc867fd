"""Speech, 20 ms at a time."""

from hypothesis import given
from hypothesis import strategies as st

from engine.simulate.mouth import Mouth

FRAME = 960
"""Bytes in 20 ms at 24 kHz."""


@given(st.lists(st.binary(min_size=0, max_size=3 * FRAME).filter(lambda pcm: len(pcm) % 2 == 0), max_size=8))
def test_everything_is_said_once_and_in_order(pieces: list[bytes]) -> None:
    mouth = Mouth()
    for piece in pieces:
        mouth.say(piece)
    said = bytearray()
    while not mouth.is_silent:
        frame = mouth.frame()
        assert len(frame) == FRAME
        said += frame
    whole = b"".join(pieces)
    assert said[: len(whole)] == whole
    assert len(said) - len(whole) < FRAME
    assert not any(said[len(whole) :])


def test_silence_when_there_is_nothing_to_say() -> None:
    assert Mouth().frame() == bytes(FRAME)


def test_who_is_interrupted_says_nothing_more() -> None:
    mouth = Mouth()
    mouth.say(b"\1\1" * FRAME)
    mouth.frame()
    mouth.stop()
    assert mouth.is_silent
    assert mouth.frame() == bytes(FRAME)
    mouth.say(b"\2\2" * (FRAME // 2))
    assert mouth.frame() == b"\2\2" * (FRAME // 2)


def test_speech_that_is_not_made_in_time() -> None:
    mouth = Mouth()
    for _ in range(2):
        mouth.say(b"\1\1" * FRAME, is_last=False)  # two frames
        for _ in range(5):
            mouth.frame()
    assert mouth.stalls == 2
    mouth.say(b"\1\1" * FRAME)
    for _ in range(5):
        mouth.frame()
    assert mouth.stalls == 2
    mouth.say(b"\1\1" * FRAME, is_last=False)
    mouth.stop()
    mouth.frame()
    assert mouth.stalls == 2
