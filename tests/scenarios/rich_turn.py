"""One turn with everything a turn can have, performed by a model that keeps the laws of a session.

An interim (0.25 s), a final (0.5 s), words and 3.5 s of speech delivered faster than they are played (from 0.6 s), a tool call in flight
(1.0 to 1.6 s), the response's end (1.9 s), extraction, and planning whose instruction makes the model speak again (2.5 to 2.7 s).
The turn is closed at 3.02 s; its last speech has been played at 5.1 s.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.elements import (
    InstructionType,
    Interrupted,
    JsonObject,
    OnInterruption,
    RealtimeCommand,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Token,
    UserSpeech,
)
from engine.interfaces import (
    Context,
    Emit,
    PlanningManager,
    SessionInput,
    ToolBox,
    ToolResult,
    ToolSettled,
    ToolSpecification,
    TurnInput,
)
from engine.testing.faults import FaultyStore, StoreCall
from engine.testing.scripted import ScriptedModel, ScriptedSession, final, interim, speech
from engine.testing.stage import ScriptedManager, Stage
from tests.scenarios.support import open_scene

SAVE_SECONDS = 0.12
"""How long the store takes for a turn."""
TOOL_SECONDS = 0.6
WORDS_AT = 0.5
ENDED_AT = 1.9
CLOSED_AT = 3.02
LENGTH_MS = 5_500
SETTINGS = Settings()


class Lookup(ToolBox):
    """One tool that takes its time."""

    def __init__(self, on_interruption: OnInterruption) -> None:
        schema: JsonObject = {"type": "object"}
        self._lookup = ToolSpecification("lookup", "Looks an order up.", schema, on_interruption=on_interruption)

    @property
    def specifications(self) -> list[ToolSpecification]:
        return [self._lookup]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(TOOL_SECONDS)
        return ToolResult({"found": True})


class Planner(PlanningManager):
    """Says what it thinks, makes the model speak once, adds context."""

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await trio.sleep(0.3)
        await emit(RealtimeCommand("realtime-planning", {"text": "They may like the discount."}))
        await trio.sleep(0.1)
        if turn.text == "find my order":
            await emit(RealtimeInstruction("Mention the discount.", InstructionType.INSTRUCTION, id="i1"))
        await trio.sleep(0.2)
        await emit(RealtimeInstruction("It is noon.", InstructionType.SUPPORTING_CONTEXT))


@attrs.define(eq=False)
class Performer:
    """The model: it speaks piece by piece, and stops when it is interrupted.

    With `leaks` it goes on for a while with what was already under way, as providers do, and only then ends the response.
    """

    leaks: bool = False
    is_dead: bool = False
    nursery: trio.Nursery | None = None
    script: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    speaking: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    settled: trio.Event = attrs.field(factory=trio.Event)
    steered: trio.Event = attrs.field(factory=trio.Event)

    def react(self, session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
        match item:
            case ToolSettled(interrupted=False):
                self.settled.set()
            case RealtimeInstruction():
                self.steered.set()
            case Interrupted():
                self.cut()
            case UserSpeech(text, provider):
                session.say(final(text, provider, response_id="r9"))
                say(session, "r9", "Of course.", 500)
                session.say(ResponseEnd("r9"))
            case _:
                pass

    def cut(self) -> None:
        """Nothing more of the turn is performed."""
        self.script.cancel(reason="cut")
        self.speaking.cancel(reason="cut")

    def die(self) -> None:
        """Nothing at all comes of it any more."""
        self.is_dead = True
        self.cut()

    async def perform(self, session: ScriptedSession) -> None:
        with self.script:
            await trio.sleep_until(0.25)
            session.say(interim())
            await trio.sleep_until(WORDS_AT)
            session.say(final("find my order", response_id="r1"))
            self._speak(session, "r1", self._answer)
            await self.steered.wait()
            self._speak(session, "r2", self._mention)

    async def _answer(self, session: ScriptedSession) -> None:
        await trio.sleep(0.1)
        for part in ("Let me check that.", "It takes", "a moment,", "please."):
            say(session, "r1", part, 500)
            await trio.sleep(0.1)
        session.call_tool("c1", "lookup", "{}", "r1")
        await self.settled.wait()
        for part in ("It arrives", "today", "at noon."):
            say(session, "r1", part, 500)
            await trio.sleep(0.1)

    async def _mention(self, session: ScriptedSession) -> None:
        await trio.sleep(0.2)
        say(session, "r2", "There is a discount.", 1000)
        await trio.sleep(0.2)

    def _speak(
        self, session: ScriptedSession, response_id: str, words: Callable[[ScriptedSession], Awaitable[None]]
    ) -> None:
        assert self.nursery is not None
        self.speaking = trio.CancelScope()
        if self.script.cancel_called:
            self.speaking.cancel(reason="cut")
        self.nursery.start_soon(self._run_response, session, response_id, words, self.speaking)

    async def _run_response(
        self,
        session: ScriptedSession,
        response_id: str,
        words: Callable[[ScriptedSession], Awaitable[None]],
        scope: trio.CancelScope,
    ) -> None:
        with scope:
            await words(session)
            session.say(ResponseEnd(response_id))
        if scope.cancelled_caught and not self.is_dead:
            if self.leaks and response_id == "r1":  # named by the final: whatever comes of it can be told apart
                for _ in range(3):
                    say(session, response_id, "Too late.", 100)
                    await trio.sleep(0.1)
            session.say(ResponseEnd(response_id, ResponseStatus.CANCELLED))


def say(session: ScriptedSession, response_id: str, words: str, ms: int) -> None:
    """A piece of an answer: its words as tokens, its speech in chunks of 100 ms."""
    session.say(*(Token(f" {word}", response_id) for word in words.split()))
    session.say(*(SpeechItem(speech(100), 24000, response_id) for _ in range(ms // 100)))


Happening = Callable[[Stage, Performer], Awaitable[None]]


async def play(
    happening: Happening,
    *,
    at: float,
    leaks: bool = False,
    on_interruption: OnInterruption = OnInterruption.CANCEL,
    **parts: Any,
) -> tuple[Stage, FaultyStore]:
    """Perform the turn; `at` seconds in, something happens to it. Returns when what happened is over and the stage is closed."""

    def plan(call: StoreCall) -> float | None:
        return SAVE_SECONDS if call.operation == "append_turns" else None

    performer, store = Performer(leaks), FaultyStore(plan)
    manager = ScriptedManager(tool_box=Lookup(on_interruption), planner=Planner(), extraction_seconds=0.2)
    async with open_scene(
        store=store, model=ScriptedModel(performer.react), manager=manager, settings=SETTINGS, tokens=True, **parts
    ) as stage:
        async with trio.open_nursery() as nursery:
            performer.nursery = nursery
            nursery.start_soon(performer.perform, stage.model.session)
            await trio.sleep_until(at)
            await happening(stage, performer)
            nursery.cancel_scope.cancel(reason="the scene is over")
    return stage, store


def run(scene: Callable[[], Awaitable[None]]) -> None:
    """A scene on a clock of its own that begins at 0."""
    trio.run(scene, clock=MockClock(autojump_threshold=0))
