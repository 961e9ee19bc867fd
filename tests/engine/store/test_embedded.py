"""The embedded store and its real file, in real time: threads and virtual time do not mix."""

import logging
import os
import resource
import sqlite3
import stat
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from engine.store import embedded, group_writer
from engine.store.contract import StoreError
from engine.store.embedded import EmbeddedStore, open_embedded
from engine.store.sqlite_file import CHECKPOINT_BYTES, DatabaseFile, open_file
from tests.engine.store.samples import session, turn, usage

PROMPT = 4.0
"""Seconds that are plenty for what does not wait for another process; less than a write would wait for one."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[EmbeddedStore]:
    async with open_embedded(path) as opened:
        yield opened


@contextmanager
def another_programs(path: Path, first: str) -> Generator[sqlite3.Connection]:
    """A foreign connection that has begun something and holds its locks."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(first)
        yield connection


async def indexes(store: EmbeddedStore, session_id: str = "s1") -> list[int]:
    return [found.index for found in await store.get_turns(session_id, limit=1000)]


# --- durable, shared and private -------------------------------------------------------------------------------------


async def test_what_was_written_is_there_after_opening_again(path: Path) -> None:
    async with open_embedded(path) as store:
        opened = await store.open_session(session())
        await store.append_turns([turn(0)], fence=1)
        await store.save_usage(usage())
    assert [entry.name for entry in path.parent.iterdir()] == ["store.db"]  # the log has been moved in
    async with open_embedded(path) as store:
        assert await store.get_session("s1") == opened
        assert await store.get_turns("s1", limit=10) == [turn(0)]
        assert await store.get_usage("s1") == [usage()]


async def test_an_acknowledged_write_is_committed(store: EmbeddedStore, path: Path) -> None:
    await store.append_turns([turn(0)], fence=0)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id FROM turns").fetchall() == [("t0",)]


def test_commits_wait_for_the_disk(path: Path) -> None:
    file = open_file(path)
    with closing(file.writer), closing(file.reader):
        assert file.writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert file.writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deeper" / "store.db"
    old = os.umask(0)
    try:
        async with open_embedded(path) as store:
            await store.append_turns([turn(0)], fence=0)
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_two_stores_on_one_file_see_each_others_writes(path: Path) -> None:
    async with open_embedded(path) as one, open_embedded(path) as two:
        async with trio.open_nursery() as nursery:
            for index in range(0, 20, 2):
                nursery.start_soon(partial(one.append_turns, [turn(index)], fence=0))
                nursery.start_soon(partial(two.append_turns, [turn(index + 1)], fence=0))
        assert await indexes(one) == await indexes(two) == list(range(20))


async def test_reading_does_not_wait_for_a_writer(store: EmbeddedStore, path: Path) -> None:
    await store.append_turns([turn(0)], fence=0)
    with another_programs(path, "BEGIN IMMEDIATE"), trio.fail_after(PROMPT):
        assert await indexes(store) == [0]


# --- many writes, one commit -----------------------------------------------------------------------------------------


async def test_waiting_writes_share_a_commit(store: EmbeddedStore, path: Path) -> None:
    done = 0

    async def appending(index: int) -> None:
        nonlocal done
        await store.append_turns([turn(index)], fence=0)
        done += 1

    with another_programs(path, "BEGIN IMMEDIATE") as other:
        async with trio.open_nursery() as nursery:
            for index in range(100):
                nursery.start_soon(appending, index)
            await wait_all_tasks_blocked()
            assert done == 0
            before = path.with_name("store.db-wal").stat().st_size
            other.rollback()
        written = path.with_name("store.db-wal").stat().st_size - before
    assert await indexes(store) == list(range(100))
    assert written < 100 * 4096  # each commit writes at least a page


async def test_a_write_that_fails_inside_a_commit_fails_alone(store: EmbeddedStore, path: Path) -> None:
    failed: list[int] = []

    async def appending(first: int, second: int) -> None:
        try:
            await store.append_turns([turn(first), turn(second)], fence=0)
        except OverflowError:
            failed.append(first)

    with another_programs(path, "BEGIN IMMEDIATE") as other:
        async with trio.open_nursery() as nursery:
            for index in range(0, 10, 2):
                nursery.start_soon(appending, index, index + 1)
            nursery.start_soon(appending, 10, 1 << 63)  # one more than a column can hold
            await wait_all_tasks_blocked()
            other.rollback()
    assert failed == [10]
    assert await indexes(store) == list(range(10))


