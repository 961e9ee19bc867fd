"""A whole connection on a stage: real engine, scripted model and client, virtual time.

async with open_stage() as stage:
    stage.model.session.say(final("hello"), ...)
    await trio.sleep(2)
    assert stage.client.sentences == [...]
"""

import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import attrs
import trio
import trio.testing

from engine.config import PipelineConfiguration, RealtimeProperties, Settings
from engine.elements import JsonObject, OutEvaluation
from engine.interfaces import (
    ActionMapper,
    Agent,
    Context,
    ElementFilter,
    Emit,
    Environment,
    InteractionManager,
    Message,
    PlanningManager,
    RealtimeModel,
    Recognizer,
    Steer,
    SystemPrompt,
    ToolBox,
    TurnInput,
    TurnInteractionManager,
    TurnlessInteractionManager,
    Webhook,
)
from engine.observation import Observer
from engine.pipeline.line import open_line
from engine.principal import Authenticator, NobodyKnown, Principal, ProjectAccess, UserAccount
from engine.recording import OpenRecorder
from engine.session.live import LiveSessions
from engine.session.services import Services
from engine.session.watch import watch_sessions
from engine.session.windowing import ConnectionEnd, run_connection
from engine.store.contract import Store
from engine.store.memory import MemoryStore
from engine.testing.scripted import ScriptedClient, ScriptedModel, ScriptedProperties

EPOCH = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""The wall clock at virtual time 0."""


TESTER = Principal("device:test")
"""Who is talking, when a test does not care."""
PUBLIC_PROJECT = ProjectAccess("test", is_public=True)


def scripted_environment(seed: int = 0) -> Environment:
    """Counted ids, a wall clock that follows Trio's clock, seeded randomness."""
    counters: dict[str, itertools.count[int]] = {}

    def new_id(kind: str) -> str:
        return f"{kind}-{next(counters.setdefault(kind, itertools.count(1)))}"

    return Environment(lambda: EPOCH + timedelta(seconds=trio.current_time()), new_id, Random(seed))


@attrs.frozen
class ScriptedAgent:
    """An agent with nothing but what the engine needs."""

    ref: str = "tester"
    name: str = "Tester"
    published: bool = True
    realtime_configuration_id: str = "scripted"
    recording: bool = False
    post_session_webhooks: Sequence[Webhook] = ()
    show_steering: bool = True
    max_session_minutes: float | None = None
    user_idle_seconds: float | None = None


