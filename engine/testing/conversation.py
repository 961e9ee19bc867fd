"""A whole conversation as plain data, held and judged: what the user does, what the model, planning and the tools come up with, and what
goes wrong on the way. `engine.testing.strategies` draws such conversations; one that fails is printed as what can be held again.

    hold(Conversation(user=(Say("A table, please."), Wait(0.2), Say("For three.")), answers=(("At seven.",),))).violations
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import attrs
import trio

from engine.config import Settings
from engine.elements import (
    ControlToken,
    EmotionalState,
    InputElement,
    InputText,
    InstructionType,
    JsonObject,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    OutSpeech,
    RealtimeInstruction,
    SpeakingState,
)
from engine.interfaces import (
    Context,
    Emit,
    PlanningManager,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
    TurnInput,
)
from engine.testing.boundaries import ShakyTools, shaky_store
from engine.testing.contract import check_record
from engine.testing.explore import Found
from engine.testing.faults import FaultyStore
from engine.testing.mishaps import ClosedByMishapError, Mishap, Mishaps
from engine.testing.schedule import run_repeatably
from engine.testing.scripted import ScriptedRecognizer, final, interim
from engine.testing.speaker import AnswerStep, ConversingModel, Request
from engine.testing.stage import ScriptedManager, Stage, open_stage, scripted_environment

MOST_SECONDS = 45.0
"""Of listening to one answer."""
END_SECONDS = 200.0
"""The longest a session takes to end in good order."""


# --- what a user does ---------------------------------------------------------------------------------------------------


@attrs.frozen
class Say:
    """Words, typed or spoken aloud for the engine's recognition."""

    text: str
    aloud: bool = False


@attrs.frozen
class Noise:
    """Somebody makes a sound that no words are found in."""


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class Listen:
    """Until the agent has finished and what it said is over."""


@attrs.frozen
class Send:
    """Anything else that clients send."""

    element: InputElement


Move = Say | Noise | Wait | Listen | Send


# --- what the others do -------------------------------------------------------------------------------------------------


@attrs.frozen
class Whisper:
    """Planning has thought for some seconds, and says something."""

    text: str = "Ask for the day."
    after: float = 0.0
    type: InstructionType = InstructionType.SUPPORTING_CONTEXT
    ends_session: bool = False


@attrs.frozen
class Doing:
    """What comes of a tool call."""

    seconds: float = 0.0
    fails: bool = False


@attrs.frozen
class Conversation:
    """All of it. Of `answers`, `plans` and `tools` each is used once, in order, and then nothing special comes."""

    user: tuple[Move, ...]
    answers: tuple[tuple[AnswerStep, ...], ...] = ()
    """Tools are called by the names of the policies (`engine.elements.OnInterruption`)."""
    plans: tuple[tuple[Whisper, ...], ...] = ()
    """For each turn."""
    tools: tuple[Doing, ...] = ()
    network: Mapping[int, Mishap] = attrs.field(factory=dict[int, Mishap])
    """What happens to what the user sends, by its number."""
    calls: Mapping[int, Mishap] = attrs.field(factory=dict[int, Mishap])
    """What happens to tool calls."""
    store: Mapping[int, Mishap] = attrs.field(factory=dict[int, Mishap])
    """What happens to writes of the store."""
    leaves: bool = True
    """The user says goodbye in good order; else the connection is just gone."""
    schedule: int = 0
    """The seed of the order in which things happen that happen at the same instant."""


TOOLS = tuple(
    ToolSpecification(policy.value, "A tool.", {"type": "object"}, on_interruption=policy) for policy in OnInterruption
)


@attrs.define(eq=False)
class PlannedTools(ToolBox):
    """A tool of each policy, which do what is planned."""

    doings: list[Doing]

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return TOOLS

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        doing = self.doings.pop(0) if self.doings else Doing()
        await trio.sleep(doing.seconds)
        if doing.fails:
            raise ToolError("It did not work.")
        return ToolResult("done", (MultimodalInteraction(MultimodalKind.CARD, name),))


@attrs.define(eq=False)
class PlannedPlanner(PlanningManager):
    """Whispers what is planned."""

    plans: list[tuple[Whisper, ...]]

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        for whisper in self.plans.pop(0) if self.plans else ():
            await trio.sleep(whisper.after)
            await emit(RealtimeInstruction(whisper.text, whisper.type, ends_session=whisper.ends_session))


