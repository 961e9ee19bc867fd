"""Parts of sessions that are run twice: against the real thing while it is kept, and then with nothing outside.

Two boundaries do the keeping. The small one here holds values, and wants each to be the same when it has been read back; the other is the
one of capsules.
"""

import socket
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast

import attrs
import msgpack
import pytest
import trio

from engine.boundary import Boundary, Outside
from engine.capsule.codec import Reader, plain
from engine.capsule.conductor import Conductor
from engine.capsule.file import Capsule
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.player import PlayedBoundary, Player
from engine.testing.schedule import Schedule, run_repeatably, scheduled_by, virtual_clock
from engine.testing.stage import EPOCH

T = TypeVar("T")

SCHEDULES = range(4)
"""Seeds; the capsule is kept by the first."""
LONGEST = 60.0
"""Seconds that a part may take."""


class NotKeptError(AssertionError):
    """Something was asked that had not been."""


def again(value: T) -> T:
    """The value, read back from what would be in a file."""
    packed = msgpack.packb(plain(value), strict_types=True)
    return cast("T", Reader().value(msgpack.unpackb(packed, raw=False, strict_map_key=True)))


def same(value: T) -> T:
    """As `again`, and not another one."""
    found = again(value)
    if isinstance(value, Exception):
        assert isinstance(found, Exception)
        assert type(found) is type(value)
        assert (found.args, vars(found)) == (value.args, vars(value))
    else:
        assert found == value
        assert type(found) is type(value)
    return found


@attrs.define(eq=False)
class Kept:
    """What came of one thing that was asked or opened: (seconds, what, value)."""

    events: deque[tuple[float, str, Any]] = attrs.field(factory=deque[tuple[float, str, Any]])

    def add(self, began: float, what: str, value: object = None) -> None:
        self.events.append((trio.current_time() - began, what, same(value)))


Book = dict[tuple[Outside, str], deque[Kept]]


@attrs.define(eq=False)
class Keeping(Boundary):
    """Lets everything pass and keeps it. Must be made inside Trio."""

    book: Book = attrs.field(factory=dict[tuple[Outside, str], "deque[Kept]"])
    began: float = attrs.field(factory=trio.current_time)

    def _begin(self, kind: Outside, name: str, about: object) -> Kept:
        plain(about)
        kept = Kept()
        self.book.setdefault((kind, name), deque()).append(kept)
        return kept

    async def ask(self, kind: Outside, name: str, ask: Callable[[], Awaitable[T]], about: object = None) -> T:
        kept = self._begin(kind, name, about)
        try:
            answer = await ask()
        except Exception as exc:
            kept.add(self.began, "failed", exc)
            raise
        kept.add(self.began, "done", answer)
        return answer

    def know(self, kind: Outside, name: str, look: Callable[[], T]) -> T:
        kept = self._begin(kind, name, None)
        try:
            answer = look()
        except Exception as exc:
            kept.add(self.began, "failed", exc)
            raise
        kept.add(self.began, "done", answer)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        kind: Outside,
        name: str,
        opened: Callable[[], AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]],
        about: object = None,
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[T]]:
        kept = self._begin(kind, name, about)
        is_open = False
        try:
            async with opened() as items:
                kept.add(self.began, "opened")
                is_open = True
                async with self._passed_on(items, kept) as passed_on:
                    yield passed_on
        except Exception as exc:
            if not is_open:
                kept.add(self.began, "failed", exc)
            raise

    @asynccontextmanager
    async def _passed_on(
        self, items: trio.MemoryReceiveChannel[T], kept: Kept
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[T]]:
        async with trio.open_nursery() as nursery:
            sending, receiving = trio.open_memory_channel[T](0)

            async def pass_on() -> None:
                with sending:
                    async for item in items:
                        kept.add(self.began, "item", item)
                        await sending.send(item)

            nursery.start_soon(pass_on)
            yield receiving
            nursery.cancel_scope.cancel(reason="it is left")


