"""Plain data (`engine.capsule.codec`) read for showing: nothing is made of it, and whatever is in it, something can be shown.

A capsule may come from anybody, so none of these raise, all are bounded, and what comes out can be written as JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from engine.elements import JsonObject

MOST_DEPTH = 8
"""Levels of a value that are shown."""
MOST_MEMBERS = 200
"""Members of a map or a list that are shown."""
FEW = 120
"""Characters of a text when there is no room for more."""


def class_of(value: object) -> str:
    """The bare name of the class a map stands for; "" when it stands for none."""
    if not isinstance(value, dict):
        return ""
    name = cast("dict[object, object]", value).get("$")
    return name.rpartition(":")[2] if isinstance(name, str) and ":" in name else ""


def members(value: object) -> JsonObject:
    """The fields of what a map stands for, or its own; {} for anything else."""
    if not isinstance(value, dict):
        return {}
    found = cast("dict[object, object]", value)
    if "$" in found:
        return members(found.get("of")) if class_of(found) else {}
    return {str(key): each for key, each in found.items()}


def value_of(value: object) -> object:
    """The bare value of an enum or a time."""
    if isinstance(value, dict):
        found = cast("dict[object, object]", value)
        if "$" in found and isinstance(found.get("of"), str | int | float):
            return found["of"]
        return found
    return value


def text_of(value: object) -> str:
    """A text, or that of an enum or a time; "" for anything else. It has no half characters, which JSON could not hold."""
    value = value_of(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def number_of(value: object, default: float = 0.0) -> float:
    """A finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return default
        return number if math.isfinite(number) else default
    return default


def shown(value: object, depth: int = MOST_DEPTH) -> Any:
    """As JSON for a person: without the names of classes, bytes as their length."""
    value = value_of(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, int | float):
        number = number_of(value)
        return int(number) if isinstance(value, int) and abs(number) < 2**53 else number
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        found = cast("Mapping[object, object]", value)
        if "$" in found:
            return shown(found.get("of"), depth - 1)
        some = list(found.items())[:MOST_MEMBERS]
        return {text_of(key) or str(type(key).__name__): shown(each, depth - 1) for key, each in some}
    if isinstance(value, list | tuple):
        return [shown(each, depth - 1) for each in cast("Sequence[object]", value)[:MOST_MEMBERS]]
    return type(value).__name__


def error_of(value: object) -> str:
    """An exception in words: its class, and what it says."""
    of = members(value)
    args = of.get("args")
    said = [text_of(each) for each in cast("list[object]", args)] if isinstance(args, list) else []
    return ": ".join(filter(None, [class_of(value) or "an error", " ".join(filter(None, said))]))


@attrs.define(eq=False)
class Room:
    """The characters a document has room for. Texts are cut to their own bound, and to a few when the room is used up."""

    characters: int
    cut: int = attrs.field(default=0, init=False)
    """Texts that were."""

    def text(self, value: object, most: int) -> str:
        text = text_of(value)
        most = most if self.characters > 0 else min(most, FEW)
        if len(text) > most:
            self.cut += 1
            text = text[:most] + "…"
        self.characters -= len(text)
        return text

    def words(self, value: object, most: int) -> str:
        """Any value as text: its own, else JSON."""
        found = shown(value)
        if found is None or found in ({}, []):
            return ""
        cut = self.cut
        text = self.text(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False), most)
        self.cut = cut  # a detail is an excerpt at any time
        return text
