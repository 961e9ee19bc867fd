"""Several worker processes behind the same listening sockets, and the supervisor that looks after them.

The supervisor opens the sockets once and hands them to each worker it starts, so that nobody is refused while a worker is
replaced. Between it and each worker is a channel, a pair of sockets, that carries a line at a time: the worker says `ready` or
why it cannot, the supervisor says `stop`. A worker whose channel ends has lost its supervisor, and stops by itself: so none is
left over, whatever becomes of the supervisor. Signals to a worker are ignored, because a terminal or a service manager sends
them to all processes at once, and a second signal would cut conversations short.
"""

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from subprocess import DEVNULL

import attrs
import trio

from engine.config import Settings
from engine.errors import ConfigurationError
from engine.observe.processes import DIRECTORY, mark_worker_dead, metrics_directory
from engine.serving import NextOrder, Order, Plan, closing_seconds, serve
from engine.transport.server import BoundAddress

logger = logging.getLogger(__name__)

READY, STOP, FAILED = b"ready", b"stop", b"failed "
LINE_BYTES = 16 << 10
"""The longest line of a channel: the sentence of a fault may name many files."""

START_SECONDS = 120.0
"""The longest a worker may take to accept connections: a few seconds, and more on a busy machine."""
STOP_MARGIN_SECONDS = 5.0
"""What a worker that stops gets beyond its own bounds, to close its store and leave."""
LAST_LINE_SECONDS = 1.0
"""What the last line of a worker that has ended may take to be read; it was written before."""
STEADY_SECONDS = 10.0
"""A worker that has served for this long was not wrongly configured: when it dies, the count begins anew."""
PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0)
"""Seconds before each new start of a worker that dies at once, again and again; then it is given up. All of them are 18 s: a
store that is away for longer is an operator's matter."""


