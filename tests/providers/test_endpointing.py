"""Where utterances begin and end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.recognition.endpointing import (
    FRAME_MS,
    LONGEST_MS,
    Endpointer,
    Loudness,
    SpeechEnded,
    SpeechStarted,
    TurnDetection,
)
from tests.providers.openai_server import cut

RATE = 16000
FRAME = RATE * FRAME_MS // 1000 * 2
RULE = TurnDetection()


def by_mark(frame: bytes, in_speech: bool) -> bool:
    """A voice that a test marks in the frame."""
    return frame[:1] == b"v"


def endpointer(rule: TurnDetection = RULE) -> Endpointer:
    return Endpointer(RATE, rule, by_mark)


def voice(milliseconds: int) -> bytes:
    return (b"v" + bytes(FRAME - 1)) * (milliseconds // FRAME_MS)


def quiet(milliseconds: int) -> bytes:
    return bytes(FRAME) * (milliseconds // FRAME_MS)


def noise(milliseconds: int, dbfs: float, seed: int = 1) -> bytes:
    samples = np.random.default_rng(seed).normal(0, 32768 * 10 ** (dbfs / 20), RATE * milliseconds // 1000)
    return np.clip(samples, -32768, 32767).astype("<i2").tobytes()


def kinds(events: list[SpeechStarted | SpeechEnded]) -> list[type]:
    return [type(event) for event in events]


def length_ms(event: SpeechStarted | SpeechEnded) -> int:
    assert isinstance(event, SpeechEnded)
    return len(event.pcm) * 1000 // (2 * RATE)


def test_an_utterance_with_its_padding_and_a_third_of_the_silence() -> None:
    rule = endpointer()
    assert rule.feed(quiet(1000) + voice(180)) == []
    assert rule.feed(voice(20)) == [SpeechStarted()]
    assert rule.feed(voice(800) + quiet(480)) == []
    (end,) = rule.feed(quiet(20))
    # 700 ms were kept before the start; the silence at the end is 160 of 500.
    assert length_ms(end) == 700 + 800 + 160
    assert rule.feed(quiet(5000)) == []


def test_a_click_is_no_speech_and_a_stutter_is() -> None:
    assert endpointer().feed(quiet(200) + voice(100) + quiet(1000) + voice(100) + quiet(1000)) == []
    assert kinds(endpointer().feed((voice(60) + quiet(20)) * 5)) == [SpeechStarted]


def test_a_pause_that_is_shorter_than_the_rule_belongs_to_the_utterance() -> None:
    events = endpointer().feed(voice(400) + quiet(480) + voice(400) + quiet(500))
    assert kinds(events) == [SpeechStarted, SpeechEnded]


def test_settings_are_followed() -> None:
    patient = TurnDetection(silence_ms=1000, min_speech_ms=100, padding_ms=0)
    events = endpointer(patient).feed(voice(100) + quiet(980))
    assert kinds(events) == [SpeechStarted]


def test_a_commit_ends_the_utterance_at_once() -> None:
    rule = endpointer()
    rule.feed(voice(400))
    rule.feed(b"v\0")
    (end,) = rule.commit()
    assert isinstance(end, SpeechEnded)
    assert end.pcm.endswith(b"v\0")
    assert rule.commit() == []


def test_a_commit_makes_an_utterance_of_little_voice_but_not_of_none() -> None:
    rule = endpointer()
    rule.feed(quiet(100) + voice(80))
    assert kinds(rule.commit()) == [SpeechStarted, SpeechEnded]
    rule.feed(quiet(500) + voice(40))
    assert rule.commit() == []
    assert rule.feed(voice(180)) == [], "what was before a commit does not count after it"


def test_an_overlong_utterance_is_cut_and_goes_on() -> None:
    events = endpointer().feed(voice(LONGEST_MS + 1000) + quiet(500))
    assert kinds(events) == [SpeechStarted, SpeechEnded, SpeechStarted, SpeechEnded]
    assert length_ms(events[1]) == LONGEST_MS
    assert length_ms(events[3]) == 1000 + 160


def test_the_rest_of_an_overlong_utterance_may_be_empty() -> None:
    events = endpointer().feed(voice(LONGEST_MS) + quiet(500))
    assert events[2:] == [SpeechStarted(), SpeechEnded(b"")]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=12),
    st.lists(st.integers(0, 10_000_000), max_size=10),
)
def test_any_cut_gives_the_same_and_no_audio_is_heard_twice(parts: list[tuple[bool, int]], places: list[int]) -> None:
    frames = [voiced for voiced, count in parts for _ in range(count)]
    audio = b"".join(
        (b"v" if voiced else b"\0") + b"\0" + index.to_bytes(4) + bytes(FRAME - 6)
        for index, voiced in enumerate(frames)
    )
    rule = endpointer()
    events = [event for piece in cut(audio, places) for event in rule.feed(piece)] + rule.commit()
    assert kinds(events) == [SpeechStarted, SpeechEnded] * (len(events) // 2)
    heard = [event.pcm for event in events if isinstance(event, SpeechEnded)]
    whole = endpointer()
    again = whole.feed(audio) + whole.commit()
    assert [event.pcm for event in again if isinstance(event, SpeechEnded)] == heard
    place = 0
    for pcm in heard:
        place = audio.index(pcm, place) + len(pcm)


# --- loudness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [-100.0, -75.0, -60.0, -45.0])
def test_speech_is_heard_above_the_room(room: float) -> None:
    rule = Endpointer(RATE, RULE, Loudness())
    assert rule.feed(noise(3000, room)) == []
    speech = b"".join(noise(180, -20, seed) + noise(60, room, seed) for seed in range(5))
    assert kinds(rule.feed(speech)) == [SpeechStarted]
    assert kinds(rule.feed(noise(1000, room))) == [SpeechEnded]


def test_a_fan_that_starts_becomes_part_of_the_room() -> None:
    rule = Endpointer(RATE, RULE, Loudness())
    rule.feed(noise(2000, -70))
    events = rule.feed(noise(10_000, -40))
    assert kinds(events) == [SpeechStarted, SpeechEnded]
    assert kinds(rule.feed(noise(600, -15))) == [SpeechStarted]


def test_who_speaks_from_the_first_moment_is_heard() -> None:
    assert kinds(Endpointer(RATE, RULE, Loudness()).feed(noise(400, -20))) == [SpeechStarted]
