"""Keeps what passes a session's boundary, in records that make a capsule.

Feeding a tape is synchronous, never waits and raises nothing: what cannot be kept ends the tape, not the session. It costs little, as
what is kept most often is packed many at a time and in C, and sound is copied as it is.
"""

import base64
import hashlib
import logging
import platform
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from random import Random
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import attrs
import trio

from engine.boundary import Boundary, D, Duplex, E, Outlet, Outside
from engine.capsule.codec import plain
from engine.capsule.file import MANY, MANY_BYTES, MAX_QUICK, Kind, Packer
from engine.capsule.outgoing import Outgoing
from engine.capsule.redaction import Redaction
from engine.elements import ControlToken, Image, InputAudio, OutCommand, OutSpeech, SpeechItem
from engine.interfaces import Environment
from engine.testing.schedule import Schedule, bare_clock, current_schedule, schedule_facts

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK_BYTES = 256 << 10
"""What is packed before it is handed to whoever writes: seconds of a conversation."""
MOST_WAITING = 64
"""Chunks that wait to be written; a disk that far behind ends the tape."""
SECRET = "…"
"""Stands for what may be in no file."""
_SECRET_PARAMETER = "deviceRef"
"""Of `ready`: whoever has the one of an anonymous client can go on with its sessions."""

_inside: ContextVar[bool] = ContextVar("souffleur_outside", default=False)
"""This task does what was asked of the outside; what it asks itself is not kept."""


@contextmanager
def _as(*, inside: bool) -> Generator[None]:
    token = _inside.set(inside)
    try:
        yield
    finally:
        _inside.reset(token)


class _Uncounted:
    """Where nobody counts the passes of Trio's loop."""

    passes = 0


