"""Group commit under virtual time: the committer is a list that takes a second for each batch."""

import logging
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.store.contract import StoreError
from engine.store.group_writer import BATCH_WRITES, CLOSE_SECONDS, QUEUE_WRITES, GroupWriter, Write, open_group_writer

Log = list[str]


@attrs.define(eq=False)
class Committer:
    """Does each write on a list of its own, after `seconds`."""

    seconds: float = 1.0
    log: Log = attrs.field(factory=Log)
    batches: list[int] = attrs.field(factory=list[int])

    async def __call__(self, batch: list[Write[Log, Any]]) -> None:
        self.batches.append(len(batch))
        await trio.sleep(self.seconds)
        for write in batch:
            try:
                write.result = write.work(self.log)
            except ValueError as exc:
                write.error = exc


def saying(word: str, log: Log) -> str:
    log.append(word)
    return f"said {word}"


async def say(writer: GroupWriter[Log], word: str) -> str:
    return await writer.write(lambda log: saying(word, log))


async def test_what_waits_during_a_commit_is_the_next_batch(autojump_clock: MockClock) -> None:
    committer = Committer()
    told: dict[str, float] = {}

    async def waiter(word: str) -> None:
        assert await say(writer, word) == f"said {word}"
        told[word] = trio.current_time()

    async with open_group_writer(committer) as writer, trio.open_nursery() as nursery:
        start = trio.current_time()
        nursery.start_soon(waiter, "first")
        await wait_all_tasks_blocked()
        for number in range(10):
            nursery.start_soon(waiter, f"{number}")
    assert committer.batches == [1, 10]
    assert told == {"first": start + 1} | {f"{number}": start + 2 for number in range(10)}


async def test_writes_happen_in_the_order_they_were_queued(autojump_clock: MockClock) -> None:
    committer = Committer()
    async with open_group_writer(committer) as writer, trio.open_nursery() as nursery:
        for number in range(QUEUE_WRITES + 100):  # more than there is room for
            nursery.start_soon(say, writer, f"{number}")
            await wait_all_tasks_blocked()
    assert committer.log == [f"{number}" for number in range(QUEUE_WRITES + 100)]
    assert committer.batches[0] == 1
    assert max(committer.batches) == BATCH_WRITES


async def test_an_error_is_its_own_waiters(autojump_clock: MockClock) -> None:
    def fail(_: Log) -> None:
        raise ValueError("bad document")

    async with open_group_writer(Committer()) as writer, trio.open_nursery() as nursery:
        nursery.start_soon(say, writer, "before")
        with pytest.raises(ValueError, match="bad document"):
            await writer.write(fail)
        assert await say(writer, "after") == "said after"


async def test_cancelled_before_it_was_queued_a_write_does_not_happen(autojump_clock: MockClock) -> None:
    committer = Committer()
    async with open_group_writer(committer) as writer, trio.open_nursery() as nursery:
        nursery.start_soon(say, writer, "being committed")
        await wait_all_tasks_blocked()
        for number in range(QUEUE_WRITES):
            nursery.start_soon(say, writer, f"{number}")
        await wait_all_tasks_blocked()
        with trio.move_on_after(0.5) as scope:
            await say(writer, "no room")
        assert scope.cancelled_caught
    assert len(committer.log) == QUEUE_WRITES + 1
    assert "no room" not in committer.log


async def test_cancelled_while_it_is_queued_or_committed_a_write_still_happens(autojump_clock: MockClock) -> None:
    committer = Committer()
    async with open_group_writer(committer) as writer:
        start = trio.current_time()
        with trio.move_on_after(0.5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(say, writer, "being committed")
                await wait_all_tasks_blocked()
                nursery.start_soon(say, writer, "queued")
        assert scope.cancelled_caught
        assert trio.current_time() == start + 0.5  # the waiters went at once
        assert await say(writer, "afterwards") == "said afterwards"
    assert committer.log == ["being committed", "queued", "afterwards"]


async def test_cancelled_after_the_commit_a_write_has_happened(autojump_clock: MockClock) -> None:
    committer = Committer(seconds=0)
    async with open_group_writer(committer) as writer:
        with trio.CancelScope() as scope:

            def work(log: Log) -> str:
                scope.cancel()  # comes when the waiter can still not have been told
                return saying("done", log)

            await writer.write(work)
        assert scope.cancelled_caught
    assert committer.log == ["done"]


async def test_closing_waits_for_what_is_queued(autojump_clock: MockClock) -> None:
    committer = Committer()
    told: list[str] = []

    async def waiter(number: int) -> None:
        told.append(await say(writer, f"{number}"))

    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        async with open_group_writer(committer) as writer:
            for number in range(5):
                nursery.start_soon(waiter, number)
                await wait_all_tasks_blocked()
        assert trio.current_time() == start + 2  # the commit under way, and one for the other four
    assert sorted(told) == [f"said {number}" for number in range(5)]
    with pytest.raises(StoreError, match="closed"):
        await say(writer, "too late")


async def test_a_cancelled_server_still_waits_for_what_is_queued(autojump_clock: MockClock) -> None:
    committer = Committer()
    with trio.CancelScope() as server:
        async with open_group_writer(committer) as writer, trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(say, writer, f"{number}")
            await wait_all_tasks_blocked()
            server.cancel()
    assert server.cancelled_caught
    assert sorted(committer.log) == ["0", "1", "2"]


async def test_a_writer_that_has_no_room_when_it_closes_is_told(autojump_clock: MockClock) -> None:
    committer = Committer()
    refused: list[str] = []

    async def waiter(number: int) -> None:
        try:
            await say(writer, f"{number}")
        except StoreError as exc:
            refused.append(str(exc))

    async with trio.open_nursery() as nursery:
        async with open_group_writer(committer) as writer:
            nursery.start_soon(waiter, -1)
            await wait_all_tasks_blocked()
            for number in range(QUEUE_WRITES + 2):
                nursery.start_soon(waiter, number)
            await wait_all_tasks_blocked()
    assert len(committer.log) == QUEUE_WRITES + 1
    assert refused == ["The store is closed."] * 2


async def test_closing_ends_at_its_limit_and_nobody_is_left_waiting(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    committer = Committer(seconds=1000)
    told: list[str] = []

    async def waiter(number: int) -> None:
        with pytest.raises(StoreError) as refused:
            await say(writer, f"{number}")
        told.append(str(refused.value))

    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        async with open_group_writer(committer) as writer:
            for number in range(3):
                nursery.start_soon(waiter, number)
                await wait_all_tasks_blocked()
        assert trio.current_time() == start + CLOSE_SECONDS
    assert told == ["The store was closed before this write was known to be committed."] * 3
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "the store was closed with 3 writes not known to be committed")
    ]


async def test_a_committer_that_breaks_leaves_nobody_waiting(autojump_clock: MockClock) -> None:
    async def broken(_: list[Write[Log, Any]]) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a bug")

    told: list[str] = []

    async def waiter() -> None:
        with pytest.raises(StoreError) as refused:
            await say(writer, "anything")
        told.append(str(refused.value))

    async with trio.open_nursery() as outside:
        with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="a bug")):
            async with open_group_writer(broken) as writer:
                outside.start_soon(waiter)
                await trio.sleep_forever()
    assert told == ["The store was closed before this write was known to be committed."]
