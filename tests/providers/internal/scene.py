"""A whole connection with an Internal session: real engine, scripted parts and client, virtual time, judged when it is closed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
import trio.testing

from engine.config import PipelineConfiguration, Settings
from engine.elements import EmotionalState, OutCommand, OutSpeech, OutText, RealtimeInstruction, SpeakingState
from engine.interfaces import Context, Emit, PlanningManager, Role, SystemPrompt, ToolBox, TurnInput
from engine.principal import Principal
from engine.session.services import Services
from engine.session.windowing import run_connection
from engine.testing.chat import Script
from engine.testing.contract import check_record
from engine.testing.faults import FaultyStore
from engine.testing.invariants import require
from engine.testing.records import noting_ids, record_of, watched_line
from engine.testing.schedule import seed_schedule
from engine.testing.scripted import ScriptedClient, ScriptedRecognizer, final, interim
from engine.testing.stage import PUBLIC_PROJECT, ScriptedAgent, ScriptedCatalog, ScriptedManager, scripted_environment
from providers.internal.model import InternalRealtimeModel
from providers.internal.properties import InternalProperties
from providers.internal.session import InternalSession
from tests.providers.internal.fakes import FakeChat, FakeSynthesizer, FakeTool, FakeToolBox, clock, finder, tool_box


class KeptModel(InternalRealtimeModel):
    """Keeps the sessions it makes, for the test."""

    sessions: list[InternalSession]

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> InternalSession:
        session = super().process(context, system_prompt, tool_box, can_delegate)
        self.sessions.append(session)
        return session


@attrs.define(eq=False)
class Scene:
    """What a test works with."""

    client: ScriptedClient
    chat: FakeChat
    synthesizer: FakeSynthesizer
    recognizer: ScriptedRecognizer
    box: FakeToolBox
    manager: ScriptedManager
    store: FaultyStore
    sessions: list[InternalSession]
    connection: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    asked_to_end: float | None = None
    ended_at: float | None = None

    # what the user does

    def begin_to_speak(self) -> None:
        self.recognizer.hear(EmotionalState(SpeakingState.USER_SPEAKING), interim())

    def stop_speaking(self) -> None:
        self.recognizer.hear(EmotionalState(SpeakingState.USER_NOT_SPEAKING))

    def finish(self, text: str) -> None:
        self.recognizer.hear(EmotionalState(SpeakingState.USER_NOT_SPEAKING), final(text))

    async def say(self, text: str) -> None:
        """Say something that takes no time."""
        self.begin_to_speak()
        await trio.testing.wait_all_tasks_blocked()
        self.finish(text)
        await trio.testing.wait_all_tasks_blocked()

    async def noise(self) -> None:
        """A cough: speech that no words are found in."""
        self.begin_to_speak()
        self.stop_speaking()
        await trio.testing.wait_all_tasks_blocked()

    def vanish(self) -> None:
        if self.asked_to_end is None:
            self.asked_to_end = trio.current_time()
        self.connection.cancel(reason="the client vanished")

    # what came of it

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None

    @property
    def session(self) -> InternalSession:
        return self.sessions[-1]

    @property
    def remembered(self) -> list[tuple[str, str]]:
        """The conversation as the engine has heard it."""
        messages = self.manager.contexts[-1].messages
        return [(message.role.value, message.text) for message in messages if message.role is not Role.INSTRUCTION]

    @property
    def told(self) -> list[tuple[str, str]]:
        """The same as the chat model would be told now, without its tools and notes."""
        return [
            (message.role, message.text)
            for message in self.session.history.request("")
            if message.role in ("user", "assistant") and message.text
        ]

    def ends(self) -> list[tuple[str, str]]:
        """Each response's id and status, in the order of their ends."""
        return [(p["responseId"], p["status"]) for p in self.client.commands("response-end")]

    def at(self, command: str) -> list[float]:
        return [round(t, 6) for t in self.client.at(lambda e: isinstance(e, OutCommand) and e.name == command)]

    def texts_of(self, response_id: str) -> list[str]:
        return [e.text for e in self.client.spoken(response_id) if isinstance(e, OutText)]

    def speech_after(self, time: float, response_id: str) -> list[float]:
        """When words, sentences or speech of a response came after a time."""
        spoken = self.client.spoken(response_id)
        return [t for t, e in self.client.heard if e in spoken and t > time]

    def first_speech(self, response_id: str) -> float:
        return min(
            round(t, 6) for t, e in self.client.heard if isinstance(e, OutSpeech) and e.response_id == response_id
        )


