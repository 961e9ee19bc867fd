"""Turns are saved in order whatever the store does, and a corrected one replaces what was written of it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from engine.pipeline.ordered_writer import MAX_UNSAVED, TurnWriter
from engine.store.documents import TurnDocument
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.stage import EPOCH


def turn(number: int, text: str = "") -> TurnDocument:
    return TurnDocument.model_validate(
        {"id": f"t{number}", "session_id": "s1", "index": number, "started_at": EPOCH, "input": {"text": text}}
    )


def writer_for(store: FaultyStore, on_taken_over: Callable[[], None] = lambda: None) -> TurnWriter:
    return TurnWriter(partial(store.append_turns, fence=1), on_taken_over)


@asynccontextmanager
async def writing(store: FaultyStore) -> AsyncGenerator[TurnWriter]:
    writer = writer_for(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)  # noqa: ASYNC113 - nothing relies on its having begun
        yield writer
        nursery.cancel_scope.cancel(reason="the test is over")


def failing(seconds: float) -> Callable[[StoreCall], Fault | None]:
    return lambda call: Fault.FAIL if call.at < seconds else None


def written(store: FaultyStore) -> list[tuple[str, str]]:
    return [(document.id, document.input.text) for document in store.written_turns]


async def test_a_save_is_told_when_it_is_durable(autojump_clock: MockClock) -> None:
    store = FaultyStore(lambda _: 0.5)
    async with writing(store) as writer:
        assert await writer.save(turn(0), 2.0)
        assert trio.current_time() == 0.5
        assert writer.unsaved == 0


async def test_a_save_that_takes_too_long_goes_on(autojump_clock: MockClock) -> None:
    store = FaultyStore(lambda _: 3.0)
    async with writing(store) as writer:
        assert not await writer.save(turn(0), 2.0)
        assert trio.current_time() == 2
        assert writer.unsaved == 1
        await trio.sleep(1.5)
        assert written(store) == [("t0", "")]


async def test_what_waits_is_written_together_and_in_order(autojump_clock: MockClock) -> None:
    store = FaultyStore(failing(1.0))
    async with writing(store) as writer:
        for number in range(5):
            writer.put(turn(number))
            await trio.sleep(0.1)
        await trio.sleep(3)
        assert [turn_id for turn_id, _ in written(store)] == ["t0", "t1", "t2", "t3", "t4"]
        assert [call.at for call in store.calls] == [0, 0.25, 0.75, 1.75]


async def test_a_correction_replaces_what_waits(autojump_clock: MockClock) -> None:
    store = FaultyStore(failing(1.0))
    async with writing(store) as writer:
        durable = writer.put(turn(0, "first"))
        writer.put(turn(1))
        assert writer.put(turn(0, "corrected")) is durable
        await durable.wait()
        assert written(store) == [("t1", ""), ("t0", "corrected")]


async def test_a_correction_of_what_is_being_written_is_written_too(autojump_clock: MockClock) -> None:
    store = FaultyStore(lambda _: 1.0)
    async with writing(store) as writer:
        durable = writer.put(turn(0, "first"))
        await trio.sleep(0.5)
        writer.put(turn(0, "corrected"))
        await durable.wait()
        assert trio.current_time() == 2
        assert written(store) == [("t0", "first"), ("t0", "corrected")]


async def test_one_that_no_store_can_take_holds_up_no_other(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(FaultyStore):
        async def append_turns(self, turns: Sequence[TurnDocument], *, fence: int) -> None:
            if any(document.id == "t1" for document in turns):
                raise ValueError("not serializable")
            await super().append_turns(turns, fence=fence)

    store = Picky()
    async with writing(store) as writer:
        events = [writer.put(turn(number)) for number in range(3)]
        await trio.sleep(1)
        assert [turn_id for turn_id, _ in written(store)] == ["t0", "t2"]
        assert [event.is_set() for event in events] == [True, False, True]
        assert (writer.unsaved, writer.lost) == (0, 1)
        assert "turn t1 of session s1 was given up" in caplog.text


async def test_a_store_that_fails_among_the_single_ones_is_tried_again(autojump_clock: MockClock) -> None:
    def plan(call: StoreCall) -> Fault | None:
        return {1: Fault.CRASH, 3: Fault.FAIL}.get(call.number)

    store = FaultyStore(plan)
    async with writing(store) as writer:
        for number in range(3):
            writer.put(turn(number))
        await trio.sleep(1)
        assert [turn_id for turn_id, _ in written(store)] == ["t0", "t1", "t2"]
        assert writer.lost == 0


async def test_a_store_that_crashes_twice_loses_no_turn(autojump_clock: MockClock) -> None:
    """With all turns, and again with the first alone."""
    store = FaultyStore(lambda call: Fault.CRASH if call.number <= 2 else None)
    async with writing(store) as writer:
        for number in range(3):
            writer.put(turn(number))
        await trio.sleep(1)
        assert [turn_id for turn_id, _ in written(store)] == ["t0", "t1", "t2"]
        assert writer.lost == 0


async def test_what_cannot_be_kept_for_ever_is_given_up_from_the_oldest(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(lambda _: Fault.FAIL)
    writer = writer_for(store)
    for number in range(MAX_UNSAVED + 2):
        writer.put(turn(number))
    assert (writer.unsaved, writer.lost) == (MAX_UNSAVED, 2)
    assert "turn t0 of session s1 was given up: the store has failed too long" in caplog.text
    with trio.move_on_after(0):
        await writer.flush()


async def test_after_the_session_it_is_flushed(autojump_clock: MockClock) -> None:
    store = FaultyStore(failing(1.0))
    writer = writer_for(store)
    assert not await writer.save_now(turn(0), 0.5)
    writer.put(turn(1))
    await writer.flush()
    assert trio.current_time() == 1.25
    assert [turn_id for turn_id, _ in written(store)] == ["t0", "t1"]
    assert await writer.save_now(turn(2), 0.5)
