"""When an utterance begins and ends: made-up probabilities, 32 ms each."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.local.endpointing import (
    DETECTOR_LAG_MS,
    LIMIT_MS,
    PRE_ROLL_MS,
    Endpointer,
    EndpointEvent,
    SpeechEnded,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    TurnDetection,
)
from providers.local.voice_activity import CHUNK_BYTES, CHUNK_MS

LOUD, SOFT, QUIET = 0.9, 0.4, 0.05
START = 6
"""Chunks of speech that begin an utterance: 192 ms are nearest to 200."""
PAUSE = 4
END = 13
"""Chunks of silence that are 224 and 500 ms, as the detector is 85 ms late."""


def chunk(number: int) -> bytes:
    return number.to_bytes(2, "little") * (CHUNK_BYTES // 2)


class Timeline:
    """Feeds probabilities and keeps each event with the number of the chunk it came at."""

    def __init__(self, detection: TurnDetection | None = None) -> None:
        self.endpointer = Endpointer(detection or TurnDetection())
        self.count = 0
        self.events: list[tuple[int, EndpointEvent]] = []

    def feed(self, probabilities: Iterable[float]) -> "Timeline":
        for probability in probabilities:
            self.count += 1
            self.add(self.endpointer.feed(chunk(self.count), probability))
        return self

    def add(self, events: list[EndpointEvent]) -> None:
        self.events += [(self.count, event) for event in events]

    def kinds(self) -> list[tuple[int, str]]:
        return [(count, type(event).__name__) for count, event in self.events]

    def ended(self) -> list[SpeechEnded]:
        return [event for _, event in self.events if isinstance(event, SpeechEnded)]


def test_an_utterance_begins_pauses_and_ends() -> None:
    line = Timeline().feed([QUIET] * 20 + [LOUD] * 30 + [QUIET] * 30)
    assert line.kinds() == [
        (20 + START, "SpeechStarted"),
        (50 + PAUSE, "SpeechPaused"),
        (50 + END, "SpeechEnded"),
    ]
    assert abs(END * CHUNK_MS + DETECTOR_LAG_MS - 500) <= CHUNK_MS / 2


def test_the_utterance_has_what_came_before_its_first_sound() -> None:
    line = Timeline().feed([QUIET] * 20 + [LOUD] * 30 + [QUIET] * END)
    utterance = line.ended()[0].utterance
    before = PRE_ROLL_MS // CHUNK_MS
    assert utterance.audio == b"".join(chunk(number) for number in range(20 - before + 1, 50 + END + 1))
    assert utterance.speech_ms == 30 * CHUNK_MS


def test_a_click_is_no_utterance() -> None:
    assert Timeline().feed(([LOUD] * (START - 1) + [QUIET] * 3) * 10).events == []


def test_a_gap_in_the_first_sound_is_bridged() -> None:
    assert Timeline().feed([LOUD] * 3 + [QUIET] * 2 + [LOUD] * 3).kinds() == [(8, "SpeechStarted")]


def test_speech_that_goes_on_takes_the_pause_back() -> None:
    line = Timeline().feed([LOUD] * 10 + [QUIET] * (END - 2) + [LOUD] * 5 + [QUIET] * END)
    assert line.kinds()[1:] == [
        (10 + PAUSE, "SpeechPaused"),
        (10 + END - 2 + 2, "SpeechResumed"),  # the second chunk of speech shows that it is no click
        (10 + END + 3 + PAUSE, "SpeechPaused"),
        (10 + END + 3 + END, "SpeechEnded"),
    ]
    assert len(line.ended()) == 1


def test_a_click_in_the_pause_delays_nothing() -> None:
    line = Timeline().feed([LOUD] * 10 + [QUIET] * 6 + [LOUD] + [QUIET] * 20)
    assert line.kinds()[1:] == [(10 + PAUSE, "SpeechPaused"), (10 + END, "SpeechEnded")]


def test_a_short_stop_inside_a_word_is_no_pause() -> None:
    line = Timeline().feed([LOUD] * 10 + ([QUIET] * 3 + [LOUD]) * 20)
    assert line.kinds() == [(START, "SpeechStarted")]


def test_doubtful_chunks_are_what_the_last_one_was() -> None:
    assert Timeline().feed([SOFT] * 100).events == []
    assert Timeline().feed([LOUD] * 10 + [SOFT] * 100).kinds() == [(START, "SpeechStarted")]
    assert Timeline().feed([LOUD] * 10 + [QUIET] + [SOFT] * 100).kinds()[-1] == (10 + END, "SpeechEnded")


def test_silence_as_short_as_the_pause_needs_no_pause() -> None:
    line = Timeline(TurnDetection(silence_ms=100, min_speech_ms=32)).feed([LOUD] * 3 + [QUIET] * 3)
    assert line.kinds() == [(1, "SpeechStarted"), (4, "SpeechEnded")]


def test_a_complete_sentence_may_end_sooner() -> None:
    line = Timeline(TurnDetection(complete_silence_ms=300)).feed([LOUD] * 10 + [QUIET] * PAUSE)
    line.endpointer.complete()
    assert line.feed([QUIET] * 20).kinds()[-1] == (10 + 7, "SpeechEnded")
    without = Timeline().feed([LOUD] * 10 + [QUIET] * PAUSE)
    without.endpointer.complete()
    assert without.feed([QUIET] * 20).kinds()[-1] == (10 + END, "SpeechEnded")


def test_a_sentence_that_went_on_was_not_complete() -> None:
    line = Timeline(TurnDetection(complete_silence_ms=300)).feed([LOUD] * 10 + [QUIET] * PAUSE)
    line.endpointer.complete()
    assert line.feed([LOUD] * 5 + [QUIET] * 20).kinds()[-1] == (10 + PAUSE + 5 + END, "SpeechEnded")


def test_audio_that_stops_coming_is_a_pause_once() -> None:
    line = Timeline().feed([LOUD] * 10)
    assert line.endpointer.may_pause
    line.add(line.endpointer.pause())
    line.add(line.endpointer.pause())
    assert line.feed([LOUD] * 2).kinds() == [(6, "SpeechStarted"), (10, "SpeechPaused"), (12, "SpeechResumed")]
    assert Endpointer().pause() == []


def test_a_commit_ends_the_utterance_at_once() -> None:
    line = Timeline().feed([LOUD] * 10)
    line.add(line.endpointer.commit(b"xy"))
    assert line.ended()[0].utterance.audio.endswith(chunk(10) + b"xy")
    assert line.endpointer.commit() == []


def test_a_committed_word_may_be_short() -> None:
    line = Timeline().feed([QUIET] * 5 + [LOUD] * 2)
    line.add(line.endpointer.commit())
    assert [kind for _, kind in line.kinds()] == ["SpeechStarted", "SpeechEnded"]
    assert not line.endpointer.is_speaking


@pytest.mark.parametrize("probabilities", [[], [QUIET] * 50, [QUIET] * 20 + [LOUD]])
def test_an_empty_commit_is_nothing(probabilities: list[float]) -> None:
    line = Timeline().feed(probabilities)
    assert line.endpointer.commit() == []
    assert line.endpointer.length_ms == 0


def test_the_end_of_the_audio_ends_the_utterance_but_makes_none() -> None:
    assert Timeline().feed([LOUD] * 4).endpointer.flush() == []
    assert len(Timeline().feed([LOUD] * 6).endpointer.flush(b"")) == 1


def test_a_long_utterance_is_cut_at_a_pause_near_the_limit() -> None:
    chunks = 26_000 // CHUNK_MS
    line = Timeline().feed([LOUD] * chunks + [QUIET] * 8 + [LOUD] * 20)
    (ended,) = line.ended()
    assert ended.is_cut
    assert len(ended.utterance.audio) == (chunks + 6) * CHUNK_BYTES
    assert line.kinds()[-1] == (chunks + 8 + START, "SpeechStarted")


def test_a_long_utterance_without_a_pause_is_cut_where_it_is_quietest() -> None:
    limit = LIMIT_MS // CHUNK_MS
    line = Timeline().feed([LOUD] * (limit - 50) + [QUIET] + [LOUD] * 100)
    (ended,) = line.ended()
    assert ended.is_cut
    assert ended.utterance.audio.endswith(chunk(limit - 49))
    # What came behind the cut is not lost: it is the beginning of the next utterance.
    assert line.endpointer.utterance().audio == b"".join(chunk(n) for n in range(limit - 48, limit + 52))


def test_a_long_utterance_without_any_quiet_is_cut_at_the_limit() -> None:
    line = Timeline().feed([LOUD] * 3000)
    assert [len(event.utterance.audio) for event in line.ended()] == [LIMIT_MS // CHUNK_MS * CHUNK_BYTES] * 3
    assert all(event.is_cut for event in line.ended())


@given(
    st.lists(st.tuples(st.sampled_from([LOUD, SOFT, QUIET, 0.5]), st.integers(1, 200)), max_size=30),
    st.booleans(),
)
def test_events_alternate_and_no_speech_is_lost(runs: list[tuple[float, int]], commit: bool) -> None:
    line = Timeline().feed(probability for probability, length in runs for _ in range(length))
    line.add(line.endpointer.commit() if commit else line.endpointer.flush())
    is_speaking = has_paused = False
    heard: list[bytes] = []
    for _, event in line.events:
        match event:
            case SpeechStarted():
                assert not is_speaking
                is_speaking, has_paused = True, False
            case SpeechPaused():
                assert is_speaking
                assert not has_paused
                has_paused = True
            case SpeechResumed():
                assert has_paused
                has_paused = False
            case SpeechEnded(utterance=utterance):
                assert is_speaking
                assert len(utterance.audio) <= LIMIT_MS // CHUNK_MS * CHUNK_BYTES
                is_speaking = False
                heard += [utterance.audio[at : at + CHUNK_BYTES] for at in range(0, len(utterance.audio), CHUNK_BYTES)]
    assert not is_speaking
    assert len(set(heard)) == len(heard), "a chunk is in two utterances"
    assert not line.endpointer.is_speaking
