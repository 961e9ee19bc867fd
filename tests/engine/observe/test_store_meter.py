"""The measured store: the same store, and each operation is told with its time and whether the store could do it."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio

from engine.errors import NotFoundError
from engine.observation import Observer
from engine.observe.store_meter import HANGING_SECONDS, measured_store
from engine.store.contract import ConflictError, LeaseLostError, Store, StoreError, TakenOverError
from engine.store.documents import SessionDocument
from engine.store.memory import MemoryStore

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SESSION = SessionDocument(id="s1", owner="device:a", created_at=NOW, updated_at=NOW)


@attrs.define
class Told(Observer):
    store: list[tuple[str, float, bool]] = attrs.field(factory=list[tuple[str, float, bool]])

    def store_took(self, operation: str, seconds: float, *, ok: bool) -> None:
        self.store.append((operation, seconds, ok))


class OddStore(MemoryStore):
    """Takes two seconds to look whether it works, and then says what it was told to."""

    answer: Callable[[], BaseException | None] = staticmethod(lambda: None)

    async def check(self) -> None:
        await trio.sleep(2.0)
        answer = self.answer()
        if answer is not None:
            raise answer

    async def get_session(self, session_id: str) -> SessionDocument | None:
        await trio.sleep_forever()
        raise AssertionError


async def test_it_does_what_the_store_does() -> None:
    told = Told()
    store = measured_store(MemoryStore(), told)
    opened = await store.open_session(SESSION)
    assert opened.fence == 1
    assert await store.get_session("s1") == opened
    assert await store.get_turns("s1", limit=10, last=True) == []
    assert await store.acquire_lease("l", "t", now=NOW, seconds=5.0) is not None
    assert await store.use_once("k", now=NOW, expires_at=NOW + timedelta(seconds=1))
    names = ["open_session", "get_session", "get_turns", "acquire_lease", "use_once"]
    assert [(name, ok) for name, _, ok in told.store] == [(name, True) for name in names]


def test_every_operation_of_the_contract_is_measured() -> None:
    store = measured_store(MemoryStore(), Told())
    assert isinstance(store, Store)
    for name in Store.__abstractmethods__:
        assert inspect.iscoroutinefunction(getattr(store, name))
        assert getattr(store, name).__name__ == name


@pytest.mark.parametrize(
    ("answer", "ok"),
    [
        (lambda: None, True),
        (lambda: NotFoundError("There is no such session."), True),
        (lambda: TakenOverError(), True),
        (lambda: ConflictError(3), True),
        (lambda: LeaseLostError(), True),
        (lambda: StoreError("The disk is full."), False),
        (lambda: ValueError("a bug"), False),
    ],
)
async def test_what_counts_as_a_failure(
    autojump_clock: object, answer: Callable[[], Exception | None], ok: bool
) -> None:
    told, inner = Told(), OddStore()
    inner.answer = answer
    error = answer()
    with nullcontext() if error is None else pytest.raises(type(error)):
        await measured_store(inner, told).check()
    assert told.store == [("check", 2.0, ok)]


@pytest.mark.parametrize(("seconds", "ok"), [(HANGING_SECONDS / 2, True), (HANGING_SECONDS * 2, False)])
async def test_an_operation_that_was_given_up(autojump_clock: object, seconds: float, ok: bool) -> None:
    told = Told()
    with trio.move_on_after(seconds) as limit:
        await measured_store(OddStore(), told).get_session("s1")
    assert limit.cancelled_caught
    assert told.store == [("get_session", seconds, ok)]
