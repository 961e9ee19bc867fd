"""Remembering what was read, under virtual time."""

import logging

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agents.remembered import RETRY_SECONDS, Remembered
from engine.store.contract import StoreError


@attrs.define(eq=False)
class Shelf:
    """A store of words that takes its time."""

    words: dict[str, str] = attrs.field(factory=lambda: {"a": "apple"})
    seconds: float = 0.0
    fails: bool = False
    reads: list[str] = attrs.field(factory=list[str])

    async def read(self, key: str) -> str | None:
        self.reads.append(key)
        value = self.words.get(key)
        await trio.sleep(self.seconds)
        if self.fails:
            raise StoreError("out of order")
        return value


async def test_a_value_is_read_again_when_it_is_too_old(autojump_clock: MockClock) -> None:
    shelf = Shelf()
    remembered = Remembered(shelf.read, 900, None, 10)
    assert await remembered.get("a") == "apple"
    shelf.words["a"] = "avocado"
    await trio.sleep(899)
    assert await remembered.get("a") == "apple"
    await trio.sleep(1)
    assert await remembered.get("a") == "avocado"
    assert shelf.reads == ["a", "a"]


async def test_what_does_not_exist_is_asked_for_each_time(autojump_clock: MockClock) -> None:
    shelf = Shelf()
    remembered = Remembered(shelf.read, 900, None, 10)
    assert await remembered.get("b") is None
    shelf.words["b"] = "banana"
    assert await remembered.get("b") == "banana"


async def test_what_is_gone_is_forgotten(autojump_clock: MockClock) -> None:
    shelf = Shelf()
    remembered = Remembered(shelf.read, 0, 60, 10)
    assert await remembered.get("a") == "apple"
    del shelf.words["a"]
    assert await remembered.get("a") is None
    shelf.fails = True
    with pytest.raises(StoreError):
        await remembered.get("a")


async def test_all_who_ask_at_once_share_a_reading(autojump_clock: MockClock) -> None:
    shelf = Shelf(seconds=1)
    remembered = Remembered(shelf.read, 900, None, 10)
    found: list[str | None] = []

    async def ask() -> None:
        found.append(await remembered.get("a"))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
    assert found == ["apple"] * 50
    assert shelf.reads == ["a"]
    assert trio.current_time() == 1


async def test_a_failure_is_shared_too(autojump_clock: MockClock) -> None:
    shelf = Shelf(seconds=3, fails=True)
    remembered = Remembered(shelf.read, 900, None, 10)
    failed: list[float] = []

    async def ask() -> None:
        with pytest.raises(StoreError, match="out of order"):
            await remembered.get("a")
        failed.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert failed == [3.0] * 5
    assert shelf.reads == ["a"]


async def test_a_reader_that_is_cancelled_leaves_it_to_the_next(autojump_clock: MockClock) -> None:
    shelf = Shelf(seconds=2)
    remembered = Remembered(shelf.read, 900, None, 10)
    found: list[tuple[str | None, float]] = []

    async def ask() -> None:
        found.append((await remembered.get("a"), trio.current_time()))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            async with trio.open_nursery() as impatient:
                impatient.start_soon(remembered.get, "a")
                await wait_all_tasks_blocked()
                nursery.start_soon(ask)
                nursery.start_soon(ask)
    assert found == [("apple", 3.0)] * 2
    assert shelf.reads == ["a", "a"]


async def test_a_reading_that_was_overtaken_is_not_remembered(autojump_clock: MockClock) -> None:
    shelf = Shelf(seconds=2)
    remembered = Remembered(shelf.read, 900, None, 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(remembered.get, "a")
        await trio.sleep(1)
        shelf.words["a"] = "avocado"
        remembered.forget("a")
        assert await remembered.get("a") == "avocado"  # not the flight that began before
    assert await remembered.get("a") == "avocado"


@pytest.mark.parametrize("fresh", [0.0, 900.0])
async def test_a_store_that_fails_is_not_asked_all_the_time(
    fresh: float, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf()
    remembered = Remembered(shelf.read, fresh, None, 10)
    await remembered.get("a")
    await trio.sleep(fresh)
    shelf.fails, shelf.seconds = True, 3
    assert [await remembered.get("a") for _ in range(3)] == ["apple"] * 3
    assert trio.current_time() == fresh + 3
    assert len(shelf.reads) == 2
    await trio.sleep(RETRY_SECONDS)
    shelf.fails, shelf.words["a"] = False, "avocado"
    assert await remembered.get("a") == "avocado"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_what_is_too_old_is_not_served(autojump_clock: MockClock) -> None:
    shelf = Shelf()
    remembered = Remembered(shelf.read, 0, 60, 10)
    await remembered.get("a")
    shelf.fails = True
    await trio.sleep(59)
    assert await remembered.get("a") == "apple"
    await trio.sleep(5)
    with pytest.raises(StoreError):
        await remembered.get("a")


async def test_only_so_many_are_remembered(autojump_clock: MockClock) -> None:
    shelf = Shelf({str(number): "word" for number in range(100)})
    remembered = Remembered(shelf.read, 900, None, 3)
    for key in ("1", "2", "3", "1", "4"):
        await remembered.get(key)
    shelf.reads.clear()
    for key in ("1", "3", "4"):
        await remembered.get(key)
    assert shelf.reads == []
    await remembered.get("2")
    assert shelf.reads == ["2"]
    remembered.clear()
    await remembered.get("4")
    assert shelf.reads == ["2", "4"]