# --- cancelled and closed --------------------------------------------------------------------------------------------


async def test_a_waiter_cancelled_during_the_commit_goes_at_once_and_its_write_happens(
    store: EmbeddedStore, path: Path
) -> None:
    with another_programs(path, "BEGIN IMMEDIATE") as other, trio.fail_after(PROMPT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(store.append_turns, [turn(0), turn(1)], fence=0))
            await wait_all_tasks_blocked()
            nursery.start_soon(partial(store.append_turns, [turn(2)], fence=0))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert await indexes(store) == []
        other.rollback()
        await store.append_turns([turn(3)], fence=0)
    assert await indexes(store) == [0, 1, 2, 3]


async def test_a_reader_cancelled_goes_at_once_and_the_next_one_reads(store: EmbeddedStore) -> None:
    await store.append_turns([turn(index) for index in range(500)], fence=0)
    for _ in range(20):
        with trio.move_on_after(0.0005):
            await store.get_turns("s1", limit=500)
    assert await indexes(store) == list(range(500))


async def test_closing_waits_for_writes_and_leaves_nothing_behind(path: Path) -> None:
    told: list[int] = []

    async def appending(index: int) -> None:
        await own.append_turns([turn(index)], fence=0)
        told.append(index)

    async def letting_go(other: sqlite3.Connection) -> None:
        await wait_all_tasks_blocked()  # the store is being closed
        other.close()

    async with trio.open_nursery() as nursery:
        async with open_embedded(path) as own:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            for index in range(5):
                nursery.start_soon(appending, index)
            await wait_all_tasks_blocked()
            nursery.start_soon(letting_go, other)
    assert sorted(told) == list(range(5))
    assert open_descriptors(path) == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("store ")] == []
    async with open_embedded(path) as own:
        assert await indexes(own) == list(range(5))


def open_descriptors(path: Path) -> list[str]:
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return [link for link in links if link.startswith(str(path))]


async def test_closing_is_bounded(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (group_writer, embedded):
        monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    refused: list[str] = []

    async def appending(index: int) -> None:
        try:
            await own.append_turns([turn(index)], fence=0)
        except StoreError as exc:
            refused.append(str(exc))

    async with trio.open_nursery() as nursery:
        with closing(sqlite3.connect(path, isolation_level=None)) as other, trio.fail_after(PROMPT):
            async with open_embedded(path) as own:
                other.execute("BEGIN IMMEDIATE")
                for index in range(3):
                    nursery.start_soon(appending, index)
                await wait_all_tasks_blocked()
    assert refused == ["The store was closed before this write was known to be committed."] * 3
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "the store was closed with 3 writes not known to be committed",
        "the database file could not be closed in 0.05 s",
    ]


# --- when something is wrong -----------------------------------------------------------------------------------------


