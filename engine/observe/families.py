"""What is measured: every metric by name, with its labels, its buckets and the most label values it may get.

A family's series are numbers on a `Page`, so that observing something costs a dictionary look-up and one or two additions, and
the room for all of them is known beforehand. Label values that come from outside (names of tools, providers, error codes) are
bounded by their projects and by the code, and capped all the same: what comes after the last is counted as `other`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from operator import add

import attrs
import orjson

from engine.observe.page import Page, entry_size

OTHER = "other"
VALUE_CHARACTERS = 60
"""The longest label value; the rest is cut off."""
PREFIX = "souffleur_"

Labels = tuple[str, ...]

VOICE_SECONDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""What somebody waits for in a conversation: a pause of 200 ms is natural, one of a second is noticed, ten are a failure."""
STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""From a write to memory to the time limits of its callers."""
LOOP_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""From a quiet loop to one that nobody can talk through; 20 ms are a frame of audio."""
SESSION_SECONDS = (1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)


class Kind(Enum):
    COUNTER = auto()
    """Only grows. Those of processes that have ended go on counting."""
    GAUGE = auto()
    """What is now: the sum over the processes that live."""
    PEAK = auto()
    """What is now: the highest of the processes that live."""
    HISTOGRAM = auto()


@attrs.frozen
class Label:
    name: str
    limit: int
    """The most different values, not counting `other`."""


@attrs.frozen(eq=False)
class Family:
    """One metric. Seconds, bytes and counts, as Prometheus wants them; the names of counters end in `_total`."""

    kind: Kind
    short_name: str
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return PREFIX + self.short_name

    @property
    def width(self) -> int:
        """How many numbers a series has. Those of a histogram: the sum, then each bucket's own count, that of +Inf last."""
        return len(self.buckets) + 2 if self.kind is Kind.HISTOGRAM else 1

    @property
    def most_series(self) -> int:
        """How many series there can be."""
        series = 1
        for label in self.labels:
            series *= label.limit + 1
        return series

    @property
    def most_bytes(self) -> int:
        """The room its series can take on a page."""
        longest = "\0" * VALUE_CHARACTERS  # no character takes more bytes in a key
        key_length = len(key_of(self, tuple(longest for _ in self.labels)))
        return self.most_series * entry_size(key_length, self.width)


def key_of(family: Family, labels: Labels) -> bytes:
    """A series' key on a page."""
    return orjson.dumps([family.short_name, labels])


@attrs.define(eq=False)
class Cap:
    """Keeps the label values of a family within its limits."""

    family: Family
    _known: list[set[str]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._known = [set[str]() for _ in self.family.labels]

    def admit(self, labels: Iterable[str]) -> Labels:
        """The labels as they are counted."""
        return tuple(
            value if self._has_room(value, known, label) else OTHER
            for value, known, label in zip(labels, self._known, self.family.labels, strict=True)
        )

    def _has_room(self, value: str, known: set[str], label: Label) -> bool:
        if value in known or value == OTHER:
            return True
        if len(known) >= label.limit:
            return False
        known.add(value)
        return True


@attrs.define(eq=False)
class Series:
    """A family's series on a page. The methods that count take the label values in the order of the family's labels."""

    family: Family
    page: Page
    _cap: Cap = attrs.field(init=False)
    _at: dict[Labels, int] = attrs.field(factory=dict[Labels, int], init=False)
    _numbers: "memoryview[float]" = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cap = Cap(self.family)
        self._numbers = self.page.numbers
        if not self.family.labels:
            self._find(())  # shown from the beginning, as zero: its first rise is then seen as one

    def add(self, amount: float, *labels: str) -> None:
        """Of a counter or a gauge."""
        at = self._at.get(labels)
        self._numbers[self._find(labels) if at is None else at] += amount

    def set(self, value: float, *labels: str) -> None:
        """Of a gauge, or of a counter that somebody else counts."""
        at = self._at.get(labels)
        self._numbers[self._find(labels) if at is None else at] = value

    def observe(self, value: float, *labels: str) -> None:
        """Of a histogram."""
        found = self._at.get(labels)
        at = self._find(labels) if found is None else found
        self._numbers[at] += value
        self._numbers[at + 1 + bisect_left(self.family.buckets, value)] += 1.0

    def _find(self, labels: Labels) -> int:
        """The slow way: the first time, or when the label values have to be counted as others."""
        clean = tuple(value[:VALUE_CHARACTERS].encode(errors="replace").decode() for value in labels)
        admitted = self._cap.admit(clean)
        at = self._at.get(admitted)
        if at is None:
            at = self._at[admitted] = self.page.add(key_of(self.family, admitted), self.family.width)
        return at


@attrs.define(eq=False)
class Totals:
    """The sums of pages, for one exposition or to be kept when their processes are gone."""

    families: Sequence[Family]
    series: dict[str, dict[Labels, list[float]]] = attrs.field(init=False)
    """By the family's short name and the labels."""
    _caps: dict[str, Cap] = attrs.field(init=False)
    _places: dict[bytes, tuple[Family, Labels] | None] = attrs.field(
        factory=dict[bytes, tuple[Family, Labels] | None], init=False
    )
    """Where a key's numbers belong. The pages of one server have most of their keys in common."""

    def __attrs_post_init__(self) -> None:
        self._caps = {family.short_name: Cap(family) for family in self.families}
        self.series = {family.short_name: {} for family in self.families}

    def take(self, entries: Iterable[tuple[bytes, Sequence[float]]], *, lives: bool) -> None:
        """Add a page's entries. Of a process that has ended only what it has counted is taken, not what was then."""
        for key, numbers in entries:
            if key not in self._places:
                self._places[key] = self._place(key)
            place = self._places[key]
            if place is None or len(numbers) != place[0].width:
                continue  # of another version of this program
            family, labels = place
            if not lives and family.kind in (Kind.GAUGE, Kind.PEAK):
                continue
            series = self.series[family.short_name]
            sums = series.get(labels)
            if sums is None:
                series[labels] = list(numbers)
            elif family.kind is Kind.PEAK:
                series[labels] = list(map(max, sums, numbers))
            else:
                series[labels] = list(map(add, sums, numbers))

    def _place(self, key: bytes) -> tuple[Family, Labels] | None:
        name, values = orjson.loads(key)
        cap = self._caps.get(name)
        if cap is None or len(values) != len(cap.family.labels):
            return None
        return cap.family, cap.admit(values)

    def write_to(self, page: Page) -> None:
        for family in self.families:
            for labels, sums in self.series[family.short_name].items():
                at = page.add(key_of(family, labels), family.width)
                for offset, value in enumerate(sums):
                    page.numbers[at + offset] = value
