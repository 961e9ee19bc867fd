"""What stands in for everything outside when a session is run again: it gives what was kept, when it was kept.

Each thing that is asked or opened gets what the one of its kind and name got that was asked as many before it. When that comes is the
conductor's affair.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import attrs
import trio

from engine.boundary import Boundary, D, E, Outlet, Outside
from engine.capsule.codec import CapsuleError, Reader, plain
from engine.capsule.conductor import Conductor, Event
from engine.capsule.file import Capsule, Kind, Record
from engine.capsule.outgoing import Outgoing
from engine.capsule.redaction import Redaction
from engine.capsule.tape import seeded, shown
from engine.interfaces import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T")

TIE_SECONDS = 1e-9
"""Between what was kept at the same instant."""


class DivergedError(Exception):
    """The engine asked for what was not kept: it does something else than it did."""


@attrs.frozen
class Divergence:
    """The first thing that is not as it was kept."""

    at: float
    """Seconds since the capsule began, in the run."""
    what: str
    """A sentence."""
    step: int = 0
    """The pass of the capsule's run, about."""
    expected: Any = None
    found: Any = None


GIVEN = frozenset(
    {
        Kind.IN,
        Kind.END_OF_INPUT,
        Kind.VANISHED,
        Kind.CUT_OFF,
        Kind.EVENT,
        Kind.TOOK,
        Kind.OPENED,
        Kind.ITEM,
        Kind.HANDED,
        Kind.DONE,
        Kind.FAILED,
        Kind.LEFT,
        Kind.CLOSED,
    }
)
"""What comes from outside; the rest is what the session makes of it."""


@attrs.define(eq=False)
class Operation:
    """Something outside that was asked or opened, and what came of it."""

    began: Event
    events: list[Event] = attrs.field(factory=list[Event])

    @property
    def was_instant(self) -> bool:
        """It was answered in the very step that asked."""
        return bool(self.events) and self.events[0].step == self.began.step != 0 and self.events[0].kind in _ANSWERS

    def is_answered_at_once(self, event: Event) -> bool:
        return event is self.events[0] and self.was_instant


_ANSWERS = frozenset({Kind.DONE, Kind.FAILED})


def events_of(records: Iterable[Record]) -> list[Event]:
    """The records; where nobody counted passes their times grow, so that no two are at the same instant."""
    events: list[Event] = []
    at = -TIE_SECONDS
    for record in records:
        at = max(record.at, at if record.step else at + TIE_SECONDS)
        # The session was cancelled in the pass before the one in which that reached its tasks.
        step = record.step - 1 if record.kind is Kind.VANISHED and record.step > 1 else record.step
        events.append(Event(at, record.kind, record.fields, step))
    return events


