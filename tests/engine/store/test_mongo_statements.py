"""The MongoDB store's statements: what meets in the middle, what comes too late, and what rows hold."""

import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from pymongo.results import BulkWriteResult, UpdateResult

from engine.store import mongo_documents, mongo_leases, mongo_schema, mongo_sessions
from engine.store.contract import SessionFilter, Store, TakenOverError
from engine.store.documents import ResourceKind, SessionDocument
from engine.store.locate import open_store
from engine.store.mongo_schema import COMMITTED, DURABLE, Row, Tables, key
from tests.engine.store.samples import NOON, ODD_IDS, delivery, log_entry, message, resource, session, turn, usage
from tests.engine.store.secantus import mongo_url

MINUTE = timedelta(minutes=1)


@pytest.fixture
def url(tmp_path: Path) -> Generator[str]:
    with mongo_url(tmp_path) as fresh:
        yield fresh


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    async with open_store(url) as opened:
        yield opened


class Recorder(CommandListener):
    """What was sent to write."""

    def __init__(self) -> None:
        self.writes: list[Row] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("insert", "update", "delete", "findAndModify"):
            self.writes.append(dict(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def tables(url: str, recorder: Recorder) -> Generator[Tables]:
    """The store's tables, as another process has them."""
    with MongoClient[Row](url, event_listeners=[recorder]) as client:
        found = client.get_default_database(write_concern=DURABLE, read_concern=COMMITTED)
        mongo_schema.prepare(found)
        yield found


def everything(tables: Tables) -> dict[str, list[Row]]:
    return {name: list(tables[name].find().sort("_id")) for name in sorted(tables.list_collection_names())}


# --- an append and an opening at once --------------------------------------------------------------------------------


def meddling(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """Do something just before, or just after, the next append counts itself on its session's row."""
    bulk_write = Collection[Row].bulk_write
    is_first = True

    def meddled(rows: Collection[Row], *args: Any, **kwargs: Any) -> BulkWriteResult:
        nonlocal is_first
        is_it = is_first and rows.name == "sessions"
        if is_it:
            is_first = False
        if is_it and before is not None:
            before()
        result = bulk_write(rows, *args, **kwargs)
        if is_it and after is not None:
            after()
        return result

    monkeypatch.setattr(Collection, "bulk_write", meddled)


async def test_an_append_that_an_opening_overtakes_is_taken_back(
    store: Store, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open_session(session())
    await store.append_turns([turn(0, text="before")], fence=1)

    def takeover() -> None:
        assert mongo_sessions.open_session(tables, session(), "another process").fence == 2

    meddling(monkeypatch, before=takeover)
    with pytest.raises(TakenOverError):
        await store.append_turns([turn(0, text="late"), turn(1, text="late")], fence=1)
    assert await store.get_turns("s1", limit=5) == [turn(0, text="before")]


async def test_an_opening_waits_for_the_append_it_meets(
    store: Store, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open_session(session())
    opened: list[SessionDocument] = []
    seen: list[int] = []

    def takeover() -> None:
        opened.append(mongo_sessions.open_session(tables, session(), "another process"))
        seen.append(tables["turns"].count_documents({}))

    thread = threading.Thread(target=takeover)

    def start_it() -> None:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert tables["turns"].count_documents({}) == 0

    meddling(monkeypatch, after=start_it)
    await store.append_turns([turn(0)], fence=1)
    thread.join(5)
    assert [document.fence for document in opened] == [2]
    assert seen == [1]
    assert await store.get_turns("s1", limit=5) == [turn(0)]
    with pytest.raises(TakenOverError):
        await store.append_turns([turn(1)], fence=1)


async def test_a_save_that_an_opening_overtakes_is_refused(
    store: Store, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open_session(session())
    update_one = Collection[Row].update_one

    def overtaken(rows: Collection[Row], *args: Any, **kwargs: Any) -> UpdateResult:
        monkeypatch.undo()
        open_once(tables)
        return update_one(rows, *args, **kwargs)

    monkeypatch.setattr(Collection, "update_one", overtaken)
    with pytest.raises(TakenOverError):
        await store.save_session(session(turn_count=1, fence=1))
    assert await store.get_session("s1") == session(fence=2)


async def test_two_holders_in_one_batch_are_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one's writes are refused, the newer one's and everybody else's are not."""
    for _ in range(2):
        await store.open_session(session())
    outcomes: dict[int, str] = {}

    async def appending(index: int, fence: int) -> None:
        try:
            await store.append_turns([turn(index)], fence=fence)
            outcomes[index] = "written"
        except TakenOverError:
            outcomes[index] = "taken over"

    async with trio.open_nursery() as nursery:
        for index in range(10):
            nursery.start_soon(appending, index, 1 + index % 2)
        nursery.start_soon(lambda: store.append_messages([message(0, "s2")], fence=0))
    assert outcomes == {index: "written" if index % 2 else "taken over" for index in range(10)}
    assert [found.index for found in await store.get_turns("s1", limit=20)] == [1, 3, 5, 7, 9]
    assert len(await store.get_messages("s2", limit=5)) == 1


# --- writes that come late -------------------------------------------------------------------------------------------


def open_once(tables: Tables) -> None:
    mongo_sessions.open_session(tables, session(), "somebody")


def save(turn_count: int) -> Callable[[Tables], None]:
    return lambda tables: mongo_sessions.save_session(tables, session(turn_count=turn_count, fence=9))


def put(**body: Any) -> Callable[[Tables], object]:
    return lambda tables: mongo_documents.put_resource(tables, resource(body=body), None)


def delete(tables: Tables) -> None:
    mongo_documents.delete_resource(tables, ResourceKind.AGENT, "r1", None)


def deliver(**fields: Any) -> Callable[[Tables], None]:
    given = delivery(**fields)
    return lambda tables: mongo_leases.put_delivery(tables, given.id, mongo_leases.delivery_row(given))


LATE: dict[str, list[Callable[[Tables], object]]] = {
    "a first opening": [open_once, open_once],
    "an opening": [open_once, open_once, open_once],
    "a first save": [save(1), save(2)],
    "a save": [save(1), save(2), save(3)],
    "a save before an opening": [save(1), save(2), open_once],
    "a first put": [put(a=1), put(a=2)],
    "a put": [put(a=1), put(a=2), put(a=3)],
    "a deletion": [put(a=1), delete, put(a=2)],
    "a delivery": [deliver(), deliver(attempts=1), deliver(attempts=2, done=True)],
    "a first delivery": [deliver(), deliver(done=True)],
}
"""The last but one is sent again after the last: as when its caller was told that it failed, and went on."""


@pytest.mark.parametrize("name", LATE)
def test_a_write_that_comes_late_changes_nothing(tables: Tables, recorder: Recorder, name: str) -> None:
    *earlier, late, last = LATE[name]
    for write in earlier:
        write(tables)
    recorder.writes.clear()
    late(tables)
    (sent,) = recorder.writes
    last(tables)
    before = everything(tables)
    own = ("lsid", "txnNumber", "$clusterTime", "$db", "maxTimeMS")
    again = {field: value for field, value in sent.items() if field not in own}
    with suppress(DuplicateKeyError):
        tables.command(again)
    assert everything(tables) == before


# --- rows ------------------------------------------------------------------------------------------------------------


def test_ids_of_several_parts_are_told_apart() -> None:
    parts = [*ODD_IDS, "", "/", "1", "/1", "1/1", "a/1", "a/"]
    pairs = {key(first, second) for first in parts for second in parts}
    assert len(pairs) == len(set(parts)) ** 2


async def test_what_does_not_fit_is_refused(store: Store) -> None:
    await store.open_session(session())
    with pytest.raises(OverflowError):
        await store.append_turns([turn(1 << 63)], fence=1)
    with pytest.raises(OverflowError):
        await store.save_session(session(fence=1 << 63))
    with pytest.raises(ValueError, match="TurnDocument of more than 15 MiB"):
        await store.append_turns([turn(0, text="é" * (8 << 20))], fence=1)
    await store.append_turns([turn((1 << 63) - 1, text="x" * (14 << 20))], fence=1)
    (found,) = await store.get_turns("s1", limit=5)
    assert len(found.input.text) == 14 << 20


async def test_redacting_leaves_no_content_in_any_field(store: Store, tables: Tables) -> None:
    secret = log_entry(0).model_copy(update={"content": {"text": "secret"}})
    await store.append_log([secret, log_entry(1)])
    assert "secret" in str(everything(tables))
    await store.redact_log("s1")
    assert "secret" not in str(everything(tables))


async def test_a_session_that_was_only_appended_to_is_none(store: Store, tables: Tables) -> None:
    await store.append_turns([turn(0)], fence=0)
    assert tables["sessions"].count_documents({}) == 1
    assert await store.get_session("s1") is None
    assert await store.list_sessions(SessionFilter(), limit=5) == []
    assert await store.fences(["s1"]) == {}
    assert await store.open_session(session()) == session(fence=1)


async def test_the_server_forgets_by_its_own_clock(store: Store, tables: Tables) -> None:
    """Whatever time the callers have: it only counts how long."""
    assert await store.use_once("k", now=NOON, expires_at=NOON + MINUTE)
    lease = await store.acquire_lease("l", "a", now=NOON, seconds=60)
    assert lease is not None
    await store.put_delivery(delivery())
    await store.put_delivery(delivery("d2", done=True))
    now = tables.command("hello")["localTime"].replace(tzinfo=UTC)
    rows = {name: {row["_id"]: row for row in found} for name, found in everything(tables).items()}

    def within(moment: datetime, after: timedelta) -> bool:
        ahead: timedelta = moment.replace(tzinfo=UTC) - now
        return after - MINUTE / 2 < ahead <= after

    assert within(rows["used_keys"]["k"]["forget_at"], MINUTE)
    assert within(rows["leases"]["l"]["forget_at"], MINUTE + timedelta(days=1))
    assert within(rows["deliveries"]["d2"]["done_at"], timedelta(0))
    assert "done_at" not in rows["deliveries"]["d1"]
    await store.put_delivery(delivery("d2", done=False))
    assert "done_at" not in (tables["deliveries"].find_one({"_id": "d2"}) or {})


async def test_a_leases_fence_has_grown_when_it_was_forgotten(store: Store, tables: Tables) -> None:
    first = await store.acquire_lease("l", "a", now=NOON, seconds=60)
    assert first is not None
    tables["leases"].delete_many({})
    second = await store.acquire_lease("l", "b", now=NOON + timedelta(days=2), seconds=60)
    assert second is not None
    assert second.fence > first.fence


async def test_pages_are_found_by_their_index(store: Store, tables: Tables) -> None:
    await store.append_turns([turn(index) for index in range(5)], fence=0)
    await store.save_usage(usage())
    for table in ("turns", "usage"):
        plan = str(tables[table].find({"session": "s1"}).explain()["queryPlanner"]["winningPlan"])
        assert "IXSCAN" in plan
        assert "COLLSCAN" not in plan
