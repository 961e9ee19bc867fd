"""Several runs: who may take part, on which clock, with which seeds; stopping in the middle.

Each run has services of its own, so that with a store in memory no run knows of another, and the run with a seed is the same
whether others went before it or not.
"""

import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import partial

import attrs
import trio

from engine import registry
from engine.errors import ConfigurationError, EngineError
from engine.interfaces import Agent, ChatModel, Environment
from engine.session.services import Services
from engine.session.start import AGENT_SETUP
from engine.simulate.clock import run_environment, run_in_virtual_time
from engine.simulate.report import Line, Report, RunReport, make_report
from engine.simulate.run import Plan, SimulatedRun
from engine.store.contract import StoreError
from engine.store.documents import ResourceKind

logger = logging.getLogger(__name__)

TESTERS = "test"
"""The installed interaction manager whose agents are simulated users."""

OpenServices = Callable[[Environment], AbstractAsyncContextManager[Services]]
"""The services of one run, with the run's clock, ids and chance."""


class WrongUsageError(EngineError):
    """What was asked for cannot be simulated; the sentence says what to change."""


class Clock(StrEnum):
    AUTO = "auto"
    """Virtual when everything that speaks is scripted, else real."""
    REAL = "real"
    VIRTUAL = "virtual"


@attrs.frozen
class Order:
    """What is to be simulated."""

    plan: Plan
    runs: int = 1
    parallel: int = 1
    """At the same time, on the real clock; in virtual time nobody waits, so runs go one after the other."""
    seed: int | None = None
    """Of the first run; the others count on."""
    clock: Clock = Clock.AUTO
    is_kept: bool = False
    """The sessions stay in a store."""

    def seed_of(self, index: int) -> int | None:
        return None if self.seed is None else self.seed + index


def simulate(
    order: Order,
    open_services: OpenServices,
    *,
    on_run: Callable[[Report], None],
    tell: Callable[[Line], None] | None = None,
) -> Report:
    """Run them all. `on_run` is given the report so far whenever a run is over, the last of whose `runs` need not be the newest;
    `tell` each line as it was said.

    SIGINT or SIGTERM stop it: running conversations are cut and saved, and the report has what there is. A second one cancels.

    Raises:
        WrongUsageError: there is no such agent, or the tester is none.
        ConfigurationError: the project or the store cannot be used; it may be in a group.
    """
    fault, is_scripted = trio.run(_examine, order.plan, open_services)
    if fault:
        raise WrongUsageError(fault)
    if order.clock is Clock.AUTO:
        is_virtual = is_scripted and not order.plan.is_spoken and not order.is_kept
    else:
        is_virtual = order.clock is Clock.VIRTUAL
    conductor = _Conductor(order, open_services, is_virtual, on_run, tell)
    conductor.run()
    return conductor.report()


@attrs.define(eq=False)
class _Conductor:
    order: Order
    open_services: OpenServices
    is_virtual: bool
    on_run: Callable[[Report], None]
    tell: Callable[[Line], None] | None
    _runs: list[RunReport] = attrs.field(factory=list[RunReport], init=False)
    _scopes: set[trio.CancelScope] = attrs.field(factory=set[trio.CancelScope], init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)

    def report(self) -> Report:
        order = self.order
        return make_report(
            self._runs,
            agent=order.plan.agent,
            tester=order.plan.tester,
            mode="voice" if order.plan.is_spoken else "text",
            clock="virtual" if self.is_virtual else "real",
            seed=order.seed,
            asked_runs=order.runs,
            min_score=order.plan.min_score,
        )

    def run(self) -> None:
        indexes = iter(range(self.order.runs))
        if not self.is_virtual:
            trio.run(self._perform_all, indexes)
            return
        try:
            for index in indexes:
                if self._is_stopped:
                    break
                seed = self.order.seed_of(index)
                run_in_virtual_time(partial(self._perform_all, iter((index,))), seed=seed)
        except KeyboardInterrupt:  # between two runs nothing is open
            self._is_stopped = True

    async def _perform_all(self, indexes: Iterator[int]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as outer:
                outer.start_soon(self._obey, signals, outer.cancel_scope, name="signals")
                async with trio.open_nursery() as nursery:
                    for number in range(min(self.order.parallel, self.order.runs)):
                        nursery.start_soon(self._perform_some, indexes, name=f"place {number + 1}")
                outer.cancel_scope.cancel(reason="all runs are over")

    async def _perform_some(self, indexes: Iterator[int]) -> None:
        for index in indexes:
            if self._is_stopped:
                return
            self._runs.append(await self._perform(index))
            self.on_run(self.report())

    async def _perform(self, index: int) -> RunReport:
        order = self.order
        seed = order.seed_of(index)
        environment = run_environment(seed, is_virtual=self.is_virtual, is_kept=order.is_kept)
        async with self.open_services(environment) as services:
            run = SimulatedRun(order.plan, services, index, seed, self.tell)
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                await run.hold()
            self._scopes.discard(scope)
            return await run.report()

    async def _obey(self, signals: AsyncIterator[int], everything: trio.CancelScope) -> None:
        async for _ in signals:
            if self._is_stopped:
                everything.cancel(reason="it was stopped twice")
            self.stop()

    def stop(self) -> None:
        """Cut what is running, and begin nothing new."""
        self._is_stopped = True
        for scope in self._scopes:
            scope.cancel(reason="the simulation was stopped")


# --- who takes part


async def _examine(plan: Plan, open_services: OpenServices) -> tuple[str, bool]:
    """What is wrong with the keys, and whether everything that speaks is scripted."""
    environment = run_environment(None, is_virtual=False, is_kept=False)
    async with open_services(environment) as services:
        try:
            agent = await _find(plan.agent, services)
            if isinstance(agent, str):
                return agent, False
            tester = await _find(plan.tester, services)
            if isinstance(tester, str):
                return tester, False
            kinds: tuple[type, ...] = registry.load("interaction_managers", TESTERS).content_classes
            if not isinstance(tester, kinds):
                return f"--tester has to name an agent of type test; {tester.ref} is none", False
            return "", await _is_scripted(agent, services) and await _is_scripted(tester, services)
        except StoreError as exc:
            raise ConfigurationError(f"the agents cannot be looked up in the store: {exc}") from exc


async def _find(key: str, services: Services) -> Agent | str:
    """The agent of a key, or what is wrong with it."""
    setup, _, ref = key.partition(":")
    if setup != AGENT_SETUP or not ref:
        return f"{key!r} is no agent's key; it looks like agent:barista"
    found = await services.catalog.agent(ref)
    if found is not None:
        return found[0]
    refs = services.documents.in_files(ResourceKind.AGENT) if services.documents is not None else ()
    known = ", ".join(f"{AGENT_SETUP}:{ref}" for ref in refs)
    return f"there is no {key}; the project files have {known or 'no agent'}"


async def _is_scripted(agent: Agent, services: Services) -> bool:
    """Whether what speaks for an agent needs no time. A server of tools holds a socket open, for which virtual time would wait."""
    configured = await services.catalog.realtime_configuration(agent.realtime_configuration_id)
    if configured is None or getattr(agent, "mcp_servers", None):
        return False
    model = services.models.get(configured[0].provider)
    if model is None:
        return False
    try:
        chats = [part for part in model.parts(configured[0]) if isinstance(part, ChatModel)]
    except ConfigurationError as exc:
        logger.debug("the parts of agent %s cannot be had: %s", agent.ref, exc)
        return False
    return bool(chats) and all(chat.is_scripted for chat in chats)