@attrs.define(eq=False)
class Player:
    """One capsule, given again. Times are seconds since the run began."""

    capsule: Capsule
    reader: Reader
    conductor: Conductor
    began: float
    """`trio.current_time()` of the run's beginning."""
    events: list[Event] = attrs.field(init=False)
    divergence: Divergence | None = attrs.field(default=None, init=False)
    told: int = attrs.field(default=0, init=False)
    """Output elements that were as they had been."""
    same: int = attrs.field(default=0, init=False)
    """All that was compared and was as it had been."""
    lateness: float = attrs.field(default=0.0, init=False)
    """The most that one of them was apart from its time, seconds."""
    fault: CapsuleError | None = attrs.field(default=None, init=False)
    """The capsule holds what cannot be made here."""
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    """There is nothing more to compare."""
    _operations: dict[tuple[str, str], deque[Operation]] = attrs.field(
        factory=dict[tuple[str, str], "deque[Operation]"], init=False
    )
    _all: list[Operation] = attrs.field(factory=list[Operation], init=False)
    _redaction: Redaction | None = attrs.field(init=False)
    _expected: deque[Event] = attrs.field(factory=deque[Event], init=False)
    """What the client was told and what was taken back, in its order."""

    def __attrs_post_init__(self) -> None:
        self._redaction = Redaction() if self.capsule.head.get("redacted") else None
        self.events = events_of(self.capsule.records)
        by_number: dict[int, Operation] = {}
        for event in self.events:
            match event.kind:
                case Kind.BEGAN:
                    number, kind, name, _ = event.fields
                    operation = by_number[number] = Operation(event)
                    self._operations.setdefault((kind, name), deque()).append(operation)
                    self._all.append(operation)
                case (
                    Kind.OPENED
                    | Kind.ITEM
                    | Kind.HANDED
                    | Kind.SENT
                    | Kind.DONE
                    | Kind.FAILED
                    | Kind.LEFT
                    | Kind.CLOSED
                ):
                    if event.fields[0] in by_number:
                        by_number[event.fields[0]].events.append(event)
                case Kind.OUT | Kind.CUT:
                    self._expected.append(event)
                case _:
                    pass

    @property
    def now(self) -> float:
        return trio.current_time() - self.began

    @property
    def given(self) -> list[Event]:
        """What the conductor has to give, in its order."""
        at_once = {id(each.events[0]) for each in self._all if each.was_instant}
        return [event for event in self.events if event.kind in GIVEN and id(event) not in at_once]

    def diverge(self, what: str, expected: Any = None, found: Any = None) -> None:
        """Something is not as it was; the first of these counts. Behind the end of a capsule that is not whole nothing does."""
        if not self.over.is_set() and (self.capsule.is_whole or self._expected):
            self.divergence = Divergence(self.now, what, self.conductor.step, expected, found)
        self.over.set()

    def value(self, data: Any) -> Any:
        """Plain data as a value. Raises CapsuleError, which ends the run whoever catches it."""
        try:
            return self.reader.value(data)
        except CapsuleError as exc:
            self.fault = self.fault or exc
            self.over.set()
            raise

    def next_operation(self, kind: Outside, name: str, about: object = None) -> Operation:
        """What came of the next one of that kind and name; it has to be asked the same.

        Raises DivergedError: there was none more.
        """
        waiting = self._operations.get((kind.value, name))
        if not waiting:
            self.diverge(f"{kind.value} {name!r} is asked, and was not")
            raise DivergedError(f"{kind.value} {name!r} was not asked")
        operation = waiting.popleft()
        asked = plain(about)
        if self._redaction is not None:
            *_, asked = self._redaction.fields(Kind.BEGAN, (0, kind.value, name, asked))
        if operation.began.fields[3] != asked:
            self.diverge(f"{kind.value} {name!r} is asked something else", operation.began.fields[3], asked)
        elif self.divergence is None:
            self.same += 1
        return operation

    def check(self, kind: Kind, fields: tuple[Any, ...]) -> None:
        """The session tells its client something, or takes it back."""
        if self.over.is_set():
            return
        if self._redaction is not None:
            fields = self._redaction.fields(kind, fields)
        if not self._expected:
            self.diverge("the client is told more than it was", None, fields)
            return
        event = self._expected.popleft()
        if (event.kind, event.fields) != (kind, fields):
            self.diverge("the client is told something else", (event.kind.value, *event.fields), (kind.value, *fields))
            return
        self.told += 1
        self.same += 1
        self.lateness = max(self.lateness, abs(self.now - event.at))

    def check_sent(self, number: int, found: Any, expected: Event | None) -> None:
        """The engine sends something to what it has opened."""
        if expected is None:
            self.diverge("a frame is sent that was not", None, found)
            return
        if self._redaction is not None:
            _, found = self._redaction.fields(Kind.SENT, (number, found))
        if expected.fields[1] != found:
            self.diverge("another frame is sent", expected.fields[1], found)
        elif self.divergence is None:
            self.same += 1

    def finish(self) -> None:
        """The run is over: nothing may be left that the client was told."""
        if self._expected:
            event = self._expected[0]
            self.diverge("the client is not told what it was", (event.kind.value, *event.fields), None)


