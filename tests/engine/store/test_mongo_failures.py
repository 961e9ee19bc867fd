"""The MongoDB store when its server, its connections or other processes fail. In real time, with short limits."""

import logging
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from itertools import count
from typing import Any

import pytest
import trio
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from trio.testing import wait_all_tasks_blocked

from engine.store import mongo_link, mongo_sessions
from engine.store.contract import SessionFilter, Store, StoreError
from engine.store.locate import open_store
from tests.engine.store.operations import READS, WRITES
from tests.engine.store.samples import memory, session, turn, usage
from tests.engine.store.secantus import Server, running_server

SECONDS = 0.6
GRACE = 0.2
PROMPT = 2 * (SECONDS + GRACE) + 2
"""The longest anything may take, an append behind another one included, on a machine that has other things to do."""

Client = MongoClient[dict[str, Any]]

_names = count()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_link, "OPERATION_SECONDS", SECONDS)
    monkeypatch.setattr(mongo_link, "GRACE_SECONDS", GRACE)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with running_server("--enable-test-commands") as running:
        yield running


@pytest.fixture
def url(server: Server) -> str:
    return server.url(f"t{next(_names)}")


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    async with open_store(url) as opened:
        yield opened


@pytest.fixture
def client(url: str) -> Generator[Client]:
    """Somebody else, who knows what the rows look like."""
    with Client(url) as opened:
        yield opened


@pytest.fixture
def paused(server: Server) -> Generator[Callable[[], None]]:
    """Stops the server, which keeps its connections and answers nothing, until the test is over."""
    try:
        yield server.pause
    finally:
        server.resume()


async def indexes(store: Store, session_id: str = "s1") -> list[int]:
    return [found.index for found in await store.get_turns(session_id, limit=10_000)]


def fail(client: Client, *commands: str, times: int = 1, **how: Any) -> None:
    """Let the server fail these commands, so many times."""
    client.admin.command(
        {"configureFailPoint": "failCommand", "mode": {"times": times}, "data": {"failCommands": commands, **how}}
    )


# --- a server that does not answer -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("_impatient")
async def test_whatever_is_asked_of_a_silent_server_fails_in_time(store: Store, paused: Callable[[], None]) -> None:
    await store.open_session(session())
    paused()
    told: dict[str, str] = {}

    async def asking(name: str, operation: Callable[[Store], Awaitable[Any]]) -> None:
        with pytest.raises(StoreError) as failed:
            await operation(store)
        assert failed.value.__cause__ is failed.value.__context__ is None
        told[name] = str(failed.value)

    with trio.fail_after(PROMPT):
        async with trio.open_nursery() as nursery:
            for name, operation in (READS | WRITES).items():
                nursery.start_soon(asking, name, operation)
    assert told.keys() == READS.keys() | WRITES.keys()
    assert set(told.values()) <= {"The database did not answer in time.", "The database cannot be reached."}


@pytest.mark.usefixtures("_impatient")
async def test_it_works_again_by_itself(store: Store, server: Server, paused: Callable[[], None]) -> None:
    await store.open_session(session())
    for stop, start in ((paused, server.resume), (server.stop, server.start)):
        stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_failing, lambda: store.append_turns([turn(0)], fence=1))
            nursery.start_soon(_failing, store.check)
        start()
        with trio.fail_after(10):
            await _trying(lambda: store.append_turns([turn(0)], fence=1))
            await _trying(store.check)
    assert await indexes(store) == [0]


async def _failing(operation: Callable[[], Awaitable[Any]]) -> None:
    with pytest.raises(StoreError):
        await operation()


async def _trying(operation: Callable[[], Awaitable[Any]]) -> None:
    """As callers do: the same again while the store cannot."""
    while True:
        await trio.lowlevel.checkpoint()
        try:
            await operation()
        except StoreError:
            continue
        return


async def test_a_cancelled_writer_walks_away_and_its_write_happens(
    url: str, server: Server, paused: Callable[[], None]
) -> None:
    async with open_store(url) as store:
        await store.open_session(session("s1"))
        paused()
        writes: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.append_turns([turn(0)], fence=1),
            lambda: store.save_usage(usage()),
            lambda: store.open_session(session("s2")),
            lambda: store.append_memory(memory(), expected=0),
        ]
        started = trio.current_time()
        with trio.move_on_after(0.1):
            async with trio.open_nursery() as nursery:
                for write in writes:
                    nursery.start_soon(write)
        assert trio.current_time() - started < 2  # and not the five seconds a write may take
        server.resume()
    async with open_store(url) as store:  # the other one was closed when they had happened
        assert await indexes(store) == [0]
        assert await store.get_usage("s1") == [usage()]
        assert await store.get_session("s2") == session("s2", fence=1)
        assert await store.get_memory("user:anna", "facts") == memory(revision=1)


