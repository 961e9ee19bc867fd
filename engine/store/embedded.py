"""The store that needs no server: one SQLite file, which any number of processes of one machine may share.

Writes go through one task (`engine.store.group_writer`) and one connection, in transactions of many; reads have a connection
of their own and see whatever is committed. Documents are kept as JSON beside the columns they are found by. The blocking calls
run in worker threads, one at a time for each connection. Nothing here survives a fork: each process opens its own store.
"""

import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs
import trio
from pydantic import ValidationError

from engine.config import CamelModel
from engine.store import sqlite_documents as documents
from engine.store import sqlite_leases as leases
from engine.store import sqlite_sessions as sessions
from engine.store.contract import SessionFilter, Store, StoreError
from engine.store.documents import (
    Delivery,
    Lease,
    LogEntry,
    MemoryDocument,
    MessageDocument,
    Resource,
    ResourceKind,
    SessionDocument,
    TurnDocument,
    UsageDocument,
)
from engine.store.group_writer import CLOSE_SECONDS, GroupWriter, Write, open_group_writer
from engine.store.rules import require_one_session
from engine.store.sqlite_file import DatabaseFile, open_file, probe

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

logger = logging.getLogger(__name__)


class EmbeddedStore(Store):
    """See the module; made by `open_embedded`."""

    def __init__(self, writer: GroupWriter[sqlite3.Connection], reader: "_Lane") -> None:
        self._writer = writer
        self._reader = reader

    # --- sessions

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        return await self._write(sessions.open_session, document)

    async def save_session(self, document: SessionDocument) -> None:
        await self._write(sessions.save_session, document)

    async def get_session(self, session_id: str) -> SessionDocument | None:
        return await self._read(sessions.get_session, session_id)

    async def list_sessions(self, which: SessionFilter, *, limit: int, after: str = "") -> list[SessionDocument]:
        return await self._read(sessions.list_sessions, which, limit, after)

    async def fences(self, session_ids: Collection[str]) -> Mapping[str, int]:
        return await self._read(sessions.fences, session_ids)

    async def append_turns(self, turns: Sequence[TurnDocument], *, fence: int) -> None:
        require_one_session(turns)
        rows = [(turn.session_id, turn.id, turn.index, _json(turn)) for turn in turns]
        await self._write(sessions.append_fenced, "turns", rows, fence)

    async def get_turns(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[TurnDocument]:
        return await self._read(sessions.page, "turns", TurnDocument, session_id, limit, last, after)

    async def append_messages(self, messages: Sequence[MessageDocument], *, fence: int) -> None:
        require_one_session(messages)
        rows = [(message.session_id, message.id, message.position, _json(message)) for message in messages]
        await self._write(sessions.append_fenced, "messages", rows, fence)

    async def get_messages(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[MessageDocument]:
        return await self._read(sessions.page, "messages", MessageDocument, session_id, limit, last, after)

    async def save_usage(self, usage: UsageDocument) -> None:
        await self._write(sessions.save_usage, usage, _json(usage))

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        return await self._read(sessions.get_usage, session_id)

    async def active_seconds(self, project_ref: str, *, since: datetime) -> float:
        return await self._read(sessions.active_seconds, project_ref, since)

    async def append_log(self, entries: Sequence[LogEntry]) -> None:
        require_one_session(entries)
        rows = [(entry.session_id, entry.id, entry.position, _json(entry)) for entry in entries]
        await self._write(sessions.append, "log", rows)

    async def get_log(self, session_id: str, *, limit: int, last: bool = False, after: int = -1) -> list[LogEntry]:
        return await self._read(sessions.page, "log", LogEntry, session_id, limit, last, after)

    async def redact_log(self, session_id: str) -> int:
        return await self._write(sessions.redact_log, session_id)

    # --- managed documents

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        return await self._read(documents.get_resource, kind, resource_id)

    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
        return await self._read(documents.get_resources, kind, resource_ids)

    async def list_resources(self, kind: ResourceKind, *, limit: int, after: str = "") -> list[Resource]:
        return await self._read(documents.list_resources, kind, limit, after)

    async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
        return await self._write(documents.put_resource, resource, expected)

    async def delete_resource(self, kind: ResourceKind, resource_id: str, *, expected: int | None) -> bool:
        return await self._write(documents.delete_resource, kind, resource_id, expected)

    # --- memory

    async def append_memory(self, document: MemoryDocument, *, expected: int | None) -> MemoryDocument:
        return await self._write(documents.append_memory, document, expected)

    async def get_memory(self, scope: str, name: str) -> MemoryDocument | None:
        newest = await self._read(documents.get_memory_revisions, scope, name, 1)
        return newest[0] if newest else None

    async def get_memory_revisions(self, scope: str, name: str, *, limit: int) -> list[MemoryDocument]:
        return await self._read(documents.get_memory_revisions, scope, name, limit)

    async def list_memory(self, scope: str, *, limit: int, after: str = "") -> list[MemoryDocument]:
        return await self._read(documents.list_memory, scope, limit, after)

    async def forget_memory(self, scope: str) -> int:
        return await self._write(documents.forget_memory, scope)

    # --- leases, and what has to happen once

    async def acquire_lease(self, name: str, token: str, *, now: datetime, seconds: float) -> Lease | None:
        return await self._write(leases.acquire_lease, name, token, now, seconds)

    async def renew_lease(self, lease: Lease, *, now: datetime, seconds: float) -> Lease:
        return await self._write(leases.renew_lease, lease, now, seconds)

    async def release_lease(self, lease: Lease) -> None:
        await self._write(leases.release_lease, lease)

    async def use_once(self, key: str, *, now: datetime, expires_at: datetime) -> bool:
        return await self._write(leases.use_once, key, now, expires_at)

    # --- deliveries

    async def put_delivery(self, delivery: Delivery) -> None:
        await self._write(leases.put_delivery, delivery, _json(delivery))

    async def due_deliveries(self, *, now: datetime, limit: int) -> list[Delivery]:
        return await self._read(leases.due_deliveries, now, limit)

    # --- the store itself

    async def check(self) -> None:
        await self._write(probe)

    async def _write(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._writer.write(lambda connection: work(connection, *args, **kwargs))

    async def _read(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._reader.run(lambda connection: work(connection, *args, **kwargs))
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
        await writer.run(lambda _: commit_batch(file, batch))

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


def commit_batch(file: DatabaseFile, batch: list[Write[sqlite3.Connection, Any]]) -> None:
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


def _json(document: CamelModel) -> str:
    return document.model_dump_json(by_alias=True)