# --- the channel -----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Channel:
    """One end of the pair of sockets between a supervisor and a worker."""

    _raw: socket.socket
    _stream: trio.SocketStream = attrs.field(init=False)
    _received: bytearray = attrs.field(factory=bytearray, init=False)

    def __attrs_post_init__(self) -> None:
        self._raw.setblocking(False)
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._raw))

    def say(self, line: bytes) -> None:
        """Send a line, at once. One that has left, or takes nothing, is not waited for."""
        try:
            self._raw.send(line.replace(b"\n", b" ")[: LINE_BYTES - 1] + b"\n")
        except OSError:
            logger.debug("nobody takes what is said on a channel")

    async def hear(self) -> bytes | None:
        """The next line; None when the other end has left."""
        while (end := self._received.find(b"\n")) < 0:
            try:
                data = await self._stream.receive_some(LINE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return None
            self._received += data
            if not data or len(self._received) > 2 * LINE_BYTES:
                return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def close(self) -> None:
        self._stream.socket.close()


@attrs.frozen
class Handles:
    """What a worker inherits, by the numbers of its file descriptors."""

    channel: int
    listeners: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Handles":
        """Raises ValueError."""
        channel, *listeners = (int(part) for part in text.split(","))
        return cls(channel, tuple(listeners))

    def __str__(self) -> str:
        return ",".join(str(number) for number in (self.channel, *self.listeners))

    def open(self) -> tuple[Channel, list[trio.SocketListener]]:
        """Take them over; the processes that this one starts do not inherit them."""
        for number in (self.channel, *self.listeners):
            os.set_inheritable(number, False)
        listeners = [socket.socket(fileno=number) for number in self.listeners]
        return (
            Channel(socket.socket(fileno=self.channel)),
            [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in listeners],
        )


# --- the worker ------------------------------------------------------------------------------------------------------


async def work(plan: Plan, handles: Handles) -> bool:
    """Serve on inherited sockets until the supervisor says so, or has gone. False when it cannot; the supervisor is told why."""
    channel, listeners = handles.open()

    async def next_order() -> Order:
        line = await channel.hear()
        return Order.STOP if line == STOP else Order.FREE_PORT

    fault = ""
    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as aside:
                aside.start_soon(_ignore, signals, name="signals")
                async with trio.open_nursery() as nursery:
                    serving = partial(serve, plan, listeners, next_order, is_one_of_several=True)
                    await nursery.start(serving, name="serving")
                    channel.say(READY)
                aside.cancel_scope.cancel(reason="the serving has ended")
    except* ConfigurationError as group:
        fault = str(first_of(group))
        channel.say(FAILED + fault.encode())
    channel.close()
    return not fault


async def _ignore(signals: AsyncIterator[int]) -> None:
    async for number in signals:
        logger.debug("signal %d is ignored: the supervisor says when to stop", number)


def first_of(group: BaseExceptionGroup[ConfigurationError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# --- the supervisor --------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Restarts:
    """When a worker that has died is started again."""

    _quick: int = attrs.field(default=0, init=False)
    """Deaths in a row without having served for long."""

    def pause_after(self, served_seconds: float) -> float | None:
        """The time to wait; None when it is to be given up."""
        if served_seconds >= STEADY_SECONDS:
            self._quick = 0
        self._quick += 1
        return PAUSES[self._quick - 1] if self._quick <= len(PAUSES) else None


@attrs.define(eq=False)
class Worker:
    """A worker as its supervisor sees it."""

    number: int
    process: trio.Process
    channel: Channel
    ready_at: float | None = attrs.field(default=None, init=False)
    fault: str = attrs.field(default="", init=False)
    """Why it cannot serve, in its own words, or why it was killed."""

    def stop(self) -> None:
        """Tell it to stop. One that is not serving yet has nothing to save, and the signal ends it while it cannot listen."""
        self.channel.say(STOP)
        if self.ready_at is None and self.process.returncode is None:
            self.process.terminate()

    def kill(self, why: str) -> None:
        self.fault = why
        self.process.kill()


def _forget(pid: int) -> None: ...


@attrs.define(eq=False)
class Supervisor:
    """Keeps so many workers running on the same sockets."""

    command: Sequence[str]
    """Starts a worker, with its handles as one more argument."""
    listeners: Sequence[trio.SocketListener]
    count: int
    stop_seconds: float
    """What a worker may take from the order to stop to its end; then it is killed."""
    start_seconds: float = START_SECONDS
    environment: Mapping[str, str] | None = None
    """Of the workers; None: the same as this process's."""
    when_ended: Callable[[int], None] = _forget
    """Told the process id of each worker that has ended."""
    fault: str = attrs.field(default="", init=False)
    """What went wrong for good; the whole then ends."""
    _running: set[Worker] = attrs.field(factory=set[Worker], init=False)
    _ready: set[int] = attrs.field(factory=set[int], init=False)
    _all_ready: trio.Event = attrs.field(factory=trio.Event, init=False)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    _starting: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def run(self, next_order: NextOrder, when_ready: Callable[[], None]) -> None:
        """Run the workers until ordered to stop, or until one of them cannot be kept running; `fault` then says why.
        `when_ready` is called when all of them accept connections for the first time. The listeners are closed at the end."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_orders, next_order, name="orders")
                nursery.start_soon(self._announce, when_ready, name="announcement")
                nursery.start_soon(self._wait_and_close_listeners, name="listeners")
                async with trio.open_nursery() as workers:
                    for number in range(1, self.count + 1):
                        workers.start_soon(self._keep, number, name=f"worker {number}")
                nursery.cancel_scope.cancel(reason="all workers have ended")
        finally:
            self._close_listeners()

    def stop(self) -> None:
        """Tell every worker; each time it is told, a worker skips a wait."""
        self._stopping.set()
        for worker in self._running:
            worker.stop()

    def _fail(self, fault: str) -> None:
        self.fault = self.fault or fault
        if not self._stopping.is_set():
            self.stop()

    async def _take_orders(self, next_order: NextOrder) -> None:
        while True:
            await next_order()
            self.stop()

    async def _announce(self, when_ready: Callable[[], None]) -> None:
        await self._all_ready.wait()
        when_ready()

    async def _wait_and_close_listeners(self) -> None:
        """When the workers stop listening nobody does: a connection would wait for an answer that cannot come."""
        await self._stopping.wait()
        async with self._starting:
            self._close_listeners()

    def _close_listeners(self) -> None:
        for listener in self.listeners:
            listener.socket.close()

    async def _keep(self, number: int) -> None:
        restarts = Restarts()
        while True:
            async with self._starting:
                worker = None if self._stopping.is_set() else await self._start(number)
            if worker is None:
                return
            await self._watch(worker)
            if self._stopping.is_set():
                return
            now, began = trio.current_time(), worker.ready_at
            pause = restarts.pause_after(0.0 if began is None else now - began)
            how = worker.fault or f"it ended with code {worker.process.returncode}"
            if worker.fault and not self._all_ready.is_set():
                self._fail(worker.fault)  # nothing has been served yet: what is wrong is for whoever has started this
                return
            if pause is None:
                self._fail(f"worker {number} cannot be kept running: {how}")
                return
            logger.error("worker %d (process %d) is started again: %s", number, worker.process.pid, how)
            with trio.move_on_after(pause):
                await self._stopping.wait()

    async def _start(self, number: int) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            handles = Handles(theirs.fileno(), tuple(listener.socket.fileno() for listener in self.listeners))
            process = await trio.lowlevel.open_process(
                [*self.command, str(handles)],
                stdin=DEVNULL,
                env=self.environment,
                pass_fds=(handles.channel, *handles.listeners),
                process_group=0,  # what is typed at a terminal is for the supervisor
            )
        worker = Worker(number, process, Channel(ours))
        self._running.add(worker)
        if self._stopping.is_set():  # it was told while this one was on its way
            worker.stop()
        return worker

    async def _watch(self, worker: Worker) -> None:
        """Returns when a worker has ended, by itself or because it had to be killed."""
        listening = trio.Event()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, worker, listening, name="channel")
                nursery.start_soon(self._limit_start, worker, name="start limit")
                nursery.start_soon(self._limit_stop, worker, name="stop limit")
                await worker.process.wait()
                with trio.move_on_after(LAST_LINE_SECONDS):
                    await listening.wait()
                nursery.cancel_scope.cancel(reason="the worker has ended")
        finally:
            if worker.process.returncode is None:
                worker.process.kill()
                with trio.move_on_after(LAST_LINE_SECONDS, shield=True):
                    await worker.process.wait()
            worker.channel.close()
            self._running.discard(worker)
            self._ready.discard(worker.number)
            self.when_ended(worker.process.pid)

    async def _listen(self, worker: Worker, is_over: trio.Event) -> None:
        while (line := await worker.channel.hear()) is not None:
            if line == READY:
                worker.ready_at = trio.current_time()
                self._ready.add(worker.number)
                if len(self._ready) == self.count:
                    self._all_ready.set()
            elif line.startswith(FAILED):
                worker.fault = line.removeprefix(FAILED).decode(errors="replace")
        is_over.set()

    async def _limit_start(self, worker: Worker) -> None:
        await trio.sleep(self.start_seconds)
        if worker.ready_at is None:
            worker.kill(f"worker {worker.number} accepted no connections in {self.start_seconds:g} s")

    async def _limit_stop(self, worker: Worker) -> None:
        await self._stopping.wait()
        await trio.sleep(self.stop_seconds)
        worker.kill(f"worker {worker.number} did not stop in {self.stop_seconds:g} s and had to be killed")
        self._fail(worker.fault)


def require_shared_store(plan: Plan) -> None:
    """Raises ConfigurationError when the store is of one process only."""
    if plan.store.startswith("memory:"):
        raise ConfigurationError(
            "the memory: store is of one process; with several workers use sqlite:PATH or mongodb://…"
        )


async def supervise(
    listeners: Sequence[trio.SocketListener],
    say_ready: Callable[[BoundAddress], None],
    *,
    count: int,
    command: Sequence[str],
) -> str:
    """Run so many workers on these sockets until SIGINT or SIGTERM; each one more skips a wait. Gives what went wrong, or ""."""
    settings = Settings()
    stop_seconds = settings.drain_seconds + closing_seconds(settings) + STOP_MARGIN_SECONDS
    address = BoundAddress(*listeners[0].socket.getsockname()[:2])
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, metrics_directory() as metrics:

        async def next_order() -> Order:
            await anext(signals)
            return Order.STOP

        supervisor = Supervisor(
            command,
            listeners,
            count,
            stop_seconds,
            environment={**os.environ, DIRECTORY: str(metrics)},
            when_ended=partial(mark_worker_dead, metrics),
        )
        await supervisor.run(next_order, partial(say_ready, address))
    return supervisor.fault
