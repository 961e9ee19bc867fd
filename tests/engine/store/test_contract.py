"""What every store promises of every operation. The stores are those of `tests/engine/store/stores.py`."""

from typing import Any

import pytest
import trio

from engine.store.contract import Store, StoreError
from tests.engine.store.conftest import Opener
from tests.engine.store.operations import LATER, READS, WRITES
from tests.engine.store.samples import NOON, log_entry, memory, resource, session


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
