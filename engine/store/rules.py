"""What every store does with a document, whatever keeps it: fences, owners, versions, revisions and leases.

Each rule takes what is stored and what is asked for, and gives what to store, or raises what the contract says. A store has to
apply it and write the outcome with nothing in between.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.errors import NotFoundError
from engine.store.contract import ConflictError, LeaseLostError, TakenOverError
from engine.store.documents import (
    Lease,
    LogEntry,
    MemoryDocument,
    MessageDocument,
    Resource,
    SessionDocument,
    SessionState,
    TurnDocument,
)

PURGED_AT_ONCE = 10
"""Forgotten things that are deleted with each new one: more than one, so that they never pile up, and few, so that no write is long."""
DELIVERIES_KEPT = timedelta(days=30)
"""How long a delivery that is done can be looked at, counted from when it would have been given up."""
LEASES_KEPT = timedelta(days=1)
"""How long a lease that expired and that nobody took is kept, so that a stalled holder may still renew it."""


def reopened(stored: SessionDocument | None, asked: SessionDocument) -> SessionDocument:
    """What `open_session` stores and returns: the stored session back in OPEN, or the one asked for when there is none.

    Raises:
        NotFoundError: the stored session is another owner's. The sentence is the one for a session that does not exist.
    """
    if stored is None:
        return asked.model_copy(update={"fence": 1})
    if stored.owner != asked.owner:
        raise NotFoundError("There is no such session.")
    update = {"state": SessionState.OPEN, "updated_at": asked.updated_at, "fence": stored.fence + 1}
    return stored.model_copy(update=update)


def saved(stored: SessionDocument | None, new: SessionDocument) -> SessionDocument:
    """What `save_session` stores: the new document under the owner it always had (case C43 b).

    Raises:
        TakenOverError: the stored session has been opened again since.
    """
    if stored is None:
        return new
    require_fence(stored.fence, new.fence)
    return new if stored.owner == new.owner else new.model_copy(update={"owner": stored.owner})


def require_fence(stored: int, fence: int) -> None:
    """Raises TakenOverError when the stored fence is higher (case C41)."""
    if stored > fence:
        raise TakenOverError("The session was opened again by another connection.")


def require_one_session(documents: Sequence[TurnDocument] | Sequence[MessageDocument] | Sequence[LogEntry]) -> None:
    """Raises ValueError when they are not all of one session: one fence could not speak for them."""
    if len({document.session_id for document in documents}) > 1:
        raise ValueError("What is written together has to be of one session.")


def redacted(entry: LogEntry) -> LogEntry:
    return entry.model_copy(update={"content": None})


def require_version(current: int, expected: int | None) -> None:
    """Raises ConflictError when another version was expected; `current` is 0 for what does not exist."""
    if expected is not None and expected != current:
        raise ConflictError(current)


def next_version(stored: Resource | None, new: Resource, expected: int | None) -> Resource:
    """What `put_resource` stores. Raises ConflictError."""
    current = 0 if stored is None else stored.version
    require_version(current, expected)
    created_at = new.created_at if stored is None else stored.created_at
    return new.model_copy(update={"version": current + 1, "created_at": created_at})


def next_revision(newest: int, new: MemoryDocument, expected: int | None) -> MemoryDocument:
    """What `append_memory` stores, when its id is not stored yet. Raises ConflictError."""
    require_version(newest, expected)
    return new.model_copy(update={"revision": newest + 1})


def acquired(stored: Lease | None, asked: Lease, now: datetime) -> Lease | None:
    """What `acquire_lease` stores and returns: the lease asked for, under its own fence for a holder who has it already."""
    if stored is None:
        return asked
    if stored.token == asked.token:
        return _extended(stored, asked.expires_at)
    return asked if stored.expires_at <= now else None


def renewed(stored: Lease | None, lease: Lease, expires_at: datetime) -> Lease:
    """What `renew_lease` stores and returns. Raises LeaseLostError (case C50)."""
    if stored is None or not holds(stored, lease):
        raise LeaseLostError("The lease was taken by another, or given back.")
    return _extended(stored, expires_at)


def holds(stored: Lease | None, lease: Lease) -> bool:
    """Whether that lease is the stored one. A holder who lost it and got it again has another fence."""
    return stored is not None and (stored.token, stored.fence) == (lease.token, lease.fence)


def _extended(lease: Lease, expires_at: datetime) -> Lease:
    """Never shortened: a repeated call that was overtaken must not take time from its holder."""
    return lease.model_copy(update={"expires_at": max(lease.expires_at, expires_at)})
