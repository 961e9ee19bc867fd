"""What every store promises about leases, keys that are used once, and deliveries."""

from datetime import datetime, timedelta

import pytest
import trio

from engine.store.contract import LeaseLostError, Store
from engine.store.documents import Lease
from tests.engine.store.samples import NOON, ODD_IDS, delivery

L = 30.0
"""Seconds a lease of these tests lasts."""


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


async def acquired(store: Store, token: str, *, seconds: float = 0, name: str = "m1") -> Lease:
    lease = await store.acquire_lease(name, token, now=at(seconds), seconds=L)
    assert lease is not None
    assert (lease.name, lease.token) == (name, token)
    return lease


async def is_free(store: Store, *, seconds: float, name: str = "m1") -> bool:
    """Asked by somebody who takes it, and gives it back."""
    lease = await store.acquire_lease(name, "passer-by", now=at(seconds), seconds=L)
    if lease is not None:
        await store.release_lease(lease)
    return lease is not None


# --- leases (case C50) -----------------------------------------------------------------------------------------------


async def test_a_lease_has_one_holder_until_its_time(store: Store) -> None:
    a = await acquired(store, "a")
    assert a.expires_at == at(L)
    for seconds in (0, 1, L - 0.001):
        assert await store.acquire_lease("m1", "b", now=at(seconds), seconds=L) is None
    b = await acquired(store, "b", seconds=L)
    assert b.fence > a.fence
    assert b.expires_at == at(2 * L)
    assert await store.acquire_lease("m1", "a", now=at(L), seconds=L) is None


async def test_a_stalled_holder_can_do_nothing_more(store: Store) -> None:
    a1 = await acquired(store, "A1")
    b1 = await acquired(store, "B1", seconds=L + 1)
    await store.release_lease(b1)
    b2 = await acquired(store, "B2", seconds=L + 2)
    with pytest.raises(LeaseLostError):
        await store.renew_lease(a1, now=at(L + 3), seconds=L)
    await store.release_lease(a1)  # not its own: nothing happens
    assert not await is_free(store, seconds=L + 3)
    assert await store.renew_lease(b2, now=at(L + 3), seconds=L) == b2.model_copy(update={"expires_at": at(2 * L + 3)})
    assert a1.fence < b1.fence < b2.fence


async def test_a_renewed_lease_is_not_taken(store: Store) -> None:
    lease = await acquired(store, "a")
    for number in range(1, 5):
        renewed = await store.renew_lease(lease, now=at(20 * number), seconds=L)
        assert renewed == lease.model_copy(update={"expires_at": at(20 * number + L)})
        assert not await is_free(store, seconds=20 * number + L - 0.001)
        lease = renewed
    assert await is_free(store, seconds=80 + L)


async def test_one_that_expired_is_renewed_when_nobody_took_it(store: Store) -> None:
    lease = await acquired(store, "a")
    renewed = await store.renew_lease(lease, now=at(10 * L), seconds=L)
    assert (renewed.fence, renewed.expires_at) == (lease.fence, at(11 * L))
    assert not await is_free(store, seconds=10 * L)


async def test_one_that_another_had_in_the_meantime_is_lost(store: Store) -> None:
    old = await acquired(store, "a")
    await store.release_lease(await acquired(store, "b", seconds=L))
    with pytest.raises(LeaseLostError):
        await store.renew_lease(old, now=at(L), seconds=L)
    new = await acquired(store, "a", seconds=L)  # under the same token
    assert new.fence > old.fence
    with pytest.raises(LeaseLostError):
        await store.renew_lease(old, now=at(L), seconds=L)
    await store.release_lease(old)
    assert not await is_free(store, seconds=L)


async def test_one_that_was_given_back_is_lost_and_free(store: Store) -> None:
    lease = await acquired(store, "a")
    await store.release_lease(lease)
    with pytest.raises(LeaseLostError):
        await store.renew_lease(lease, now=at(0), seconds=L)
    await store.release_lease(lease)
    assert await is_free(store, seconds=0)
    again = await acquired(store, "a")
    assert again.fence > lease.fence


async def test_nobody_has_what_was_never_taken(store: Store) -> None:
    made_up = Lease(name="m1", token="a", fence=1, expires_at=at(L))
    with pytest.raises(LeaseLostError):
        await store.renew_lease(made_up, now=at(0), seconds=L)
    await store.release_lease(made_up)
    held = await acquired(store, "b")
    for wrong in ({"token": "a"}, {"fence": held.fence + 1}, {"fence": held.fence - 1}, {"name": "m2"}):
        forged = held.model_copy(update=wrong)
        with pytest.raises(LeaseLostError):
            await store.renew_lease(forged, now=at(0), seconds=L)
        await store.release_lease(forged)
    assert not await is_free(store, seconds=0)


async def test_a_holder_who_asks_again_has_the_same_lease(store: Store) -> None:
    first = await acquired(store, "a")
    again = await acquired(store, "a", seconds=10)
    assert again == first.model_copy(update={"expires_at": at(10 + L)})
    late = await acquired(store, "a", seconds=10 * L)  # it expired, and nobody took it
    assert late.fence == first.fence
    await store.renew_lease(first, now=at(10 * L), seconds=L)


