"""What a person is told of a replay."""

import json
from collections.abc import Iterator
from typing import Any, cast

from engine.capsule.file import Capsule, Kind
from engine.capsule.replay import Replayed

AROUND = 4
"""Lines before the first difference that are shown."""
WIDTH = 160
BEFORE = 40
"""Characters before the place where two long values part."""


def report_lines(capsule: Capsule, result: Replayed, *, shows_difference: bool) -> Iterator[str]:
    """The verdict, and where it is wanted the elements before the first difference, and both sides of it."""
    length, found = f"{result.seconds:.1f} s", result.divergence
    if found is None:
        yield f"equal: the client was told the same {result.told} elements, byte for byte, in a session of {length}"
    else:
        place = f"at {found.at:.3f} s of {length}, after {result.told} of {result.expected} elements"
        yield f"different {place}: {found.what}"
    if capsule.head.get("redacted"):
        yield "The capsule is redacted: nothing that depended on words can be the same."
    if not result.is_whole:
        yield "The capsule ends before its session did; it is compared up to there."
    if result.turned:
        yield f"What was ready at once was taken in another order in {len(result.turned)} places."
    if found is not None and shows_difference:
        told = [record for record in capsule.records if record.kind in (Kind.OUT, Kind.CUT)]
        for record in told[max(result.told - AROUND, 0) : result.told]:
            yield _line(" ", record.at, [record.kind.value, *record.fields])
        expected, other = _text(found.expected), _text(found.found)
        same = next((n for n, pair in enumerate(zip(expected, other, strict=False)) if pair[0] != pair[1]), 0)
        start = 0 if same < WIDTH // 2 else same - BEFORE
        yield _line("-", None, found.expected, start)
        yield _line("+", found.at, found.found, start)


def _line(mark: str, at: float | None, value: Any, start: int = 0) -> str:
    time = " " * 10 if at is None else f"{at:10.3f}"
    text = _text(value)
    return f"{mark} {time}  {'…' if start else ''}{text[start:]}"[:WIDTH]


def _text(value: Any) -> str:
    return json.dumps(_short(value), ensure_ascii=False, default=repr)


def _short(value: object) -> object:
    """Without the names of modules, which everybody knows."""
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        name = fields.get("$")
        if isinstance(name, str) and ":" in name:
            return {name.rpartition(":")[2]: _short(fields.get("of"))}
        return {key: _short(each) for key, each in fields.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in cast("list[object]", value)]
    return value
