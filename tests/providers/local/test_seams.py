"""Speech in stretches: where they are cut, and how they are joined."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from providers.local.seams import (
    FRAME_STEPS,
    LEAD_FRAMES,
    LONGEST_STEPS,
    OVERLAP_STEPS,
    SAMPLE_RATE,
    STEP_SAMPLES,
    TAIL_FRAMES,
    Joiner,
    Wave,
    plan,
    trim_end,
)


def tone(start: int, length: int, hertz: float = 200.0, phase: float = 0.0) -> Wave:
    time = np.arange(start, start + length) / SAMPLE_RATE
    return np.sin(2 * np.pi * hertz * time + phase).astype(np.float32)


def test_a_short_piece_is_one_stretch_without_its_silence() -> None:
    pitch = np.full(100, 200, dtype=np.float32)
    assert plan(pitch, [18, 10, 10, 5, 6, 1]) == [(18 - LEAD_FRAMES) * FRAME_STEPS, 100 - TAIL_FRAMES * FRAME_STEPS]


def test_a_long_piece_is_cut_where_nothing_is_voiced() -> None:
    pitch = np.full(400, 200, dtype=np.float32)
    pitch[66:70] = 5
    cuts = plan(pitch, [18, 181, 1])
    assert cuts[:2] == [26, 68]
    lengths = np.diff(cuts)
    assert list(lengths[:3]) == [42, 54, 81]  # without such a place, as long as is wanted
    assert lengths.max() <= 1.5 * LONGEST_STEPS


@given(
    st.integers(2, 3000),
    st.integers(0, 60),
    st.lists(st.sampled_from([5.0, 200.0]), min_size=1, max_size=50),
)
def test_stretches_follow_each_other(steps: int, lead: int, voicing: list[float]) -> None:
    pitch = np.resize(np.repeat(np.array(voicing, dtype=np.float32), 7), steps)
    cuts = plan(pitch, [lead, 1])
    assert 0 <= cuts[0] < cuts[-1] <= steps
    assert all(before < behind for before, behind in pairwise(cuts))
    assert max(np.diff(cuts)) <= 1.5 * LONGEST_STEPS


def test_the_join_of_two_waves_of_different_phase_is_smooth() -> None:
    overlap = OVERLAP_STEPS * STEP_SAMPLES
    first = tone(0, 6000 + overlap)
    second = tone(6000 - 2400, 8400, phase=2.0)
    joiner = Joiner()
    joined = np.concatenate([joiner.add(first, 0, is_last=False), joiner.add(second, 2400, is_last=True)])
    steepest = np.abs(np.diff(first)).max()
    assert np.abs(np.diff(joined)).max() < 1.05 * steepest
    assert abs(len(joined) - 12_000) <= 240
    assert np.abs(joined[5000:7000]).max() > 0.99  # and it does not fade away


def test_one_stretch_is_given_as_it_is() -> None:
    wave = tone(0, 5000)
    assert np.array_equal(Joiner().add(wave, 100, is_last=True), wave[100:])


def test_a_stretch_too_short_to_be_moved_is_joined_as_it_is() -> None:
    joiner = Joiner()
    joiner.add(tone(0, 2000), 0, is_last=False)
    assert len(joiner.add(tone(0, 100), 0, is_last=True)) == 100


def test_the_end_has_the_pause_that_is_wanted() -> None:
    wave = np.concatenate([tone(0, 1000), np.zeros(5000, dtype=np.float32)])
    assert 900 < len(trim_end(wave, 0)) <= 1000
    assert len(trim_end(wave, 600)) - len(trim_end(wave, 0)) == 600
    assert len(trim_end(wave, 100_000)) == 6000
    assert len(trim_end(np.zeros(1000, dtype=np.float32), 100)) == 100
