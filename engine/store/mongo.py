"""The store for anything larger than one machine: MongoDB, which any number of processes on any number of hosts may share.

Documents are kept as JSON beside the fields they are found by (`engine.store.mongo_schema`). What is appended to sessions goes
through one task (`engine.store.group_writer`), in transactions of many (`engine.store.mongo_appends`); all else is a call of
its own in a worker thread (`engine.store.mongo_link`). Transactions need a replica set, of one member at least.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import trio

from engine.store import mongo_documents, mongo_leases, mongo_link, mongo_sessions
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
from engine.store.group_writer import GroupWriter, Write, open_group_writer
from engine.store.mongo_appends import Append, Appender
from engine.store.mongo_documents import Memories
from engine.store.mongo_link import MongoLink, open_link
from engine.store.mongo_schema import Row, probe
from engine.store.rules import require_one_session

Batch = list[Append]


class MongoStore(Store):
    """See the module; made by `open_mongo`."""

    def __init__(self, link: MongoLink, writer: GroupWriter[Batch], appender: Appender, memories: Memories) -> None:
        self._link = link
        self._writer = writer
        self._appender = appender
        self._memories = memories
        self._memory_lane = trio.CapacityLimiter(1)

    # --- sessions

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        return await self._link.write(
            lambda tables: mongo_sessions.open_session(tables, document, self._appender.writer)
        )

    async def save_session(self, document: SessionDocument) -> None:
        await self._link.write(lambda tables: mongo_sessions.save_session(tables, document))

    async def get_session(self, session_id: str) -> SessionDocument | None:
        return await self._link.read(lambda tables: mongo_sessions.get_session(tables, session_id))

    async def list_sessions(self, which: SessionFilter, *, limit: int, after: str = "") -> list[SessionDocument]:
        return await self._link.read(lambda tables: mongo_sessions.list_sessions(tables, which, limit, after))

    async def fences(self, session_ids: Collection[str]) -> Mapping[str, int]:
        return await self._link.read(lambda tables: mongo_sessions.fences(tables, session_ids))

    async def append_turns(self, turns: Sequence[TurnDocument], *, fence: int) -> None:
        require_one_session(turns)
        await self._append("turns", mongo_sessions.turn_rows(turns), fence)

    async def get_turns(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[TurnDocument]:
        return await self._link.read(
            lambda tables: mongo_sessions.page(tables, "turns", TurnDocument, session_id, limit, last, after)
        )

    async def append_messages(self, messages: Sequence[MessageDocument], *, fence: int) -> None:
        require_one_session(messages)
        await self._append("messages", mongo_sessions.message_rows(messages), fence)

    async def get_messages(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[MessageDocument]:
        return await self._link.read(
            lambda tables: mongo_sessions.page(tables, "messages", MessageDocument, session_id, limit, last, after)
        )

    async def save_usage(self, usage: UsageDocument) -> None:
        await self._append("usage", [mongo_sessions.usage_row(usage)], None)

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        return await self._link.read(lambda tables: mongo_sessions.get_usage(tables, session_id))

    async def active_seconds(self, project_ref: str, *, since: datetime) -> float:
        return await self._link.read(lambda tables: mongo_sessions.active_seconds(tables, project_ref, since))

    async def append_log(self, entries: Sequence[LogEntry]) -> None:
        require_one_session(entries)
        await self._append("log", mongo_sessions.log_rows(entries), None)

    async def get_log(self, session_id: str, *, limit: int, last: bool = False, after: int = -1) -> list[LogEntry]:
        return await self._link.read(
            lambda tables: mongo_sessions.page(tables, "log", LogEntry, session_id, limit, last, after)
        )

    async def redact_log(self, session_id: str) -> int:
        return await self._link.write(lambda tables: mongo_sessions.redact_log(tables, session_id))

    # --- managed documents

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        return await self._link.read(lambda tables: mongo_documents.get_resource(tables, kind, resource_id))

    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
        return await self._link.read(lambda tables: mongo_documents.get_resources(tables, kind, resource_ids))

    async def list_resources(self, kind: ResourceKind, *, limit: int, after: str = "") -> list[Resource]:
        return await self._link.read(lambda tables: mongo_documents.list_resources(tables, kind, limit, after))

    async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
        return await self._link.write(lambda tables: mongo_documents.put_resource(tables, resource, expected))

    async def delete_resource(self, kind: ResourceKind, resource_id: str, *, expected: int | None) -> bool:
        return await self._link.write(
            lambda tables: mongo_documents.delete_resource(tables, kind, resource_id, expected)
        )

    # --- memory

    async def append_memory(self, document: MemoryDocument, *, expected: int | None) -> MemoryDocument:
        return await self._link.write(lambda _: self._memories.append(document, expected), self._memory_lane)

    async def get_memory(self, scope: str, name: str) -> MemoryDocument | None:
        return await self._link.read(lambda tables: mongo_documents.get_memory(tables, scope, name))

    async def get_memory_revisions(self, scope: str, name: str, *, limit: int) -> list[MemoryDocument]:
        return await self._link.read(lambda tables: mongo_documents.get_memory_revisions(tables, scope, name, limit))

    async def list_memory(self, scope: str, *, limit: int, after: str = "") -> list[MemoryDocument]:
        return await self._link.read(lambda tables: mongo_documents.list_memory(tables, scope, limit, after))

    async def forget_memory(self, scope: str) -> int:
        return await self._link.write(lambda _: self._memories.forget(scope), self._memory_lane)

    # --- leases, and what has to happen once

    async def acquire_lease(self, name: str, token: str, *, now: datetime, seconds: float) -> Lease | None:
        return await self._link.write(lambda tables: mongo_leases.acquire_lease(tables, name, token, now, seconds))

    async def renew_lease(self, lease: Lease, *, now: datetime, seconds: float) -> Lease:
        return await self._link.write(lambda tables: mongo_leases.renew_lease(tables, lease, now, seconds))

    async def release_lease(self, lease: Lease) -> None:
        await self._link.write(lambda tables: mongo_leases.release_lease(tables, lease))

    async def use_once(self, key: str, *, now: datetime, expires_at: datetime) -> bool:
        return await self._link.write(lambda tables: mongo_leases.use_once(tables, key, now, expires_at))

    # --- deliveries

    async def put_delivery(self, delivery: Delivery) -> None:
        row = mongo_leases.delivery_row(delivery)
        await self._link.write(lambda tables: mongo_leases.put_delivery(tables, delivery.id, row))

    async def due_deliveries(self, *, now: datetime, limit: int) -> list[Delivery]:
        return await self._link.read(lambda tables: mongo_leases.due_deliveries(tables, now, limit))

    # --- the store itself

    async def check(self) -> None:
        await self._link.write(probe)

    async def _append(self, table: str, rows: Sequence[Row], fence: int | None) -> None:
        """Written with whatever else waits. Nobody waits for longer than for the batch under way and for the own one."""
        await self._link.ready()
        if not rows:
            return
        append = Append(table, rows, fence)
        with trio.move_on_after(2 * (mongo_link.OPERATION_SECONDS + mongo_link.GRACE_SECONDS)):
            await self._writer.write(lambda batch: batch.append(append))
            return
        raise StoreError("The database did not write it in time.")


@asynccontextmanager
async def open_mongo(url: str) -> AsyncGenerator[MongoStore]:
    """The store in the database of that URL. Leaving the context lets writes under way end, for a bounded time; what leaves it
    in an exception leaves in a group.

    Raises:
        ConfigurationError: the URL is not one, or its database cannot be used; the sentence says why and what to do.
    """
    async with open_link(url) as link:
        appender = Appender(link.client, link.tables)
        lane = trio.CapacityLimiter(1)

        async def commit(writes: list[Write[Batch, Any]]) -> None:
            batch: Batch = []
            for write in writes:
                write.work(batch)
            try:
                await link.call(lambda _: appender.commit(batch), lane)
            except StoreError as exc:  # the batch is left to its thread; nobody knows what becomes of it
                for write in writes:
                    write.error = StoreError(str(exc))
                return
            for write, append in zip(writes, batch, strict=True):
                write.error = append.error

        async with open_group_writer(commit) as writer:
            yield MongoStore(link, writer, appender, Memories(link.client, link.tables))
