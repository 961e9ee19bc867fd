"""C16 on the OpenAI provider, as a whole kind: whatever asks for speech while something is being said is said afterwards.

The service refuses a request while a response is active; here it never has to.
"""

from collections.abc import Sequence

import attrs
import pytest
import trio

from engine.elements import InstructionType, JsonObject, OutCommand, RealtimeInstruction
from engine.interfaces import Context, Emit, PlanningManager, ToolResult, TurnInput
from engine.testing.scripted import interim
from providers.openai.asking import UNASKED_SECONDS
from providers.openai.simulator import Asked, Call, ErrorEvent, Failed, Pace, Reply, Rule, Script, Trouble, Utterance
from providers.openai.texts import APOLOGIZE
from tests.cases.support import Tools
from tests.providers.openai.scene import Scene, open_scene, properties

SLOW = Pace(token_seconds=0.6, audio_speed=1.0)
FIRST = {
    "an instruction": (1.5, ["first is said."]),
    "a tool": (1.5, ["Let me see.", "found is said."]),
    "a continuation": (2.3, ["Let me see.", "found is said."]),
    "an apology": (1.3, ["Sorry."]),
}
"""What is under way, when, and what it says; it begins a second after the turn."""
SECOND = {
    "an instruction": "second is said.",
    "a commentary": "second is said.",
    "an apology": "Sorry.",
    "the goodbye": "second is said.",
}
"""What asks for speech meanwhile, and what it says."""


@attrs.define(eq=False)
class Plans(PlanningManager):
    """Gives instructions after the first turn, each at its time from the turn's end, not waiting for one another."""

    plans: Sequence[tuple[float, RealtimeInstruction]]
    done: list[str] = attrs.field(factory=list[str])

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        plans, self.plans = self.plans, ()
        async with trio.open_nursery() as nursery:
            for seconds, instruction in plans:
                nursery.start_soon(self._give, seconds, instruction, emit)

    async def _give(self, seconds: float, instruction: RealtimeInstruction, emit: Emit) -> None:
        await trio.sleep(seconds)
        await emit(instruction)
        self.done.append(instruction.text)


def say(text: str, *, ends_session: bool = False) -> RealtimeInstruction:
    return RealtimeInstruction(text, InstructionType.INSTRUCTION, id=text, ends_session=ends_session)


def obey(asked: Asked) -> Reply:
    """The model says what it was told to."""
    return Reply(f"{asked.text.removeprefix('Instruction: ')} is said.", pace=SLOW)


def spoken(scene: Scene) -> list[str]:
    return [sentence.removesuffix(" is said.") for sentence in scene.sentences if sentence.endswith(" is said.")]


async def test_c16_two_instructions(autojump_clock: trio.testing.MockClock) -> None:
    planner = Plans([(2.0, say("discount")), (2.1, say("date"))])
    script = Script(replies=[Reply("Hello.")], answer=obey)
    async with open_scene(script, planner=planner) as scene:
        await scene.type("hello")
        await trio.sleep(15)
        assert spoken(scene) == ["discount", "date"]
        assert scene.service.broken == []
        assert scene.errors == []
        asked = [each.at for each in scene.service.received if each.type == "response.create"]
        ends = scene.at("response-end")
        assert asked[1:] == pytest.approx([2.0, ends[1]])
        assert scene.at("response-instruction-end") == ends[1:]
        assert [each["instructionId"] for each in scene.client.commands("response-instruction-end")] == [
            "discount",
            "date",
        ]
        assert planner.done == ["discount", "date"]
        assert len(scene.at("exit")) == 1
        scene.check_history()


async def look(arguments: JsonObject) -> str:
    await trio.sleep(1)
    return "found"


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
async def test_c16_whatever_asks_while_something_is_said(
    first: str, second: str, autojump_clock: trio.testing.MockClock
) -> None:
    at, sentences = FIRST[first]
    kind = InstructionType.COMMENTARY if second == "a commentary" else InstructionType.INSTRUCTION
    asking = RealtimeInstruction("second", kind, id="second", ends_session=second == "the goodbye")

    def answer(asked: Asked) -> Reply:
        words = asked.text.removeprefix("Instruction: ").removeprefix("Say: ")
        if words == APOLOGIZE:
            return Reply("Sorry.", pace=SLOW, created_after=0.2)
        if words == "first" and first != "an instruction":
            return Reply(ends=Failed("server_error")) if first == "an apology" else Reply(["Let me see.", Call("look")])
        return obey(attrs.evolve(asked, text=words))

    script = Script(
        replies=[Reply("Hello.")],
        answer=answer,
        happens=[ErrorEvent(Trouble("server_error"), at=at)] if second == "an apology" else [],
    )
    planner = Plans([(1.0, say("first")), *([] if second == "an apology" else [(at, asking)])])
    async with open_scene(script, planner=planner, tool_box=Tools({"look": look})) as scene:
        await scene.type("hello")
        with trio.move_on_after(20):
            await scene.client.wait_for_command("session-end")
        assert scene.sentences == ["Hello.", *sentences, SECOND[second]]
        assert set(scene.ends()) == {"completed"}
        assert scene.service.broken == [], "it was asked for when the first was done"
        assert len(scene.errors) == [first, second].count("an apology"), "and no client heard of anything else"
        assert planner.done == (["first"] if second == "an apology" else ["first", "second"])
        assert bool(scene.at("session-end")) == (second == "the goodbye")


