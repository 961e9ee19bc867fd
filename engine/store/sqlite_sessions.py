"""The embedded store's statements about sessions: their documents, what was said in them, and what they used.

Everything here blocks. Writes are called inside a transaction, which also holds their checks.
"""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from engine.config import CamelModel
from engine.store.contract import SessionFilter
from engine.store.documents import LogEntry, SessionDocument, UsageDocument
from engine.store.rules import redacted, reopened, require_fence, saved
from engine.store.sqlite_file import micros

D = TypeVar("D", bound=CamelModel)

Ordered = Literal["turns", "messages", "log"]
"""The tables of documents that have a place in their session."""
Row = tuple[str, str, int, str]
"""Session, id, place, JSON."""


# --- the documents ---------------------------------------------------------------------------------------------------


def open_session(connection: sqlite3.Connection, document: SessionDocument) -> SessionDocument:
    opened = reopened(get_session(connection, document.id), document)
    _put(connection, opened)
    return opened


def save_session(connection: sqlite3.Connection, document: SessionDocument) -> None:
    _put(connection, saved(get_session(connection, document.id), document))


def get_session(connection: sqlite3.Connection, session_id: str) -> SessionDocument | None:
    row = connection.execute("SELECT document FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else SessionDocument.model_validate_json(row[0])


def list_sessions(
    connection: sqlite3.Connection, which: SessionFilter, limit: int, after: str
) -> list[SessionDocument]:
    conditions = {"owner": which.owner, "agent": which.agent, "state": "" if which.state is None else which.state.value}
    given = {f"{column} = ?": value for column, value in conditions.items() if value}
    values = list(given.values())
    if after:
        last = connection.execute("SELECT created_at, id FROM sessions WHERE id = ?", (after,)).fetchone()
        if last is None:
            return []
        given["(created_at, id) < (?, ?)"] = ""
        values += last
    if which.project_refs is None:
        found = _newest(connection, list(given), values, limit)
    else:  # one query for each, because an index is in the order of time only within a project
        found = [
            row
            for project_ref in which.project_refs
            for row in _newest(connection, [*given, "project_ref = ?"], [*values, project_ref], limit)
        ]
        found = sorted(found, reverse=True)[: max(limit, 0)]
    return [SessionDocument.model_validate_json(document) for _, _, document in found]


def _newest(
    connection: sqlite3.Connection, conditions: Sequence[str], values: Sequence[object], limit: int
) -> list[tuple[int, str, str]]:
    where = " AND ".join(conditions) or "true"
    return connection.execute(
        f"SELECT created_at, id, document FROM sessions WHERE {where} ORDER BY created_at DESC, id DESC LIMIT ?",
        (*values, max(limit, 0)),
    ).fetchall()


def fences(connection: sqlite3.Connection, session_ids: Collection[str]) -> dict[str, int]:
    found = ((session_id, _fence(connection, session_id)) for session_id in session_ids)
    return {session_id: fence for session_id, fence in found if fence is not None}


def _fence(connection: sqlite3.Connection, session_id: str) -> int | None:
    row = connection.execute("SELECT fence FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else int(row[0])


def _put(connection: sqlite3.Connection, document: SessionDocument) -> None:
    connection.execute(
        """INSERT INTO sessions (id, document, fence, owner, project_ref, agent, state, created_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET document = excluded.document, fence = excluded.fence, owner = excluded.owner,
           project_ref = excluded.project_ref, agent = excluded.agent, state = excluded.state,
           created_at = excluded.created_at""",
        (
            document.id,
            document.model_dump_json(by_alias=True),
            document.fence,
            document.owner,
            document.project_ref,
            document.agent,
            document.state.value,
            micros(document.created_at),
        ),
    )


# --- what was said ---------------------------------------------------------------------------------------------------


def append_fenced(connection: sqlite3.Connection, table: Ordered, rows: Sequence[Row], fence: int) -> None:
    """Rows of one session, if its fence is not higher."""
    if rows:
        require_fence(_fence(connection, rows[0][0]) or 0, fence)
    append(connection, table, rows)


def append(connection: sqlite3.Connection, table: Ordered, rows: Sequence[Row]) -> None:
    connection.executemany(
        f"""INSERT INTO {table} (session_id, id, position, document) VALUES (?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET position = excluded.position, document = excluded.document""",
        rows,
    )


def page(
    connection: sqlite3.Connection, table: Ordered, kind: type[D], session_id: str, limit: int, last: bool, after: int
) -> list[D]:
    order = "position DESC, id DESC" if last else "position, id"
    rows = connection.execute(
        f"SELECT document FROM {table} WHERE session_id = ? AND position > ? ORDER BY {order} LIMIT ?",
        (session_id, after, max(limit, 0)),
    ).fetchall()
    documents = [kind.model_validate_json(document) for (document,) in rows]
    return documents[::-1] if last else documents


def redact_log(connection: sqlite3.Connection, session_id: str) -> int:
    ids = connection.execute("SELECT id FROM log WHERE session_id = ?", (session_id,)).fetchall()
    for (entry_id,) in ids:  # one after the other: together they may be long
        key = (session_id, entry_id)
        (document,) = connection.execute("SELECT document FROM log WHERE session_id = ? AND id = ?", key).fetchone()
        entry = redacted(LogEntry.model_validate_json(document))
        connection.execute(
            "UPDATE log SET document = ? WHERE session_id = ? AND id = ?", (entry.model_dump_json(by_alias=True), *key)
        )
    return len(ids)


# --- what was used ---------------------------------------------------------------------------------------------------


def save_usage(connection: sqlite3.Connection, usage: UsageDocument, document: str) -> None:
    connection.execute(
        """INSERT INTO usage (session_id, id, document, project_ref, test_mode, active_seconds, created_at)
           VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET document = excluded.document, project_ref = excluded.project_ref,
           test_mode = excluded.test_mode, active_seconds = excluded.active_seconds, created_at = excluded.created_at""",
        (
            usage.session_id,
            usage.id,
            document,
            usage.project_ref,
            usage.test_mode,
            usage.active_seconds,
            micros(usage.created_at),
        ),
    )


def get_usage(connection: sqlite3.Connection, session_id: str) -> list[UsageDocument]:
    rows = connection.execute(
        "SELECT document FROM usage WHERE session_id = ? ORDER BY created_at, id", (session_id,)
    ).fetchall()
    return [UsageDocument.model_validate_json(document) for (document,) in rows]


def active_seconds(connection: sqlite3.Connection, project_ref: str, since: datetime) -> float:
    (total,) = connection.execute(
        "SELECT total(active_seconds) FROM usage WHERE project_ref = ? AND created_at >= ? AND test_mode = 0",
        (project_ref, micros(since)),
    ).fetchone()
    return float(total)
