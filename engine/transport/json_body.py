"""Reading the JSON of a request, more strictly than JSON libraries do: what two readers could understand differently is
refused, and so is what would cost more than it can be worth."""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, cast

import orjson

MAX_DEPTH = 40
"""Levels of nesting; the deepest thing a document has is at 6. As for project files."""
MAX_VALUES = 50_000
"""Values in one body. A body of 1 MiB could hold half a million, and each costs a microsecond or more on its way."""
MAX_DIGITS = 18
"""Of a whole number: longer ones do not fit into 64 bits, and readers round them differently."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# a text or the unfinished rest of one: it matches at every quote it is tried at, and gives nothing back, so it is linear
_SEPARATORS = (b",", b"[", b"{")


class BadJsonError(Exception):
    """The text is not JSON that can be used; the message says why and repeats nothing of it."""


def read_json(body: bytes) -> Any:
    """The value that a body holds. Numbers without a fraction are whole ones, however they are written (1.0, 1e3).

    Raises:
        BadJsonError: it is not JSON in UTF-8; a key is in an object twice; a number is too large, or none (NaN); a text has a NUL; it is
            nested too deep or holds too much.
    """
    if _values_at_most(body) > MAX_VALUES:
        raise BadJsonError(f"The body holds more than {MAX_VALUES} values.")
    try:
        roughly = orjson.loads(body)  # fast, and bounded in depth; it takes the last of two equal keys and rounds
    except orjson.JSONDecodeError as exc:
        raise BadJsonError(f"The body is not JSON: {exc.msg} (line {exc.lineno}, column {exc.colno}).") from None
    _check_depth(roughly)
    if rb"\u0000" in body and _has_nul(roughly):
        raise BadJsonError("The body has a text with the character NUL, which databases cannot keep.")
    return json.loads(body, object_pairs_hook=_object, parse_int=_whole, parse_float=_number)


def _values_at_most(body: bytes) -> int:
    """How many values there are if it is JSON: each but the first follows a comma or opens something."""
    separators = sum(map(body.count, _SEPARATORS))
    if separators >= MAX_VALUES:  # perhaps only those of its texts
        separators = sum(map(_TEXT.sub(b"", body).count, _SEPARATORS))
    return separators + 1


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(cast("dict[str, Any]", each).values())
            elif isinstance(each, list):
                inner.extend(cast("Iterable[Any]", each))
        if not inner:
            return
        level = inner
    raise BadJsonError(f"The body is nested more than {MAX_DEPTH} deep.")


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\0" in name or _has_nul(item) for name, item in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return any(map(_has_nul, cast("Iterable[Any]", value)))
    return isinstance(value, str) and "\0" in value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadJsonError("The body has an object with the same key twice.")
    return found


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise BadJsonError(f"The body has a whole number of more than {MAX_DIGITS} digits.")
    return int(digits)


def _number(digits: str) -> int | float:
    number = float(digits)
    if number.is_integer() and math.fabs(number) < 2**53:
        return int(number)
    return number
