"""What every store promises of every operation. The stores are those of `tests/engine/store/stores.py`."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import trio

from engine.store.contract import SessionFilter, Store, StoreError
from engine.store.documents import Lease, ResourceKind
from tests.engine.store.conftest import Opener
from tests.engine.store.samples import (
    NOON,
    delivery,
    log_entry,
    memory,
    message,
    resource,
    session,
    turn,
    usage,
)

AGENT = ResourceKind.AGENT
LATER = NOON + timedelta(minutes=1)
LEASE = Lease(name="lease", token="mine", fence=1, expires_at=LATER)

READS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "get_session": lambda store: store.get_session("s1"),
    "list_sessions": lambda store: store.list_sessions(SessionFilter(), limit=9),
    "fences": lambda store: store.fences(["s1"]),
    "get_turns": lambda store: store.get_turns("s1", limit=9),
    "get_messages": lambda store: store.get_messages("s1", limit=9),
    "get_usage": lambda store: store.get_usage("s1"),
    "active_seconds": lambda store: store.active_seconds("p1", since=NOON),
    "get_log": lambda store: store.get_log("s1", limit=9),
    "get_resource": lambda store: store.get_resource(AGENT, "r1"),
    "get_resources": lambda store: store.get_resources(AGENT, ["r1"]),
    "list_resources": lambda store: store.list_resources(AGENT, limit=9),
    "get_memory": lambda store: store.get_memory("user:anna", "facts"),
    "get_memory_revisions": lambda store: store.get_memory_revisions("user:anna", "facts", limit=9),
    "list_memory": lambda store: store.list_memory("user:anna", limit=9),
    "due_deliveries": lambda store: store.due_deliveries(now=LATER, limit=9),
}
WRITES: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "open_session": lambda store: store.open_session(session()),
    "save_session": lambda store: store.save_session(session(turn_count=7, fence=1)),
    "append_turns": lambda store: store.append_turns([turn(0)], fence=1),
    "append_messages": lambda store: store.append_messages([message(0)], fence=1),
    "save_usage": lambda store: store.save_usage(usage(project_ref="p1", active_seconds=3)),
    "append_log": lambda store: store.append_log([log_entry(0)]),
    "redact_log": lambda store: store.redact_log("s1"),
    "put_resource": lambda store: store.put_resource(resource(), expected=None),
    "delete_resource": lambda store: store.delete_resource(AGENT, "r1", expected=None),
    "append_memory": lambda store: store.append_memory(memory(), expected=None),
    "forget_memory": lambda store: store.forget_memory("user:anna"),
    "acquire_lease": lambda store: store.acquire_lease("lease", "mine", now=NOON, seconds=60),
    "renew_lease": lambda store: store.renew_lease(LEASE, now=NOON, seconds=60),
    "release_lease": lambda store: store.release_lease(LEASE),
    "use_once": lambda store: store.use_once("key", now=NOON, expires_at=LATER),
    "put_delivery": lambda store: store.put_delivery(delivery()),
    "check": lambda store: store.check(),
}


async def everything(store: Store) -> dict[str, Any]:
    """What can be read, and who has the lease and the key."""
    found = {name: await read(store) for name, read in READS.items()}
    taken = await store.acquire_lease("lease", "somebody else", now=NOON, seconds=60)
    if taken is not None:
        await store.release_lease(taken)
    return {**found, "is free": taken is not None}


def test_every_operation_is_specified() -> None:
    assert READS.keys() | WRITES.keys() == Store.__abstractmethods__


async def test_a_caller_already_cancelled_writes_nothing(store: Store) -> None:
    async def cancelled() -> None:
        for operation in (READS | WRITES).values():
            with trio.CancelScope() as scope:
                scope.cancel()
                await operation(store)
            assert scope.cancelled_caught

    nothing = await everything(store)
    await cancelled()
    await store.check()  # behind whatever was queued
    assert await everything(store) == nothing

    await store.open_session(session())
    await store.append_log([log_entry(0)])
    await store.put_resource(resource(), expected=0)
    await store.append_memory(memory(), expected=0)
    something = await everything(store)
    await cancelled()
    await store.check()
    assert await everything(store) == something
    assert await store.use_once("key", now=NOON, expires_at=LATER)


async def test_a_store_in_use_checks_out(store: Store) -> None:
    await store.check()
    await store.check()


async def test_a_closed_store_says_so(opener: Opener) -> None:
    async with opener() as store:
        await store.check()
    for operation in (READS | WRITES).values():
        with pytest.raises(StoreError):
            await operation(store)
