"""Active seconds, with gaps cut; tokens from running totals that may begin anew (case C46 b)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol.usage import ActivityMeter, RunningTotals


def test_each_gap_counts_for_thirty_seconds_at_most() -> None:
    meter = ActivityMeter(started_at=100.0)
    for now in (110.0, 110.0, 150.0, 145.0, 151.0):
        meter.activity(now)
    assert meter.active_seconds == 10 + 30 + 1
    assert meter.last_active == 151.0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(0, 1000), max_size=30), st.floats(1, 60))
def test_never_more_than_the_time_that_went_by(gaps: list[float], max_gap: float) -> None:
    meter, now = ActivityMeter(0.0, max_gap), 0.0
    for gap in gaps:
        now += gap
        meter.activity(now)
    assert 0 <= meter.active_seconds <= now + 1e-6
    assert meter.active_seconds == pytest.approx(sum(min(gap, max_gap) for gap in gaps))


def test_only_what_a_total_grew_by_counts() -> None:
    """C46 b: 100/20, the same again, 250/60, after a resume 30/5: 280 in, 65 out."""
    totals = RunningTotals()
    grown = [totals.add(*total) for total in ((100, 20), (100, 20), (250, 60), (30, 5))]
    assert (sum(g[0] for g in grown), sum(g[1] for g in grown)) == (280, 65)


def test_cached_tokens_are_apart_and_never_negative() -> None:
    totals = RunningTotals()
    assert totals.add(100, 10, 40) == (100, 10, 40)
    assert totals.add(150, 10, 30) == (50, 0, 0)
    assert totals.add(-5, -5, -5) == (0, 0, 0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(-5, 500), st.integers(-5, 500), st.integers(-5, 500)), max_size=20))
def test_growth_is_never_negative(totals: list[tuple[int, int, int]]) -> None:
    meter = RunningTotals()
    for total in totals:
        assert min(meter.add(*total)) >= 0