@attrs.define(eq=False)
class Tape:
    """See the module. Times are seconds since it began."""

    began: float
    """`trio.current_time()`."""
    max_bytes: int
    redaction: Redaction | None = None
    most_waiting: int = MOST_WAITING
    """Chunks."""
    chunks: deque[tuple[bytes, bytes]] = attrs.field(factory=deque[tuple[bytes, bytes]], init=False)
    """What is to be written, oldest first."""
    wake: trio.Event = attrs.field(factory=trio.Event, init=False)
    """There is something to write."""
    _now: Callable[[], float] = attrs.field(init=False)
    """As `trio.current_time` but for a constant, without what is around it: it is asked for each record."""
    _zero: float = attrs.field(init=False)
    """What it told when the tape began."""
    _schedule: "Schedule | _Uncounted" = attrs.field(factory=lambda: current_schedule() or _Uncounted(), init=False)
    _packer: Packer = attrs.field(factory=Packer, init=False)
    _many: list[Any] = attrs.field(init=False)
    _raw: list[tuple[int, int, Callable[[Any], Any]]] = attrs.field(init=False)
    _bulk: BytesIO = attrs.field(init=False)
    _is_quick: bool = attrs.field(init=False)
    """What passes most often is kept as it is."""
    _kept: int = attrs.field(default=0, init=False)
    """Bytes handed over."""
    _is_over: bool = attrs.field(default=False, init=False)
    _count: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._now, offset = bare_clock()
        self._zero = self.began - offset
        self._many, self._raw, self._bulk = self._packer.many, self._packer.raw, self._packer.bulk
        self._is_quick = self.redaction is None

    def put(self, kind: Kind, *fields: Any) -> None:
        """Keep one record; its fields are plain data."""
        if self._is_over:
            return
        try:
            kept = fields if self.redaction is None else self.redaction.fields(kind, fields)
            self._packer.add(self._now() - self._zero, kind, *kept, step=self._schedule.passes)
        except Exception as exc:  # the fence: whatever is wrong with a value, the conversation goes on
            self._fail(kind, exc)
        else:
            self._look()

    def put_value(self, kind: Kind, *fields: Any, keep: Callable[[Any], Any] = plain, at: int = -1) -> None:
        """Keep one record; its last field, or the one `at` that place, is any value, of which `keep` makes plain data."""
        if self._is_over:
            return
        kept = list(fields)
        try:
            kept[at] = keep(kept[at])
        except Exception as exc:  # the fence, as above
            self._fail(kind, exc)
        else:
            self.put(kind, *kept)

    def _put_later(self, keep: Callable[[Any], Any], kind: Kind, *fields: Any) -> None:
        """As `put_value`, for a last field that nobody changes: plain data is made of it with that of others."""
        if self._is_quick:
            many = self._many
            start = len(many)
            many += (self._now() - self._zero, self._schedule.passes, kind.value, *fields)
            self._raw.append((start, len(many) - 1, keep))
            if len(many) > MANY:
                self._look()
        else:
            self.put_value(kind, *fields, keep=keep)

    # What passes hundreds of times in a second. Nothing is called here that need not be: most of what it costs is that other sessions,
    # and other processes, have driven out of the processor's caches whatever is touched. Sound is copied at once; were it kept as it
    # is, whatever is made next would be made in memory that nobody used before.

    def received(self, element: object) -> None:
        """Keep what the client has sent."""
        if self._is_quick and type(element) is InputAudio and len(element.data) <= MAX_QUICK:
            many, bulk, data = self._many, self._bulk, element.data
            many += (self._now() - self._zero, self._schedule.passes, "sound", bulk.tell(), len(data))
            bulk.write(data)
            if len(many) > MANY or bulk.tell() > MANY_BYTES:
                self._look()
        elif isinstance(element, InputAudio):
            self.put(Kind.IN, element.data)
        elif isinstance(element, Image):
            self.put_value(Kind.IN, element)
        elif isinstance(element, ControlToken) and element.name == "authorization":
            self._put_later(plain, Kind.IN, ControlToken(element.name, SECRET))
        else:
            self._put_later(plain, Kind.IN, element)

    def frame(self, number: int, frame: str) -> None:
        """Keep what a connection gave."""
        if self._is_quick and len(frame) <= MAX_QUICK:
            many, bulk, data = self._many, self._bulk, frame.encode("utf-8", "surrogatepass")
            many += (self._now() - self._zero, self._schedule.passes, "frame", number, bulk.tell(), len(data))
            bulk.write(data)
            if len(many) > MANY or bulk.tell() > MANY_BYTES:
                self._look()
        else:
            self.put(Kind.ITEM, number, frame)

    def item(self, number: int, item: object) -> None:
        """Keep what a model of our own gave."""
        if (
            self._is_quick
            and type(item) is SpeechItem
            and len(item.data) <= MAX_QUICK
            and not item.visemes
            and not item.blend_shape_weights
        ):
            many, bulk, data = self._many, self._bulk, item.data
            many += (
                self._now() - self._zero, self._schedule.passes, "speech", number, bulk.tell(), len(data), item.sample_rate,
                item.response_id, item.provider, item.is_last, item.text,
            )  # fmt: skip
            bulk.write(data)
            if len(many) > MANY or bulk.tell() > MANY_BYTES:
                self._look()
        else:
            self.put_value(Kind.ITEM, number, item)

    def sent(self, number: int, kept: str | list[Any]) -> None:
        """Keep what a connection was sent, as `Outgoing` gives it."""
        if self._is_quick and type(kept) is list:
            many = self._many
            many += (self._now() - self._zero, self._schedule.passes, "sent", number, kept)
            if len(many) > MANY:
                self._look()
        else:
            self.put(Kind.SENT, number, kept)

    def told(self, element: object) -> None:
        """Keep what the client was told."""
        if self._is_quick and type(element) is OutSpeech and not element.visemes and type(element.text) is str:
            many = self._many
            many += (self._now() - self._zero, self._schedule.passes, "out", shown_speech(element))
            if len(many) > MANY:
                self._look()
        else:
            self._put_later(shown, Kind.OUT, element)

    def note(self, what: str, values: Mapping[str, Any]) -> None:
        """Keep a note; nobody changes the values any more."""
        self._put_later(plain, Kind.NOTE, str(what), values)

    def took(self) -> None:
        """The door took the oldest element to send it."""
        if self._is_quick:
            many = self._many
            many += (self._now() - self._zero, self._schedule.passes, "took")
            if len(many) > MANY:
                self._look()
        else:
            self.put(Kind.TOOK)

    def _look(self) -> None:
        """What is a chunk by now is handed over, and may be the last."""
        if self._waiting() < CHUNK_BYTES:
            return
        self._hand_over()
        if self._kept >= self.max_bytes:
            self._end("the capsule has reached its bound")
        elif len(self.chunks) >= self.most_waiting:
            self._end("the disk is too slow")

    def _waiting(self) -> int:
        """Bytes to be handed over, all packed."""
        try:
            return self._packer.waiting
        except Exception as exc:  # the fence, as above
            self._fail("any", exc)
            return 0

    def _fail(self, kind: str, error: Exception) -> None:
        if not self._is_over:
            logger.error("a record of kind %s could not be kept: %s", kind, type(error).__name__)
            self._end("something could not be kept")

    def number(self) -> int:
        """Of something that is opened outside."""
        self._count += 1
        return self._count

    def flush(self) -> None:
        """What was put so far is handed over."""
        if not self._is_over and self._waiting():
            self._hand_over()

    def finish(self) -> None:
        """Nothing follows: what was put is handed over."""
        self.flush()
        self._is_over, self._is_quick = True, False
        self.wake.set()

    def _end(self, why: str) -> None:
        logger.warning("a capsule is not kept any further: %s", why)
        self._packer.add(trio.current_time() - self.began, Kind.FULL, why)
        self._is_over, self._is_quick = True, False
        self._hand_over()

    def _hand_over(self) -> None:
        records, bulk = self._packer.take()
        if records:
            self._kept += len(records) + len(bulk)
            self.chunks.append((records, bulk))
        self.wake.set()


