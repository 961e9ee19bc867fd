"""Any value as JSON of a bounded size, for what is kept to be looked at later.

Texts keep their beginning and lists their end, as in a conversation the newest is what matters; the members of an object are
kept in their order, so what must not be lost comes first. Whatever is cut leaves a mark. The copy shares nothing with the
original and holds only what every store can take: no lone surrogates, no numbers beyond 64 bits, no keys with a zero byte.
"""

import math
from collections.abc import Mapping
from typing import Any, cast

import attrs

MARK = "…"
SCALAR_CHARACTERS = 8
"""What a number or an empty text counts for: a list of a million zeros is cut too."""
MAX_DEPTH = 32
"""No log is read at a greater depth, and parsers have limits of their own."""
MAX_INTEGER = 2**63 - 1


def bound_json(value: Mapping[str, Any], characters: int) -> tuple[dict[str, Any], int]:
    """The object within about so many characters (the marks come on top, at most one for each level), and how many it has."""
    budget = _Budget(characters)
    bounded = budget.object(value, 0)
    return bounded, characters - budget.left


@attrs.define
class _Budget:
    left: int

    def any(self, value: object, depth: int) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping() | list() | tuple() if depth >= MAX_DEPTH:
                return f"{MARK} (nested too deeply)"
            case Mapping():
                return self.object(cast("Mapping[object, object]", value), depth + 1)
            case list() | tuple():
                return self.array(cast("list[object] | tuple[object, ...]", value), depth + 1)
            case None | bool():
                self.left -= SCALAR_CHARACTERS
                return value
            case int() if abs(value) <= MAX_INTEGER:
                self.left -= SCALAR_CHARACTERS
                return int(value)
            case float() if math.isfinite(value):
                self.left -= SCALAR_CHARACTERS
                return float(value)
            case int() | float():
                return self.text(_number(value))
            case _:
                return self.text(f"({type(value).__name__})")

    def text(self, value: str) -> str:
        if len(value) <= self.left:
            self.left -= max(len(value), SCALAR_CHARACTERS)
            return _sound(value[:])  # a plain text also of a text's subclass
        kept = _sound(value[: self.left])
        cut = len(value) - self.left
        self.left = 0
        return f"{kept}{MARK} ({cut} characters cut)"

    def array(self, values: "list[object] | tuple[object, ...]", depth: int) -> list[Any]:
        kept: list[Any] = []
        for value in reversed(values):
            if self.left <= 0:
                kept.append(f"{MARK} ({len(values) - len(kept)} items cut)")
                break
            kept.append(self.any(value, depth))
        kept.reverse()
        return kept

    def object(self, members: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for index, (key, value) in enumerate(members.items()):
            if self.left <= 0:
                kept[MARK] = f"({len(members) - index} members cut)"
                break
            name = str(self.any(key, depth)).replace("\0", "�")
            kept[name] = self.any(value, depth) if self.left > 0 else MARK
        return kept


def _number(value: float) -> str:
    """In words, when no JSON or no store has it. Python itself refuses to write integers of thousands of digits."""
    if isinstance(value, int):
        return f"({value.bit_length()} bit integer)"
    return f"({value})"


def _sound(text: str) -> str:
    """Without half surrogate pairs, which no encoding has."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
