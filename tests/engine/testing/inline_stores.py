"""The stores that go to disk or to a server, on a virtual clock: their statements are run at once, where the real ones hand them to a
thread. The rest is theirs: documents, SQL and commands, fences, transactions. Virtual time stands still meanwhile, and each operation is
one step of the scheduler, as those of the store in memory are."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import trio
from pymongo import MongoClient

from engine.store.contract import Store
from engine.store.embedded import EmbeddedStore, Work, commit_batch
from engine.store.group_writer import GroupWriter, Write
from engine.store.mongo import Batch, MongoStore
from engine.store.mongo_appends import Appender
from engine.store.mongo_documents import Memories
from engine.store.mongo_link import MongoLink
from engine.store.mongo_link import Work as MongoWork
from engine.store.mongo_schema import COMMITTED, DURABLE, PRIMARY, Row, prepare
from engine.store.sqlite_file import open_file
from tests.engine.store.secantus import mongo_url

C = TypeVar("C")
T = TypeVar("T")


class InlineWriter(GroupWriter[C]):
    """Commits each write by itself, at once."""

    def __init__(self, commit: Callable[[list[Write[C, Any]]], None], *, steps: bool) -> None:
        self._commit_now = commit
        self._steps = steps

    async def write(self, work: Callable[[C], T]) -> T:
        if self._steps:
            await trio.lowlevel.checkpoint()
        write = Write[C, T](work)
        self._commit_now([write])
        if write.error is not None:
            raise write.error
        return cast("T", write.result)


class InlineReader:
    """Reads at once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, work: Work[T]) -> T:
        await trio.lowlevel.checkpoint()
        return work(self._connection)


@contextmanager
def inline_embedded(directory: Path) -> Generator[Store]:
    file = open_file(directory / "store.db")
    try:
        writer = InlineWriter[Any](lambda batch: commit_batch(file, batch), steps=True)
        yield EmbeddedStore(writer, cast("Any", InlineReader(file.reader)))
    finally:
        file.reader.close()
        file.writer.close()


class InlineLink(MongoLink):
    """Calls pymongo where the other has a thread do it."""

    async def call(self, work: MongoWork[T], limiter: trio.CapacityLimiter) -> T:
        return self._attempt(work)

    async def write(self, work: MongoWork[T], limiter: trio.CapacityLimiter | None = None) -> T:
        await self.ready()
        return self._attempt(work)


@contextmanager
def inline_mongo(directory: Path) -> Generator[Store]:
    with mongo_url(directory) as url, MongoClient[Row](url) as client:
        tables = client.get_default_database(read_preference=PRIMARY, write_concern=DURABLE, read_concern=COMMITTED)
        prepare(tables)
        appender = Appender(client, tables)

        def commit(writes: list[Write[Batch, Any]]) -> None:
            batch: Batch = []
            for write in writes:
                write.work(batch)
            appender.commit(batch)
            for write, append in zip(writes, batch, strict=True):
                write.error = append.error

        link = InlineLink(client, tables, cast("trio.Nursery", None))  # which only its threads are in
        yield MongoStore(link, InlineWriter[Batch](commit, steps=False), appender, Memories(client, tables))
