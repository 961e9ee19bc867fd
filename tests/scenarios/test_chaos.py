"""Random users, models, planners and stores, on a random schedule: every invariant holds, and nobody who speaks is left alone.

Each seed is one conversation of a minute. What is random is lawful: the model keeps the laws of a session.
"""

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.elements import (
    Action,
    AnswerAgain,
    ControlToken,
    EmotionalState,
    InputAudio,
    InputElement,
    InputText,
    InstructionType,
    Interrupted,
    JsonObject,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    Partial,
    Playback,
    RealtimeCommand,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    Context,
    Emit,
    PlanningManager,
    SessionInput,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSettled,
    ToolSpecification,
    TurnInput,
)
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall, no_faults
from engine.testing.scripted import ScriptedModel, ScriptedRecognizer, ScriptedSession, final, interim, speech
from engine.testing.stage import ScriptedManager, Stage
from tests.scenarios.support import open_scene

SECONDS = 60
SETTINGS = Settings()


class RandomTools(ToolBox):
    """Three tools, one of each policy; they take their time, and sometimes fail."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    @property
    def specifications(self) -> list[ToolSpecification]:
        return [
            ToolSpecification(policy.value, "A tool.", {"type": "object"}, on_interruption=policy)
            for policy in OnInterruption
        ]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(self.chance.choice([0, 0, 0.3, 2.0]))
        if self.chance.random() < 0.2:
            raise ToolError("It did not work.")
        return ToolResult("done", (MultimodalInteraction(MultimodalKind.CARD, name),))


@attrs.define(eq=False)
class RandomPlanner(PlanningManager):
    chance: random.Random

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        for _ in range(self.chance.randrange(3)):
            await trio.sleep(self.chance.choice([0, 0.2, 1.0]))
            if self.chance.random() < 0.5:
                await emit(RealtimeCommand("realtime-planning", {"text": "Hm."}))
            else:
                await emit(RealtimeInstruction("Go on.", self.chance.choice(list(InstructionType))))


@attrs.define(eq=False)
class RandomModel:
    """A lawful model: it echoes, answers in order, stops when interrupted, and is sometimes slow, silent or failing in a part."""

    chance: random.Random
    nursery: trio.Nursery | None = None
    waiting: list[SessionInput | RealtimeInstruction] = attrs.field(factory=list[SessionInput | RealtimeInstruction])
    speaking: trio.CancelScope | None = None
    settled: dict[str, trio.Event] = attrs.field(factory=dict[str, trio.Event])
    count: int = 0
    is_calm: bool = False

    def react(self, session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
        match item:
            case Interrupted():
                self.waiting.clear()
                if self.speaking is not None:
                    self.speaking.cancel(reason="interrupted")
            case ToolSettled(call_id=call_id):
                self.settled.setdefault(call_id, trio.Event()).set()
            case UserSpeech() | AnswerAgain() | Action():
                self._take(session, item)
            case RealtimeInstruction(type=kind) if not kind.is_contextual:
                self._take(session, item)
            case _:
                pass

    def _take(self, session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
        self.waiting.append(item)
        if self.speaking is None:
            self._next(session)

    def _next(self, session: ScriptedSession) -> None:
        self.speaking = None
        if self.waiting and self.nursery is not None:
            self.speaking = trio.CancelScope()
            self.nursery.start_soon(self._answer, session, self.waiting.pop(0), self.speaking)

    async def _answer(
        self, session: ScriptedSession, item: SessionInput | RealtimeInstruction, scope: trio.CancelScope
    ) -> None:
        self.count += 1
        response_id = f"r{self.count}"
        name = response_id if self.chance.random() < 0.7 else ""
        has_echoed = False
        with scope:
            await self._pause([0, 0, 0.05, 0.5])
            match item:
                case UserSpeech(text, provider):
                    session.say(Transcript(text, provider=provider, response_id=name))
                case AnswerAgain(text):
                    session.say(Transcript(text, is_synthetic=True, response_id=name))
                case Action(action):
                    session.say(Transcript(f"#{action}", is_synthetic=True, response_id=name))
                case _:
                    pass
            has_echoed = True
            await self.speak(session, response_id)
            session.say(
                ResponseEnd(response_id, self.chance.choice([ResponseStatus.COMPLETED] * 5 + [ResponseStatus.FAILED]))
            )
        if scope.cancelled_caught and has_echoed and self.chance.random() < 0.5:
            session.say(ResponseEnd(response_id, ResponseStatus.CANCELLED))
        self._next(session)

    async def speak(self, session: ScriptedSession, response_id: str) -> None:
        if self.is_calm:
            session.say(Token("The last answer.", response_id), SpeechItem(speech(100), 24000, response_id))
            return
        for piece in range(self.chance.randrange(5)):
            await self._pause([0, 0, 0.1, 0.1, 1.0, 1.0, 22.0 if self.chance.random() < 0.1 else 0.3])
            session.say(Token(f" Part {piece} of {response_id}.", response_id))
            session.say(SpeechItem(speech(self.chance.choice([20, 100, 1500])), 24000, response_id))
            if self.chance.random() < 0.15:
                call_id = f"{response_id}-{piece}"
                done = self.settled.setdefault(call_id, trio.Event())
                session.call_tool(call_id, self.chance.choice(list(OnInterruption)).value, "{}", response_id)
                await done.wait()
            if self.chance.random() < 0.05:
                session.say(RealtimeError(ErrorCode.INTERNAL, "It stumbled."))

    async def _pause(self, seconds: list[float]) -> None:
        await trio.sleep(self.chance.choice(seconds))


async def speak_aloud(stage: Stage, model: RandomModel, chance: random.Random, number: int) -> None:
    """The user's voice, as the engine's recognizer hears it or as the model does."""
    hear: Callable[..., Any] = (
        stage.recognizer.hear if isinstance(stage.recognizer, ScriptedRecognizer) else stage.model.session.say
    )
    is_models = stage.recognizer is None
    if chance.random() < 0.5:
        hear(EmotionalState(SpeakingState.USER_SPEAKING))
    if is_models:
        model.react(stage.model.session, Interrupted())
    hear(interim())
    await trio.sleep(chance.choice([0, 0.1, 0.5, 1.5]))
    if chance.random() < 0.3:
        hear(Partial("wor"))
    if chance.random() < 0.5:
        hear(EmotionalState(SpeakingState.USER_NOT_SPEAKING))
    if chance.random() < 0.2:
        return  # a noise
    await trio.sleep(chance.choice([0, 0.1, 0.4]))
    if is_models:
        model.react(stage.model.session, UserSpeech(f"spoken {number}", "Scripted"))
    else:
        hear(final(f"spoken {number}"))


async def behave(stage: Stage, model: RandomModel, chance: random.Random) -> None:
    """A user of moods."""
    number = 0
    while trio.current_time() < SECONDS:
        await trio.sleep(chance.choice([0, 0.02, 0.1, 0.4, 1.0, 3.0, 8.0]))
        number += 1
        match chance.randrange(10):
            case 0 | 1 | 2:
                await stage.client.send(InputText(f"typed {number}"))
            case 3 | 4 | 5 | 6:
                await speak_aloud(stage, model, chance, number)
            case 7:
                await stage.client.send(
                    chance.choice([Action("intro"), Action("rating", {"value": "3"}), Action("no")])
                )
            case 8:
                spoken = f"r{chance.randrange(model.count + 1)}"
                await stage.client.send(Playback(spoken, chance.randrange(3000)))
            case _:
                odd: list[InputElement] = [InputAudio(speech(20)), InputText(" "), ControlToken("locales", "cs")]
                await stage.client.send(chance.choice(odd))


def moody(chance: random.Random) -> Callable[[StoreCall], Fault | float | None]:
    def plan(call: StoreCall) -> Fault | float | None:
        if call.operation != "append_turns":
            return None
        return chance.choice([None, None, 0.01, 0.3, 2.5, Fault.FAIL])

    return plan


async def converse(seed: int) -> None:
    chance = random.Random(seed)
    model = RandomModel(chance)
    store = FaultyStore(moody(chance))
    recognizer = ScriptedRecognizer() if chance.random() < 0.5 else None
    manager = ScriptedManager(tool_box=RandomTools(chance), planner=RandomPlanner(chance))
    pace = chance.choice([0.0, 0.0, 0.02])
    async with open_scene(
        seed=seed,
        store=store,
        model=ScriptedModel(model.react),
        manager=manager,
        recognizer=recognizer,
        settings=SETTINGS,
        seconds_per_element=pace,
        tokens=True,
        partials=True,
        text_only=chance.random() < 0.2,
    ) as stage:
        async with trio.open_nursery() as nursery:
            model.nursery = nursery
            await behave(stage, model, chance)
            # Whatever state it is in: somebody who now speaks is answered, when the turns before have been saved or given up on
            # (the writer pauses for 5 s at most) and a shielded call is over.
            await trio.sleep(0.1)
            model.is_calm, store.plan = True, no_faults
            await stage.client.send(InputText("the last words"))
            await trio.sleep(9)
            finals = [t.text for t in stage.client.transcripts if not t.is_interim]
            assert finals[-1] == "the last words"
            assert "The last answer." in stage.client.sentences
            await trio.sleep(60)
            match chance.randrange(3):
                case 0:
                    stage.vanish()
                case 1:
                    stage.model.session.fail(RealtimeException(ErrorCode.PROVIDER_QUOTA, "Nothing is left."))
                case _:
                    await stage.client.send(ControlToken("exit"))
                    await stage.client.wait_for_command("session-end", state="CLOSED")
                    stage.vanish()
            await stage.over.wait()
            nursery.cancel_scope.cancel(reason="the conversation is over")
        assert store.saved_sessions[-1].state is not SessionState.OPEN
        assert len(store.written_usage) == 1


@pytest.mark.parametrize("seed", range(60))
def test_a_conversation(seed: int) -> None:
    trio.run(converse, seed, clock=MockClock(autojump_threshold=0))
