"""What is the memory store's own: it forgets as it goes, and is done at once."""

from datetime import timedelta

import pytest
import trio
from trio.testing import MockClock

from engine.store.contract import LeaseLostError
from engine.store.memory import MemoryStore
from engine.store.rules import DELIVERIES_KEPT, LEASES_KEPT
from tests.engine.store.samples import NOON, delivery, session

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


async def test_no_time_passes(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await store.open_session(session())
    await store.get_session("s1")
    assert trio.current_time() == 0


async def test_what_is_over_does_not_pile_up() -> None:
    store = MemoryStore()
    first = await store.acquire_lease("first", "a", now=NOON, seconds=1)
    assert first is not None
    await store.put_delivery(delivery("owed"))
    for number in range(300):
        now = NOON + DAY * number
        assert await store.use_once(f"k{number}", now=now, expires_at=now + DAY)
        assert await store.acquire_lease(f"m{number}", "a", now=now, seconds=1) is not None
        await store.put_delivery(delivery(f"d{number}", done=True, due_at=now, expires_at=now + DAY / 2))
    sizes = {name: len(getattr(store, name)) for name in ("_used", "_leases", "_deliveries")}
    assert sizes["_used"] <= 3
    assert sizes["_leases"] <= LEASES_KEPT.days + 2
    assert sizes["_deliveries"] <= DELIVERIES_KEPT.days + 3
    with pytest.raises(LeaseLostError):
        await store.renew_lease(first, now=NOON + DAY * 300, seconds=1)
    assert [found.id for found in await store.due_deliveries(now=NOON + DAY * 300, limit=9)] == ["owed"]
