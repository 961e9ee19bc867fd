"""How the embedded store's statements find what they look for, and what they throw away as they go."""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.store import sqlite_documents as documents
from engine.store import sqlite_leases as leases
from engine.store import sqlite_sessions as sessions
from engine.store.contract import LeaseLostError, SessionFilter
from engine.store.documents import ResourceKind, SessionState, TurnDocument
from engine.store.rules import DELIVERIES_KEPT, LEASES_KEPT, PURGED_AT_ONCE
from engine.store.sqlite_file import open_file
from tests.engine.store.samples import NOON, delivery, log_entry, memory, resource, session, usage

AGENT = ResourceKind.AGENT
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@pytest.fixture
def connection(tmp_path: Path) -> Generator[sqlite3.Connection]:
    file = open_file(tmp_path / "store.db")
    with closing(file.writer), closing(file.reader):
        file.writer.execute("BEGIN")  # as every write finds it
        yield file.writer


def count(connection: sqlite3.Connection, table: str) -> int:
    (rows,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(rows)


# --- found by an index -----------------------------------------------------------------------------------------------


def plans(connection: sqlite3.Connection, work: Callable[[], Any]) -> list[str]:
    """The steps of every statement of that work."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    try:
        work()
    finally:
        connection.set_trace_callback(None)
    assert statements
    return [
        step[3] for statement in statements for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
    ]


EVERY_FILTER = [
    SessionFilter(owner, project_refs, agent, state)
    for owner in ("", "alice")
    for project_refs in (None, frozenset({"p1", "p2"}))
    for agent in ("", "coach")
    for state in (None, SessionState.OPEN)
]


def test_nothing_is_searched_for_or_sorted(connection: sqlite3.Connection) -> None:
    sessions.open_session(connection, session())
    sessions.append(connection, "log", [("s1", "e1", 0, log_entry(0).model_dump_json(by_alias=True))])
    documents.put_resource(connection, resource(), None)
    documents.append_memory(connection, memory(), None)
    lease = leases.acquire_lease(connection, "m1", "a", NOON, 30)
    assert lease is not None
    leases.use_once(connection, "k1", NOON, NOON)
    work: list[Callable[[], Any]] = [
        lambda: sessions.open_session(connection, session()),
        lambda: sessions.fences(connection, ["s1"]),
        lambda: sessions.append_fenced(connection, "turns", [("s1", "t1", 0, "{}")], 2),
        lambda: sessions.page(connection, "turns", TurnDocument, "s2", 5, False, 3),
        lambda: sessions.page(connection, "messages", TurnDocument, "s2", 5, True, -1),
        lambda: sessions.redact_log(connection, "s1"),
        lambda: sessions.active_seconds(connection, "p1", NOON),
        lambda: documents.put_resource(connection, resource(), None),
        lambda: documents.list_resources(connection, AGENT, 5, "a"),
        lambda: documents.delete_resource(connection, AGENT, "r2", None),
        lambda: documents.append_memory(connection, memory("m2"), None),
        lambda: documents.get_memory_revisions(connection, "user:anna", "facts", 5),
        lambda: documents.list_memory(connection, "user:anna", 5, "a"),
        lambda: documents.forget_memory(connection, "user:bob"),
        lambda: leases.acquire_lease(connection, "m1", "a", NOON, 30),
        lambda: leases.acquire_lease(connection, "m2", "a", NOON, 30),
        lambda: leases.renew_lease(connection, lease, NOON, 30),
        lambda: leases.release_lease(connection, lease),
        lambda: leases.use_once(connection, "k2", NOON, NOON),
        lambda: leases.put_delivery(connection, delivery(), "{}"),
        lambda: leases.due_deliveries(connection, NOON - SECOND, 5),
    ]
    for number, each in enumerate(work):
        for step in plans(connection, each):
            assert step.startswith(("SEARCH", "LIST SUBQUERY")), (number, step)
    for which in EVERY_FILTER:
        for after in ("", "s1"):
            for step in plans(connection, partial(sessions.list_sessions, connection, which, 5, after)):
                assert step.startswith(("SEARCH", "SCAN sessions USING INDEX sessions_in_order")), (which, step)


def test_few_usage_of_a_session_is_all_that_is_sorted(connection: sqlite3.Connection) -> None:
    assert plans(connection, lambda: sessions.get_usage(connection, "s1")) == [
        "SEARCH usage USING INDEX sqlite_autoindex_usage_1 (session_id=?)",
        "USE TEMP B-TREE FOR ORDER BY",
    ]


def test_the_sum_of_a_project_reads_the_index_only(connection: sqlite3.Connection) -> None:
    assert plans(connection, lambda: sessions.active_seconds(connection, "p1", NOON)) == [
        "SEARCH usage USING COVERING INDEX usage_of_projects (project_ref=? AND test_mode=? AND created_at>?)"
    ]


# --- nothing piles up ------------------------------------------------------------------------------------------------


def test_used_keys_are_forgotten_as_others_come(connection: sqlite3.Connection) -> None:
    for number in range(1000):
        now = NOON + SECOND * number
        assert leases.use_once(connection, f"k{number}", now, now + 60 * SECOND)
        assert count(connection, "used_keys") <= 61
    assert leases.use_once(connection, "k0", NOON + SECOND * 1000, NOON + SECOND * 1060)


def test_no_call_forgets_many_keys(connection: sqlite3.Connection) -> None:
    for number in range(100):
        assert leases.use_once(connection, f"k{number}", NOON, NOON + 60 * SECOND)
    for number in range(1, 11):
        assert leases.use_once(connection, f"later {number}", NOON + DAY, NOON + 2 * DAY)
        assert count(connection, "used_keys") == 100 + number - PURGED_AT_ONCE * number
    assert not leases.use_once(connection, "later 1", NOON + 2 * DAY, NOON + 3 * DAY)


def test_leases_that_nobody_gave_back_are_forgotten_after_a_day(connection: sqlite3.Connection) -> None:
    first = leases.acquire_lease(connection, "m first", "a", NOON, 30)
    assert first is not None
    for number in range(200):
        now = NOON + LEASES_KEPT / 100 * number
        assert leases.acquire_lease(connection, f"m{number}", "a", now, 30) is not None
    assert count(connection, "leases") <= 102
    with pytest.raises(LeaseLostError):
        leases.renew_lease(connection, first, NOON + 2 * LEASES_KEPT, 30)
    again = leases.acquire_lease(connection, "m first", "a", NOON + 2 * LEASES_KEPT, 30)
    assert again is not None
    assert again.fence == first.fence + 201


def test_leases_given_back_leave_nothing(connection: sqlite3.Connection) -> None:
    fences: list[int] = []
    for _ in range(3):
        lease = leases.acquire_lease(connection, "m1", "a", NOON, 30)
        assert lease is not None
        fences.append(lease.fence)
        leases.release_lease(connection, lease)
        assert count(connection, "leases") == 0
    assert fences == [1, 2, 3]


def test_done_deliveries_are_forgotten_after_a_month(connection: sqlite3.Connection) -> None:
    owed = delivery("owed")
    leases.put_delivery(connection, owed, owed.model_dump_json(by_alias=True))
    for number in range(100):
        now = NOON + DAY * number
        done = delivery(f"d{number}", done=True, due_at=now, expires_at=now + DAY / 2)
        leases.put_delivery(connection, done, done.model_dump_json(by_alias=True))
        assert count(connection, "deliveries") <= 2 + DELIVERIES_KEPT.days
    assert leases.due_deliveries(connection, NOON + DAY * 100, 9) == [owed]


# --- nothing is left behind ------------------------------------------------------------------------------------------


def test_what_was_forgotten_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    secret = "my secret " * 500
    file = open_file(path)
    with closing(file.writer), closing(file.reader):
        documents.append_memory(file.writer, memory(body={"facts": secret}), None)
        entry = log_entry(0, text=secret)
        sessions.append(file.writer, "log", [("s1", "e1", 0, entry.model_dump_json(by_alias=True))])
        sessions.save_usage(file.writer, usage(), usage().model_dump_json(by_alias=True))
        file.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert b"my secret" in path.read_bytes()
        documents.forget_memory(file.writer, "user:anna")
        sessions.redact_log(file.writer, "s1")
    assert b"my secret" not in path.read_bytes()