def shown(element: object) -> Any:
    """What the client was told, as plain data to compare."""
    if isinstance(element, OutSpeech):
        return shown_speech(element)
    if isinstance(element, OutCommand) and element.parameters.get(_SECRET_PARAMETER):
        element = attrs.evolve(element, parameters={**element.parameters, _SECRET_PARAMETER: SECRET})
    return plain(element)


def shown_speech(element: OutSpeech) -> list[Any]:
    """Of sound its length and a checksum (Adler-32: others need tables, which drive out of the processor's caches what the conversation
    needs)."""
    data = element.data
    return [
        "speech", element.turn_id, element.response_id, element.sample_rate, len(data), zlib.adler32(data), element.is_last, element.text,
        plain((element.visemes, element.blend_shape_weights)) if element.visemes else None,
    ]  # fmt: skip


# --- the head ---------------------------------------------------------------------------------------------------------


def schedule_of_now() -> dict[str, Any]:
    """What the order of the tasks of this process follows."""
    facts = schedule_facts()
    return {"seed": facts.seed, "is_sorted": facts.is_sorted}


@cache
def versions() -> dict[str, str]:
    try:
        engine = version("souffleur-engine")
    except PackageNotFoundError:
        engine = ""
    return {"engine": engine, "python": platform.python_version(), "trio": version("trio")}


def seeded(environment: Environment, seed: bytes) -> Environment:
    """The same wall clock, with ids and randomness that follow a seed: nobody can guess them who has not got it.

    Ids of one kind are numbered, so that they do not depend on what else is named in between; what is outside numbers its own, as it
    is not there when the session is run again.
    """
    counts: dict[str, int] = {}

    def new_id(kind: str) -> str:
        series = f"{kind} outside" if _inside.get() else kind
        counts[series] = counts.get(series, 0) + 1
        number = f"{series}:{counts[series]}"
        digest = hashlib.blake2b(number.encode(), key=seed, digest_size=12).digest()
        return f"{kind[0]}-{base64.urlsafe_b64encode(digest).decode()}"

    return Environment(environment.wall_clock, new_id, Random(int.from_bytes(seed)))


