"""The things of a timeline, by lane: each has an id that nothing else has, a time, and names what belongs to it."""

from enum import StrEnum
from typing import Any

import attrs

from engine.capsule.plainly import Room
from engine.elements import JsonObject

MOST_ITEMS = 20_000
"""Of a lane: hours of a conversation. What comes behind is counted and left out."""
MOST_CHARACTERS = 8_000_000
"""Of all texts of a timeline; behind them there is room for a few words of each."""
MOST_TEXT = 4_000
"""Characters of a text."""
MOST_DETAIL = 1_500
"""Characters of a detail: what was asked, what came of it."""
MILLISECOND = 4
"""Digits of a time: a tenth of one."""


class Lane(StrEnum):
    USER = "user"
    AGENT = "agent"
    WORDS = "words"
    TOKENS = "tokens"
    TURNS = "turns"
    LEGS = "legs"
    PASSES = "passes"
    WHISPERS = "whispers"
    TOOLS = "tools"
    OUTSIDE = "outside"
    CANCELS = "cancels"
    EVENTS = "events"


@attrs.define(eq=False)
class Items:
    """What a timeline is made of, while it is made. An item's `until` is None as long as it is open; members without a value are
    not written."""

    lanes: dict[Lane, list[JsonObject]] = attrs.field(factory=lambda: {lane: [] for lane in Lane}, init=False)
    left_out: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    room: Room = attrs.field(factory=lambda: Room(MOST_CHARACTERS), init=False)
    by_id: dict[str, JsonObject] = attrs.field(factory=dict[str, JsonObject], init=False)

    def add(self, lane: Lane, at: float, kind: str, name: str = "", **more: Any) -> JsonObject:
        """A new item. Without `name` it is numbered; one that is there already under it stays, and the new one gets another."""
        items = self.lanes[lane]
        name = name or str(len(items) + self.left_out.get(lane.value, 0) + 1)
        identity = f"{lane.value}:{name}"
        if identity in self.by_id:
            identity = f"{identity}'{len(self.by_id)}"
        item: JsonObject = {"id": identity, "kind": kind, "at": at, "until": at, "links": [], "more": {}, **more}
        if len(items) >= MOST_ITEMS:
            self.left_out[lane.value] = self.left_out.get(lane.value, 0) + 1
        else:
            items.append(item)
            self.by_id[identity] = item
        return item

    def find(self, lane: Lane, name: str) -> JsonObject | None:
        return self.by_id.get(f"{lane.value}:{name}")

    def text(self, value: object, most: int = MOST_TEXT) -> str:
        return self.room.text(value, most)

    def detail(self, item: JsonObject, name: str, value: object) -> None:
        """Something more to be known of an item."""
        words = self.room.words(value, MOST_DETAIL)
        if words:
            item["more"][name] = words

    def shown(self, lane: Lane) -> list[JsonObject]:
        """A lane in the order of time, without what is empty, and with links to what is there only."""
        found = sorted(self.lanes[lane], key=lambda item: item["at"])
        return [self._written(item) for item in found]

    def _written(self, item: JsonObject) -> JsonObject:
        links = [each for each in dict.fromkeys(item["links"]) if each in self.by_id and each != item["id"]]
        written = {**item, "links": links}
        return {
            key: round(value, MILLISECOND) if isinstance(value, float) else value
            for key, value in written.items()
            if key in ("at", "until") or (value not in ("", None) and value != [] and value != {})
        }


def link(one: JsonObject | None, other: JsonObject | None) -> None:
    """They belong together."""
    if one is not None and other is not None:
        one["links"].append(other["id"])
        other["links"].append(one["id"])