async def test_a_lease_is_never_shortened(store: Store) -> None:
    lease = await acquired(store, "a")
    assert (await store.renew_lease(lease, now=at(0), seconds=1)).expires_at == at(L)
    again = await store.acquire_lease("m1", "a", now=at(0), seconds=1)
    assert again == lease
    assert not await is_free(store, seconds=L - 0.001)


async def test_an_older_copy_of_a_lease_is_still_that_lease(store: Store) -> None:
    lease = await acquired(store, "a")
    await store.renew_lease(lease, now=at(10), seconds=L)
    assert (await store.renew_lease(lease, now=at(20), seconds=L)).expires_at == at(20 + L)
    await store.release_lease(lease)
    assert await is_free(store, seconds=20)


async def test_leases_of_other_names_are_others(store: Store) -> None:
    held = [await acquired(store, "a", name=name) for name in ODD_IDS]
    for name, lease in zip(ODD_IDS, held, strict=True):
        assert not await is_free(store, seconds=1, name=name)
        await store.release_lease(lease)
        assert await is_free(store, seconds=1, name=name)


async def test_of_those_who_ask_at_once_one_has_it(store: Store) -> None:
    got: list[Lease] = []

    async def asking(name: str, token: str, now: datetime) -> None:
        lease = await store.acquire_lease(name, token, now=now, seconds=L)
        if lease is not None:
            got.append(lease)

    for round_ in range(3):  # the second and third time it has expired
        async with trio.open_nursery() as nursery:
            for name in ("m1", "m2"):
                for number in range(10):
                    nursery.start_soon(asking, name, f"{round_} {number}", at(round_ * L))
    for name in ("m1", "m2"):
        fences = [lease.fence for lease in got if lease.name == name]
        assert len(fences) == 3
        assert fences == sorted(set(fences))


# --- what has to happen once -----------------------------------------------------------------------------------------


async def test_a_key_is_used_once(store: Store) -> None:
    for key in ODD_IDS:
        assert await store.use_once(key, now=at(0), expires_at=at(60))
    for seconds in (0, 1, 59.999):
        for key in ODD_IDS:
            assert not await store.use_once(key, now=at(seconds), expires_at=at(seconds + 60))
    assert await store.use_once("Case", now=at(0), expires_at=at(60))


async def test_a_key_is_kept_until_its_time_however_many_come(store: Store) -> None:
    assert await store.use_once("kept", now=at(0), expires_at=at(1000))
    for number in range(60):
        assert await store.use_once(f"k{number}", now=at(number), expires_at=at(number + 0.001))
    assert not await store.use_once("kept", now=at(999), expires_at=at(2000))


async def test_of_those_who_use_a_key_at_once_one_is_first(store: Store) -> None:
    first: list[int] = []

    async def using(number: int) -> None:
        if await store.use_once("k", now=at(0), expires_at=at(60)):
            first.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(using, number)
    assert len(first) == 1


# --- deliveries ------------------------------------------------------------------------------------------------------


async def test_a_delivery_comes_back_as_it_was_when_it_is_due(store: Store) -> None:
    await store.put_delivery(delivery())
    assert await store.due_deliveries(now=at(-0.001), limit=9) == []
    assert await store.due_deliveries(now=at(0), limit=9) == [delivery()]
    assert await store.due_deliveries(now=at(9999), limit=9) == [delivery()]  # it is for the sender to give it up


async def test_due_deliveries_come_earliest_first(store: Store) -> None:
    for number, seconds in enumerate((5, 0, 7, 0.001, 5)):
        await store.put_delivery(delivery(f"d{number}", due_at=at(seconds)))
    due = await store.due_deliveries(now=at(6), limit=9)
    assert [found.id for found in due] == ["d1", "d3", "d0", "d4"]
    for limit, expected in ((-1, []), (0, []), (1, ["d1"]), (3, ["d1", "d3", "d0"])):
        assert [found.id for found in await store.due_deliveries(now=at(6), limit=limit)] == expected


async def test_a_delivery_is_written_again_after_a_try(store: Store) -> None:
    await store.put_delivery(delivery())
    later = delivery(attempts=1, due_at=at(60), outcome="503")
    for _ in range(2):
        await store.put_delivery(later)
    assert await store.due_deliveries(now=at(59.999), limit=9) == []
    assert await store.due_deliveries(now=at(60), limit=9) == [later]
    for _ in range(2):
        await store.put_delivery(delivery(attempts=2, due_at=at(60), done=True, outcome="taken"))
    assert await store.due_deliveries(now=at(9999), limit=9) == []


async def test_one_that_is_owed_is_kept_however_long(store: Store) -> None:
    await store.put_delivery(delivery("owed"))
    await store.put_delivery(delivery("done", done=True))
    for day in range(0, 100, 10):
        now = NOON + timedelta(days=day)
        await store.put_delivery(delivery(f"d{day}", done=True, due_at=now, expires_at=now + timedelta(hours=1)))
    assert [found.id for found in await store.due_deliveries(now=at(0), limit=9)] == ["owed"]


async def test_deliveries_put_at_once_are_all_owed(store: Store) -> None:
    async def putting(delivery_id: str) -> None:
        await store.put_delivery(delivery(delivery_id))

    async with trio.open_nursery() as nursery:
        for delivery_id in ODD_IDS:
            nursery.start_soon(putting, delivery_id)
    due = await store.due_deliveries(now=at(0), limit=100)
    assert [found.id for found in due] == sorted(ODD_IDS)
