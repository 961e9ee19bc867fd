"""A whole connection with an OpenAI session: real engine, real link, simulated service, scripted client, virtual time. It is judged
when it is closed: by every invariant of a conversation, by the service's rules, and by comparing what both sides take for heard."""

import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
import trio.testing

from engine.boundary import Keep
from engine.config import PipelineConfiguration, Settings
from engine.elements import InputAudio, InputElement, InputText, OutCommand, OutError, OutSpeech, SpeechCut
from engine.interfaces import Agent, InteractionManager, PlanningManager, RealtimeModel, Role, ToolBox
from engine.principal import Principal
from engine.session.services import Services
from engine.session.windowing import ConnectionEnd, run_connection
from engine.testing.contract import check_record, require_kept
from engine.testing.faults import FaultyStore
from engine.testing.records import noting_ids, record_of, watched_line
from engine.testing.schedule import seed_schedule
from engine.testing.scripted import ScriptedClient, ScriptedRecognizer
from engine.testing.stage import (
    EPOCH,
    PUBLIC_PROJECT,
    ScriptedAgent,
    ScriptedCatalog,
    ScriptedManager,
    scripted_environment,
)
from providers.link import WebSocketLink, open_link
from providers.openai.model import OpenAIRealtimeModel
from providers.openai.properties import OpenAIProperties
from providers.openai.simulator import Connection, Rule, Script, Simulator

TOLERANCE_MS = 3
"""Milliseconds are rounded at several places."""
BYTES_PER_MS = 48
KEY_VARIABLE = "SOUFFLEUR_SIMULATED_KEY"
RACES = {Rule.NOTHING_TO_CANCEL, Rule.ONE_RESPONSE}
"""What may be broken when two things happen at the same time."""


def wall_clock() -> float:
    return EPOCH.timestamp() + trio.current_time()


def memory_link(
    simulator: Simulator, nursery: trio.Nursery
) -> Callable[[str, Mapping[str, str]], AbstractAsyncContextManager[WebSocketLink]]:
    """Links to the simulator over streams in memory, which a mock clock may drive."""

    async def open_stream(url: str) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return simulator.connect(nursery)

    return partial(open_link, open_stream=open_stream)


def unmatched(heard: Sequence[int], known: Sequence[int]) -> list[int] | None:
    """What was heard before all that is known; None when the two do not match. An answer may be of several responses of the
    service, and one of those be ended idle and carried on as another of the engine's."""
    mine, theirs = list(heard), list(known)
    difference = 0
    while theirs or abs(difference) > TOLERANCE_MS:
        if abs(difference) <= TOLERANCE_MS:
            difference = theirs.pop()
        elif difference > 0:
            if not mine:
                return None
            difference -= mine.pop()
        elif theirs:
            difference += theirs.pop()
        else:
            return None
    return mine


