"""Parts that fail when a test says so."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from enum import Enum, auto

import attrs
import trio

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
from engine.store.memory import MemoryStore


class Fault(Enum):
    FAIL = auto()
    """The store says that it cannot."""
    CRASH = auto()
    """The store raises what no store should."""
    HANG = auto()
    """The store never answers."""
    DONE_AND_LOST = auto()
    """It is done, and the answer is lost on the way: the caller sees a failure, and will do it again."""


@attrs.frozen
class StoreCall:
    """One call of a store. Calls are counted from 1, over all operations and per operation."""

    number: int
    operation: str
    of_operation: int
    at: float


FaultPlan = Callable[[StoreCall], Fault | float | None]
"""What happens to a call: nothing, a fault, or that many seconds before it is done."""


def no_faults(call: StoreCall) -> None:
    """The plan of a store that works."""


class FaultyStore(Store):
    """A store whose calls fail, hang or take their time, as `plan` says; it keeps what was written in the order of writing.

    `plan` may be replaced at any time.
    """

    def __init__(self, plan: FaultPlan = no_faults, inner: Store | None = None) -> None:
        self.plan = plan
        self.inner = inner or MemoryStore()
        self.calls: list[StoreCall] = []
        self._counts: Counter[str] = Counter()
        self.saved_sessions: list[SessionDocument] = []
        self.written_turns: list[TurnDocument] = []
        self.written_usage: list[UsageDocument] = []
        self.messages: list[MessageDocument] = []

    @property
    def turns(self) -> list[TurnDocument]:
        """Every turn as it was written last, in the order of their index."""
        return sorted({turn.id: turn for turn in self.written_turns}.values(), key=lambda turn: turn.index)

    @asynccontextmanager
    async def _called(self, operation: str) -> AsyncGenerator[None]:
        self._counts[operation] += 1
        call = StoreCall(len(self.calls) + 1, operation, self._counts[operation], trio.current_time())
        self.calls.append(call)
        fault = self.plan(call)
        match fault:
            case Fault.FAIL:
                await trio.lowlevel.checkpoint()
                raise StoreError(f"{operation} was made to fail.")
            case Fault.CRASH:
                await trio.lowlevel.checkpoint()
                raise RuntimeError(f"{operation} was made to crash.")
            case Fault.HANG:
                await trio.sleep_forever()
            case None | Fault.DONE_AND_LOST:
                pass
            case seconds:
                await trio.sleep(seconds)
        yield
        if fault is Fault.DONE_AND_LOST:
            raise StoreError(f"the answer to {operation} was lost.")

    # --- sessions

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        async with self._called("open_session"):
            return await self.inner.open_session(document)

    async def save_session(self, document: SessionDocument) -> None:
        async with self._called("save_session"):
            await self.inner.save_session(document)
            self.saved_sessions.append(document)

    async def get_session(self, session_id: str) -> SessionDocument | None:
        async with self._called("get_session"):
            return await self.inner.get_session(session_id)

    async def list_sessions(self, which: SessionFilter, *, limit: int, after: str = "") -> list[SessionDocument]:
        async with self._called("list_sessions"):
            return await self.inner.list_sessions(which, limit=limit, after=after)

    async def fences(self, session_ids: Collection[str]) -> Mapping[str, int]:
        async with self._called("fences"):
            return await self.inner.fences(session_ids)

    async def append_turns(self, turns: Sequence[TurnDocument], *, fence: int) -> None:
        async with self._called("append_turns"):
            await self.inner.append_turns(turns, fence=fence)
            self.written_turns.extend(turns)

    async def get_turns(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[TurnDocument]:
        async with self._called("get_turns"):
            return await self.inner.get_turns(session_id, limit=limit, last=last, after=after)

    async def append_messages(self, messages: Sequence[MessageDocument], *, fence: int) -> None:
        async with self._called("append_messages"):
            await self.inner.append_messages(messages, fence=fence)
            self.messages.extend(messages)

    async def get_messages(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[MessageDocument]:
        async with self._called("get_messages"):
            return await self.inner.get_messages(session_id, limit=limit, last=last, after=after)

    async def save_usage(self, usage: UsageDocument) -> None:
        async with self._called("save_usage"):
            await self.inner.save_usage(usage)
            self.written_usage.append(usage)

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        async with self._called("get_usage"):
            return await self.inner.get_usage(session_id)

    async def active_seconds(self, project_ref: str, *, since: datetime) -> float:
        async with self._called("active_seconds"):
            return await self.inner.active_seconds(project_ref, since=since)

    async def append_log(self, entries: Sequence[LogEntry]) -> None:
        async with self._called("append_log"):
            await self.inner.append_log(entries)

    async def get_log(self, session_id: str, *, limit: int, last: bool = False, after: int = -1) -> list[LogEntry]:
        async with self._called("get_log"):
            return await self.inner.get_log(session_id, limit=limit, last=last, after=after)

    async def redact_log(self, session_id: str) -> int:
        async with self._called("redact_log"):
            return await self.inner.redact_log(session_id)

    # --- managed documents

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None:
        async with self._called("get_resource"):
            return await self.inner.get_resource(kind, resource_id)

    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
        async with self._called("get_resources"):
            return await self.inner.get_resources(kind, resource_ids)

    async def list_resources(self, kind: ResourceKind, *, limit: int, after: str = "") -> list[Resource]:
        async with self._called("list_resources"):
            return await self.inner.list_resources(kind, limit=limit, after=after)

    async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
        async with self._called("put_resource"):
            return await self.inner.put_resource(resource, expected=expected)

    async def delete_resource(self, kind: ResourceKind, resource_id: str, *, expected: int | None) -> bool:
        async with self._called("delete_resource"):
            return await self.inner.delete_resource(kind, resource_id, expected=expected)

    # --- memory

    async def append_memory(self, document: MemoryDocument, *, expected: int | None) -> MemoryDocument:
        async with self._called("append_memory"):
            return await self.inner.append_memory(document, expected=expected)

    async def get_memory(self, scope: str, name: str) -> MemoryDocument | None:
        async with self._called("get_memory"):
            return await self.inner.get_memory(scope, name)

    async def get_memory_revisions(self, scope: str, name: str, *, limit: int) -> list[MemoryDocument]:
        async with self._called("get_memory_revisions"):
            return await self.inner.get_memory_revisions(scope, name, limit=limit)

    async def list_memory(self, scope: str, *, limit: int, after: str = "") -> list[MemoryDocument]:
        async with self._called("list_memory"):
            return await self.inner.list_memory(scope, limit=limit, after=after)

    async def forget_memory(self, scope: str) -> int:
        async with self._called("forget_memory"):
            return await self.inner.forget_memory(scope)

    # --- leases, and what has to happen once

    async def acquire_lease(self, name: str, token: str, *, now: datetime, seconds: float) -> Lease | None:
        async with self._called("acquire_lease"):
            return await self.inner.acquire_lease(name, token, now=now, seconds=seconds)

    async def renew_lease(self, lease: Lease, *, now: datetime, seconds: float) -> Lease:
        async with self._called("renew_lease"):
            return await self.inner.renew_lease(lease, now=now, seconds=seconds)

    async def release_lease(self, lease: Lease) -> None:
        async with self._called("release_lease"):
            await self.inner.release_lease(lease)

    async def use_once(self, key: str, *, now: datetime, expires_at: datetime) -> bool:
        async with self._called("use_once"):
            return await self.inner.use_once(key, now=now, expires_at=expires_at)

    # --- deliveries

    async def put_delivery(self, delivery: Delivery) -> None:
        async with self._called("put_delivery"):
            await self.inner.put_delivery(delivery)

    async def due_deliveries(self, *, now: datetime, limit: int) -> list[Delivery]:
        async with self._called("due_deliveries"):
            return await self.inner.due_deliveries(now=now, limit=limit)

    # --- the store itself

    async def check(self) -> None:
        async with self._called("check"):
            await self.inner.check()
