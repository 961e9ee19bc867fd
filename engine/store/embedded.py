"""The store that needs no server: one SQLite file, which any number of processes of one machine may share.

Writes go through one task (`engine.store.group_writer`) and one connection, in transactions of many; reads have a connection
of their own and see whatever is committed. Documents are kept as JSON beside the columns they are found by. The blocking calls
run in worker threads, one at a time for each connection. Nothing here survives a fork: each process opens its own store.
"""

import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
from pydantic import ValidationError

from engine.store.contract import Store, StoreError
from engine.store.documents import SessionDocument, TurnDocument, UsageDocument
from engine.store.group_writer import CLOSE_SECONDS, GroupWriter, Write, open_group_writer
from engine.store.rules import reopened, saved
from engine.store.sqlite_file import DatabaseFile, open_file, probe

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

logger = logging.getLogger(__name__)


class EmbeddedStore(Store):
    """See the module; made by `open_embedded`."""

    def __init__(self, writer: GroupWriter[sqlite3.Connection], reader: "_Lane") -> None:
        self._writer = writer
        self._reader = reader

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        def work(connection: sqlite3.Connection) -> SessionDocument:
            opened = reopened(_session(connection, document.id), document)
            _put_session(connection, opened)
            return opened

        return await self._writer.write(work)

    async def save_session(self, document: SessionDocument) -> None:
        def work(connection: sqlite3.Connection) -> None:
            _put_session(connection, saved(_session(connection, document.id), document))

        await self._writer.write(work)

    async def get_session(self, session_id: str) -> SessionDocument | None:
        return await self._read(lambda connection: _session(connection, session_id))

    async def append_turns(self, turns: Sequence[TurnDocument]) -> None:
        rows = [(turn.session_id, turn.id, turn.index, turn.model_dump_json(by_alias=True)) for turn in turns]
        await self._writer.write(lambda connection: _append_turns(connection, rows))

    async def get_turns(self, session_id: str, *, limit: int, last: bool = False) -> list[TurnDocument]:
        return await self._read(lambda connection: _turns(connection, session_id, limit, last))

    async def save_usage(self, usage: UsageDocument) -> None:
        row = (usage.session_id, usage.id, usage.model_dump_json(by_alias=True))
        await self._writer.write(lambda connection: _put_usage(connection, row))

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        return await self._read(lambda connection: _usage(connection, session_id))

    async def check(self) -> None:
        await self._writer.write(probe)

    async def _read(self, work: Work[T]) -> T:
        try:
            return await self._reader.run(work)
        except (sqlite3.Error, ValidationError) as exc:
            error = _store_error(exc)
        raise error


@asynccontextmanager
async def open_embedded(path: Path) -> AsyncGenerator[EmbeddedStore]:
    """The store in that file. Leaving the context commits what is queued and closes the file, each in bounded time.

    Raises:
        ConfigurationError: the file cannot be used; the sentence says why and what to do.
    """
    file = await trio.to_thread.run_sync(open_file, path, limiter=trio.CapacityLimiter(1))
    writer = _Lane(file.writer, "store writer")
    reader = _Lane(file.reader, "store reader")

    async def commit(batch: list[Write[sqlite3.Connection, Any]]) -> None:
        await writer.run(lambda _: _commit(file, batch))

    try:
        async with open_group_writer(commit) as group:
            yield EmbeddedStore(group, reader)
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True) as bound:
            await reader.run(sqlite3.Connection.close)
            await writer.run(sqlite3.Connection.close)  # the last to close moves the write-ahead log into the database
        if bound.cancelled_caught:
            logger.error("the database file could not be closed in %s s", CLOSE_SECONDS)


@attrs.define(eq=False)
class _Lane:
    """A connection, and the right to use it: one worker thread at a time."""

    connection: sqlite3.Connection
    name: str
    limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))

    async def run(self, work: Work[T]) -> T:
        """Do the work in a thread. Cancelled, it is left to finish by itself, and keeps the lane until it has."""
        return await trio.to_thread.run_sync(
            work, self.connection, thread_name=self.name, limiter=self.limiter, abandon_on_cancel=True
        )


def _commit(file: DatabaseFile, batch: list[Write[sqlite3.Connection, Any]]) -> None:
    """Do a batch in one transaction. A write that fails takes back only itself; a commit that fails, all of them."""
    connection = file.writer
    try:
        file.require_in_place()
        connection.execute("BEGIN IMMEDIATE")
        for write in batch:
            _attempt(connection, write)
        connection.execute("COMMIT")
    except (sqlite3.Error, StoreError) as exc:
        for write in batch:
            write.error = _store_error(exc)
        if connection.in_transaction:
            connection.rollback()
        return
    try:
        file.checkpoint()
    except (sqlite3.Error, OSError):
        logger.warning("the write-ahead log could not be moved into the database", exc_info=True)


def _attempt(connection: sqlite3.Connection, write: Write[sqlite3.Connection, Any]) -> None:
    connection.execute("SAVEPOINT attempt")
    try:
        write.result = write.work(connection)
    except Exception as exc:  # a border: the error is raised by the waiter, and nobody else's write suffers from it
        if not connection.in_transaction:  # SQLite has taken everything back, as it does when the disk is full
            raise
        connection.execute("ROLLBACK TO attempt")
        write.error = _store_error(exc) if isinstance(exc, sqlite3.Error | ValidationError) else exc
    connection.execute("RELEASE attempt")


def _store_error(exc: Exception) -> StoreError:
    """The same failure in the store's own words: a new error for each waiter, with the one cause."""
    if isinstance(exc, ValidationError):  # says nothing of what the document holds, and neither may its cause
        return StoreError(f"A stored {exc.title} cannot be read: {exc.error_count()} of its fields do not fit.")
    error = StoreError(f"The database could not do it: {exc}")
    error.__cause__ = exc
    return error


# --- the statements --------------------------------------------------------------------------------------------------


def _session(connection: sqlite3.Connection, session_id: str) -> SessionDocument | None:
    row = connection.execute("SELECT document FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else SessionDocument.model_validate_json(row[0])


def _put_session(connection: sqlite3.Connection, document: SessionDocument) -> None:
    connection.execute(
        "INSERT INTO sessions VALUES (?, ?) ON CONFLICT DO UPDATE SET document = excluded.document",
        (document.id, document.model_dump_json(by_alias=True)),
    )


def _append_turns(connection: sqlite3.Connection, rows: Sequence[tuple[str, str, int, str]]) -> None:
    connection.executemany(
        "INSERT INTO turns VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET document = excluded.document", rows
    )


def _turns(connection: sqlite3.Connection, session_id: str, limit: int, last: bool) -> list[TurnDocument]:
    order = "position DESC, id DESC" if last else "position, id"
    rows = connection.execute(
        f"SELECT document FROM turns WHERE session_id = ? ORDER BY {order} LIMIT ?", (session_id, max(limit, 0))
    ).fetchall()
    turns = [TurnDocument.model_validate_json(document) for (document,) in rows]
    return turns[::-1] if last else turns


def _put_usage(connection: sqlite3.Connection, row: tuple[str, str, str]) -> None:
    connection.execute("INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET document = excluded.document", row)


def _usage(connection: sqlite3.Connection, session_id: str) -> list[UsageDocument]:
    rows = connection.execute("SELECT document FROM usage WHERE session_id = ?", (session_id,)).fetchall()
    records = [UsageDocument.model_validate_json(document) for (document,) in rows]
    return sorted(records, key=lambda record: (record.created_at, record.id))