@attrs.define(eq=False)
class Scene:
    """What a test works with."""

    client: ScriptedClient
    simulator: Simulator
    manager: ScriptedManager
    store: FaultyStore
    recognizer: ScriptedRecognizer
    connection: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    end: ConnectionEnd | None = None
    asked_to_end: float | None = None
    ended_at: float | None = None
    over: trio.Event = attrs.field(factory=trio.Event)

    # what the user does

    async def say(self, *elements: InputElement) -> None:
        await self.client.send(*elements)

    async def type(self, text: str) -> None:
        await self.client.send(InputText(text))

    async def send_audio(self, seconds: float, *, silent: bool = True) -> None:
        """Audio in real time, 20 ms at a time."""
        for _ in range(round(seconds / 0.02)):
            await self.client.send(InputAudio(bytes(960) if silent else b"\0\x40" * 480))
            await trio.sleep(0.02)

    def vanish(self) -> None:
        if self.asked_to_end is None:
            self.asked_to_end = trio.current_time()
        self.connection.cancel(reason="the client vanished")

    # the service

    @property
    def service(self) -> Connection:
        """The newest connection."""
        return self.simulator.connection

    @property
    def accepted(self) -> Connection:
        """The newest connection that was not refused."""
        return [connection for connection in self.simulator.connections if connection.core is not None][-1]

    def received(self, event_type: str) -> list[dict[str, Any]]:
        """What all connections were sent of a type."""
        return [event for connection in self.simulator.connections for event in connection.events(event_type)]

    # what came of it

    def ends(self) -> list[str]:
        """The statuses of the responses, in the order of their ends."""
        return [str(p["status"]) for p in self.client.commands("response-end")]

    def at(self, command: str) -> list[float]:
        return [round(t, 6) for t in self.client.at(lambda e: isinstance(e, OutCommand) and e.name == command)]

    @property
    def errors(self) -> list[OutError]:
        return [element for element in self.client.elements if isinstance(element, OutError)]

    @property
    def finals(self) -> list[str]:
        return [transcript.text for transcript in self.client.transcripts if not transcript.is_interim]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The conversation as it was heard."""
        messages = self.manager.contexts[-1].messages
        return [(message.role.value, message.text) for message in messages if message.role is not Role.INSTRUCTION]

    @property
    def sentences(self) -> list[str]:
        return self.client.sentences

    def speech_after(self, time: float, response_id: str) -> list[float]:
        """When words or speech of a response came after a time."""
        spoken = self.client.spoken(response_id)
        return [at for at, element in self.client.heard if element in spoken and at > time]

    # what both sides take for heard

    def check_history(self) -> None:
        """The newest connection's service knows of the same milliseconds of each answer as the engine; of lost connections nobody
        knows. Nothing may be under way."""
        heard, known = self.heard_ms(), self.known_ms()
        left = unmatched(heard, known)
        assert left is not None, f"heard {heard}, the service knows of {known}"
        assert sum(left) <= TOLERANCE_MS or len(self.simulator.connections) > 1, f"heard {heard}, known {known}"

    def heard_ms(self) -> list[int]:
        """What the engine takes for heard of each answer, in order. A client plays one after the other, so that of what was sent behind
        one that was cut nothing was heard; `Hearing` takes the third in a row to begin before the second has ended."""
        hearing, later = self.client.line.hearing, trio.current_time() + 1e6
        first, cut, size = dict[str, int](), dict[str, int](), Counter[str]()
        for place, element in enumerate(self.client.elements):
            if isinstance(element, OutSpeech) and element.data:
                first.setdefault(element.response_id, place)
                size[element.response_id] += len(element.data)
            elif isinstance(element, SpeechCut):
                cut[element.response_id] = place
        heard: list[int] = []
        cut_until = 0
        for response_id, place in first.items():
            ms = 0 if place < cut_until else round(hearing.heard_ms(response_id, later))
            heard.append(ms)
            if ms < size[response_id] / BYTES_PER_MS - TOLERANCE_MS:
                cut_until = max(cut_until, cut.get(response_id, 0))
        return heard

    def known_ms(self) -> list[int]:
        """What the service has of each answer, in order."""
        core = self.accepted.core
        assert core is not None
        answers: dict[str, str] = {}
        for event in self.accepted.sent_events("response.created"):
            metadata: dict[str, str] = event["response"]["metadata"] or {}
            response_id = str(event["response"]["id"])
            answers[response_id] = metadata.get("answer") or response_id
        of_item: dict[str, str] = {
            event["item"]["id"]: answers[event["response_id"]]
            for event in self.accepted.sent_events("response.output_item.added")
        }
        known: dict[str, float] = {}
        for item in core.conversation.items:
            if item.has_model_audio:
                known[of_item[item.id]] = known.get(of_item[item.id], 0.0) + item.audio_ms
        return [round(ms) for ms in known.values()]

    def known_words(self) -> list[str]:
        """What the service has of the assistant's written words."""
        core = self.accepted.core
        assert core is not None
        items = [item.shown for item in core.conversation.items if item.shown.get("role") == "assistant"]
        return [str(part.get("text", "")) for item in items for part in item["content"]]

    def check_settled(self) -> None:
        """Each call that the service knows of has one output, in the conversation it belongs to."""
        for connection in self.simulator.connections:
            outputs = [
                event["item"]["call_id"]
                for event in connection.events("conversation.item.create")
                if event["item"]["type"] == "function_call_output"
            ]
            assert len(outputs) == len(set(outputs)), f"answered twice: {outputs}"


