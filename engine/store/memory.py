"""The store that keeps nothing: for tests under virtual time, and for trying things out (`memory:`).

It holds the same JSON a database would, so that a document handed in or out is never shared, and what cannot be stored is
refused here too.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Generic, TypeVar

import trio

from engine.config import CamelModel
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
from engine.store.rules import (
    DELIVERIES_KEPT,
    LEASES_KEPT,
    PURGED_AT_ONCE,
    acquired,
    holds,
    next_revision,
    next_version,
    redacted,
    renewed,
    reopened,
    require_fence,
    require_one_session,
    require_version,
    saved,
)

D = TypeVar("D", bound=CamelModel)
V = TypeVar("V")


class MemoryStore(Store):
    """Dictionaries of JSON. No threads; each operation is one checkpoint, then happens at once."""

    def __init__(self) -> None:
        self._closed = False
        self._sessions: dict[str, str] = {}
        self._turns = _Lists(TurnDocument)
        self._messages = _Lists(MessageDocument)
        self._log = _Lists(LogEntry)
        self._usage: dict[str, dict[str, str]] = defaultdict(dict)
        self._resources: dict[tuple[ResourceKind, str], str] = {}
        self._memory: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        """By scope and name; the revisions, oldest first."""
        self._leases: dict[str, str] = {}
        self._lease_fence = 0
        self._used: dict[str, datetime] = {}
        """When each key may be forgotten."""
        self._deliveries: dict[str, str] = {}

    def close(self) -> None:
        """From here on every operation raises StoreError, as those of a closed database do."""
        self._closed = True

    # --- sessions

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        await self.check()
        opened = reopened(self._session(document.id), document)
        self._sessions[document.id] = _json(opened)
        return opened

    async def save_session(self, document: SessionDocument) -> None:
        await self.check()
        self._sessions[document.id] = _json(saved(self._session(document.id), document))

    async def get_session(self, session_id: str) -> SessionDocument | None:
        await self.check()
        return self._session(session_id)

    async def list_sessions(self, which: SessionFilter, *, limit: int, after: str = "") -> list[SessionDocument]:
        await self.check()
        last = self._session(after) if after else None
        if after and last is None:
            return []
        found = [
            session
            for session in (SessionDocument.model_validate_json(document) for document in self._sessions.values())
            if which.owner in ("", session.owner)
            and (which.project_refs is None or session.project_ref in which.project_refs)
            and which.agent in ("", session.agent)
            and which.state in (None, session.state)
            and (last is None or (session.created_at, session.id) < (last.created_at, last.id))
        ]
        found.sort(key=lambda session: (session.created_at, session.id), reverse=True)
        return found[: max(limit, 0)]

    async def fences(self, session_ids: Collection[str]) -> Mapping[str, int]:
        await self.check()
        return {session_id: self._fence(session_id) for session_id in session_ids if session_id in self._sessions}

    async def append_turns(self, turns: Sequence[TurnDocument], *, fence: int) -> None:
        require_one_session(turns)
        rows = [(turn.index, turn.id, _json(turn)) for turn in turns]
        await self.check()
        if turns:
            require_fence(self._fence(turns[0].session_id), fence)
            self._turns.put(turns[0].session_id, rows)

    async def get_turns(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[TurnDocument]:
        await self.check()
        return self._turns.page(session_id, limit, last, after)

    async def append_messages(self, messages: Sequence[MessageDocument], *, fence: int) -> None:
        require_one_session(messages)
        rows = [(message.position, message.id, _json(message)) for message in messages]
        await self.check()
        if messages:
            require_fence(self._fence(messages[0].session_id), fence)
            self._messages.put(messages[0].session_id, rows)

    async def get_messages(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[MessageDocument]:
        await self.check()
        return self._messages.page(session_id, limit, last, after)

    async def save_usage(self, usage: UsageDocument) -> None:
        document = _json(usage)
        await self.check()
        self._usage[usage.session_id][usage.id] = document

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        await self.check()
        return sorted(
            _usage_records(self._usage.get(session_id, {})), key=lambda record: (record.created_at, record.id)
        )

    async def active_seconds(self, project_ref: str, *, since: datetime) -> float:
        await self.check()
        return sum(
            record.active_seconds
            for documents in self._usage.values()
            for record in _usage_records(documents)
            if record.project_ref == project_ref and record.created_at >= since and not record.test_mode
        )

    async def append_log(self, entries: Sequence[LogEntry]) -> None:
        require_one_session(entries)
        rows = [(entry.position, entry.id, _json(entry)) for entry in entries]
        await self.check()
        if entries:
            self._log.put(entries[0].session_id, rows)

    async def get_log(self, session_id: str, *, limit: int, last: bool = False, after: int = -1) -> list[LogEntry]:
        await self.check()
        return self._log.page(session_id, limit, last, after)

    async def redact_log(self, session_id: str) -> int:
        await self.check()
        entries = self._log.all(session_id)
        self._log.put(session_id, [(entry.position, entry.id, _json(redacted(entry))) for entry in entries])
        return len(entries)

    # --- managed documents

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        await self.check()
        return self._resource(kind, resource_id)

    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
        await self.check()
        found = (self._resource(kind, resource_id) for resource_id in set(resource_ids))
        return [resource for resource in found if resource is not None]

    async def list_resources(self, kind: ResourceKind, *, limit: int, after: str = "") -> list[Resource]:
        await self.check()
        keys = sorted(key for key in self._resources if key[0] == kind and key[1] > after)
        return [Resource.model_validate_json(self._resources[key]) for key in keys[: max(limit, 0)]]

    async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
        await self.check()
        stored = next_version(self._resource(resource.kind, resource.id), resource, expected)
        self._resources[resource.kind, resource.id] = _json(stored)
        return stored

    async def delete_resource(self, kind: ResourceKind, resource_id: str, *, expected: int | None) -> bool:
        await self.check()
        stored = self._resource(kind, resource_id)
        require_version(0 if stored is None else stored.version, expected)
        return self._resources.pop((kind, resource_id), None) is not None

    # --- memory

    async def append_memory(self, document: MemoryDocument, *, expected: int | None) -> MemoryDocument:
        await self.check()
        revisions = self._revisions(document.scope, document.name)
        for earlier in revisions:
            if earlier.id == document.id:
                return earlier
        stored = next_revision(len(revisions), document, expected)
        json = _json(stored)  # before there is a place for it: it may be refused
        self._memory[document.scope][document.name].append(json)
        return stored

    async def get_memory(self, scope: str, name: str) -> MemoryDocument | None:
        await self.check()
        revisions = self._revisions(scope, name)
        return revisions[-1] if revisions else None

    async def get_memory_revisions(self, scope: str, name: str, *, limit: int) -> list[MemoryDocument]:
        await self.check()
        return self._revisions(scope, name)[::-1][: max(limit, 0)]

    async def list_memory(self, scope: str, *, limit: int, after: str = "") -> list[MemoryDocument]:
        await self.check()
        named = self._memory.get(scope, {})
        names = sorted(name for name in named if name > after)[: max(limit, 0)]
        return [MemoryDocument.model_validate_json(named[name][-1]) for name in names]

    async def forget_memory(self, scope: str) -> int:
        await self.check()
        return sum(len(revisions) for revisions in self._memory.pop(scope, {}).values())

    # --- leases, and what has to happen once

    async def acquire_lease(self, name: str, token: str, *, now: datetime, seconds: float) -> Lease | None:
        await self.check()
        _purge(self._leases, lambda document: Lease.model_validate_json(document).expires_at < now - LEASES_KEPT)
        expires_at = now + timedelta(seconds=seconds)
        asked = Lease(name=name, token=token, fence=self._lease_fence + 1, expires_at=expires_at)
        lease = acquired(self._lease(name), asked, now)
        if lease is not None:
            self._leases[name] = _json(lease)
            self._lease_fence = max(self._lease_fence, lease.fence)
        return lease

    async def renew_lease(self, lease: Lease, *, now: datetime, seconds: float) -> Lease:
        await self.check()
        kept = renewed(self._lease(lease.name), lease, now + timedelta(seconds=seconds))
        self._leases[lease.name] = _json(kept)
        return kept

    async def release_lease(self, lease: Lease) -> None:
        await self.check()
        if holds(self._lease(lease.name), lease):
            del self._leases[lease.name]

    async def use_once(self, key: str, *, now: datetime, expires_at: datetime) -> bool:
        await self.check()
        if key in self._used:
            return False
        _purge(self._used, lambda until: until < now)
        self._used[key] = expires_at
        return True

    # --- deliveries

    async def put_delivery(self, delivery: Delivery) -> None:
        document = _json(delivery)
        await self.check()
        too_old = delivery.due_at - DELIVERIES_KEPT
        _purge(
            self._deliveries, lambda kept: (old := Delivery.model_validate_json(kept)).done and old.expires_at < too_old
        )
        self._deliveries[delivery.id] = document

    async def due_deliveries(self, *, now: datetime, limit: int) -> list[Delivery]:
        await self.check()
        deliveries = [Delivery.model_validate_json(document) for document in self._deliveries.values()]
        due = [delivery for delivery in deliveries if not delivery.done and delivery.due_at <= now]
        return sorted(due, key=lambda delivery: (delivery.due_at, delivery.id))[: max(limit, 0)]

    # --- the store itself

    async def check(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise StoreError("The store is closed.")

    def _session(self, session_id: str) -> SessionDocument | None:
        return _read(SessionDocument, self._sessions.get(session_id))

    def _fence(self, session_id: str) -> int:
        stored = self._session(session_id)
        return 0 if stored is None else stored.fence

    def _resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        return _read(Resource, self._resources.get((kind, resource_id)))

    def _revisions(self, scope: str, name: str) -> list[MemoryDocument]:
        documents = self._memory.get(scope, {}).get(name, [])
        return [MemoryDocument.model_validate_json(document) for document in documents]

    def _lease(self, name: str) -> Lease | None:
        return _read(Lease, self._leases.get(name))


class _Lists(Generic[D]):
    """Documents of sessions that have a place in an order: by session and id, each as (place, id, JSON), which is that order."""

    def __init__(self, kind: type[D]) -> None:
        self._kind = kind
        self._rows: dict[str, dict[str, tuple[int, str, str]]] = defaultdict(dict)

    def put(self, session_id: str, rows: Iterable[tuple[int, str, str]]) -> None:
        for row in rows:
            self._rows[session_id][row[1]] = row

    def all(self, session_id: str) -> list[D]:
        return [self._kind.model_validate_json(document) for _, _, document in self._sorted(session_id)]

    def page(self, session_id: str, limit: int, last: bool, after: int) -> list[D]:
        rows = [row for row in self._sorted(session_id) if row[0] > after]
        limit = max(limit, 0)
        chosen = rows[max(len(rows) - limit, 0) :] if last else rows[:limit]
        return [self._kind.model_validate_json(document) for _, _, document in chosen]

    def _sorted(self, session_id: str) -> list[tuple[int, str, str]]:
        return sorted(self._rows.get(session_id, {}).values())


def _json(document: CamelModel) -> str:
    return document.model_dump_json(by_alias=True)


def _read(kind: type[D], document: str | None) -> D | None:
    return None if document is None else kind.model_validate_json(document)


def _usage_records(documents: Mapping[str, str]) -> list[UsageDocument]:
    return [UsageDocument.model_validate_json(document) for document in documents.values()]


def _purge(kept: dict[str, V], is_forgotten: Callable[[V], bool]) -> None:
    """Look at a few, delete those that are forgotten, and put the others behind: so all are looked at in turn."""
    for key, value in list(islice(kept.items(), PURGED_AT_ONCE)):
        del kept[key]
        if not is_forgotten(value):
            kept[key] = value
