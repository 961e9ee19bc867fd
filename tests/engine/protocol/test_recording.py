"""A recording is on the real time line: nothing is lost, doubled or moved, and what was cut was not heard."""

import io
import wave
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.protocol.recording import (
    AGENT,
    AGENT_GAP_SECONDS,
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_FRAMES,
    REMEMBERED,
    USER,
    USER_GAP_SECONDS,
    Edit,
    Erase,
    Put,
    StereoLine,
    recording_rate,
    wav_header,
)

RATE = 8000


def tone(samples: int, value: int = 1000) -> bytes:
    return np.full(samples, value, "<i2").tobytes()


def counted(first: int, samples: int) -> bytes:
    """Samples that can be told apart, none of them silent."""
    return ((np.arange(first, first + samples) % 30000) + 1).astype("<i2").tobytes()


class File:
    """What the edits make of a file."""

    def __init__(self, frames: int) -> None:
        self.samples: NDArray[np.int16] = np.zeros((frames, 2), np.int16)

    def edit(self, edits: Iterable[Edit]) -> None:
        for edit in edits:
            match edit:
                case Put(channel, position, pcm):
                    data = np.frombuffer(pcm, "<i2")
                    place = self.samples[position : position + len(data), channel]
                    assert not place.any(), "something was there already"
                    place[:] = data
                case Erase(channel, start, end):
                    self.samples[start:end, channel] = 0

    def sounds(self, channel: int) -> list[tuple[float, float]]:
        """From when to when something sounds, in seconds."""
        loud = np.flatnonzero(np.diff(self.samples[:, channel] != 0, prepend=False, append=False))
        return [(int(start) / RATE, int(end) / RATE) for start, end in zip(loud[::2], loud[1::2], strict=True)]


def line(rate: int = RATE, began_at: float = 0.0, max_seconds: float = 3600.0) -> StereoLine:
    return StereoLine(rate, began_at, max_seconds)


# --- the user ---------------------------------------------------------------------------------------------------------


