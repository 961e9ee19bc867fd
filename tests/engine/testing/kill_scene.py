"""Twenty turns with everything a conversation can have, for those who kill it: typed and spoken turns, barge-ins, a tool of every policy,
whispers, a stumbling model, and a graceful end with its evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from engine.config import Settings
from engine.elements import (
    ControlToken,
    InputText,
    InstructionType,
    JsonObject,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    OutEvaluation,
    RealtimeInstruction,
)
from engine.interfaces import Context, Emit, PlanningManager, ToolBox, ToolResult, ToolSpecification, TurnInput
from engine.protocol.steering import PassState, name_of_pass, tell_pass
from engine.testing.faults import StoreCall
from engine.testing.kill import Scene
from engine.testing.scripted import ScriptedRecognizer, final, interim
from engine.testing.speaker import AnswerStep, ConversingModel, Request, Stumble, Use, text_of
from engine.testing.stage import ScriptedManager, Stage

SETTINGS = Settings()
TOOL_SECONDS = 0.4
STORE_SECONDS = {
    "open_session": 0.05,
    "append_turns": 0.15,
    "save_session": 0.05,
    "save_usage": 0.02,
    "append_log": 0.01,
}


class Tools(ToolBox):
    """One tool of each policy."""

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [
            ToolSpecification(policy.value, "A tool.", {"type": "object"}, on_interruption=policy)
            for policy in OnInterruption
        ]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.sleep(TOOL_SECONDS)
        return ToolResult("done", (MultimodalInteraction(MultimodalKind.CARD, name),))


class Whisperer(PlanningManager):
    """Adds to every second turn, and has the model speak once more in every fifth."""

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        number = int(turn.text.rpartition(" ")[2]) if turn.text[-1:].isdigit() else 0
        pass_id = name_of_pass(turn.turn_id, 1)
        await emit(tell_pass(pass_id, PassState.BEGAN))
        await trio.sleep(0.1)
        kind = InstructionType.INSTRUCTION if number % 5 == 2 else InstructionType.SUPPORTING_CONTEXT
        if number % 2 == 0:
            await emit(RealtimeInstruction(f"Mention {number}.", kind, pass_id=pass_id))
        await emit(tell_pass(pass_id, PassState.PLANNED))


def answers(request: Request) -> Sequence[AnswerStep]:
    text = text_of(request)
    match text.rpartition(" ")[2]:
        case "3":
            return ["A moment.", Use(OnInterruption.CANCEL.value), "Found."]
        case "6":
            return ["Wait.", Use(OnInterruption.CONTINUE.value), "There."]
        case "9":
            return ["I book it.", Use(OnInterruption.SHIELD.value), "Booked."]
        case "12":
            return ["One.", Stumble(), "Two."]
        case "7" | "10" | "13" | "18":
            return ["This will be long.", "It is going on and on.", "Nobody hears this."]
        case _:
            return [f"So: {text}."]


def parts() -> Mapping[str, Any]:
    good = OutEvaluation("Mood", 4, ("They laughed.",), None)
    return {
        "model": ConversingModel(answers, pace=2.0, ready_after=0.05),
        "manager": ScriptedManager(
            tool_box=Tools(),
            planner=Whisperer(),
            start_seconds=0.05,
            extraction_seconds=0.05,
            evaluations=[(0.1, good), (0.2, good)],
        ),
        "recognizer": ScriptedRecognizer(),
        "tokens": True,
        "settings": SETTINGS,
    }


async def visit(stage: Stage) -> None:
    """Of twenty turns every third is typed; 7, 10, 13 and 18 are cut by the next, 3, 6, 9 in their tool."""
    await trio.sleep(0.5)
    for number in range(1, 21):
        await say(stage, f"number {number}", aloud=number % 3 != 0)
        match number:
            case 3 | 6 | 9:
                await stage.client.hears_command("tool-start")
                await trio.sleep(0.1)
            case 7 | 10 | 13 | 18:
                await stage.client.hears("long")
                await trio.sleep(0.3)
            case _:
                await stage.client.hears_end()
                await stage.client.hears_command("exit")
    await stage.client.send(ControlToken("exit"))
    await stage.client.hears_command("session-end", within=200)


async def say(stage: Stage, text: str, *, aloud: bool) -> None:
    heard = stage.recognizer
    if not aloud or not isinstance(heard, ScriptedRecognizer):
        await stage.client.send(InputText(text))
        return
    heard.hear(interim())
    await trio.sleep(0.2)
    heard.hear(final(text))


def plan(call: StoreCall) -> float | None:
    """A store that takes its time, so that much is under way when it is killed."""
    return STORE_SECONDS.get(call.operation)


SCENE = Scene(parts, visit, plan=plan)
