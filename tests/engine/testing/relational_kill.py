"""A conversation with a relational agent on the Internal provider, for those who kill it: a chat model that speaks and one that plans,
by script; help is asked for, whispers come in passes, the user interrupts, and the agent is left in good order."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import attrs
import trio
import trio.testing

from agents.relational.manager import RelationalAgentInteractionManager
from engine.config import PipelineConfiguration
from engine.elements import Action, ControlToken
from engine.interfaces import ChatRequest, Context, Environment, PartFactory
from engine.pipeline.line import ClientLine, open_line
from engine.principal import ProjectAccess
from engine.session.live import LiveSessions
from engine.session.services import Services
from engine.session.windowing import run_connection
from engine.store.documents import SessionState
from engine.testing.chat import Script, ScriptedChat, call, tokens
from engine.testing.contract import SessionRecord
from engine.testing.faults import FaultyStore
from engine.testing.kill import Scene
from engine.testing.scripted import ScriptedClient
from engine.testing.stage import TESTER, ScriptedCatalog
from providers.internal.model import InternalRealtimeModel
from providers.internal.properties import InternalProperties
from tests.agents.relational.troupe import agent
from tests.engine.testing.kill_scene import SETTINGS, plan
from tests.engine.testing.relational_world import PLANS
from tests.scenarios.play import OPENING, Nobody

QUESTIONS = (
    "A table, please.",
    "no, for three",
    "mhm",
    "54 73 9",
    "Are dogs allowed?",
    "At seven.",
    "By the window.",
    "What is the soup?",
    "And the wine?",
    "Is that all?",
)


class NotingManager(RelationalAgentInteractionManager):
    """Writes down whom it is asked for, and whom it has seen go."""

    contexts: list[Context]
    disconnects: int = 0

    async def on_session_start(self, context: Context) -> None:
        self.contexts.append(context)
        await super().on_session_start(context)

    async def on_session_disconnect(self, context: Context) -> None:
        self.disconnects += 1
        await super().on_session_disconnect(context)


@attrs.define(eq=False)
class RelationalStage:
    """See `engine.testing.kill.Killable`."""

    client: ScriptedClient
    services: Services
    manager: NotingManager
    store: FaultyStore
    connection: trio.CancelScope
    over: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    asked_to_end: float | None = None
    ended_at: float | None = None

    @property
    def contexts(self) -> Sequence[Context]:
        return self.manager.contexts

    def vanish(self) -> None:
        if self.asked_to_end is None:
            self.asked_to_end = trio.current_time()
        self.connection.cancel(reason="the client vanished")

    def record(self) -> SessionRecord:
        return SessionRecord(
            self.client.heard,
            sent=self.client.sent,
            saved=[session for session in self.store.saved_sessions if session.state is not SessionState.OPEN],
            usage=self.store.written_usage,
            disconnects=self.manager.disconnects,
            asked_to_end=self.asked_to_end,
            ended=self.ended_at,
            has_tokens=True,
            text_only=True,
            is_over=self.ended_at is not None,
        )


@asynccontextmanager
async def open_relational(
    *,
    store: FaultyStore,
    environment: Environment,
    live: LiveSessions,
    session_id: str,
    connection: trio.CancelScope,
) -> AsyncGenerator[RelationalStage]:
    """As `open_stage` does, for one agent that is there."""
    spoken = cycle(_speak())
    planned = cycle(PLANS[:3])
    speaker = ScriptedChat(lambda request: _may(request, next(spoken)))
    planner = ScriptedChat(
        lambda request: (OPENING,) if "opening plan" in request.messages[-1].text else (0.15, next(planned))
    )

    def find(group: str, name: str) -> PartFactory:
        def make(part: Mapping[str, Any]) -> ScriptedChat:
            if part.get("reasoning"):
                return planner
            return speaker if part.get("speaks") else Nobody(lambda _: ())

        return make

    manager = NotingManager(find)
    manager.contexts = []
    properties = InternalProperties(stt_provider="None", chat={"provider": "Scripted", "speaks": True})
    services = Services(
        settings=SETTINGS,
        catalog=ScriptedCatalog(agent(realtimeConfigurationId="x"), properties, ProjectAccess("test", is_public=True)),
        store=store,
        environment=environment,
        models={"Internal": InternalRealtimeModel(find)},
        managers=[manager],
        live=live,
    )
    wishes = PipelineConfiguration(key="agent:barista", text_only=True, tokens=True, session_id=session_id)
    line = open_line(wishes, SETTINGS)
    stage = RelationalStage(ScriptedClient(line), services, manager, store, connection)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_connect, stage, wishes, line, name="connection")
            nursery.start_soon(_listen, stage, name="client")
            await trio.testing.wait_all_tasks_blocked()
            try:
                yield stage
            finally:
                stage.vanish()
    finally:
        assert speaker.open_streams == planner.open_streams == 0, "a stream outlived its session"


async def _connect(stage: RelationalStage, wishes: PipelineConfiguration, line: ClientLine) -> None:
    with stage.connection:
        await run_connection(wishes, line, stage.services, principal=TESTER)
    stage.ended_at = trio.current_time()
    stage.ended.set()


async def _listen(stage: RelationalStage) -> None:
    await stage.client.listen()
    await stage.ended.wait()
    stage.over.set()


def _speak() -> list[Script]:
    return [
        tokens("Gladly.", 0.02),
        tokens("Let me see. A table is free at seven.", 0.02),
        [0.05, call("request_help", "c", '{"question": "Dogs?"}')],
        tokens("We are open until ten, every day but Monday.", 0.02),
    ]


def _may(request: ChatRequest, script: Script) -> Script:
    """Only tools that are offered are called."""
    if any(tool.name == "request_help" for tool in request.tools):
        return script
    return [step for step in script if isinstance(step, str | float)] or ["Well."]


async def visit(stage: RelationalStage) -> None:
    client = stage.client
    await client.hears_command("ready")
    await client.send(Action("intro"))
    await trio.sleep(1.0)
    for number, question in enumerate(QUESTIONS):
        await client.says(question)
        if number % 3 == 1:
            await trio.sleep(0.1)
        else:
            await client.hears_end()
            await trio.sleep(0.5)
    await trio.sleep(1.0)
    await client.send(ControlToken("exit"))
    await client.hears_command("session-end", within=200)


RELATIONAL = Scene(dict, visit, open_relational, plan)