# --- the boundary -----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class TapedBoundary(Boundary):
    """A boundary at which everything is written down as it passes."""

    tape: Tape
    seed: bytes
    """Of ids and randomness."""
    session_id: str = attrs.field(default="", init=False)
    run: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        for most in ("received", "told", "took", "note"):  # asked for hundreds of times in a second: a step less
            setattr(self, most, getattr(self.tape, most))

    def _begin(self, kind: Outside, name: str, about: object) -> int:
        number = self.tape.number()
        self.tape.put_value(Kind.BEGAN, number, kind.value, name, about)
        return number

    def _failed(self, number: int, error: BaseException) -> None:
        if isinstance(error, Exception):
            self.tape.put_value(Kind.FAILED, number, error)
        else:  # a cancellation, alone or in groups of it
            self.tape.put(Kind.LEFT, number)

    async def ask(self, kind: Outside, name: str, ask: Callable[[], Awaitable[T]], about: object = None) -> T:
        if _inside.get():
            return await ask()
        number = self._begin(kind, name, about)
        try:
            with _as(inside=True):
                answer = await ask()
        except BaseException as exc:
            self._failed(number, exc)
            raise
        self.tape.put_value(Kind.DONE, number, answer)
        return answer

    def stream(
        self,
        kind: Outside,
        name: str,
        opened: Callable[[], AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]],
        about: object = None,
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]:
        return opened() if _inside.get() else self._stream(kind, name, opened, about)

    @asynccontextmanager
    async def _stream(
        self,
        kind: Outside,
        name: str,
        opened: Callable[[], AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]],
        about: object,
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[T]]:
        call = _Open(self.tape, self._begin(kind, name, about))
        try:
            async with opened() as items:
                self.tape.put(Kind.OPENED, call.number)
                # The contract names Trio's own channel, which nobody can make another kind of; all that readers do is receive.
                yield cast("trio.MemoryReceiveChannel[T]", _WatchedItems(items, call))
        except BaseException as exc:
            call.over(exc)
            raise
        finally:
            call.closed()

    async def produce(
        self,
        kind: Outside,
        name: str,
        to: Outlet[T],
        produce: Callable[[Outlet[T]], Awaitable[None]],
        about: object = None,
    ) -> None:
        if _inside.get():
            await produce(to)
            return
        tape, number = self.tape, self._begin(kind, name, about)

        # What is handed over is the session's own again, such as the task of a tool that is called.
        def started() -> None:
            tape.put(Kind.OPENED, number)
            with _as(inside=False):
                to.started()

        def hand(value: object) -> None:
            tape.put_value(Kind.HANDED, number, value)
            with _as(inside=False):
                to.hand(value)

        watched = _WatchedSending(to.items, lambda item: tape.item(number, item))
        try:
            with _as(inside=True):
                await produce(Outlet(cast("trio.MemorySendChannel[T]", watched), started, hand))
        except BaseException as exc:
            self._failed(number, exc)
            raise
        tape.put(Kind.DONE, number, None)

    @asynccontextmanager
    async def _connect(
        self, kind: Outside, name: str, opened: Callable[[], AbstractAsyncContextManager[D]]
    ) -> AsyncGenerator[D]:
        call = _Open(self.tape, self._begin(kind, name, None))
        try:
            async with opened() as duplex:
                self.tape.put(Kind.OPENED, call.number)
                watched = _WatchedDuplex(duplex, call)
                try:
                    yield cast("D", watched)
                finally:
                    watched.over()
        except BaseException as exc:
            call.over(exc)
            raise
        finally:
            call.closed()

    def connect(
        self, kind: Outside, name: str, opened: Callable[[], AbstractAsyncContextManager[D]]
    ) -> AbstractAsyncContextManager[D]:
        return opened() if _inside.get() else self._connect(kind, name, opened)

    def know(self, kind: Outside, name: str, look: Callable[[], T]) -> T:
        if _inside.get():
            return look()
        number = self._begin(kind, name, None)
        try:
            with _as(inside=True):
                known = look()
        except Exception as exc:
            self._failed(number, exc)
            raise
        self.tape.put_value(Kind.DONE, number, known)
        return known

    # --- the session as a whole

    def environment(self, environment: E) -> E:
        assert isinstance(environment, Environment)
        return cast("E", seeded(environment, self.seed))

    def named(self, session_id: str, run: int) -> None:
        self.session_id, self.run = session_id, run

    def event(self, event: Mapping[str, Any]) -> None:
        self.tape.put_value(Kind.EVENT, event)

    def cut_off(self, reason: str, error: Exception | None, *, is_taken_over: bool) -> None:
        self.tape.put_value(Kind.CUT_OFF, reason, error, is_taken_over, at=1)

    def vanished(self) -> None:
        self.tape.put(Kind.VANISHED)

    def ended(self, state: str, reason: str) -> None:
        self.tape.put(Kind.END, state, reason)

    # --- its client; what comes most often is the tape's own

    def input_ended(self) -> None:
        self.tape.put(Kind.END_OF_INPUT)

    def took_back(self, response_id: str, turn_id: str) -> None:
        self.tape.put(Kind.CUT, response_id, turn_id)