async def test_writes_happen_when_all_around_them_is_cancelled(
    url: str, server: Server, paused: Callable[[], None]
) -> None:
    """More than there are threads: some have not begun."""
    names = [f"s{number:02}" for number in range(2 * mongo_link.THREADS)]
    with trio.CancelScope() as everything:
        async with open_store(url) as store:
            paused()
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(store.open_session, session(name))
                await wait_all_tasks_blocked()
                threading.Timer(0.2, server.resume).start()
                everything.cancel()
    async with open_store(url) as store:
        found = await store.list_sessions(SessionFilter(), limit=100)
    assert sorted(document.id for document in found) == names


@pytest.mark.usefixtures("_impatient")
async def test_a_thread_that_hangs_holds_nobody_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that asks a name server may: pymongo does not bound that."""
    over = threading.Event()

    def hanging(*_: object) -> None:
        over.wait(PROMPT + 5)

    monkeypatch.setattr(mongo_sessions, "get_session", hanging)
    try:
        started = trio.current_time()
        with pytest.raises(StoreError, match="did not answer in time"):
            await store.get_session("s1")
        assert trio.current_time() - started < PROMPT
        await store.check()
    finally:
        over.set()


@pytest.mark.usefixtures("_impatient")
async def test_closing_a_store_whose_server_is_silent_takes_no_longer_than_a_write(
    url: str, paused: Callable[[], None]
) -> None:
    async with trio.open_nursery() as nursery:
        async with open_store(url) as store:
            await store.open_session(session())
            paused()
            nursery.start_soon(_failing, lambda: store.append_turns([turn(0)], fence=1))
            nursery.start_soon(_failing, lambda: store.open_session(session()))
            await trio.sleep(0.05)
            started = trio.current_time()
        assert trio.current_time() - started < PROMPT
    with pytest.raises(StoreError, match="closed"):
        await store.check()


async def test_closing_an_idle_store_whose_server_is_silent_takes_no_time(url: str, paused: Callable[[], None]) -> None:
    async with open_store(url) as store:
        await store.open_session(session())
        paused()
        started = trio.current_time()
    assert trio.current_time() - started < mongo_link.GRACE_SECONDS + 2


# --- a server that is killed -----------------------------------------------------------------------------------------


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(store: Store, server: Server) -> None:
    sessions = [f"s{number}" for number in range(4)]
    acknowledged: dict[str, int] = dict.fromkeys(sessions, 0)
    progress = trio.Event()

    async def appending(session_id: str) -> None:
        opened = await store.open_session(session(session_id))
        while True:
            next_turn = turn(acknowledged[session_id], session_id)
            await _trying(partial(store.append_turns, [next_turn], fence=opened.fence))
            acknowledged[session_id] += 1
            progress.set()

    async def some_more() -> None:
        nonlocal progress
        enough = {session_id: number + 5 for session_id, number in acknowledged.items()}
        while any(acknowledged[session_id] < number for session_id, number in enough.items()):
            progress = trio.Event()
            await progress.wait()

    async with trio.open_nursery() as nursery:
        for session_id in sessions:
            nursery.start_soon(appending, session_id)
        with trio.fail_after(20):
            for _ in range(2):
                await some_more()
                server.stop()
                server.start()
            await some_more()
        nursery.cancel_scope.cancel()
    await store.append_turns([turn(0)], fence=1)  # behind whatever was under way
    for session_id in sessions:
        found = await indexes(store, session_id)
        assert found == list(range(len(found)))
        assert 0 <= len(found) - acknowledged[session_id] <= 1


# --- connections that are lost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["update", "commitTransaction"])
async def test_a_lost_connection_is_not_noticed(store: Store, client: Client, command: str) -> None:
    await store.open_session(session())
    fail(client, command, closeConnection=True)
    await store.append_turns([turn(0)], fence=1)
    assert await indexes(store) == [0]


async def test_one_that_cannot_be_written_fails_nobody_else(store: Store, client: Client) -> None:
    fail(client, "update", errorCode=2)  # whatever was first in a batch
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(partial(store.append_turns, [turn(0, f"s{number}")], fence=0))
    for number in range(20):
        assert await indexes(store, f"s{number}") == [0]


async def test_an_error_says_nothing_of_the_document(
    store: Store, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await store.open_session(session(user_name="secret"))
    fail(client, "update", "find", "findAndModify", times=1000, errorCode=2)
    operations: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.append_turns([turn(0, text="secret")], fence=1),
        lambda: store.open_session(session(user_name="secret")),
        lambda: store.get_turns("s1", limit=1),
    ]
    try:
        for operation in operations:
            with pytest.raises(StoreError) as failed:
                await operation()
            assert failed.value.__cause__ is failed.value.__context__ is None
            assert str(failed.value) == "The database could not do it (OperationFailure 2)."
            assert "secret" not in "".join(traceback.format_exception(failed.value))
    finally:
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    assert "secret" not in caplog.text


async def test_a_stored_document_that_cannot_be_read_is_not_shown(store: Store, client: Client) -> None:
    await store.open_session(session())
    rows = client.get_default_database()["sessions"]
    rows.update_one({"_id": "s1"}, {"$set": {"document": '{"id": "s1", "userName": ["secret"]}'}})
    with pytest.raises(StoreError) as failed:
        await store.get_session("s1")
    assert str(failed.value) == "A stored SessionDocument cannot be read: 3 of its fields do not fit."
    assert failed.value.__cause__ is failed.value.__context__ is None


# --- processes that are killed in the middle of a transaction --------------------------------------------------------


class Killed:
    """What is left of a process that was killed: a transaction that holds a row of the session or the memory. To be kept."""

    def __init__(self, client: Client, table: str, row_id: str) -> None:
        self._session = client.start_session()
        rows = client.get_default_database()[table]
        writer = self._session.session_id["id"]
        rows.update_one({"_id": row_id}, {"$set": {"writer": writer}})  # what it did when it lived
        self._session.start_transaction()
        rows.update_one({"_id": row_id}, {"$set": {"held": True}}, session=self._session)

    def commit(self) -> None:
        self._session.commit_transaction()


async def test_what_a_killed_process_holds_is_taken_from_it(store: Store, client: Client) -> None:
    held: list[Killed] = []
    await store.open_session(session())
    held.append(Killed(client, "sessions", "s1"))
    with trio.fail_after(4):
        await store.append_turns([turn(0)], fence=1)
    held.append(Killed(client, "sessions", "s1"))
    with trio.fail_after(4):
        opened = await store.open_session(session())
    held.append(Killed(client, "sessions", "s1"))
    with trio.fail_after(4):
        await store.save_session(session(turn_count=1, fence=opened.fence))
    assert await store.get_session("s1") == session(turn_count=1, fence=opened.fence)

    await store.append_memory(memory(), expected=0)
    held.append(Killed(client, "memory", "user:anna/facts/9"))
    with trio.fail_after(4):
        await store.append_memory(memory("m2"), expected=1)
    held.append(Killed(client, "memory", "user:anna/facts/9"))
    with trio.fail_after(4):
        assert await store.forget_memory("user:anna") == 2
    for killed in held:
        with pytest.raises(OperationFailure, match="transaction"):
            killed.commit()


async def test_where_it_cannot_be_taken_others_do_not_wait(store: Store, client: Client) -> None:
    """Some hosted servers end nobody's sessions."""
    await store.open_session(session("s1"))
    await store.open_session(session("s2"))
    killed = Killed(client, "sessions", "s1")
    fail(client, "killSessions", times=1000, errorCode=13)
    failed: list[str] = []

    async def appending(session_id: str) -> None:
        try:
            await store.append_turns([turn(0, session_id)], fence=1)
        except StoreError as exc:
            failed.append(f"{session_id}: {exc}")

    try:
        with trio.fail_after(mongo_link.OPERATION_SECONDS - 1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(appending, "s1")
                nursery.start_soon(appending, "s2")
    finally:
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    assert failed == ["s1: The database could not do it: others are writing the same."]
    assert await indexes(store, "s2") == [0]
    killed.commit()
    await store.append_turns([turn(0, "s1")], fence=1)
