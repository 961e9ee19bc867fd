"""Facts about a user, and how lists of them that were made at the same time come together.

A list is the newest facts, one for each key. Merging any lists in any order, any number of times, gives the same list, so that two
sessions which write at the same time lose nothing of each other's as soon as somebody reads both revisions: the memory needs no
compare-and-set for it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import attrs

from engine.elements import JsonObject

MAX_FACTS = 60
"""Some 3,000 tokens in a prompt at the most. The oldest go first."""
KEY_CHARACTERS = 60
TEXT_CHARACTERS = 200

_NO_WORD = re.compile(r"\W+")


@attrs.frozen(order=True)
class Fact:
    """Ordered by age. Without text it says that what was known under its key no longer holds."""

    at: str
    """When it was said: ISO 8601, UTC, microseconds, so that texts compare as times do."""
    key: str
    text: str


def normal_key(key: str) -> str:
    """As it is compared: "Home City" and "home_city" are the same."""
    return _NO_WORD.sub("_", key.casefold()).strip("_")[:KEY_CHARACTERS]


def merge(*lists: Iterable[Fact]) -> tuple[Fact, ...]:
    """The newest fact of each key, and of those the newest; oldest first."""
    newest: dict[str, Fact] = {}
    for facts in lists:
        for fact in facts:
            known = newest.get(fact.key)
            newest[fact.key] = fact if known is None else max(known, fact)
    return tuple(sorted(newest.values())[-MAX_FACTS:])


def news(known: Sequence[Fact], said: Iterable[Fact]) -> tuple[Fact, ...]:
    """What of the facts is new: not what is known in the same words, under whatever key, nor what takes back the unknown. Models
    like to repeat what they were told."""
    known_texts = {fact.text.casefold() for fact in known if fact.text}
    known_keys = {fact.key for fact in known if fact.text}
    return tuple(
        fact
        for fact in said
        if fact.key and (fact.text.casefold() not in known_texts if fact.text else fact.key in known_keys)
    )


def to_json(facts: Iterable[Fact]) -> JsonObject:
    return {"facts": [attrs.asdict(fact) for fact in facts]}


def from_json(body: Mapping[str, Any]) -> tuple[Fact, ...]:
    """What is stored; what is of another shape is left out."""
    stored = body.get("facts")
    if not isinstance(stored, list):
        return ()
    return tuple(fact for item in cast("list[object]", stored) if (fact := _fact(item)) is not None)


def _fact(item: object) -> Fact | None:
    if not isinstance(item, dict):
        return None
    values = cast("dict[str, object]", item)
    at, key, text = values.get("at"), values.get("key"), values.get("text")
    if isinstance(at, str) and isinstance(key, str) and isinstance(text, str):
        return Fact(at, key, text)
    return None
