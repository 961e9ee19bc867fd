"""The one record of a user: each session counts once, whatever happens twice or at the same time."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.aggregation.session_data import Mean
from agents.aggregation.user_record import (
    KEPT_APART,
    Contribution,
    Totals,
    UserRecord,
    fold,
    from_json,
    merge,
    to_json,
)


def at(second: int) -> str:
    return f"2026-03-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000000+00:00"


def contribution(
    number: int, *, ended: int | None = None, turns: int = 4, value: float = 0.5, name: str = "v"
) -> Contribution:
    traits = {name: Mean(value, turns)} if turns else {}
    return Contribution(
        f"s{number}", at(number), at(number + 10 if ended is None else ended), turns, 10.0 * turns, traits
    )


contributions = st.builds(
    contribution,
    st.integers(0, 15),
    ended=st.integers(20, 40),
    turns=st.integers(0, 20),
    value=st.floats(-1, 1),
    name=st.sampled_from(["v", "w"]),
)
many = st.lists(contributions, max_size=25)


def folded(found: list[Contribution]) -> UserRecord:
    record = UserRecord()
    for each in found:
        record = fold(record, each)
    return record


@settings(max_examples=60, deadline=None)
@given(many, st.randoms(use_true_random=False))
def test_no_order_and_no_repetition_changes_anything(found: list[Contribution], random: Random) -> None:
    again = found + random.sample(found, len(found))
    random.shuffle(again)
    assert folded(again) == folded(found)


@settings(max_examples=60, deadline=None)
@given(many, many, many)
def test_records_merge_like_sets(a: list[Contribution], b: list[Contribution], c: list[Contribution]) -> None:
    x, y, z = folded(a), folded(b), folded(c)
    assert merge(x, y) == merge(y, x) == folded(a + b)
    assert merge(merge(x, y), z) == merge(x, merge(y, z))
    assert merge(x, x) == x


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=100), st.data())
def test_the_average_of_n_sessions_is_that_of_all_their_turns(turns: list[int], data: st.DataObject) -> None:
    """Also of those that are not kept apart any more."""
    values = data.draw(st.lists(st.floats(-1, 1), min_size=len(turns), max_size=len(turns)))
    found = [contribution(n, turns=t, value=v) for n, (t, v) in enumerate(zip(turns, values, strict=True))]
    record = folded(found)
    assert (record.sessions, record.turns) == (len(turns), sum(turns))
    assert record.seconds == pytest.approx(10.0 * sum(turns))
    assert len(record.recent) <= KEPT_APART
    if sum(turns):
        expected = math.fsum(t * v for t, v in zip(turns, values, strict=True)) / sum(turns)
        trait = record.traits["v"]
        assert trait.value == pytest.approx(expected, abs=1e-9)
        assert trait.weight == pytest.approx(sum(turns))
        spoken = [v for t, v in zip(turns, values, strict=True) if t]
        assert min(spoken) <= trait.value <= max(spoken)
    assert from_json(to_json(record)) == record


def test_a_session_that_ends_again_is_counted_anew_and_once() -> None:
    record = folded([contribution(1, turns=2, value=1.0), contribution(2, turns=2, value=0.0)])
    record = fold(record, contribution(1, ended=500, turns=6, value=0.5))
    assert (record.sessions, record.turns, record.seconds) == (2, 8, 80.0)
    assert record.traits == {"v": Mean(0.375, 8)}
    assert fold(record, contribution(1, turns=2, value=1.0)) == record  # what comes late


def test_a_session_of_the_base_is_not_counted_again() -> None:
    record = folded([contribution(n) for n in range(KEPT_APART + 5)])
    assert record.base.sessions == 5
    assert fold(record, contribution(2, ended=9000, turns=50)) == record
    assert record.sessions == KEPT_APART + 5


def test_two_that_were_written_at_the_same_time_are_both_counted() -> None:
    """Also when each has moved another number of sessions to the base."""
    before = folded([contribution(n) for n in range(KEPT_APART)])
    one = fold(before, contribution(100))
    other = fold(fold(before, contribution(101)), contribution(102))
    assert merge(one, other) == merge(other, one)
    assert merge(one, other).sessions == KEPT_APART + 3


def test_the_biography_is_the_newer_ones() -> None:
    assert merge(UserRecord("neu"), UserRecord("alt")).biography == "neu"
    assert merge(UserRecord(), UserRecord("alt")).biography == "alt"
    assert fold(UserRecord("alt"), contribution(1)).biography == "alt"


def test_the_last_visit_is_another_sessions() -> None:
    record = folded([contribution(1), contribution(2)])
    assert record.last_ended() == at(12)
    assert record.last_ended(other_than="s2") == at(11)
    assert UserRecord().last_ended() == ""


def test_old_documents_never_stop_a_session() -> None:
    assert from_json({}) == UserRecord("", Totals(), ())
    assert from_json({"biography": 3, "base": [], "recent": {"a": 1}}) == UserRecord()
    odd = {
        "recent": [1, {"sessionId": "s", "turns": True, "seconds": math.inf, "traits": {"v": 1, "w": {"weight": -1}}}]
    }
    assert from_json(odd) == UserRecord(recent=(Contribution("s", "", "", 0, 0.0),))
    assert from_json({"base": {"until": ["a"], "turns": -3}}) == UserRecord()