def test_the_users_audio_ends_when_it_was_received() -> None:
    recording, file = line(began_at=100.0), File(10 * RATE)
    file.edit(recording.user_audio(tone(RATE // 2), RATE, 102.0))
    file.edit(recording.user_audio(tone(RATE // 2), RATE, 105.0))
    assert file.sounds(USER) == [(1.5, 2.0), (4.5, 5.0)]
    assert recording.frames == 5 * RATE


def test_nothing_is_before_the_beginning() -> None:
    recording, file = line(began_at=100.0), File(3 * RATE)
    file.edit(recording.user_audio(tone(RATE), RATE, 100.1))
    assert file.sounds(USER) == [(0.0, 1.0)]


def test_late_frames_are_joined_and_a_burst_does_not_overlap() -> None:
    recording, file = line(), File(3 * RATE)
    frame = RATE // 50
    for index, at in enumerate([0.02, 0.04, 0.23, 0.23, 0.23, 0.23, 0.23, 0.23, 0.23, 0.23, 0.23, 0.24]):
        file.edit(recording.user_audio(counted(index * frame, frame), RATE, at))
    assert file.sounds(USER) == [(0.0, 0.24)]
    assert file.samples[: 12 * frame, USER].tobytes() == counted(0, 12 * frame)


def test_a_pause_is_a_pause() -> None:
    recording, file = line(), File(3 * RATE)
    file.edit(recording.user_audio(tone(RATE), RATE, 1.0))
    file.edit(recording.user_audio(tone(160), RATE, 1.02 + USER_GAP_SECONDS))
    file.edit(recording.user_audio(tone(160), RATE, 1.24 + USER_GAP_SECONDS + 0.001))
    assert file.sounds(USER) == [(0.0, 1.02), (1.421, 1.441)]


chunks = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from([0.0, 0.02, 0.02, 0.1, 0.5, 2.0])), min_size=1, max_size=30
)


@settings(max_examples=60)
@example([(0, 0.5), (1, 0.0)])
@given(chunks)
def test_every_sample_of_the_user_is_kept_once_in_order_and_in_its_time(arrivals: list[tuple[int, float]]) -> None:
    recording, file = line(), File(60 * RATE + sum(length for length, _ in arrivals))
    now, count, latest = 0.0, 0, 0
    for length, pause in arrivals:
        now += pause
        edits = recording.user_audio(counted(count, length), RATE, now)
        file.edit(edits)
        count += length
        for edit in edits:
            assert isinstance(edit, Put)
            due = max(0, round(now * RATE) - length)
            assert edit.position >= due - USER_GAP_SECONDS * RATE - 1  # never earlier than jitter explains
            assert edit.position <= max(due, latest)  # never later than what was before it makes it
            latest = edit.position + length
    file.edit(recording.finish(now))
    kept = file.samples[:, USER]
    assert kept[kept != 0].tobytes() == counted(0, count)
    assert recording.frames == max(latest, round(now * RATE))


@pytest.mark.parametrize("jitter", [0.0, 0.08])
def test_an_hour_does_not_drift(jitter: float) -> None:
    """Frames of 100 ms whose times are sums of binary fractions, early and late by turns."""
    recording, began, frame = line(began_at=1234.5678), 1234.5678, RATE // 10
    pcm, now, given_samples = tone(frame), began, 0
    for index in range(36_000):
        now += 0.1
        for edit in recording.user_audio(pcm, RATE, now + jitter * (index % 3) / 2):
            assert isinstance(edit, Put)
            given_samples += len(edit.pcm) // 2
    assert given_samples == 36_000 * frame
    assert abs(recording.frames - 3600 * RATE) <= jitter * RATE


# --- the agent --------------------------------------------------------------------------------------------------------


def test_the_agents_audio_plays_when_it_was_sent_or_behind_what_is_playing() -> None:
    recording, file = line(), File(20 * RATE)
    file.edit(recording.agent_audio(tone(2 * RATE), RATE, 1.0, "r1"))
    file.edit(recording.agent_audio(tone(2 * RATE, 5), RATE, 1.1, "r1"))
    file.edit(recording.agent_audio(tone(RATE, 7), RATE, 1.2, "r2"))
    file.edit(recording.agent_audio(tone(RATE), RATE, 8.0, "r2"))
    assert file.sounds(AGENT) == [(1.0, 6.0), (8.0, 9.0)]
    assert [int(file.samples[int(second * RATE), AGENT]) for second in (2.9, 3.1, 5.1)] == [1000, 5, 7]


def test_a_player_that_runs_dry_makes_a_pause() -> None:
    recording, file = line(), File(20 * RATE)
    for at in (1.0, 2.0 + AGENT_GAP_SECONDS, 3.11):
        file.edit(recording.agent_audio(tone(RATE), RATE, at, "r1"))
    assert file.sounds(AGENT) == [(1.0, 3.0), (3.11, 4.11)]


def test_a_barge_in_takes_back_what_was_not_played() -> None:
    recording, file = line(), File(20 * RATE)
    file.edit(recording.user_audio(tone(4 * RATE), RATE, 4.0))
    file.edit(recording.agent_audio(tone(10 * RATE), RATE, 1.0, "r1"))
    file.edit(recording.agent_audio(tone(RATE), RATE, 1.0, "r2"))
    assert recording.frames == 12 * RATE
    file.edit(recording.cut("r1", 3.5))
    assert file.sounds(AGENT) == [(1.0, 3.5)]
    assert file.sounds(USER) == [(0.0, 4.0)]
    assert recording.frames == 4 * RATE
    assert recording.agent_audio(tone(RATE), RATE, 3.6, "r1") == []  # it was on its way
    file.edit(recording.agent_audio(tone(RATE), RATE, 5.0, "r3"))
    assert file.sounds(AGENT) == [(1.0, 3.5), (5.0, 6.0)]


def test_a_response_that_waited_is_taken_back_whole_and_the_one_before_it_is_not() -> None:
    recording, file = line(), File(20 * RATE)
    file.edit(recording.agent_audio(tone(5 * RATE), RATE, 1.0, "r1"))
    file.edit(recording.agent_audio(tone(RATE), RATE, 1.5, "r2"))
    file.edit(recording.cut("r2", 2.0))
    assert file.sounds(AGENT) == [(1.0, 6.0)]


def test_a_cut_behind_the_end_changes_nothing() -> None:
    recording, file = line(), File(20 * RATE)
    file.edit(recording.agent_audio(tone(RATE), RATE, 1.0, "r1"))
    assert recording.cut("r1", 2.0) == []
    assert recording.cut("r1", 9.0) == []
    assert recording.cut("unknown", 0.0) == []
    assert file.sounds(AGENT) == [(1.0, 2.0)]


def test_a_cut_with_nothing_yet_put_in_its_place_erases_nothing() -> None:
    recording = line(24000)
    assert recording.agent_audio(tone(2), RATE, 1.0, "r1") == []  # the resampler holds it
    assert recording.cut("r1", 1.0) == []
    assert recording.frames == 24000


def test_a_client_that_has_gone_heard_nothing_more() -> None:
    recording, file = line(), File(20 * RATE)
    file.edit(recording.agent_audio(tone(5 * RATE), RATE, 1.0, "r1"))
    file.edit(recording.stop(2.0))
    file.edit(recording.finish(2.5))
    assert file.sounds(AGENT) == [(1.0, 2.0)]
    assert recording.frames == round(2.5 * RATE)


def test_what_was_sent_is_heard_to_its_end() -> None:
    recording, file = line(), File(20 * RATE)
    file.edit(recording.agent_audio(tone(5 * RATE), RATE, 1.0, "r1"))
    file.edit(recording.finish(2.0))
    assert recording.frames == 6 * RATE


def test_old_responses_are_forgotten() -> None:
    recording = line()
    for number in range(REMEMBERED + 1):
        recording.agent_audio(tone(8), RATE, float(number), f"r{number}")
        recording.cut(f"r{number}", number + 1.0)
    assert recording.agent_audio(tone(8), RATE, 100.0, "r1") == []
    assert recording.agent_audio(tone(8), RATE, 100.0, "r0")


steps = st.lists(
    st.tuples(st.sampled_from(["say", "say", "say", "cut"]), st.integers(0, 6), st.integers(0, 4000), st.floats(0, 1)),
    max_size=20,
)


@settings(max_examples=60)
@given(steps)
def test_nothing_that_was_cut_sounds_and_everything_else_does(made: list[tuple[str, int, int, float]]) -> None:
    """Against a player that is told the same, sample by sample."""
    recording, file = line(), File(20 * RATE + 20 * 4000)
    now, played = 0.0, bytearray()
    starts: dict[int, int] = {}
    cut: set[int] = set()
    for what, response, length, pause in made:
        now += round(pause * RATE) / RATE
        position = round(now * RATE) * 2
        if what == "cut":
            file.edit(recording.cut(f"r{response}", now))
            cut.add(response)
            if response in starts:
                del played[max(position, starts[response]) :]
        else:
            pcm = counted(length, length)
            file.edit(recording.agent_audio(pcm, RATE, now, f"r{response}"))
            if pcm and response not in cut:
                if position > len(played) + AGENT_GAP_SECONDS * RATE * 2:
                    played += bytes(position - len(played))
                starts.setdefault(response, len(played))
                played += pcm
    file.edit(recording.finish(now))
    whole = file.samples[:, AGENT].tobytes()
    assert whole[: len(played)] == bytes(played)
    assert not any(whole[len(played) :])


# --- rates, bounds, the file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "rate"),
    [((8000, 8000), 8000), ((16000, 24000), 24000), ((48000, 24000), 24000), ((44100, 8000), 24000)],
)
def test_the_higher_rate_within_reason(rates: tuple[int, int], rate: int) -> None:
    assert recording_rate(*rates) == rate


@pytest.mark.parametrize("rate_in", [8000, 16000, 24000, 44100, 48000])
def test_other_rates_are_resampled_in_one_piece_and_keep_their_time(rate_in: int) -> None:
    recording, file = StereoLine(24000, 0.0, 60.0), File(10 * 24000)
    sine = (9000 * np.sin(np.arange(2 * rate_in) * 2 * np.pi * 440 / rate_in)).astype("<i2").tobytes()
    for index in range(100):
        frame = sine[index * rate_in // 50 * 2 : (index + 1) * rate_in // 50 * 2]
        file.edit(recording.user_audio(frame, rate_in, 1.0 + 0.02 * (index + 1)))
    file.edit(recording.user_audio(sine, rate_in, 6.0))
    file.edit(recording.finish(7.0))
    once = (9000 * np.sin(np.arange(2 * 24000) * 2 * np.pi * 440 / 24000)).astype(np.int32)
    for start in (24000, 4 * 24000):
        heard = file.samples[start : start + 48000, USER].astype(np.int32)
        assert np.abs(heard - once)[200:-200].max() < 40
    assert not file.samples[3 * 24000 + 1 : 4 * 24000 - 1, USER].any()
    assert recording.frames == 7 * 24000


def test_a_rate_may_change() -> None:
    recording, file = line(), File(5 * RATE)
    file.edit(recording.user_audio(tone(RATE), RATE, 1.0))
    file.edit(recording.user_audio(tone(2 * RATE), 2 * RATE, 2.0))
    file.edit(recording.finish(2.0))
    assert recording.frames == 2 * RATE
    assert file.sounds(USER) == [(0.0, 2.0)]


def test_half_a_sample_is_our_own_fault() -> None:
    with pytest.raises(ValueError, match="whole 16-bit samples"):
        line().user_audio(b"\0\0\0", RATE, 1.0)


def test_what_is_behind_the_bound_is_left_out() -> None:
    recording, file = line(max_seconds=2.0), File(2 * RATE)
    file.edit(recording.user_audio(tone(RATE), RATE, 2.5))
    file.edit(recording.agent_audio(tone(5 * RATE), RATE, 1.0, "r1"))
    assert recording.user_audio(tone(RATE), RATE, 9.0) == []
    assert recording.agent_audio(tone(RATE), RATE, 9.0, "r2") == []
    file.edit(recording.finish(10.0))
    assert file.sounds(USER) == [(1.5, 2.0)]
    assert file.sounds(AGENT) == [(1.0, 2.0)]
    assert recording.frames == 2 * RATE
    file.edit(recording.cut("r1", 1.5))
    assert file.sounds(AGENT) == [(1.0, 1.5)]


def test_a_header_is_read_by_others() -> None:
    pcm = np.arange(200, dtype="<i2").tobytes()
    header = wav_header(RATE, 100)
    assert len(header) == HEADER_BYTES
    with wave.open(io.BytesIO(header + pcm)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE)
        assert file.getnframes() == 100
        assert file.readframes(100) == pcm
    assert len(wav_header(24000, MAX_FRAMES)) == HEADER_BYTES
    assert MAX_FRAMES * FRAME_BYTES + HEADER_BYTES <= 0xFFFFFFFF