@attrs.define(eq=False)
class Playing(Boundary):
    """Gives what was kept, in its order and at its time. Must be made inside Trio."""

    book: Book
    began: float = attrs.field(factory=trio.current_time)
    is_replayed = True

    def _next(self, kind: Outside, name: str) -> Kept:
        waiting = self.book.get((kind, name))
        if not waiting:
            raise NotKeptError(f"{kind} {name}")
        return waiting.popleft()

    async def _reach(self, seconds: float) -> None:
        await trio.sleep_until(self.began + seconds)

    async def ask(self, kind: Outside, name: str, ask: Callable[[], Awaitable[T]], about: object = None) -> T:
        for at, what, value in self._next(kind, name).events:
            await self._reach(at)
            if what == "failed":
                raise value
            return cast("T", value)
        await trio.sleep_forever()
        raise AssertionError

    def know(self, kind: Outside, name: str, look: Callable[[], T]) -> T:
        _, what, value = self._next(kind, name).events[0]
        if what == "failed":
            raise value
        return cast("T", value)

    @asynccontextmanager
    async def stream(
        self,
        kind: Outside,
        name: str,
        opened: Callable[[], AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]],
        about: object = None,
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[T]]:
        (at, what, value), *items = self._next(kind, name).events
        await self._reach(at)
        if what == "failed":
            raise value
        async with trio.open_nursery() as nursery:
            sending, receiving = trio.open_memory_channel[T](0)

            async def give() -> None:
                for at, _, value in items:
                    await self._reach(at)
                    await sending.send(value)
                await trio.sleep_forever()

            nursery.start_soon(give)
            yield receiving
            nursery.cancel_scope.cancel(reason="it is left")

    def left(self) -> list[str]:
        """What was kept and not asked again."""
        return [f"{kind.value} {name}" for (kind, name), waiting in self.book.items() if waiting]


# --- running twice ------------------------------------------------------------------------------------------------------

Part = Callable[[Boundary], Awaitable[T]]
"""A part of a session; returns all that came of it."""


class Guard:
    """Nothing outside is there while this is entered: whoever uses a thread, a process, a socket or a database fails."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise NotKeptError("there is nothing outside")

        for owner, name in (
            (trio.to_thread, "run_sync"),
            (trio.lowlevel, "open_process"),
            (trio, "run_process"),
            (sqlite3, "connect"),
            (socket.socket, "connect"),
            (trio.socket, "getaddrinfo"),
        ):
            self._patch.setattr(owner, name, refuse)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def _copied(book: Book) -> Book:
    return {key: deque(Kept(deque(kept.events)) for kept in waiting) for key, waiting in book.items()}


def run_twice(part: Part[T], gone: Callable[[], None], *, is_virtual: bool = False) -> T:
    """What the part gives, which has to be the same each time: kept by either boundary and run again in several orders of what happens
    at once. `gone` takes away what is outside. `is_virtual`: time jumps when it is kept, too."""
    capsules = MemoryCapsules()

    async def keep() -> tuple[T, Book]:
        boundary = Keeping()
        with trio.fail_after(LONGEST):
            return await part(boundary), boundary.book

    async def record() -> T:
        with trio.fail_after(LONGEST):
            async with capsules.keep({"began": EPOCH}) as boundary:
                return await part(boundary)

    found, book = trio.run(keep, clock=virtual_clock() if is_virtual else None)
    with scheduled_by(Schedule(SCHEDULES[0]), is_sorted=False):
        _compare(trio.run(record, clock=virtual_clock() if is_virtual else None), found)
    gone()
    with Guard():
        for schedule in SCHEDULES:
            _compare(run_repeatably(schedule, _play, part, _copied(book)), found)
            _compare(_replayed(part, capsules.capsules[0], schedule), found)
    return found


async def _play(part: Part[T], book: Book) -> T:
    boundary = Playing(book)
    with trio.fail_after(LONGEST):
        found = await part(boundary)
    assert not boundary.left(), f"not asked again: {boundary.left()}"
    return found


def _replayed(part: Part[T], capsule: Capsule, schedule: int) -> T:
    """As `engine.capsule.replay` does it with a whole session."""
    conductor = Conductor(virtual_clock(), Schedule(schedule))

    async def play() -> T:
        player = Player(capsule, Reader(), conductor, trio.current_time())
        conductor.begin(player.given, player.began, capsule.records[0].step)
        with trio.fail_after(LONGEST):
            return await part(PlayedBoundary(player))

    with scheduled_by(conductor.schedule, is_sorted=False):
        return trio.run(play, clock=conductor.clock, instruments=[conductor])


def _compare(again: T, first: T) -> None:
    assert again == first, f"{again}\nis not\n{first}"
