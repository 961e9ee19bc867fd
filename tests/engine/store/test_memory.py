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
    for number in range(20):  # what stays is not in the way
        assert await store.use_once(f"long {number}", now=NOON, expires_at=NOON + DAY * 1000)
        assert (
            await store.acquire_lease(f"long {number}", "a", now=NOON, seconds=1000 * DAY.total_seconds()) is not None
        )
        await store.put_delivery(delivery(f"owed {number:02}"))
    for number in range(300):
        now = NOON + DAY * number
        assert await store.use_once(f"k{number}", now=now, expires_at=now + DAY)
        assert await store.acquire_lease(f"m{number}", "a", now=now, seconds=1) is not None
        await store.put_delivery(delivery(f"d{number}", done=True, due_at=now, expires_at=now + DAY / 2))
    sizes = {name: len(getattr(store, name)) for name in ("_used", "_leases", "_deliveries")}
    assert sizes["_used"] <= 20 + 10
    assert sizes["_leases"] <= 20 + LEASES_KEPT.days + 10
    assert sizes["_deliveries"] <= 20 + DELIVERIES_KEPT.days + 10
    with pytest.raises(LeaseLostError):
        await store.renew_lease(first, now=NOON + DAY * 300, seconds=1)
    due = await store.due_deliveries(now=NOON + DAY * 300, limit=100)
    assert [found.id for found in due] == [f"owed {number:02}" for number in range(20)]
