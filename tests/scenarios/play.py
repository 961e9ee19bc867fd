"""A relational agent on the Internal provider: a chat model that speaks and one that plans, both by script, in virtual time."""

import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from agents.chat_models import FindFactory
from agents.relational.manager import RelationalAgentInteractionManager
from engine.boundary import Keep
from engine.config import PipelineConfiguration, Settings
from engine.elements import InputText, OutCommand, OutputElement, OutText, OutToken
from engine.interfaces import ChatModel, ChatRequest, Context, PartFactory
from engine.principal import ProjectAccess
from engine.session.services import Services
from engine.session.windowing import run_connection
from engine.store.contract import Store
from engine.testing.chat import Script, ScriptedChat
from engine.testing.contract import check_record
from engine.testing.faults import FaultyStore
from engine.testing.invariants import require
from engine.testing.records import noting_ids, record_of, watched_line
from engine.testing.scripted import ScriptedClient
from engine.testing.stage import TESTER, ScriptedCatalog, scripted_environment
from providers.internal.model import InternalRealtimeModel
from providers.internal.properties import InternalProperties
from tests.agents.relational.troupe import agent

Answer = Callable[[ChatRequest], Script]
GREETING = "Good evening."
OPENING = '{"results": "Greet the regular warmly."}'


def in_turn(*scripts: Script, then: Script = ("Nothing.",)) -> Answer:
    """One script after the other, for each request."""
    rest = list(scripts)
    return lambda _: rest.pop(0) if rest else then


class KnownManager(RelationalAgentInteractionManager):
    """Knows its sessions."""

    def __init__(self, find: FindFactory) -> None:
        super().__init__(find)
        self.contexts = list[Context]()

    async def on_session_start(self, context: Context) -> None:
        self.contexts.append(context)
        await super().on_session_start(context)


@attrs.define(eq=False)
class Play:
    client: ScriptedClient
    speaker: ScriptedChat
    planner: ScriptedChat
    reader: ScriptedChat
    store: Store
    connection: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    asked_to_end: float | None = None
    ended_at: float | None = None

    async def say(self, text: str) -> None:
        await self.client.send(InputText(text))

    @property
    def sentences(self) -> list[tuple[float, str]]:
        return [(round(at, 6), e.text) for at, e in self.client.heard if isinstance(e, OutText)]

    def names(self, *wanted: str) -> list[str]:
        return [e.name for e in self.client.elements if isinstance(e, OutCommand) and e.name in wanted]

    def at(self, name: str) -> list[float]:
        return [round(at, 6) for at, e in self.client.heard if isinstance(e, OutCommand) and e.name == name]

    def whispers(self) -> list[str]:
        return [parameters["text"] for parameters in self.client.commands("realtime-instruction")]

    def passes(self) -> list[str]:
        """What the planner was told for each turn."""
        return [
            "\n".join(message.text for message in request.messages)
            for request in self.planner.requests
            if "opening plan" not in request.messages[-1].text
        ]

    async def exits(self, count: int) -> None:
        seen = itertools.count(1)

        def is_last(element: OutputElement) -> bool:
            return isinstance(element, OutCommand) and element.name == "exit" and next(seen) == count

        with trio.fail_after(250):  # a turn that does not end ends the test
            await self.client.wait_for(is_last)


@asynccontextmanager
async def open_play(
    speaker: Answer,
    planner: Answer,
    *,
    opening: Script = (OPENING,),
    reader: Answer | None = None,
    store: Store | None = None,
    settings: Settings | None = None,
    shared: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
    through: Callable[[ChatModel], ChatModel] = lambda chat: chat,
    keep: Keep | None = None,
    **configuration: Any,
) -> AsyncGenerator[Play]:
    """A conversation with `agent:barista`, started. `reader` is what reads it beside the planner; without one nobody does.
    `through`: what stands in front of the model that plans."""
    speaks, reads = ScriptedChat(speaker), ScriptedChat(reader or (lambda _: ("{}",)))
    plans = ScriptedChat(lambda request: opening if "opening plan" in request.messages[-1].text else planner(request))

    def find(group: str, name: str) -> PartFactory:
        def make(part: Mapping[str, Any]) -> ChatModel:
            if part.get("reasoning"):
                return through(plans)
            if part.get("speaks"):
                return speaks
            return reads if reader is not None else Nobody(lambda _: ())

        return make

    settings = settings or Settings()
    environment, own_ids = noting_ids(scripted_environment())
    manager = KnownManager(find)
    properties = InternalProperties(stt_provider="None", chat={"provider": "Scripted", "speaks": True})
    made = agent(realtimeConfigurationId="x", **(fields or {}))
    catalog = ScriptedCatalog(made, properties, ProjectAccess("test", is_public=True), dict(shared or {}))
    services = Services(
        settings=settings,
        catalog=catalog,
        store=store or FaultyStore(),
        environment=environment,
        models={"Internal": InternalRealtimeModel(find)},
        managers=[manager],
        keep=keep,
    )
    wishes = PipelineConfiguration(key="agent:barista", text_only=True, **configuration)
    line = watched_line(wishes, settings)
    play = Play(ScriptedClient(line), speaks, plans, reads, services.store)

    async def connect() -> None:
        with play.connection:
            await run_connection(wishes, line, services, principal=TESTER)
        play.ended_at = trio.current_time()

    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect, name="connection")
        nursery.start_soon(play.client.listen, name="client")
        with trio.fail_after(60):  # nothing else would end a test whose session does not start
            await play.client.wait_for_command("ready")
        try:
            yield play
        finally:
            play.asked_to_end = trio.current_time()
            play.connection.cancel(reason="the play is over")
    assert trio.lowlevel.current_statistics().tasks_living == before, "a task outlived its session"
    assert speaks.open_streams == plans.open_streams == reads.open_streams == 0, "a stream outlived its session"
    require(
        check_record(
            record_of(
                play.client,
                manager.contexts,
                services.store,
                wishes,
                asked_to_end=play.asked_to_end,
                ended_at=play.ended_at,
                own_ids=own_ids if keep is None else None,
            )
        )
    )


class Nobody(ScriptedChat):
    """As the Demo model: it reads nothing."""

    is_scripted = True


def first_words(play: Play, response: int = 0) -> float:
    """When the first words of a response came."""
    found: dict[str, float] = {}
    for at, element in play.client.heard:
        if isinstance(element, OutText | OutToken):
            found.setdefault(element.response_id, round(at, 6))
    return list(found.values())[response]
