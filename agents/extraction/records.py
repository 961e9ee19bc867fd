"""A session's extraction records: one for each turn that was looked at."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import attrs

from engine.elements import JsonObject
from engine.interfaces import Context
from engine.memory import MemoryScope

NAME = "extraction"
"""In the session's memory; each record is a revision."""
MAX_RECORDS = 1000
"""Read at the end: an hour of the liveliest conversation has about half as many turns."""


@attrs.frozen
class ExtractionRecord:
    turn_ids: tuple[str, ...]
    """Usually one. Several: what was looked at as one piece at the session's end. None: a conversation without turns."""
    turns: int
    """How many turns of the user it counts for."""
    at: datetime
    results: Mapping[str, JsonObject]
    """By extractor."""


async def write_record(
    context: Context, turn_ids: tuple[str, ...], turns: int, results: Mapping[str, JsonObject]
) -> None:
    """Raises StoreError."""
    body: JsonObject = {"turnIds": list(turn_ids), "turns": turns, "results": dict(results)}
    await context.memory.append(MemoryScope.SESSION, NAME, body)


async def read_records(context: Context) -> list[ExtractionRecord]:
    """Oldest first. Each turn is in one record, as far as it can be: of those of the same turns the newest counts. Raises StoreError."""
    newest: dict[tuple[str, ...], ExtractionRecord] = {}
    for document in await context.memory.revisions(MemoryScope.SESSION, NAME, limit=MAX_RECORDS):
        record = _record(document.body, document.created_at)
        newest.setdefault(record.turn_ids, record)
    return list(newest.values())[::-1]


def _record(body: dict[str, Any], at: datetime) -> ExtractionRecord:
    turn_ids, turns, results = body.get("turnIds"), body.get("turns"), body.get("results")
    sections = cast("dict[str, object]", results) if isinstance(results, dict) else {}
    return ExtractionRecord(
        turn_ids=tuple(map(str, cast("list[object]", turn_ids))) if isinstance(turn_ids, list) else (),
        turns=turns if isinstance(turns, int) and turns > 0 else 1,
        at=at,
        results={name: cast("JsonObject", found) for name, found in sections.items() if isinstance(found, dict)},
    )
