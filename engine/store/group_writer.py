"""Group commit: the writes that wait while one is committed are committed together, and each waiter is told afterwards.

A durable commit costs the same for one write as for two hundred, so one task takes whatever waits and hands it over as a batch.
Laws: writes happen in the order in which they were queued; a waiter is told only after the commit; a waiter that is cancelled
walks away at once and its write, once queued, still happens; closing waits for what is queued, for a bounded time.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar, cast

import attrs
import trio

from engine.store.contract import StoreError

C = TypeVar("C")
"""What a write works on, such as a database connection."""
T = TypeVar("T")
"""What a write gives to its waiter."""

logger = logging.getLogger(__name__)

QUEUE_WRITES = 1024
"""Writes that wait for a commit; further writers wait for room. Five writes from each of the 200 sessions a process admits."""
BATCH_WRITES = 256
"""Writes in one commit: enough to make the cost of the commit small beside theirs, and still only some milliseconds long."""
CLOSE_SECONDS = 10.0
"""The longest closing waits for queued writes: twice the time a commit may wait for another process."""


@attrs.define(eq=False)
class Write(Generic[C, T]):
    """One write. The committer sets `result` or `error`; the waiter sees neither before `settled`."""

    work: Callable[[C], T]
    result: T | None = None
    error: Exception | None = None
    settled: trio.Event = attrs.field(factory=trio.Event)


Commit = Callable[[list[Write[C, Any]]], Awaitable[None]]
"""Commits a batch and writes `result` or `error` on each of its writes. Raises nothing: an error is its writes' own."""


class GroupWriter(Generic[C]):
    """Queues writes. Made by `open_group_writer`, which owns the task that commits them."""

    def __init__(self, commit: Commit[C]) -> None:
        self._commit = commit
        self._queue, self._waiting = trio.open_memory_channel[Write[C, Any]](QUEUE_WRITES)
        # Writes are not abandoned when the server is cancelled: only `close` ends the task, and gives this scope its deadline.
        self._shield = trio.CancelScope(shield=True)

    async def write(self, work: Callable[[C], T]) -> T:
        """Have the work done and committed; what it returns or raises comes back here.

        Cancelled while there is no room in the queue, the write does not happen. Cancelled later, it happens all the same.

        Raises:
            StoreError: the store is closed, or was closed before this write was committed.
        """
        write = Write[C, T](work)
        try:
            await self._queue.send(write)
        except (trio.ClosedResourceError, trio.BrokenResourceError) as exc:
            raise StoreError("The store is closed.") from exc
        await write.settled.wait()
        if write.error is not None:
            raise write.error
        return cast("T", write.result)

    def close(self) -> None:
        """Take no more writes; those that are queued have CLOSE_SECONDS."""
        self._queue.close()
        self._shield.deadline = trio.current_time() + CLOSE_SECONDS

    async def run(self) -> None:
        """Commit what is queued until the queue is closed and empty."""
        batch: list[Write[C, Any]] = []
        try:
            with self._shield:
                async for first in self._waiting:
                    batch = [first, *self._take(BATCH_WRITES - 1)]
                    await self._commit(batch)
                    for write in batch:
                        write.settled.set()
        finally:
            self._give_up([*batch, *self._take(QUEUE_WRITES)])

    def _take(self, limit: int) -> list[Write[C, Any]]:
        """Up to `limit` writes that wait already."""
        taken: list[Write[C, Any]] = []
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while len(taken) < limit:
                taken.append(self._waiting.receive_nowait())
        return taken

    def _give_up(self, writes: list[Write[C, Any]]) -> None:
        """Tell those who still wait that nobody knows whether their write will happen."""
        self._waiting.close()
        left = [write for write in writes if not write.settled.is_set()]
        for write in left:
            write.error = StoreError("The store was closed before this write was known to be committed.")
            write.settled.set()
        if left:
            logger.error("the store was closed with %s writes not known to be committed", len(left))


@asynccontextmanager
async def open_group_writer(commit: Commit[C]) -> AsyncGenerator[GroupWriter[C]]:
    """A writer whose task runs as long as the context; leaving it waits for the queued writes, for a bounded time."""
    writer = GroupWriter(commit)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run, name="store writer")  # noqa: ASYNC113 - nothing relies on its having begun
        try:
            yield writer
        finally:
            writer.close()
