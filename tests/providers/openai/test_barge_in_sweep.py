"""A rich answer, cut at every 50 ms of it: speech faster than it is played, a tool call in flight, a continuation, a planned
instruction. By the service's own turn detection, by the engine's recognition, by typing; with a service that goes on for a while.

Each scene is judged by every invariant, and by what the service knows of what was heard.
"""

from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.elements import ControlToken, InstructionType, JsonObject, OnInterruption, RealtimeInstruction
from engine.interfaces import Context, Emit, PlanningManager, TurnInput
from engine.testing.scripted import final, interim
from providers.openai.simulator import Asked, Call, Pace, Reply, Script, Utterance
from tests.cases.support import Tools
from tests.providers.openai.scene import Scene, open_scene, properties

MOMENTS = range(0, 5401, 50)
TOOL_SECONDS = 0.6
SPEAKING = Pace(token_seconds=0.08, audio_after=0.05, audio_speed=2.0, delta_ms=100)


class Planner(PlanningManager):
    """Makes the model speak once more, after the first turn."""

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await trio.sleep(0.2)
        if turn.text == "find my order":
            await emit(RealtimeInstruction("Mention the discount.", InstructionType.INSTRUCTION, id="i1"))


async def look(arguments: JsonObject) -> str:
    await trio.sleep(TOOL_SECONDS)
    return "found"


def script(lag: float) -> Script:
    first = Reply(["Let me check that. It takes a moment.", Call("look", {"id": 7})], starts_after=0.1)
    answers = {
        "tool": Reply("It arrives today at noon."),
        "Instruction": Reply("There is a discount."),
        "stop": Reply("Of course."),
    }

    def answer(asked: Asked) -> Reply:
        about = "tool" if asked.is_tool_output else asked.text
        reply = next((reply for word, reply in answers.items() if word in about), first)
        return attrs.evolve(reply, created_after=0.05, cancel_lag=lag)

    return Script(pace=SPEAKING, answer=answer)


async def begin(scene: Scene, mode: str) -> None:
    match mode:
        case "voice":
            scene.service.speak(Utterance("find my order", seconds=0.2, transcribed_after=0.2))
        case "recognizer":
            scene.recognizer.hear(interim(), final("find my order"))
        case _:
            await scene.type("find my order")


async def cut_in(scene: Scene, mode: str) -> None:
    match mode:
        case "voice":
            scene.service.speak(Utterance("stop", seconds=0.3, transcribed_after=0.1))
        case "recognizer":
            scene.recognizer.hear(interim())
            await trio.sleep(0.3)
            scene.recognizer.hear(final("stop"))
        case _:
            await scene.type("stop")


async def play(at: float, mode: str, *, policy: OnInterruption, lag: float, text_only: bool) -> None:
    tools = Tools({"look": look}, on_interruption=policy)
    stt = "Scripted" if mode == "recognizer" else "None"
    async with open_scene(
        script(lag),
        openai=properties(stt_provider=stt),
        tool_box=tools,
        planner=Planner(),
        text_only=text_only,
        seed=int(at * 1000),
    ) as scene:
        await begin(scene, mode)
        await trio.sleep(at)
        cut_at = trio.current_time()
        await cut_in(scene, mode)
        await trio.sleep(8)
        assert scene.sentences[-1] == "Of course."
        assert scene.finals[-1].endswith("stop")
        assert scene.errors == []
        answered = scene.client.commands("response-end")[-1]
        assert answered["status"] == "completed"
        assert [t for t in scene.client.at(lambda e: getattr(e, "response_id", "") == "response-1") if t > cut_at] == []
        if text_only:
            said = " ".join(text for role, text in scene.lines if role == "assistant")
            assert " ".join(scene.known_words()).split() == said.split()
        else:
            scene.check_history()
        await scene.say(ControlToken("exit"))
        await scene.client.wait_for_command("session-end")


def run(
    at_ms: int,
    mode: str,
    policy: OnInterruption = OnInterruption.CANCEL,
    lag: float = 0.0,
    text_only: bool = False,
) -> None:
    scene = partial(play, at_ms / 1000, mode, policy=policy, lag=lag, text_only=text_only)
    trio.run(scene, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("at_ms", MOMENTS)
def test_the_service_hears_the_user(at_ms: int) -> None:
    run(at_ms, "voice")


@pytest.mark.parametrize("at_ms", MOMENTS[::2])
def test_the_engine_hears_the_user(at_ms: int) -> None:
    run(at_ms, "recognizer")


@pytest.mark.parametrize("at_ms", MOMENTS[1::2])
def test_the_user_types(at_ms: int) -> None:
    run(at_ms, "typed")


@pytest.mark.parametrize("mode", ["voice", "recognizer", "typed"])
@pytest.mark.parametrize("at_ms", MOMENTS[::6])
def test_a_service_that_goes_on_for_a_while(at_ms: int, mode: str) -> None:
    run(at_ms, mode, lag=0.3)


@pytest.mark.parametrize("mode", ["voice", "recognizer"])
@pytest.mark.parametrize("policy", [OnInterruption.CONTINUE, OnInterruption.SHIELD])
@pytest.mark.parametrize("at_ms", range(1200, 2301, 100))
def test_a_tool_that_is_not_cancelled(at_ms: int, policy: OnInterruption, mode: str) -> None:
    run(at_ms, mode, policy=policy)


@pytest.mark.parametrize("mode", ["recognizer", "typed"])
@pytest.mark.parametrize("at_ms", MOMENTS[::6])
def test_without_speech(at_ms: int, mode: str) -> None:
    run(at_ms, mode, text_only=True)
