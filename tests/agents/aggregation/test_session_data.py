"""From records to a session's data: the numbers, whatever the order."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.aggregation.session_data import (
    GAP_SECONDS,
    MAX_LABELS,
    MAX_TOPICS,
    Mean,
    aggregate,
    mean_of,
    talk_seconds,
)
from agents.extraction.records import ExtractionRecord
from engine.testing.stage import EPOCH


def record(results: dict[str, Any], turns: int = 1) -> ExtractionRecord:
    return ExtractionRecord(("t",), turns, EPOCH, results)


NO_FACTS: dict[str, Any] = {"facts": []}
values = st.floats(-1, 1)
sections: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "sentiment": st.fixed_dictionaries(
            {"valence": values, "expression": st.sampled_from(["joy", "anger", "fear"])}
        ),
        "engagement": st.fixed_dictionaries({"confused": st.booleans()}),
        "topics": st.fixed_dictionaries(
            {
                "topics": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.sampled_from(["Káva", "káva", "Größe", "GRÖSSE", "čas"]), "weight": st.floats(0, 1)}
                    ),
                    max_size=4,
                )
            }
        ),
        "facts": st.just(NO_FACTS),
    }
)
records = st.lists(st.builds(record, sections, st.integers(1, 5)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(records, st.randoms(use_true_random=False))
def test_no_order_changes_anything(found: list[ExtractionRecord], random: Random) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    assert aggregate(shuffled, 3, 60.0) == aggregate(found, 3, 60.0)


@settings(max_examples=60, deadline=None)
@given(records)
def test_averages_are_those_of_all_turns(found: list[ExtractionRecord]) -> None:
    data = aggregate(found, 3, 60.0)
    each_turn = [each.results["sentiment"]["valence"] for each in found for _ in range(each.turns)]
    confused = [each.results["engagement"]["confused"] for each in found for _ in range(each.turns)]
    valence, flag = data.metrics["sentiment.valence"], data.flags["engagement.confused"]
    assert valence.value == pytest.approx(sum(each_turn) / len(each_turn), abs=1e-12)
    assert min(each_turn) <= valence.value <= max(each_turn)
    assert valence.weight == flag.weight == len(each_turn)
    assert flag.value == pytest.approx(sum(confused) / len(confused))
    assert data.to_json()["flags"]["engagement.confused"]["any"] == any(confused)
    assert sum(data.labels["sentiment.expression"].values()) == len(each_turn)


@settings(max_examples=60, deadline=None)
@given(records)
def test_topics_are_shares_of_the_turns(found: list[ExtractionRecord]) -> None:
    topics = aggregate(found, 3, 60.0).topics
    assert all(0 <= share <= 1 for share in topics.values())
    assert len({name.casefold() for name in topics}) == len(topics)
    assert list(topics.values()) == sorted(topics.values(), reverse=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.builds(Mean, st.floats(-1e6, 1e6), st.floats(0.1, 1e3)), min_size=1, max_size=20), st.integers(0, 20)
)
def test_an_average_of_averages_is_the_average_of_all(means: list[Mean], cut: int) -> None:
    whole = mean_of(means)
    parts = [mean for mean in (mean_of(means[:cut]), mean_of(means[cut:])) if mean is not None]
    again = mean_of(parts)
    assert whole is not None
    assert again is not None
    assert again.weight == pytest.approx(whole.weight)
    assert again.value == pytest.approx(whole.value, rel=1e-9, abs=1e-6)
    assert min(mean.value for mean in means) <= whole.value <= max(mean.value for mean in means)


def test_there_is_no_average_of_nothing() -> None:
    assert mean_of([]) is None
    assert mean_of([Mean(1, 0)]) is None


def test_an_example() -> None:
    first = {
        "sentiment": {"valence": 1, "label": "positive"},
        "topics": {"topics": [{"name": " Grüner  Tee ", "weight": 1.0}, {"name": "Preis", "weight": 0.5}]},
        "facts": {"facts": [{"key": "a", "text": "b"}]},
    }
    second = {
        "sentiment": {"valence": 0.5, "label": "positive"},
        "topics": {"topics": [{"name": "grüner tee", "weight": 0.5}]},
    }
    third: dict[str, Any] = {
        "sentiment": {"valence": -0.5, "label": "negative"},
        "topics": {"topics": []},
        "x": {"y": None, "z": ""},
    }
    data = aggregate([record(first), record(second), record(third, 2)], 4, 90.0)
    assert data.to_json() == {
        "turns": 4,
        "seconds": 90.0,
        "metrics": {"sentiment.valence": {"value": 0.125, "weight": 4.0}},
        "flags": {},
        "topics": [{"name": "Grüner Tee", "weight": 0.375}, {"name": "Preis", "weight": 0.125}],
        "expressions": {"sentiment.label": {"negative": 2, "positive": 2}},
    }
    assert data.traits == {"sentiment.valence": Mean(0.125, 4)}


def test_what_is_no_topic_is_none() -> None:
    items: list[Any] = [
        3,
        {"name": 1, "weight": 1},
        {"name": "a"},
        {"name": "b", "weight": True},
        {"name": "c", "weight": 9},
    ]
    assert aggregate([record({"topics": {"topics": items}})], 1, 1.0).topics == {}
    assert aggregate([record({"s": {"v": float("nan")}})], 1, 1.0).metrics == {}


def test_everything_is_bounded() -> None:
    many = [record({"t": {"t": [{"name": f"téma {n}", "weight": 0.5}]}, "l": {"l": f"l{n}"}}) for n in range(100)]
    data = aggregate(many, 100, 1.0)
    assert len(data.topics) == MAX_TOPICS
    assert len(data.labels["l.l"]) == MAX_LABELS


def test_several_extractors_may_find_topics() -> None:
    one = {"a": {"t": [{"name": "x", "weight": 0.5}]}, "b": {"t": [{"name": "x", "weight": 1.0}]}}
    assert aggregate([record(one), record({"b": {"t": []}})], 2, 1.0).topics == {"x": 0.5}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-50, 5000), max_size=20), st.integers(0, 4000))
def test_talk_is_never_longer_than_the_session(moments: list[int], length: int) -> None:
    ended = EPOCH + timedelta(seconds=length)
    points = [EPOCH + timedelta(seconds=moment) for moment in moments]
    talked = talk_seconds(EPOCH, points, ended, was_resumed=True)
    assert 0 <= talked <= length
    assert talked <= GAP_SECONDS * (len(moments) + 1)
    assert talk_seconds(EPOCH, points, ended, was_resumed=False) == length


def test_the_pause_between_two_runs_is_no_talk() -> None:
    at = [EPOCH + timedelta(seconds=second) for second in (30, 60, 90_000)]
    assert talk_seconds(EPOCH, at, EPOCH + timedelta(seconds=90_030), was_resumed=True) == 90 + GAP_SECONDS
    assert talk_seconds(EPOCH, [], EPOCH - timedelta(seconds=5), was_resumed=False) == 0