# --- holding one --------------------------------------------------------------------------------------------------------


def hold(conversation: Conversation, **parts: Any) -> Found:
    """The conversation, held in virtual time and judged by the contract.

    `parts` are those of `engine.testing.stage.open_stage`: another `model`, `manager`, `provider` or what else is under test.
    """
    return run_repeatably(conversation.schedule, _hold, conversation, parts)


async def _hold(conversation: Conversation, parts: Mapping[str, Any]) -> Found:
    network, calls, writes = (
        Mishaps.at(plan).named(name)
        for name, plan in (
            ("client", conversation.network),
            ("tools", conversation.calls),
            ("store", conversation.store),
        )
    )
    is_aloud = any(isinstance(move, Noise) or (isinstance(move, Say) and move.aloud) for move in conversation.user)
    recognizer = ScriptedRecognizer() if is_aloud else None
    manager = ScriptedManager(
        tool_box=ShakyTools(PlannedTools(list(conversation.tools)), calls),
        planner=PlannedPlanner(list(conversation.plans)),
    )
    answers = list(conversation.answers)

    def answer(request: Request) -> Sequence[AnswerStep]:
        return answers.pop(0) if answers else ["I see."]

    own: dict[str, Any] = {
        "settings": _settings(),
        "model": ConversingModel(answer),
        "manager": manager,
        "recognizer": recognizer,
        "store": FaultyStore(shaky_store(writes)),
        "environment": scripted_environment(conversation.schedule),
        "mishaps": network,
        "tokens": True,
        "partials": True,
        "unjudged": "it is judged below",
    }
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_stage(**(own | dict(parts))) as stage:
        with suppress(ClosedByMishapError):
            await _act(stage, conversation, recognizer)
        stage.vanish()
        await stage.over.wait()
    record = stage.record()
    living = trio.lowlevel.current_statistics().tasks_living - before
    record.left_running = [f"{living} tasks"] if living else []
    happened = sorted([*network.happened, *calls.happened, *writes.happened], key=lambda each: each.at)
    return Found(conversation.schedule, record, check_record(record), happened, trio.current_time())


@cache
def _settings() -> Settings:
    return Settings()


async def _act(stage: Stage, conversation: Conversation, recognizer: ScriptedRecognizer | None) -> None:
    while not stage.client.counts["ready"] and stage.end is None:
        await stage.client.changed()
    for move in conversation.user:
        if _is_over(stage):
            return
        await _do(stage, move, recognizer)
    if not conversation.leaves or _is_over(stage):
        return
    await stage.client.send(ControlToken("exit"))
    with trio.move_on_after(END_SECONDS):
        while not _is_over(stage):
            await stage.client.changed()


def _is_over(stage: Stage) -> bool:
    counts = stage.client.counts
    return counts["session-end"] >= counts["ready"]


async def _do(stage: Stage, move: Move, recognizer: ScriptedRecognizer | None) -> None:
    match move:
        case Say(text, aloud=True):
            _hear(recognizer, interim(), final(text))
        case Say(text):
            await stage.client.send(InputText(text))
        case Noise():
            _hear(
                recognizer,
                EmotionalState(SpeakingState.USER_SPEAKING),
                interim(),
                EmotionalState(SpeakingState.USER_NOT_SPEAKING),
            )
        case Wait(seconds):
            await trio.sleep(seconds)
        case Listen():
            await _listen(stage)
        case Send(element):
            await stage.client.send(element)


def _hear(recognizer: ScriptedRecognizer | None, *elements: Any) -> None:
    if recognizer is not None and recognizer.is_running:
        recognizer.hear(*elements)


async def _listen(stage: Stage) -> None:
    client, start = stage.client, trio.current_time()
    exits, first = client.counts["exit"], len(client.heard)
    with trio.move_on_after(MOST_SECONDS):
        while client.counts["exit"] == exits and not _is_over(stage):
            await client.changed()
    spoken = [element for _, element in client.heard[first:] if isinstance(element, OutSpeech)]
    seconds = sum(len(each.data) / 2 / each.sample_rate for each in spoken)
    await trio.sleep(max(0.0, start + seconds - trio.current_time()))