@asynccontextmanager
async def open_scene(
    *scripts: Script,
    synthesizer: FakeSynthesizer | None = None,
    tools: Sequence[FakeTool] = (),
    planner: PlanningManager | None = None,
    settings: Settings | None = None,
    unwind_seconds: float = 0.0,
    seed: int = 0,
    **configuration: Any,
) -> AsyncGenerator[Scene]:
    """A running session. Leaving ends the connection; what was said, stored and remembered must then keep every rule."""
    seed_schedule(seed)
    chat, synthesizer, recognizer = (
        FakeChat(list(scripts), unwind_seconds),
        synthesizer or FakeSynthesizer(),
        ScriptedRecognizer(),
    )
    model = KeptModel(finder(chat, synthesizer))
    model.sessions = []
    box, store, settings = tool_box(*tools), FaultyStore(), settings or Settings()
    manager = ScriptedManager(tool_box=box, planner=planner)
    environment, own_ids = noting_ids(scripted_environment())
    services = Services(
        settings=settings,
        catalog=ScriptedCatalog(ScriptedAgent(), InternalProperties(stt_provider="Scripted"), PUBLIC_PROJECT),
        store=store,
        environment=environment,
        models={"Internal": model},
        managers=[manager],
        recognizers={"Scripted": lambda _: recognizer},
    )
    wishes = PipelineConfiguration(key="agent:tester", **configuration)
    line = watched_line(wishes, settings)
    scene = Scene(ScriptedClient(line), chat, synthesizer, recognizer, box, manager, store, model.sessions)

    async def connect() -> None:
        with scene.connection:
            await run_connection(wishes, line, services, principal=Principal("device:test"))
        scene.ended_at = clock()

    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect, name="connection")
        nursery.start_soon(scene.client.listen, name="client")
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield scene
        finally:
            scene.vanish()
    assert trio.lowlevel.current_statistics().tasks_living == before, "a task outlived its session"
    assert (chat.open_streams, synthesizer.speaking) == (0, 0), "a part outlived its session"
    record = record_of(
        scene.client,
        manager.contexts,
        store,
        wishes,
        asked_to_end=scene.asked_to_end,
        ended_at=scene.ended_at,
        own_ids=own_ids,
    )
    record.disconnects = manager.disconnects
    require(check_record(record))


def joined(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Neighbouring lines of one role as one, without white space: the model's history has an answer in parts, before and after
    its calls, and as it was written, not as it was cut into sentences."""
    whole: list[tuple[str, str]] = []
    for role, text in lines:
        text = "".join(text.split())
        if whole and whole[-1][0] == role:
            whole[-1] = (role, whole[-1][1] + text)
        else:
            whole.append((role, text))
    return whole


@attrs.define(eq=False)
class Planner(PlanningManager):
    """After each turn it gives the instructions of the next plan, each after its delay."""

    plans: list[Sequence[tuple[float, RealtimeInstruction]]]
    cancelled: int = 0

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        plan = self.plans.pop(0) if self.plans else ()
        try:
            async with trio.open_nursery() as nursery:
                for seconds, instruction in plan:
                    nursery.start_soon(self._give, seconds, instruction, emit)
        except BaseException:
            self.cancelled += 1
            raise

    async def _give(self, seconds: float, instruction: RealtimeInstruction, emit: Emit) -> None:
        await trio.sleep(seconds)
        await emit(instruction)
