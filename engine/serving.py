"""One serving process: its services, its server, and its end, which saves everything and takes a bounded time.

Every order to stop skips a wait. The first: nobody new is let in, and running conversations may go on for the drain time. The
second: they are ended now, saved, and may be resumed elsewhere. The third: their connections are cut, and saved even so.
"""

import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import Enum, auto
from functools import partial
from pathlib import Path

import attrs
import trio

from engine.capsule.keeper import Capsules
from engine.composition import open_services
from engine.config import Settings
from engine.identity.admin_key import open_admin_key
from engine.loading import PartLoader
from engine.observation import Observer, Observers
from engine.observe.lateness import LatenessMeter
from engine.observe.metrics import make_metrics, watch_process
from engine.observe.tracing import open_tracing
from engine.session.live import LiveSessions, server_stops
from engine.transport.app import create_app
from engine.transport.server import BoundAddress, YieldingListener, run_server
from engine.transport.websocket import CLOSE_SECONDS

logger = logging.getLogger(__name__)

STOPPING = "is stopping"

YIELD_SECONDS = 0.04
"""How long a worker that is full leaves a connection to the others, and one with less to do the less. Of 200 places each is then
0.2 ms, so that ten sessions more are as much as the moment at which the system wakes one process before another."""


class Order(Enum):
    """What a serving process may be told."""

    STOP = auto()
    """Each one more skips a wait."""
    FREE_PORT = auto()
    """Stop, and accept no more connections at once: another server may be about to take the place of this one. Otherwise a
    stopping server goes on accepting, so that its load balancer and its clients hear from it that they should go elsewhere."""


NextOrder = Callable[[], Awaitable[Order]]
"""Returns with each order; is not called again after FREE_PORT."""


def closing_seconds(settings: Settings) -> float:
    """The longest that ending takes after the drain: the clean-up of the sessions, and the two waits of closing."""
    return settings.cleanup_seconds + 2 * CLOSE_SECONDS


@attrs.frozen
class Plan:
    """What to serve."""

    projects: Sequence[Path]
    """None: the demo."""
    store: str
    """The URL of the store."""
    admin_key_file: Path | None = None
    """None: beside the store in the user's data directory."""
    record: Path | None = None
    """The directory that sessions are kept in, in capsules; None: they are not."""
    redacts: bool = False
    """Whether capsules hold no words and no sound."""


@attrs.define(eq=False)
class Ending:
    """The end of a serving process, step by step."""

    live: LiveSessions
    settings: Settings
    accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    serving: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    cut: trio.Event = attrs.field(factory=trio.Event, init=False)
    _asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    _hurried: trio.Event = attrs.field(factory=trio.Event, init=False)

    def take(self, order: Order) -> None:
        """Take the next step. At once: by the time this returns nobody new is let in."""
        if not self._asked.is_set() and len(self.live):
            logger.warning("stopping; %d conversations may finish (once more to end them now)", len(self.live))
        self.live.refuse_new()
        if order is Order.FREE_PORT:
            self.accepting.cancel(reason="the port is needed")
        elif self._hurried.is_set():
            self.cut.set()
        elif self._asked.is_set():
            self._hurried.set()
        self._asked.set()

    async def run(self) -> None:
        """Wait for the order to stop, let the conversations go on for the drain time, then end them and the serving."""
        await self._asked.wait()
        with trio.move_on_after(self.settings.drain_seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_when_hurried, nursery.cancel_scope, name="hurry")
                await self.live.wait_for_none()
                nursery.cancel_scope.cancel(reason="nobody is talking any more")
        if len(self.live):
            logger.warning("%d conversations are ended by the stop of the server", len(self.live))
        self.live.end_all(server_stops())
        self.serving.cancel(reason="the server was asked to stop")

    async def _cancel_when_hurried(self, waiting: trio.CancelScope) -> None:
        await self._hurried.wait()
        waiting.cancel(reason="the drain was cut short")


async def serve(
    plan: Plan,
    listeners: Sequence[trio.SocketListener],
    next_order: NextOrder,
    *,
    is_one_of_several: bool = False,
    task_status: trio.TaskStatus[BoundAddress] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on open listeners until ordered to stop; reports the address once connections are accepted.

    With `is_one_of_several` other processes accept on the same listeners, and each leaves connections to those with more room.

    Raises:
        ConfigurationError: a file, the store or a component is not as it has to be.
    """
    settings = Settings()
    admin_key = open_admin_key(plan.admin_key_file, settings)
    if admin_key.is_new:
        logger.warning("an admin key was made: %s", admin_key.path)
    async with AsyncExitStack() as stack:
        metrics = make_metrics()
        observers: list[Observer] = [metrics]
        if settings.tracing:
            observers.append(await stack.enter_async_context(open_tracing()))
        services = await stack.enter_async_context(
            open_services(
                projects=plan.projects,
                store=plan.store,
                settings=settings,
                admin_key=admin_key,
                observer=Observers(observers),
                keep=None if plan.record is None else Capsules(plan.record, redacts=plan.redacts).keep,
            )
        )
        lateness = LatenessMeter()
        services.admission.lateness = lambda: lateness.lateness
        loader = PartLoader(services)
        ending = Ending(services.live, settings)
        app = create_app(
            services,
            readiness=partial(_readiness, loader, services.live),
            metrics=metrics,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            capsules_directory=plan.record,
        )
        host, port = listeners[0].socket.getsockname()[:2]
        doors: Sequence[trio.SocketListener | YieldingListener] = listeners
        if is_one_of_several:
            doors = [YieldingListener(each, lambda: YIELD_SECONDS * services.admission.load) for each in listeners]
        async with trio.open_nursery() as nursery:

            async def run(*, task_status: trio.TaskStatus[BoundAddress]) -> None:  # noqa: ASYNC128 - the status is passed on
                with ending.serving:
                    await run_server(
                        app,
                        host,
                        port,
                        settings=settings,
                        listeners=doors,
                        accepting=ending.accepting,
                        graceful_seconds=closing_seconds(settings),
                        hurry=ending.cut,
                        task_status=task_status,
                    )
                nursery.cancel_scope.cancel(reason="the server has stopped")

            address = await nursery.start(run, name="server")
            nursery.start_soon(ending.run, name="ending")
            nursery.start_soon(_take_orders, ending, next_order, name="orders")
            nursery.start_soon(loader.run, name="loading parts")
            nursery.start_soon(watch_process, metrics, lateness, name="watch: process")
            _settle_down()
            task_status.started(address)


async def serve_alone(
    plan: Plan, listeners: Sequence[trio.SocketListener], say_ready: Callable[[BoundAddress], None]
) -> None:
    """Serve in this process until SIGINT or SIGTERM; each one more skips a wait.

    Raises:
        ConfigurationError: see `serve`.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def next_order() -> Order:
            await anext(signals)
            return Order.STOP

        async with trio.open_nursery() as nursery:
            say_ready(await nursery.start(partial(serve, plan, listeners, next_order), name="serving"))


async def _take_orders(ending: Ending, next_order: NextOrder) -> None:
    while True:
        order = await next_order()
        ending.take(order)
        if order is Order.FREE_PORT:
            return


async def _readiness(loader: PartLoader, live: LiveSessions) -> Mapping[str, str]:
    parts = await loader.readiness()
    return {**parts, "server": STOPPING} if live.is_stopping else parts


def _settle_down() -> None:
    """Everything is loaded: what is alive now stays, and need not be looked at by the garbage collector again."""
    gc.collect()
    gc.freeze()
