"""The one record of a user, into which every session is folded (SPEC R14). Pure.

What the last sessions have contributed is kept apart, by session: one that is resumed and ends again replaces its contribution, and
is never counted twice. Older ones are summed up in `base`. The same makes records that were written at the same time come together:
`merge` takes the union of their contributions, so the memory needs no compare-and-set.

A session that ends again after its contribution went into the base is not counted again; it was counted as it stood.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs

from agents.aggregation.session_data import Mean, mean_of
from engine.elements import JsonObject

KEPT_APART = 30
"""Sessions: some 10 KB. Who resumes one of them does so within its day, and no user has so many in one."""
BIOGRAPHY_CHARACTERS = 3000


@attrs.frozen
class Contribution:
    """What one session adds. Times are ISO 8601 in UTC with microseconds, so that texts compare as times do."""

    session_id: str
    began: str
    ended: str
    turns: int
    seconds: float
    traits: Mapping[str, Mean] = attrs.field(factory=dict[str, Mean])

    @property
    def place(self) -> tuple[str, str]:
        """Among the sessions. It never changes."""
        return self.began, self.session_id

    @property
    def _version(self) -> tuple[str, int, float, str]:
        return self.ended, self.turns, self.seconds, repr(sorted(self.traits.items()))

    def newer_of(self, other: "Contribution") -> "Contribution":
        """Of the same session."""
        return max(self, other, key=lambda each: each._version)


@attrs.frozen
class Totals:
    """Of sessions that are not kept apart any more."""

    sessions: int = 0
    turns: int = 0
    seconds: float = 0.0
    traits: Mapping[str, Mean] = attrs.field(factory=dict[str, Mean])
    until: tuple[str, str] = ("", "")
    """The place of the last one."""


@attrs.frozen
class UserRecord:
    biography: str = ""
    base: Totals = Totals()
    recent: tuple[Contribution, ...] = ()
    """In their places' order."""

    @property
    def sessions(self) -> int:
        return self.base.sessions + len(self.recent)

    @property
    def turns(self) -> int:
        return self.base.turns + sum(each.turns for each in self.recent)

    @property
    def seconds(self) -> float:
        return math.fsum([self.base.seconds, *(each.seconds for each in self.recent)])

    @property
    def traits(self) -> dict[str, Mean]:
        """Each the average over all turns of all sessions."""
        return _combined([self.base.traits, *(each.traits for each in self.recent)])

    def last_ended(self, other_than: str = "") -> str:
        """When the user was here last, in another session than that; "" when they were not, as far as it is known."""
        return max((each.ended for each in self.recent if each.session_id != other_than), default="")


def fold(record: UserRecord, contribution: Contribution) -> UserRecord:
    """Count a session, or count it anew."""
    return merge(record, UserRecord(record.biography, recent=(contribution,)))


def merge(newer: UserRecord, older: UserRecord) -> UserRecord:
    """What both have counted. The biography is the newer one's, if it has one."""
    base = max(newer.base, older.base, key=lambda each: (each.until, each.sessions, each.turns, each.seconds))
    by_session: dict[str, Contribution] = {}
    for each in (*newer.recent, *older.recent):
        if each.place > base.until:
            known = by_session.get(each.session_id)
            by_session[each.session_id] = each if known is None else each.newer_of(known)
    recent = sorted(by_session.values(), key=lambda each: each.place)
    kept = max(len(recent) - KEPT_APART, 0)
    return UserRecord(newer.biography or older.biography, _summed(base, recent[:kept]), tuple(recent[kept:]))


def _summed(base: Totals, contributions: list[Contribution]) -> Totals:
    if not contributions:
        return base
    return Totals(
        base.sessions + len(contributions),
        base.turns + sum(each.turns for each in contributions),
        math.fsum([base.seconds, *(each.seconds for each in contributions)]),
        _combined([base.traits, *(each.traits for each in contributions)]),
        contributions[-1].place,
    )


def _combined(all_traits: Iterable[Mapping[str, Mean]]) -> dict[str, Mean]:
    means: dict[str, list[Mean]] = {}
    for traits in all_traits:
        for name, mean in traits.items():
            means.setdefault(name, []).append(mean)
    averages = {name: mean_of(found) for name, found in sorted(means.items())}
    return {name: average for name, average in averages.items() if average is not None}


# --- as it is stored --------------------------------------------------------------------------------------------------


def to_json(record: UserRecord) -> JsonObject:
    """The totals at the top are for whoever looks at the document."""
    return {
        "biography": record.biography,
        "sessions": record.sessions,
        "turns": record.turns,
        "seconds": record.seconds,
        "traits": {name: mean.value for name, mean in record.traits.items()},
        "base": {
            "sessions": record.base.sessions,
            "turns": record.base.turns,
            "seconds": record.base.seconds,
            "traits": _traits_to_json(record.base.traits),
            "until": list(record.base.until),
        },
        "recent": [
            {
                "sessionId": each.session_id,
                "began": each.began,
                "ended": each.ended,
                "turns": each.turns,
                "seconds": each.seconds,
                "traits": _traits_to_json(each.traits),
            }
            for each in record.recent
        ],
    }


def from_json(body: Mapping[str, Any]) -> UserRecord:
    """What is stored; what is of another shape counts for nothing, so that an old document never stops a session."""
    base = _object(body.get("base"))
    until = [_text(item) for item in _list(base.get("until"))]
    recent = [_contribution(_object(item)) for item in _list(body.get("recent"))]
    return UserRecord(
        _text(body.get("biography"))[:BIOGRAPHY_CHARACTERS],
        Totals(
            int(_number(base.get("sessions"))),
            int(_number(base.get("turns"))),
            _number(base.get("seconds")),
            _traits(base.get("traits")),
            (until[0], until[1]) if len(until) == 2 else ("", ""),
        ),
        tuple(sorted((each for each in recent if each.session_id), key=lambda each: each.place)),
    )


def _contribution(value: Mapping[str, object]) -> Contribution:
    return Contribution(
        _text(value.get("sessionId")),
        _text(value.get("began")),
        _text(value.get("ended")),
        int(_number(value.get("turns"))),
        _number(value.get("seconds")),
        _traits(value.get("traits")),
    )


def _traits_to_json(traits: Mapping[str, Mean]) -> JsonObject:
    return {name: attrs.asdict(mean) for name, mean in traits.items()}


def _traits(value: object) -> dict[str, Mean]:
    found: dict[str, Mean] = {}
    for name, item in _object(value).items():
        mean = _object(item)
        weight = _number(mean.get("weight"))
        if weight > 0:
            found[name] = Mean(_number(mean.get("value"), least=-math.inf), weight)
    return found


def _number(value: object, least: float = 0.0) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return max(cast("float", value), least) if is_number else 0.0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