async def test_c16_b_while_a_tool_runs_and_is_continued(autojump_clock: trio.testing.MockClock) -> None:
    """The continuation of a tool call goes first, and both instructions after it."""
    planner = Plans([(0.5, say("tool please")), (1.0, say("discount")), (4.0, say("date"))])
    replies = {"tool please": Reply(["Let me see.", Call("look")]), "found": Reply("It is there.", pace=SLOW)}

    def answer(asked: Asked) -> Reply:
        return replies.get(asked.text.removeprefix("Instruction: "), obey(asked))

    script = Script(replies=[Reply("Hello.")], answer=answer)
    async with open_scene(script, planner=planner, tool_box=Tools({"look": look})) as scene:
        await scene.type("hello")
        await trio.sleep(20)
        assert scene.sentences == ["Hello.", "Let me see.", "It is there.", "discount is said.", "date is said."]
        assert scene.service.broken == []
        assert planner.done == ["tool please", "discount", "date"]
        assert scene.ends() == ["completed"] * 4


async def test_c16_an_apology_while_something_is_said(autojump_clock: trio.testing.MockClock) -> None:
    planner = Plans([(1.0, say("discount")), (1.1, say("date"))])
    script = Script(
        replies=[Reply("Hello.")],
        answer=lambda asked: Reply("Sorry.") if APOLOGIZE in asked.text else obey(asked),
        happens=[ErrorEvent(Trouble("server_error"), at=1.5)],
    )
    async with open_scene(script, planner=planner) as scene:
        await scene.type("hello")
        await trio.sleep(15)
        assert scene.sentences == ["Hello.", "discount is said.", "Sorry.", "date is said."]
        assert scene.service.broken == []
        assert len(scene.errors) == 1


async def test_c16_an_instruction_that_fails_is_apologized_for(autojump_clock: trio.testing.MockClock) -> None:
    planner = Plans([(1.0, say("discount")), (1.1, say("date"))])
    replies = [Reply("Hello."), Reply(ends=Failed("server_error"))]
    script = Script(replies=replies, answer=lambda asked: Reply("Sorry.") if APOLOGIZE in asked.text else obey(asked))
    async with open_scene(script, planner=planner) as scene:
        await scene.type("hello")
        await trio.sleep(15)
        assert scene.sentences == ["Hello.", "Sorry.", "date is said."]
        assert scene.service.broken == []
        assert planner.done == ["discount", "date"]


async def test_c16_the_goodbye_while_something_is_said(autojump_clock: trio.testing.MockClock) -> None:
    planner = Plans([(1.0, say("discount")), (1.1, say("goodbye", ends_session=True))])
    script = Script(replies=[Reply("Hello.")], answer=obey)
    async with open_scene(script, planner=planner) as scene:
        await scene.type("hello")
        await scene.client.wait_for_command("session-end")
        assert spoken(scene) == ["discount", "goodbye"]
        names = [name for name in ("sessionShouldEnd", "exit") for _ in scene.at(name)]
        assert names == ["sessionShouldEnd", "exit"]
        assert scene.service.broken == []


async def test_c16_the_service_answers_the_user_at_the_same_time(autojump_clock: trio.testing.MockClock) -> None:
    """Its own response comes first, and an instruction of the new turn after it."""
    planner = Plans([(0.0, say("discount"))])
    script = Script(replies=[Reply("Hello.", created_after=0.2)], answer=obey)
    async with open_scene(script, planner=planner) as scene:
        scene.service.speak(Utterance("hello", seconds=0.5))
        await trio.sleep(10)
        assert scene.sentences == ["Hello.", "discount is said."]
        assert scene.service.broken == []


async def test_c16_a_question_asked_again(autojump_clock: trio.testing.MockClock) -> None:
    """A noise has cut the answer; what the planner adds comes behind it."""
    planner = Plans([(0.2, say("discount"))])
    script = Script(
        replies=[Reply("One two three four five six.", pace=SLOW), Reply("Hello again.", pace=SLOW)], answer=obey
    )
    async with open_scene(script, planner=planner, openai=properties(stt_provider="Scripted")) as scene:
        await scene.type("hello")
        await trio.sleep(1)
        scene.recognizer.hear(interim())
        await trio.sleep(15)
        assert scene.sentences[-2:] == ["Hello again.", "discount is said."]
        assert scene.service.broken == []
        scene.check_history()


async def test_c16_b_the_service_begins_by_itself_just_before(autojump_clock: trio.testing.MockClock) -> None:
    """It is so late with its answer to the user that it is asked for one: it refuses, and answers once. The client hears of nothing."""
    planner = Plans([(0.0, say("discount"))])
    late = Reply("Hello.", pace=SLOW, created_after=UNASKED_SECONDS + 0.5)
    script = Script(replies=[late], answer=obey)
    async with open_scene(script, planner=planner) as scene:
        scene.service.speak(Utterance("hello", seconds=0.5))
        await trio.sleep(20)
        assert scene.sentences == ["Hello.", "discount is said."]
        assert [each.rule for each in scene.service.broken] == [Rule.ONE_RESPONSE]
        assert scene.errors == []
        scene.check_history()


async def test_c16_several_tools_and_a_planner(autojump_clock: trio.testing.MockClock) -> None:
    """A tool that ends the session, with an instruction behind it: the goodbye is the last thing."""

    class Box(Tools):
        async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
            await trio.sleep(0.3)
            return ToolResult("Say goodbye.", ends_session=True)

    script = Script(replies=[Reply([Call("finish_session")]), Reply("Goodbye.")])
    async with open_scene(script, tool_box=Box({"finish_session": look})) as scene:
        await scene.type("bye")
        await scene.client.wait_for_command("session-end")
        assert scene.sentences == ["Goodbye."]
        order = [e.name for e in scene.client.elements if isinstance(e, OutCommand)]
        assert order[-4:] == ["sessionShouldEnd", "response-end", "exit", "session-end"]