@attrs.define(eq=False)
class _Open:
    """Something that was opened, and the one end of it that is kept."""

    tape: Tape
    number: int
    _is_over: bool = attrs.field(default=False, init=False)

    def item(self, value: object) -> None:
        self.tape.put_value(Kind.ITEM, self.number, value)

    def over(self, error: BaseException) -> None:
        """It has ended, or has failed; a cancellation is the reader's own affair."""
        if self._is_over or not isinstance(error, Exception):
            return
        self._is_over = True
        if isinstance(error, trio.EndOfChannel):
            self.tape.put(Kind.DONE, self.number, None)
        else:
            self.tape.put_value(Kind.FAILED, self.number, error)

    def closed(self) -> None:
        """It has been left, and that is over."""
        self.tape.put(Kind.CLOSED, self.number)


class _WatchedItems(trio.abc.ReceiveChannel[T]):
    """A channel, with somebody looking over the reader's shoulder."""

    __slots__ = ("_call", "_items")

    def __init__(self, items: trio.MemoryReceiveChannel[T], call: _Open) -> None:
        self._items = items
        self._call = call

    async def receive(self) -> T:
        try:
            item = await self._items.receive()
        except Exception as exc:
            self._call.over(exc)
            raise
        self._call.item(item)
        return item

    def receive_nowait(self) -> T:
        try:
            item = self._items.receive_nowait()
        except trio.WouldBlock:
            raise
        except Exception as exc:
            self._call.over(exc)
            raise
        self._call.item(item)
        return item

    def close(self) -> None:
        self._items.close()

    async def aclose(self) -> None:
        await self._items.aclose()


class _WatchedSending(Generic[T]):
    """The sending end of a channel of ours; what is sent is written down before it is handed on."""

    __slots__ = ("_items", "_keep")

    def __init__(self, items: trio.MemorySendChannel[T], keep: Callable[[T], None]) -> None:
        self._items = items
        self._keep = keep

    async def send(self, value: T) -> None:
        self._keep(value)
        await self._items.send(value)

    def send_nowait(self, value: T) -> None:
        self._items.send_nowait(value)
        self._keep(value)

    def clone(self) -> "_WatchedSending[T]":
        return _WatchedSending(self._items.clone(), self._keep)

    def statistics(self) -> Any:
        return self._items.statistics()

    def close(self) -> None:
        self._items.close()

    async def aclose(self) -> None:
        await self._items.aclose()

    def __enter__(self) -> "_WatchedSending[T]":
        self._items.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._items.__exit__(kind, error, traceback)


@attrs.define(eq=False)
class _WatchedDuplex:
    _duplex: Duplex
    _call: _Open
    _outgoing: Outgoing = attrs.field(factory=Outgoing, init=False)

    def send(self, frame: str) -> None:
        if kept := self._outgoing.add(frame):
            self._keep(kept)
        self._duplex.send(frame)

    async def receive(self) -> str | bytes:
        try:
            message = await self._duplex.receive()
        except Exception as exc:
            self._call.over(exc)
            raise
        if type(message) is str:
            self._call.tape.frame(self._call.number, message)
        else:
            self._call.item(message)
        return message

    def over(self) -> None:
        """Nothing more is sent."""
        self._keep(self._outgoing.end())

    def _keep(self, kept: tuple[Any, ...]) -> None:
        for each in kept:
            self._call.tape.sent(self._call.number, each)
