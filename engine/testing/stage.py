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

from engine.boundary import Keep
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
from engine.principal import Authenticator, NobodyKnown, Principal, ProjectAccess, UserAccount
from engine.protocol.promises import Violation
from engine.recording import OpenRecorder
from engine.session.live import LiveSessions
from engine.session.services import Services
from engine.session.watch import watch_sessions
from engine.session.windowing import ConnectionEnd, run_connection
from engine.store.contract import Store
from engine.store.memory import MemoryStore
from engine.testing.contract import SessionRecord, check_record, require_kept
from engine.testing.faults import FaultyStore
from engine.testing.mishaps import Mishaps, no_mishaps
from engine.testing.records import noting_ids, record_of, watched_line
from engine.testing.scripted import ScriptedClient, ScriptedModel, ScriptedProperties
from engine.testing.speaker import ConversingSession

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
    disconnects: int = attrs.field(default=0, init=False)
    """How often the disconnect hook was begun; one that fails or takes too long has run too."""

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
        self.disconnects += 1
        await trio.sleep(self.disconnect_seconds)
        self.note("disconnected")


@attrs.define(eq=False)
class ScriptedCatalog:
    """One agent and its configuration."""

    agent_: Agent
    properties: RealtimeProperties
    access: ProjectAccess
    shared: Mapping[str, str] = attrs.field(factory=dict[str, str])

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

    async def shared_agents(self, ref: str) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return self.shared

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
    wishes: PipelineConfiguration = attrs.field(factory=PipelineConfiguration)

    asked_to_end: float | None = None
    """When the client was gone, or the stage closed."""
    own_ids: set[str] | None = None
    """Those that were made on this stage, as others may share its store; None where a capsule makes them."""
    violations: list[Violation] = attrs.field(factory=list[Violation])
    """The promises that were broken, once the stage is left."""

    @property
    def contexts(self) -> list[Context]:
        """Of the sessions that have come so far that they have a model; with another provider, those that the manager has seen."""
        if self.model not in self.services.models.values():
            return self.manager.contexts
        return [session.context for session in self.model.sessions]

    def vanish(self) -> None:
        """The client's socket is gone."""
        if self.asked_to_end is None:
            self.asked_to_end = trio.current_time()
        self.connection.cancel(reason="the client vanished")

    def record(self) -> SessionRecord:
        """All that is known of the connection, for `check_record`. What only a `FaultyStore` or a `ConversingModel` can know is left
        out with another."""
        record = record_of(
            self.client,
            self.contexts,
            self.store,
            self.wishes,
            asked_to_end=self.asked_to_end,
            ended_at=self.ended_at,
            own_ids=self.own_ids,
        )
        record.instructed = [item for session in self.model.sessions for item in session.instructions]
        record.settled = [item.call_id for session in self.model.sessions for item in session.settled]
        record.disconnects = self.manager.disconnects if self.manager in self.services.managers else None
        record.has_turns = not any(session.properties.is_turnless for session in self.model.sessions)
        conversations = [session for session in self.model.sessions if isinstance(session, ConversingSession)]
        if len(conversations) == len(self.model.sessions):
            record.said = [item for session in conversations for item in session.said]
            record.spans = [span for session in conversations for span in session.spans()]
        return record


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
    keep: Keep | None = None,
    provider: RealtimeModel | None = None,
    properties: RealtimeProperties | None = None,
) -> Services:
    """The services of a process that has one agent and speaks with a scripted model, or with a `provider` by its `properties`."""
    stt = "Scripted" if recognizer is not None else "None"
    properties = properties or ScriptedProperties(stt_provider=stt, turnless=turnless)
    return Services(
        settings=settings or Settings(),
        catalog=ScriptedCatalog(agent or ScriptedAgent(), properties, access or PUBLIC_PROJECT),
        store=store or MemoryStore(),
        environment=environment or scripted_environment(),
        models={properties.provider: provider or model},
        managers=managers,
        recognizers={"Scripted": lambda _: recognizer},
        filters=filters,
        action_mappers=action_mappers or {},
        authenticator=authenticator or NobodyKnown(),
        live=LiveSessions() if live is None else live,
        open_recorder=open_recorder,
        observer=observer or Observer(),
        keep=keep,
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
    keep: Keep | None = None,
    watch: bool = False,
    principal: Principal = TESTER,
    connection: trio.CancelScope | None = None,
    seconds_per_element: float = 0.0,
    mishaps: Mishaps | None = None,
    breaks: Mapping[str, str] | None = None,
    unjudged: str = "",
    provider: RealtimeModel | None = None,
    properties: RealtimeProperties | None = None,
    **configuration: Any,
) -> AsyncGenerator[Stage]:
    """One connection with a session for `agent:tester`, started and ready. Leaving ends it: by then nothing of it may run, and all
    that is known of it is held against the contract, which raises AssertionError when a promise was broken.

    `breaks` are promises that are broken on purpose, each with the reason; that they are not is as wrong. `unjudged` is the
    reason why somebody else judges the stage.

    `provider` and `properties` put another model in the place of the scripted one.

    Stages that share `live` are connections of one process; those that share only the store, of several, which see each other
    when `watch` is on. `connection` is what the stage's `vanish` cancels, for who has to before the stage is open. `configuration`
    are fields of `PipelineConfiguration`; input is at 24 kHz unless they say otherwise.
    """
    model = model or ScriptedModel()
    manager = manager or ScriptedManager()
    store = FaultyStore() if store is None else store
    world, own_ids = noting_ids(environment or scripted_environment())
    services = scripted_services(
        model=model,
        managers=managers or [manager],
        agent=agent,
        recognizer=recognizer,
        turnless=turnless,
        settings=settings,
        store=store,
        environment=world,
        filters=filters,
        action_mappers=action_mappers,
        authenticator=authenticator,
        access=access,
        live=live,
        open_recorder=open_recorder,
        observer=observer,
        keep=keep,
        provider=provider,
        properties=properties,
    )
    fields: dict[str, Any] = {"key": "agent:tester", "input_sample_rate": 24000, "output_sample_rate": 24000}
    wishes = PipelineConfiguration(**(fields | configuration))
    line = watched_line(wishes, services.settings)
    client = ScriptedClient(line, mishaps or no_mishaps())
    scope = connection or trio.CancelScope()
    stage = Stage(client, model, manager, services.store, services, recognizer, connection=scope, wishes=wishes)
    stage.own_ids = own_ids if keep is None else None

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
            stage.vanish()
            if watch:
                with trio.CancelScope(shield=True):
                    await ended.wait()
                nursery.cancel_scope.cancel(reason="the stage is closed")
    if not unjudged:
        stage.violations += check_record(stage.record())
        require_kept(stage.violations, breaks or {})