def properties(**more: Any) -> OpenAIProperties:
    """Recognition by the service; `stt_provider="Scripted"` leaves it to the engine."""
    os.environ[KEY_VARIABLE] = "a key for the simulator"
    return OpenAIProperties(base_url="ws://service.test/v1/realtime", api_key=f"env:{KEY_VARIABLE}", **more)


@asynccontextmanager
async def open_scene(
    script: Script | Sequence[Script] | Callable[[int], Script] | None = None,
    *,
    simulator: Simulator | None = None,
    openai: OpenAIProperties | None = None,
    tool_box: ToolBox | None = None,
    planner: PlanningManager | None = None,
    agent: Agent | None = None,
    managers: Sequence[InteractionManager] | None = None,
    settings: Settings | None = None,
    store: FaultyStore | None = None,
    seed: int = 0,
    races: Collection[Rule] = RACES,
    half_open: bool = False,
    keep: Keep | None = None,
    breaks: Mapping[str, str] | None = None,
    make_model: Callable[[Any], RealtimeModel] = OpenAIRealtimeModel,
    **configuration: Any,
) -> AsyncGenerator[Scene]:
    """A session that is ready. Leaving ends the connection, and everything that was said, stored and sent must then keep the rules.
    `half_open`: the service will not see the end of a connection. `breaks`: as in `open_stage`.
    """
    seed_schedule(seed)
    simulator = simulator or Simulator(script or Script(), wall_clock=wall_clock)
    store, settings = store or FaultyStore(), settings or Settings()
    manager, recognizer = ScriptedManager(tool_box=tool_box, planner=planner), ScriptedRecognizer(24000)
    environment, own_ids = noting_ids(scripted_environment(seed))
    fields: dict[str, Any] = {"key": "agent:tester", "input_sample_rate": 24000, "output_sample_rate": 24000}
    wishes = PipelineConfiguration(**(fields | configuration))
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as serving:
        services = Services(
            settings=settings,
            catalog=ScriptedCatalog(agent or ScriptedAgent(), openai or properties(), PUBLIC_PROJECT),
            store=store,
            environment=environment,
            models={name: make_model(memory_link(simulator, serving)) for name in ("OpenAI", "AzureOpenAI")},
            managers=managers or [manager],
            recognizers={"Scripted": lambda _: recognizer},
            keep=keep,
        )
        line = watched_line(wishes, settings)
        scene = Scene(ScriptedClient(line), simulator, manager, store, recognizer)

        async def connect() -> None:
            with scene.connection:
                scene.end = await run_connection(wishes, line, services, principal=Principal("device:test"))
            scene.ended_at = trio.current_time()

        async def listen() -> None:
            await scene.client.listen()
            scene.over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect, name="connection")
            nursery.start_soon(listen, name="client")
            await trio.testing.wait_all_tasks_blocked()
            try:
                yield scene
            finally:
                scene.vanish()
        await trio.testing.wait_all_tasks_blocked()
        left = [connection.number for connection in simulator.connections if not connection.ended.is_set()]
        serving.cancel_scope.cancel(reason="the scene is closed")
    assert trio.lowlevel.current_statistics().tasks_living == before, "a task outlived its session"
    assert left == [] or half_open, "a connection outlived its session"
    broken = [each for connection in simulator.connections for each in connection.broken if each.rule not in races]
    assert broken == [], "\n".join(f"{each.rule}: {each.detail} {each.event}" for each in broken)
    scene.check_settled()
    record = record_of(
        scene.client,
        manager.contexts,
        store,
        wishes,
        asked_to_end=scene.asked_to_end,
        ended_at=scene.ended_at,
        own_ids=own_ids if keep is None else None,
    )
    if manager.contexts:
        record.disconnects = manager.disconnects
    require_kept(check_record(record), breaks or {})