@attrs.define(eq=False)
class ScriptedManager(TurnInteractionManager, TurnlessInteractionManager):
    """A manager whose hooks write down that they ran; a test may give it a tool box, a planner and delays."""

    setups = frozenset({"agent", "realtime", "realtime-preview"})

    tool_box: ToolBox | None = None
    planner: PlanningManager | None = None
    start_seconds: float = 0.0
    extraction_seconds: float = 0.0
    disconnect_seconds: float = 0.0
    evaluations: Sequence[tuple[float, OutEvaluation]] = ()
    """What the end-of-conversation evaluation gives, each after that many seconds."""
    events: list[tuple[str, JsonObject]] = attrs.field(factory=list[tuple[str, JsonObject]], init=False)
    """Chat events, with the session they were for."""
    ran: list[tuple[float, str]] = attrs.field(factory=list[tuple[float, str]], init=False)
    contexts: list[Context] = attrs.field(factory=list[Context], init=False)

    def __attrs_post_init__(self) -> None:
        if self.planner is not None:
            self.planning_manager = self.planner

    def note(self, what: str) -> None:
        self.ran.append((trio.current_time(), what))

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        await trio.lowlevel.checkpoint()
        return SystemPrompt("Be brief.", "scripted")

    def get_tool_box(self, context: Context) -> ToolBox:
        return self.tool_box if self.tool_box is not None else super().get_tool_box(context)

    async def on_session_start(self, context: Context) -> None:
        self.contexts.append(context)
        await trio.sleep(self.start_seconds)

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        try:
            await trio.sleep(self.extraction_seconds)
        except trio.Cancelled:
            self.note(f"extraction of {turn.text!r} cancelled")
            raise
        self.note(f"extracted {turn.text!r}")

    async def turn_end(self, context: Context, steer: Steer) -> None:
        await trio.lowlevel.checkpoint()
        self.note("turn_end")

    async def on_chat_message(self, context: Context, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        self.note(f"{message.role}: {message.text}")

    async def on_chat_event(self, context: Context, event: JsonObject) -> None:
        await trio.lowlevel.checkpoint()
        self.events.append((context.session.id, event))

    async def evaluate(self, context: Context, emit: Callable[[OutEvaluation], None]) -> None:
        self.note("evaluation")
        for seconds, evaluation in self.evaluations:
            await trio.sleep(seconds)
            emit(evaluation)

    async def on_session_disconnect(self, context: Context) -> None:
        await trio.sleep(self.disconnect_seconds)
        self.note("disconnected")


@attrs.define(eq=False)
class ScriptedCatalog:
    """One agent and its configuration."""

    agent_: ScriptedAgent
    properties: RealtimeProperties
    access: ProjectAccess

    async def published_agents(self) -> Sequence[Agent]:
        await trio.lowlevel.checkpoint()
        return [self.agent_]

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        await trio.lowlevel.checkpoint()
        return (self.agent_, "test") if ref == self.agent_.ref else None

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        await trio.lowlevel.checkpoint()
        return (self.properties, "test") if configuration_id == self.agent_.realtime_configuration_id else None

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        await trio.lowlevel.checkpoint()
        return [self.properties]

    async def project(self, ref: str) -> ProjectAccess | None:
        await trio.lowlevel.checkpoint()
        return self.access if ref == self.access.ref else None

    async def user(self, name: str) -> UserAccount | None:
        await trio.lowlevel.checkpoint()
        return None


@attrs.define(eq=False)
class Stage:
    """What a test works with."""

    client: ScriptedClient
    model: ScriptedModel
    manager: ScriptedManager
    store: Store
    services: Services
    recognizer: Recognizer | None
    connection: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    end: ConnectionEnd | None = None
    ended_at: float | None = None
    over: trio.Event = attrs.field(factory=trio.Event)
    """The connection has ended, and the client has heard all of it."""

    def vanish(self) -> None:
        """The client's socket is gone."""
        self.connection.cancel(reason="the client vanished")


def scripted_services(
    *,
    model: ScriptedModel,
    managers: Sequence[InteractionManager],
    agent: ScriptedAgent | None = None,
    recognizer: Recognizer | None = None,
    turnless: bool = False,
    settings: Settings | None = None,
    store: Store | None = None,
    environment: Environment | None = None,
    filters: Sequence[ElementFilter] = (),
    action_mappers: Mapping[str, ActionMapper] | None = None,
    authenticator: Authenticator | None = None,
    access: ProjectAccess | None = None,
    live: LiveSessions | None = None,
    open_recorder: OpenRecorder | None = None,
    observer: Observer | None = None,
) -> Services:
    """The services of a process that has one agent and speaks with a scripted model."""
    stt = "Scripted" if recognizer is not None else "None"
    properties = ScriptedProperties(stt_provider=stt, turnless=turnless)
    return Services(
        settings=settings or Settings(),
        catalog=ScriptedCatalog(agent or ScriptedAgent(), properties, access or PUBLIC_PROJECT),
        store=store or MemoryStore(),
        environment=environment or scripted_environment(),
        models={"Scripted": model},
        managers=managers,
        recognizers={"Scripted": lambda _: recognizer},
        filters=filters,
        action_mappers=action_mappers or {},
        authenticator=authenticator or NobodyKnown(),
        live=LiveSessions() if live is None else live,
        open_recorder=open_recorder,
        observer=observer or Observer(),
    )


@asynccontextmanager
async def open_stage(
    *,
    model: ScriptedModel | None = None,
    manager: ScriptedManager | None = None,
    managers: Sequence[InteractionManager] | None = None,
    agent: ScriptedAgent | None = None,
    recognizer: Recognizer | None = None,
    turnless: bool = False,
    settings: Settings | None = None,
    store: Store | None = None,
    environment: Environment | None = None,
    filters: Sequence[ElementFilter] = (),
    action_mappers: Mapping[str, ActionMapper] | None = None,
    authenticator: Authenticator | None = None,
    access: ProjectAccess | None = None,
    live: LiveSessions | None = None,
    open_recorder: OpenRecorder | None = None,
    observer: Observer | None = None,
    watch: bool = False,
    principal: Principal = TESTER,
    seconds_per_element: float = 0.0,
    **configuration: Any,
) -> AsyncGenerator[Stage]:
    """One connection with a session for `agent:tester`, started and ready. Leaving ends it: by then nothing of it may run.

    Stages that share `live` are connections of one process; those that share only the store, of several, which see each other
    when `watch` is on. `configuration` are fields of `PipelineConfiguration`; input is at 24 kHz unless they say otherwise.
    """
    model = model or ScriptedModel()
    manager = manager or ScriptedManager()
    services = scripted_services(
        model=model,
        managers=managers or [manager],
        agent=agent,
        recognizer=recognizer,
        turnless=turnless,
        settings=settings,
        store=store,
        environment=environment,
        filters=filters,
        action_mappers=action_mappers,
        authenticator=authenticator,
        access=access,
        live=live,
        open_recorder=open_recorder,
        observer=observer,
    )
    fields: dict[str, Any] = {"key": "agent:tester", "input_sample_rate": 24000, "output_sample_rate": 24000}
    wishes = PipelineConfiguration(**(fields | configuration))
    line = open_line(wishes, services.settings)
    stage = Stage(ScriptedClient(line), model, manager, services.store, services, recognizer)

    async def connect() -> None:
        with stage.connection:
            stage.end = await run_connection(wishes, line, services, principal=principal)
        stage.ended_at = trio.current_time()
        ended.set()

    async def listen() -> None:
        await stage.client.listen(seconds_per_element=seconds_per_element)
        await ended.wait()
        stage.over.set()

    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        if watch:
            nursery.start_soon(watch_sessions, services, name="watch")
        nursery.start_soon(connect, name="connection")
        nursery.start_soon(listen, name="client")
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield stage
        finally:
            stage.connection.cancel(reason="the stage is closed")
            if watch:
                with trio.CancelScope(shield=True):
                    await ended.wait()
                nursery.cancel_scope.cancel(reason="the stage is closed")
