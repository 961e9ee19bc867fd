"""A store that fails on plan, and a schedule that can be had again."""

import pytest
import trio
from trio.testing import MockClock

from engine.store.contract import StoreError
from engine.store.documents import SessionDocument, TurnDocument, UsageDocument
from engine.store.memory import MemoryStore
from engine.testing.faults import Fault, FaultyStore, StoreCall, no_faults
from engine.testing.schedule import seed_schedule
from engine.testing.stage import EPOCH
from tests.engine.store.operations import READS, WRITES

SESSION = SessionDocument(id="s1", created_at=EPOCH, updated_at=EPOCH)
USAGE = UsageDocument(id="u1", session_id="s1", provider="Scripted", created_at=EPOCH)


def turn(index: int, turn_id: str = "t1") -> TurnDocument:
    return TurnDocument(id=turn_id, session_id="s1", index=index, started_at=EPOCH)


async def test_without_a_plan_it_works_and_keeps_what_was_written(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    opened = await store.open_session(SESSION)
    assert opened == SESSION.model_copy(update={"fence": 1})
    await store.save_session(opened)
    assert await store.get_session("s1") == opened
    await store.append_turns([turn(1, "t2"), turn(0)], fence=1)
    assert await store.get_turns("s1", limit=5) == [turn(0), turn(1, "t2")]
    await store.save_usage(USAGE)
    assert await store.get_usage("s1") == [USAGE]
    await store.check()
    assert (store.saved_sessions, store.written_usage) == ([opened], [USAGE])
    assert store.written_turns == [turn(1, "t2"), turn(0)]
    assert store.turns == [turn(0), turn(1, "t2")]
    assert store.calls[0] == StoreCall(1, "open_session", 1, 0.0)
    assert len({call.operation for call in store.calls}) == len(store.calls) == 8


def always_failing(_: StoreCall) -> Fault:
    return Fault.FAIL


@pytest.mark.parametrize("operation", READS | WRITES)
async def test_every_operation_is_passed_on_and_fails_on_plan(autojump_clock: MockClock, operation: str) -> None:
    store, twin = FaultyStore(), MemoryStore()
    await store.acquire_lease("lease", "mine", now=EPOCH, seconds=1)
    await twin.acquire_lease("lease", "mine", now=EPOCH, seconds=1)
    call = (READS | WRITES)[operation]
    assert await call(store) == await call(twin)
    assert await call(store) == await call(twin)
    assert [call.operation for call in store.calls[1:]] == [operation] * 2
    store.plan = always_failing
    with pytest.raises(StoreError, match=f"{operation} was made to fail"):
        await call(store)
    store.plan = no_faults
    for name, read in READS.items():
        assert await read(store) == await read(twin), name


async def test_it_fails_as_planned(autojump_clock: MockClock) -> None:
    plans: dict[int, Fault | float] = {1: Fault.FAIL, 2: Fault.CRASH, 3: 2.5, 4: Fault.HANG}
    store = FaultyStore(lambda call: plans.get(call.of_operation))
    with pytest.raises(StoreError):
        await store.check()
    with pytest.raises(RuntimeError):
        await store.check()
    await store.check()
    assert trio.current_time() == 2.5
    with trio.move_on_after(100) as limit:
        await store.check()
    assert limit.cancelled_caught
    with pytest.raises(StoreError):
        await store.save_session(SESSION)
    assert store.saved_sessions == []


async def _order() -> list[int]:
    """The order in which eight tasks run, three times over."""
    ran: list[int] = []

    async def run(number: int) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            ran.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(run, number)
    return ran


def test_a_seed_gives_the_same_order_again() -> None:
    orders: list[list[int]] = []
    for seed in (1, 2, 1):
        seed_schedule(seed)
        orders.append(trio.run(_order))
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]
