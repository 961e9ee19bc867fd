"""The contract of every store: operations of the domain, never queries (DESIGN section 7).

The contract suite in the tests is its specification and runs on every store. Times are aware UTC datetimes that the caller
passes in, and are kept to the millisecond at least: no store reads a clock. Ids of turns, messages, usage records and log entries
are unique within their session, those of memory within their scope and name.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import attrs

from engine.store.documents import (
    Delivery,
    Lease,
    LogEntry,
    MemoryDocument,
    MessageDocument,
    Resource,
    ResourceKind,
    SessionDocument,
    SessionState,
    TurnDocument,
    UsageDocument,
)


class StoreError(Exception):
    """The store could not do it now. The caller may try again with the same document: writes are idempotent by id."""


class TakenOverError(Exception):
    """The session was opened again by somebody else: who holds an older fence may write nothing more to it."""


class ConflictError(Exception):
    """The resource or memory is not at the version it was expected at. `current` is its version now; 0: it does not exist."""

    def __init__(self, current: int) -> None:
        super().__init__(f"expected another version than {current}")
        self.current = current


class LeaseLostError(Exception):
    """The lease has another holder, or none: what was done under it has to be thrown away."""


@attrs.frozen
class SessionFilter:
    """Which sessions to list; "" and None mean all."""

    owner: str = ""
    project_refs: frozenset[str] | None = None
    agent: str = ""
    state: SessionState | None = None


class Store(ABC):
    """Every write is durable when it returns, and safe to repeat with the same id; but for `open_session` and `use_once`, which
    count: what became of one that raised StoreError is not known. Any operation may raise StoreError.

    A batch is of one session (else ValueError); an empty one writes nothing and checks nothing. Lists are given in pages: at most
    `limit` items, those behind `after` (the id, or position, of the last item of the page before).
    """

    # --- sessions

    @abstractmethod
    async def open_session(self, document: SessionDocument) -> SessionDocument:
        """The session of that id, back to OPEN when it existed with the same owner, else the given one, created.

        Its `fence` is one more than before: from now on every other holder of this session has been taken over.

        Raises:
            NotFoundError: it exists and belongs to another owner; nothing about it is revealed, and it is left as it was.
        """

    @abstractmethod
    async def save_session(self, document: SessionDocument) -> None:
        """Raises TakenOverError when the stored fence is higher than the document's. The stored owner stays."""

    @abstractmethod
    async def get_session(self, session_id: str) -> SessionDocument | None: ...

    @abstractmethod
    async def list_sessions(self, which: SessionFilter, *, limit: int, after: str = "") -> list[SessionDocument]:
        """Newest first (by `created_at`, then id, both downwards). `after` is a session id; one that is not there gives nothing."""

    @abstractmethod
    async def fences(self, session_ids: Collection[str]) -> Mapping[str, int]:
        """The fence of each of these sessions that exists."""

    @abstractmethod
    async def append_turns(self, turns: Sequence[TurnDocument], *, fence: int) -> None:
        """All or nothing, in one write; all of one session. A turn written again under its id replaces the earlier one: a later
        barge-in may show that less of it was heard. A session without a document has fence 0.

        Raises:
            TakenOverError: the session's fence is higher; nothing was written.
        """

    @abstractmethod
    async def get_turns(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[TurnDocument]:
        """In the order of their index, those with an index above `after`: the first `limit`, or the `last` ones."""

    @abstractmethod
    async def append_messages(self, messages: Sequence[MessageDocument], *, fence: int) -> None:
        """As `append_turns`, for the lines of a conversation without turns."""

    @abstractmethod
    async def get_messages(
        self, session_id: str, *, limit: int, last: bool = False, after: int = -1
    ) -> list[MessageDocument]:
        """As `get_turns`, in the order of their position."""

    @abstractmethod
    async def save_usage(self, usage: UsageDocument) -> None:
        """Not fenced: what a run has used it has used, whoever runs the session now."""

    @abstractmethod
    async def get_usage(self, session_id: str) -> list[UsageDocument]: ...

    @abstractmethod
    async def active_seconds(self, project_ref: str, *, since: datetime) -> float:
        """The active seconds of a project's usage records created at or after `since`, test mode left out."""

    @abstractmethod
    async def append_log(self, entries: Sequence[LogEntry]) -> None:
        """All or nothing; all of one session. An entry written again under its id replaces the earlier one."""

    @abstractmethod
    async def get_log(self, session_id: str, *, limit: int, last: bool = False, after: int = -1) -> list[LogEntry]:
        """As `get_turns`, in the order of their position."""

    @abstractmethod
    async def redact_log(self, session_id: str) -> int:
        """Forget the content of every entry of a session's log; gives how many there are. Numbers and names stay."""

    # --- managed documents

    @abstractmethod
    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None: ...

    @abstractmethod
    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
        """Those of these that exist, in no particular order."""

    @abstractmethod
    async def list_resources(self, kind: ResourceKind, *, limit: int, after: str = "") -> list[Resource]:
        """In the order of their ids (by code point), those above `after`."""

    @abstractmethod
    async def put_resource(self, resource: Resource, *, expected: int | None) -> Resource:
        """Write it, at the version after the stored one; `created_at` stays that of the first write. Gives what is stored.

        `expected`: the version it has to be at, 0 when it must not exist, None for whatever there is.

        Raises:
            ConflictError: it is not at that version; nothing was written.
        """

    @abstractmethod
    async def delete_resource(self, kind: ResourceKind, resource_id: str, *, expected: int | None) -> bool:
        """False when it did not exist and was not expected to.

        Raises:
            ConflictError: it is not at that version; it was left.
        """

    # --- memory

    @abstractmethod
    async def append_memory(self, document: MemoryDocument, *, expected: int | None) -> MemoryDocument:
        """Write a new revision: one more than the newest of its scope and name. Gives what is stored.

        Repeated with an id that is stored already, it gives that and writes nothing.

        Raises:
            ConflictError: the newest revision (0: there is none) is not the `expected` one.
        """

    @abstractmethod
    async def get_memory(self, scope: str, name: str) -> MemoryDocument | None:
        """The newest revision."""

    @abstractmethod
    async def get_memory_revisions(self, scope: str, name: str, *, limit: int) -> list[MemoryDocument]:
        """The newest `limit` revisions, newest first."""

    @abstractmethod
    async def list_memory(self, scope: str, *, limit: int, after: str = "") -> list[MemoryDocument]:
        """The newest revision of each name of a scope, in the order of the names, those above `after`."""

    @abstractmethod
    async def forget_memory(self, scope: str) -> int:
        """Delete every revision of a scope; gives how many there were."""

    # --- leases, and what has to happen once

    @abstractmethod
    async def acquire_lease(self, name: str, token: str, *, now: datetime, seconds: float) -> Lease | None:
        """The lease of that name when it is free, expired at `now`, or this token's already; None while another holds it.

        The same token gets the same fence again. Fences grow with each holder and need not begin at 1; no lease is shortened.
        """

    @abstractmethod
    async def renew_lease(self, lease: Lease, *, now: datetime, seconds: float) -> Lease:
        """The same lease, expiring later; one that has expired and that nobody else took is renewed too.

        Raises:
            LeaseLostError: another has it, or had it in the meantime, or it was released.
        """

    @abstractmethod
    async def release_lease(self, lease: Lease) -> None:
        """Give it back, so that the next need not wait. Somebody else's is left alone."""

    @abstractmethod
    async def use_once(self, key: str, *, now: datetime, expires_at: datetime) -> bool:
        """Whether this key is used for the first time. It is forgotten some time after `expires_at`."""

    # --- deliveries

    @abstractmethod
    async def put_delivery(self, delivery: Delivery) -> None:
        """Write it, or write it again after a try. Those that were done long before its `due_at` are forgotten as it goes."""

    @abstractmethod
    async def due_deliveries(self, *, now: datetime, limit: int) -> list[Delivery]:
        """Those not done and due, the earliest first. Who works on one holds the lease `delivery:ID`."""

    # --- the store itself

    @abstractmethod
    async def check(self) -> None:
        """Raises StoreError when the store cannot be reached or written."""