@attrs.define(eq=False)
class PlayedBoundary(Boundary):
    """A boundary behind which there is nothing but a capsule."""

    player: Player
    is_replayed = True

    async def ask(self, kind: Outside, name: str, ask: Callable[[], Awaitable[T]], about: object = None) -> T:
        operation = self.player.next_operation(kind, name, about)
        for event in operation.events:
            if event.kind is Kind.LEFT:
                await _leave(event)
            if not operation.is_answered_at_once(event):
                if event.is_due:
                    await trio.lowlevel.checkpoint()
                await event.due()
            if event.kind is Kind.DONE:
                return cast("T", self.player.value(event.fields[1]))
            raise self.player.value(event.fields[1])
        await trio.sleep_forever()
        raise AssertionError("it had no end, and has none again")

    def stream(
        self,
        kind: Outside,
        name: str,
        opened: Callable[[], AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]],
        about: object = None,
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]:
        return self._stream(kind, name, about)

    @asynccontextmanager
    async def _stream(self, kind: Outside, name: str, about: object) -> AsyncGenerator[Any]:
        items = _PlayedItems[object](self.player, self.player.next_operation(kind, name, about))
        try:
            await items.open()
            yield items
        finally:
            await items.closed()  # noqa: ASYNC102 - what it waits for comes, whatever happens

    async def produce(
        self,
        kind: Outside,
        name: str,
        to: Outlet[T],
        produce: Callable[[Outlet[T]], Awaitable[None]],
        about: object = None,
    ) -> None:
        operation = self.player.next_operation(kind, name, about)
        for event in operation.events:
            if event.kind is Kind.LEFT:
                await _leave(event)
            await event.due()
            match event.kind:
                case Kind.OPENED:
                    to.started()
                case Kind.HANDED:
                    to.hand(self.player.value(event.fields[1]))
                case Kind.ITEM:
                    await to.items.send(self.player.value(event.fields[1]))
                case Kind.DONE:
                    return
                case Kind.FAILED:
                    raise self.player.value(event.fields[1])
                case _:
                    break
        await trio.sleep_forever()

    def connect(
        self, kind: Outside, name: str, opened: Callable[[], AbstractAsyncContextManager[D]]
    ) -> AbstractAsyncContextManager[D]:
        return self._connect(kind, name)

    @asynccontextmanager
    async def _connect(self, kind: Outside, name: str) -> AsyncGenerator[Any]:
        duplex = _PlayedDuplex(self.player, self.player.next_operation(kind, name))
        try:
            await duplex.open()
            yield duplex
        finally:
            await duplex.closed()  # noqa: ASYNC102 - as above

    def know(self, kind: Outside, name: str, look: Callable[[], T]) -> T:
        operation = self.player.next_operation(kind, name)
        event = operation.events[0]
        if event.kind is Kind.FAILED:
            raise self.player.value(event.fields[1])
        return cast("T", self.player.value(event.fields[1]))

    def secret(self, resolve: Callable[[], str | None]) -> str | None:
        return None

    def environment(self, environment: E) -> E:
        head, player = self.player.capsule.head, self.player
        began = player.value(head["began"])
        told = Environment(lambda: began + timedelta(seconds=player.now), lambda kind: kind, cast("Any", None))
        return cast("E", seeded(told, head["seed"]))

    # --- its client

    def told(self, element: object) -> None:
        self.player.check(Kind.OUT, (shown(element),))

    def took_back(self, response_id: str, turn_id: str) -> None:
        self.player.check(Kind.CUT, (response_id, turn_id))

    def note(self, what: str, values: Mapping[str, Any]) -> None:
        """Notes follow from the rest, and are made anew."""


async def _leave(left: Event) -> None:
    """Nobody waited for it until it ended; to be left took the time that it took."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await left.due()  # noqa: ASYNC102 - it comes, whatever happens


class _Played:
    """Something that was open, given again event by event."""

    def __init__(self, player: Player, operation: Operation) -> None:
        self._player = player
        self._events = deque(operation.events)
        self._closed = next((event for event in operation.events if event.kind is Kind.CLOSED), None)

    async def open(self) -> None:
        """Raises what opening it raised."""
        while self._events:
            event = self._events.popleft()
            if event.kind is Kind.OPENED:
                await event.due()
                return
            if event.kind is Kind.FAILED:
                await event.due()
                raise self._player.value(event.fields[1])
            if event.kind is Kind.CLOSED:
                break
        await trio.sleep_forever()

    async def closed(self) -> None:
        """Closing takes the time that it took, also when it is cancelled: what is outside does not fall silent at once."""
        if self._closed is not None:
            with trio.CancelScope(shield=True):
                await self._closed.due()

    async def next(self) -> Any:
        """The next item. Raises what ended it."""
        while self._events:
            event = self._events[0]
            if event.kind is Kind.SENT:
                self._events.popleft()
                continue
            if event.kind is Kind.CLOSED:
                break
            await event.due()  # cancelled here, it is the next one's
            if event.kind is Kind.ITEM:
                self._events.popleft()
                return self._player.value(event.fields[1])
            if event.kind is Kind.DONE:
                raise trio.EndOfChannel
            raise self._player.value(event.fields[1])
        await trio.sleep_forever()


class _PlayedItems(_Played, trio.abc.ReceiveChannel[T]):
    async def receive(self) -> T:
        return cast("T", await self.next())

    def receive_nowait(self) -> T:
        if not self._events or not self._events[0].is_due:
            raise trio.WouldBlock
        event = self._events[0]
        if event.kind is Kind.ITEM:
            self._events.popleft()
            return cast("T", self._player.value(event.fields[1]))
        if event.kind is Kind.DONE:
            raise trio.EndOfChannel
        raise trio.WouldBlock

    def close(self) -> None:
        self._events.clear()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class _PlayedDuplex(_Played):
    def __init__(self, player: Player, operation: Operation) -> None:
        super().__init__(player, operation)
        self._outgoing = Outgoing()
        self._sent = deque(event for event in operation.events if event.kind is Kind.SENT)

    def send(self, frame: str) -> None:
        self._check(self._outgoing.add(frame))

    async def closed(self) -> None:
        self._check(self._outgoing.end())
        await super().closed()

    def _check(self, found: tuple[Any, ...]) -> None:
        for each in found:
            self._player.check_sent(0, each, self._sent.popleft() if self._sent else None)

    async def receive(self) -> str | bytes:
        return cast("str | bytes", await self.next())
