"""The items of a conversation, in their order."""

import binascii
from collections.abc import Mapping
from typing import Any

import attrs
import pybase64

from providers.openai.simulation import rules
from providers.openai.simulation.checks import Json
from providers.openai.simulation.sound import Format

ROOT = "root"
"""As `previous_item_id`: in front of everything."""

_DOING = {"truncate": "truncating", "delete": "deleting", "retrieve": "retrieving"}


@attrs.define(eq=False)
class Item:
    """An item, as events show it, and its audio, which they do not show."""

    id: str
    shown: Json
    """Without audio."""
    audio: bytearray | None = None
    """Kept only if the simulator keeps audio."""
    audio_ms: float = 0.0
    format: Format = Format.PCM
    has_model_audio: bool = False
    truncated: bool = False
    heard: str | None = None
    """What was said in it: the transcript, whether or not the client is told."""

    def retrieved(self) -> Json:
        """The whole item, with its audio."""
        if self.audio is None or not self.shown.get("content"):
            return self.shown
        first, *others = self.shown["content"]
        return {**self.shown, "content": [{**first, "audio": pybase64.b64encode_as_string(self.audio)}, *others]}


class Conversation:
    """The default conversation of a session."""

    def __init__(self, conversation_id: str) -> None:
        self.id = conversation_id
        self.items: list[Item] = []
        self._by_id: dict[str, Item] = {}

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Insert an item, at the end or behind another one; returns the id of the item before it.

        Raises:
            Refused: the id is taken, or there is no such item to follow.
        """
        if item.id in self._by_id:
            raise rules.duplicate_id(item.id)
        place = len(self.items)
        if after == ROOT:
            place = 0
        elif after is not None:
            if after not in self._by_id:
                raise rules.unknown_previous_item(after)
            place = self.items.index(self._by_id[after]) + 1
        self.items.insert(place, item)
        self._by_id[item.id] = item
        return self.items[place - 1].id if place else None

    def before(self, item: Item) -> str | None:
        place = self.items.index(item)
        return self.items[place - 1].id if place else None

    def has(self, item_id: str) -> bool:
        return item_id in self._by_id

    def find(self, item_id: str, verb: str) -> Item:
        """An item, for `verb` to be done to it.

        Raises:
            Refused: there is none.
        """
        item = self._by_id.get(item_id)
        if item is None:
            raise rules.unknown_item(item_id, _DOING[verb], verb)
        return item

    def delete(self, item_id: str) -> Item:
        item = self.find(item_id, "delete")
        del self._by_id[item_id]
        self.items.remove(item)
        return item

    def call(self, call_id: str) -> Item | None:
        """The function call of that id."""
        for item in reversed(self.items):
            if item.shown["type"] == "function_call" and item.shown["call_id"] == call_id:
                return item
        return None


def show(item_id: str, given: Json, status: str | None = "completed") -> Json:
    """An item as the service shows what a client made: id and type first, without audio."""
    shown: Json = {"id": item_id, "type": given["type"]}
    if status is not None:
        shown["status"] = status
    shown |= {key: value for key, value in given.items() if key not in ("id", "type", "status", "object", "content")}
    if "content" in given:
        shown["content"] = [_show_part(part) for part in given["content"]]
    return shown


def _show_part(part: Mapping[str, Any]) -> Json:
    if part["type"] == "input_audio":
        return {"type": "input_audio", "transcript": part.get("transcript")}
    if part["type"] == "input_image":
        return {"detail": "auto", **part}
    return dict(part)


def words(shown: Json) -> str:
    """What an item says, as far as it is words."""
    if shown["type"] == "function_call_output":
        return str(shown["output"])
    parts = (part.get("text") or part.get("transcript") or "" for part in shown.get("content", ()))
    return " ".join(part for part in parts if part)


def decode_base64(audio: str) -> bytes | None:
    """None for what is not base64 as it should be."""
    try:
        return pybase64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        return None