def with_writer_pragma(pragma: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next store's writing connection changed."""

    def opening(path: Path) -> DatabaseFile:
        file = open_file(path)
        file.writer.execute(pragma)
        return file

    monkeypatch.setattr(embedded, "open_file", opening)


async def test_a_locked_database_is_an_error_until_it_is_free(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_writer_pragma("PRAGMA busy_timeout = 10", monkeypatch)
    async with open_embedded(path) as store:
        with another_programs(path, "BEGIN IMMEDIATE"):
            for _ in range(2):
                with pytest.raises(StoreError, match="locked") as refused:
                    await store.append_turns([turn(0)], fence=0)
                assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
            with pytest.raises(StoreError, match="locked"):
                await store.check()
        await store.check()
        await store.append_turns([turn(0)], fence=0)
        assert await indexes(store) == [0]


async def test_a_full_disk_is_an_error_until_there_is_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_writer_pragma("PRAGMA max_page_count = 140", monkeypatch)
    async with open_embedded(path) as store:
        await store.append_turns([turn(0, text="x" * 300_000)], fence=0)
        for _ in range(2):
            with pytest.raises(StoreError, match="full"):
                await store.append_turns([turn(1), turn(2, text="x" * 300_000)], fence=0)
        assert await indexes(store) == [0]
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DELETE FROM turns")
        await store.append_turns([turn(1), turn(2, text="x" * 300_000)], fence=0)
        assert await indexes(store) == [1, 2]


async def test_a_disk_that_cannot_be_written_is_an_error_until_it_can(store: EmbeddedStore) -> None:
    await store.append_turns([turn(0)], fence=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, limits[1]))
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match="disk I/O error"):
                await store.append_turns([turn(1), turn(2, text="x" * (1 << 20))], fence=0)
        assert await indexes(store) == [0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    await store.append_turns([turn(1), turn(2, text="x" * (1 << 20))], fence=0)
    assert await indexes(store) == [0, 1, 2]


async def test_every_write_of_a_commit_that_fails_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_writer_pragma("PRAGMA busy_timeout = 200", monkeypatch)
    told: list[BaseException] = []

    async def appending(index: int) -> None:
        with pytest.raises(StoreError) as refused:
            await own.append_turns([turn(index)], fence=0)
        told.append(refused.value)

    async with open_embedded(path) as own:
        with another_programs(path, "BEGIN IMMEDIATE"):
            async with trio.open_nursery() as nursery:
                for index in range(10):
                    nursery.start_soon(appending, index)
        assert len(set(told)) == 10  # each its own
        assert await indexes(own) == []
        await own.append_turns([turn(0)], fence=0)


async def test_a_commit_that_fails_takes_everything_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_writer_pragma("PRAGMA foreign_keys = ON", monkeypatch)
    async with open_embedded(path) as own:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("CREATE TABLE broken (id REFERENCES sessions DEFERRABLE INITIALLY DEFERRED)")
            other.execute("CREATE TRIGGER breaking AFTER INSERT ON turns BEGIN INSERT INTO broken VALUES (1); END")
            for _ in range(2):
                with pytest.raises(StoreError, match="FOREIGN KEY"):  # found at the commit, and leaves it open
                    await own.append_turns([turn(0)], fence=0)
            other.execute("DROP TRIGGER breaking")
        await own.append_turns([turn(1)], fence=0)
        assert await indexes(own) == [1]


async def test_a_file_taken_away_is_an_error_until_it_is_back(store: EmbeddedStore, path: Path) -> None:
    await store.append_turns([turn(0)], fence=0)
    away = path.with_name("away.db")
    os.rename(path, away)
    with pytest.raises(StoreError, match="not where it was"):
        await store.append_turns([turn(1)], fence=0)
    os.close(os.open(path, os.O_CREAT))
    with pytest.raises(StoreError, match="replaced"):
        await store.check()
    os.replace(away, path)
    await store.append_turns([turn(2)], fence=0)
    assert await indexes(store) == [0, 2]


async def test_a_document_that_does_not_fit_is_an_error_that_does_not_quote_it(
    store: EmbeddedStore, path: Path
) -> None:
    await store.open_session(session("spoilt"))
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("""UPDATE sessions SET document = '{"id": "spoilt", "state": "my secret"}'""")
    for operation in (store.get_session("spoilt"), store.open_session(session("spoilt"))):
        with pytest.raises(StoreError) as refused:
            await operation
        assert str(refused.value) == "A stored SessionDocument cannot be read: 3 of its fields do not fit."
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None
    await store.open_session(session("sound"))


# --- the write-ahead log ---------------------------------------------------------------------------------------------


async def append_a_megabyte(store: EmbeddedStore, index: int) -> None:
    await store.append_turns([turn(index, text="x" * (1 << 20))], fence=0)


async def test_the_log_stays_short(store: EmbeddedStore, path: Path) -> None:
    lengths: list[int] = []
    for index in range(12):
        await append_a_megabyte(store, index)
        lengths.append(path.with_name("store.db-wal").stat().st_size)
    assert max(lengths) < CHECKPOINT_BYTES
    assert lengths.count(0) >= 2


async def test_a_reader_that_stays_delays_the_log_only(store: EmbeddedStore, path: Path) -> None:
    await append_a_megabyte(store, 0)
    with another_programs(path, "BEGIN") as other:
        assert other.execute("SELECT count(*) FROM turns").fetchone() == (1,)
        for index in range(1, 6):
            await append_a_megabyte(store, index)
        assert path.with_name("store.db-wal").stat().st_size > CHECKPOINT_BYTES
        other.rollback()
        for index in range(6, 12):
            await append_a_megabyte(store, index)
    assert path.with_name("store.db-wal").stat().st_size < CHECKPOINT_BYTES
    assert await indexes(store) == list(range(12))
