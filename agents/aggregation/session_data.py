"""From a session's extraction records to its data: averages, flags, topics, histograms (SPEC R14). Pure.

What a section's value is, its shape says, so a new extractor needs nothing here:

- a number is a metric, averaged over the turns;
- true or false is a flag: whether it ever was, and the share of the turns in which it was;
- a text is a label (an expression), counted by turns;
- a list of objects with `name` and `weight` are topics, whose weights are averaged over all turns that were looked at.

Names are "extractor.field". Sums are exactly rounded, so that no order of the records changes a number.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar, cast

import attrs

from agents.extraction.records import ExtractionRecord
from engine.elements import JsonObject

N = TypeVar("N", int, float)

MAX_TOPICS = 20
MAX_LABELS = 20
"""Of one field. Beyond, what is rarest is left out: labels are meant to be few."""
GAP_SECONDS = 120.0
"""The most that counts between two turns of a session that was resumed: what is longer was a pause between its runs."""


@attrs.frozen
class Mean:
    """A weighted average; the weight is in turns."""

    value: float
    weight: float


def mean_of(means: Iterable[Mean]) -> Mean | None:
    """The average of averages. None without any weight."""
    counted = [mean for mean in means if mean.weight > 0]
    if not counted:
        return None
    weight = math.fsum(mean.weight for mean in counted)
    value = math.fsum(mean.value * mean.weight for mean in counted) / weight
    # the rounding of the products may have left the range by a hair
    return Mean(min(max(value, min(m.value for m in counted)), max(m.value for m in counted)), weight)


@attrs.frozen
class SessionData:
    turns: int
    """Of the user."""
    seconds: float
    metrics: Mapping[str, Mean] = attrs.field(factory=dict[str, Mean])
    flags: Mapping[str, Mean] = attrs.field(factory=dict[str, Mean])
    """The share of the turns; one above 0 was ever true."""
    topics: Mapping[str, float] = attrs.field(factory=dict[str, float])
    """0 to 1, the weightiest first."""
    labels: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict[str, Mapping[str, int]])
    """By field: the turns with each label, the most frequent first."""

    @property
    def traits(self) -> dict[str, Mean]:
        """All that is a number."""
        return {**self.metrics, **self.flags}

    def to_json(self) -> JsonObject:
        return {
            "turns": self.turns,
            "seconds": self.seconds,
            "metrics": {name: attrs.asdict(mean) for name, mean in self.metrics.items()},
            "flags": {
                name: {"any": mean.value > 0, "share": mean.value, "weight": mean.weight}
                for name, mean in self.flags.items()
            },
            "topics": [{"name": name, "weight": weight} for name, weight in self.topics.items()],
            "expressions": {name: dict(histogram) for name, histogram in self.labels.items()},
        }


def aggregate(records: Sequence[ExtractionRecord], turns: int, seconds: float) -> SessionData:
    """The data of a session of so many turns and seconds."""
    metrics: dict[str, list[Mean]] = defaultdict(list)
    flags: dict[str, list[Mean]] = defaultdict(list)
    labels: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    topics: dict[str, _Topics] = defaultdict(_Topics)
    for record in records:
        for name, value in _fields(record.results):
            match value:
                case bool():
                    flags[name].append(Mean(float(value), record.turns))
                case int() | float() if math.isfinite(value):
                    metrics[name].append(Mean(float(value), record.turns))
                case str() if value:
                    labels[name][value] += record.turns
                case list():
                    topics[name].add(cast("list[object]", value), record.turns)
                case _:
                    pass
    return SessionData(
        turns=turns,
        seconds=seconds,
        metrics=_means(metrics),
        flags=_means(flags),
        topics=_most(_highest(each.shares() for each in topics.values()), MAX_TOPICS),
        labels={name: _most(counts, MAX_LABELS) for name, counts in sorted(labels.items())},
    )


def talk_seconds(began: datetime, moments: Iterable[datetime], ended: datetime, *, was_resumed: bool) -> float:
    """How long was talked. A session of one run: from its beginning to its end. One of several: the time between its turns, as
    long as it looks like talk."""
    if not was_resumed:
        return max((ended - began).total_seconds(), 0.0)
    points = sorted([began, *(moment for moment in moments if began <= moment <= ended), max(began, ended)])
    gaps = ((later - earlier).total_seconds() for earlier, later in pairwise(points))
    return math.fsum(min(gap, GAP_SECONDS) for gap in gaps)


def _fields(results: Mapping[str, JsonObject]) -> Iterator[tuple[str, Any]]:
    for extractor, section in results.items():
        for field, value in section.items():
            yield f"{extractor}.{field}", value


def _means(found: Mapping[str, list[Mean]]) -> dict[str, Mean]:
    return {name: mean for name, means in sorted(found.items()) if (mean := mean_of(means)) is not None}


def _highest(shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Of each topic, when several extractors find topics."""
    highest: dict[str, float] = {}
    for each in shares:
        for name, share in each.items():
            highest[name] = max(highest.get(name, 0.0), share)
    return highest


def _most(counts: Mapping[str, N], limit: int) -> dict[str, N]:
    """The highest first; of equal ones in the order of the names."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])


@attrs.define(eq=False)
class _Topics:
    """The topics of one field by name, whatever their letters' case."""

    _turns: float = 0.0
    _weights: dict[str, list[float]] = attrs.field(factory=lambda: defaultdict[str, list[float]](list))
    _spellings: dict[str, str] = attrs.field(factory=dict[str, str])

    def add(self, items: list[object], turns: int) -> None:
        """Those of a record that counts for so many turns. An empty list counts too: they were about nothing."""
        named: dict[str, float] = {}
        for item in items:
            values = cast("dict[str, object]", item) if isinstance(item, dict) else {}
            name, weight = values.get("name"), values.get("weight")
            if not isinstance(name, str) or isinstance(weight, bool) or not isinstance(weight, int | float):
                continue
            name = " ".join(name.split())
            key = name.casefold()
            if name and 0 <= weight <= 1:
                self._spellings[key] = min(self._spellings.get(key, name), name)
                named[key] = max(named.get(key, 0.0), float(weight))
        if named or not items:
            self._turns += turns
        for key, weight in named.items():
            self._weights[key].append(weight * turns)

    def shares(self) -> dict[str, float]:
        return {self._spellings[key]: min(math.fsum(w) / self._turns, 1.0) for key, w in self._weights.items()}
