"""Planning steers the speaking model (SPEC L12, L13): in order, never from a turn that is over, and never in anybody's way."""

from collections.abc import Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.elements import (
    EmotionalState,
    InputText,
    InstructionType,
    Interrupted,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    OutCommand,
    OutMultimodal,
    OutTranscript,
    RealtimeCommand,
    RealtimeInstruction,
    ResponseEnd,
    SpeakingState,
    SpeechItem,
    Token,
)
from engine.interfaces import Context, Emit, PlanningElement, PlanningManager, Role, TurnInput
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, ScriptedRecognizer, answer, echo, final, interim, speech
from engine.testing.stage import ScriptedAgent, ScriptedManager, Stage
from tests.cases.support import Tools
from tests.scenarios.support import open_scene


def instruction(text: str, kind: InstructionType = InstructionType.INSTRUCTION) -> RealtimeInstruction:
    return RealtimeInstruction(text, kind, id=text)


@attrs.define(eq=False)
class Planner(PlanningManager):
    """After the first turn it emits its elements, each in a task of its own."""

    elements: Sequence[tuple[float, PlanningElement]]
    turns: list[TurnInput] = attrs.field(factory=list[TurnInput])
    done: list[tuple[float, str]] = attrs.field(factory=list[tuple[float, str]])

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        self.turns.append(turn)
        if len(self.turns) > 1:
            return
        async with trio.open_nursery() as nursery:
            for seconds, element in self.elements:
                nursery.start_soon(self._emit, seconds, element, emit)

    async def _emit(self, seconds: float, element: PlanningElement, emit: Emit) -> None:
        await trio.sleep(seconds)
        await emit(element)
        name = element.text if isinstance(element, RealtimeInstruction) else type(element).__name__
        self.done.append((trio.current_time(), name))


def commands(stage: Stage) -> list[str]:
    return [e.name for e in stage.client.elements if isinstance(e, OutCommand)]


async def first_turn(stage: Stage) -> None:
    stage.model.session.say(interim(), final("hello", response_id="r1"))
    answer(stage.model.session, "Hello.", "r1", ms=0)
    await trio.lowlevel.checkpoint()


async def test_two_instructions_are_spoken_one_after_the_other(autojump_clock: MockClock) -> None:
    """Case C16 as far as the engine goes: each waits for a response of its own, also when both end in the same instant."""
    planner = Planner([(2.0, instruction("A")), (2.1, instruction("B"))])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        await first_turn(stage)
        await trio.sleep(3)
        session = stage.model.session
        assert [(time, item.text) for time, item in session.instructions] == [(2, "A"), (2.1, "B")]
        session.say(Token("A.", "rA"), ResponseEnd("rA"), Token("B.", "rB"), ResponseEnd("rB"))
        await trio.sleep(1)
        assert planner.done == [(3, "A"), (3, "B")]
        ends = [c["instructionId"] for c in stage.client.commands("response-instruction-end")]
        assert ends == ["A", "B"]
        assert commands(stage)[-1] == "exit"


async def test_the_end_of_a_response_under_way_answers_no_instruction(autojump_clock: MockClock) -> None:
    planner = Planner([(1.0, instruction("A")), (2.0, instruction("B"))])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        await first_turn(stage)
        session = stage.model.session
        await trio.sleep(1.5)
        session.say(Token("A is", "rA"))
        await trio.sleep(1)
        session.say(ResponseEnd("rA"))
        await trio.sleep(1)
        assert planner.done == [(2.5, "A")]
        session.say(Token("B.", "rB"), ResponseEnd("rB"))
        await trio.sleep(1)
        assert planner.done == [(2.5, "A"), (3.5, "B")]


async def test_a_contextual_instruction_ends_there(autojump_clock: MockClock) -> None:
    planner = Planner([(1.0, instruction("It is noon.", InstructionType.SUPPORTING_CONTEXT))])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        await first_turn(stage)
        await trio.sleep(5)
        assert planner.done == [(1, "It is noon.")]
        assert "response-instruction-end" not in commands(stage)
        assert [m.text for m in stage.manager.contexts[0].messages if m.role is Role.INSTRUCTION] == ["It is noon."]


async def test_a_failed_injection_ends_nothing(autojump_clock: MockClock) -> None:
    """M10; its planner waits until the window that it opened has been silent for 20 seconds."""
    planner = Planner([(1.0, instruction("A"))])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        stage.model.session.fails_to_instruct = True
        await first_turn(stage)
        await trio.sleep(30)
        assert planner.done == [(21, "A")]
        assert [end["status"] for end in stage.client.commands("response-end")] == ["completed", "idle"]


async def test_a_barge_in_stops_planning_and_what_it_asked_for(autojump_clock: MockClock) -> None:
    card = MultimodalInteraction(MultimodalKind.CARD, "menu")
    planner = Planner([(1.0, instruction("A")), (1.5, card), (3.0, card), (3.0, instruction("B"))])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        await first_turn(stage)
        session = stage.model.session
        await trio.sleep(1.2)
        session.say(Token("A is a", "rA"), SpeechItem(speech(1000), 24000, "rA"))
        await trio.sleep(1)
        session.say(interim())
        await trio.sleep(0.5)
        session.say(final("stop", response_id="r2"))
        answer(session, "Yes.", "r2")
        await trio.sleep(10)
        assert planner.done == [(1.5, "MultimodalInteraction")]
        assert [item.text for _, item in session.instructions] == ["A"]
        assert "response-instruction-end" not in commands(stage)
        assert sum(isinstance(e, OutMultimodal) for e in stage.client.elements) == 1
        assert [turn.text for turn in planner.turns] == ["hello", "stop"]
        assert planner.turns[1].output == ("Yes.",)


async def test_planning_knows_what_was_shown(autojump_clock: MockClock) -> None:
    planner = Planner([])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        session.say(interim(), final("hello", response_id="r1"))
        session.say(MultimodalInteraction(MultimodalKind.CARD, "menu"), Token("Look. Here.", "r1"), ResponseEnd("r1"))
        await trio.sleep(1)
        (turn,) = planner.turns
        assert (turn.text, turn.output) == ("hello", ("Look. Here.",))
        assert turn.multimodal == (MultimodalInteraction(MultimodalKind.CARD, "menu"),)


@pytest.mark.parametrize("shows", [True, False])
async def test_what_planning_whispers_may_be_kept_from_the_client(autojump_clock: MockClock, shows: bool) -> None:
    planner = Planner([(1.0, RealtimeCommand("realtime-planning", {"text": "Hm."})), (1.0, instruction("A"))])
    agent = ScriptedAgent(show_steering=shows)
    async with open_scene(manager=ScriptedManager(planner=planner), agent=agent) as stage:
        await first_turn(stage)
        await trio.sleep(2)
        answer(stage.model.session, "A.", "rA")
        await trio.sleep(1)
        whispered = {"realtime-planning", "realtime-instruction"} & set(commands(stage))
        assert whispered == ({"realtime-planning", "realtime-instruction"} if shows else set())
        assert stage.client.sentences == ["Hello.", "A."]


async def test_a_planner_that_fails_or_an_extraction_that_does_ends_nothing(autojump_clock: MockClock) -> None:
    class Failing(ScriptedManager):
        async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
            raise RuntimeError("extraction")

    class Broken(PlanningManager):
        async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
            raise RuntimeError("planning")

    async with open_scene(manager=Failing(planner=Broken()), model=ScriptedModel(echo)) as stage:
        for number in range(3):
            await stage.client.send(InputText(f"word {number}"))
            await trio.sleep(1)
        assert len(stage.client.commands("exit")) == 3


# --- what an interruption tells the model -----------------------------------------------------------------------------


async def test_the_model_is_told_what_the_user_was_hearing(autojump_clock: MockClock) -> None:
    """Not what was being made meanwhile: of that nothing was heard yet."""
    planner = Planner([(0.5, instruction("A"))])
    async with open_scene(manager=ScriptedManager(planner=planner)) as stage:
        session = stage.model.session
        session.say(interim(), final("hello", response_id="r1"))
        answer(session, "One two three four.", "r1", ms=2000)
        await trio.sleep(1)
        session.say(Token("A is a letter.", "rA"), SpeechItem(speech(1000), 24000, "rA"))
        await trio.sleep(0.1)
        session.say(interim())
        await trio.sleep(0.1)
        assert session.of_type(Interrupted) == [Interrupted("r1", "One two", 1100)]


async def test_a_response_that_went_on_after_an_idle_end_has_its_own_name_at_the_model(
    autojump_clock: MockClock,
) -> None:
    async with open_scene() as stage:
        session = stage.model.session
        session.say(interim(), final("hello", response_id="r1"))
        await trio.sleep(25)
        session.say(Token("One two three four.", "r1"), SpeechItem(speech(2000), 24000, "r1"))
        await trio.sleep(1)
        session.say(interim())
        await trio.sleep(0.1)
        assert session.of_type(Interrupted) == [Interrupted("r1", "One two", 1000)]


async def test_a_user_state_before_the_interim_hides_nothing(autojump_clock: MockClock) -> None:
    """While the turn before is being saved, too: the client stops at once, and the model knows what was heard."""
    recognizer = ScriptedRecognizer()
    store = FaultyStore(lambda call: 1.5 if call.operation == "append_turns" else None)
    async with open_scene(recognizer=recognizer, store=store) as stage:
        recognizer.hear(interim(), final("hello"))
        await trio.sleep(0.1)
        stage.model.session.say(final("hello", response_id="r1"))
        answer(stage.model.session, "One two three four.", "r1", ms=2000)
        await trio.sleep(1)
        recognizer.hear(EmotionalState(SpeakingState.USER_SPEAKING), interim())
        await trio.sleep(0.1)
        (seen,) = stage.client.at(lambda e: isinstance(e, OutTranscript) and e.turn_id == "turn-2")
        assert seen == 1.1
        assert stage.model.session.of_type(Interrupted)[-1] == Interrupted("r1", "One two", 1000)


# --- where a tool call has its place ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
async def test_a_call_comes_behind_the_words_before_it(autojump_clock: MockClock, seed: int) -> None:
    """In whichever order the tasks run."""

    async def lookup(_: object) -> str:
        await trio.lowlevel.checkpoint()
        return "found"

    async with open_scene(seed=seed, manager=ScriptedManager(tool_box=Tools({"lookup": lookup})), tokens=True) as stage:
        session = stage.model.session
        session.say(final("find it", response_id="r1"), Token("Let me see.", "r1"))
        session.call_tool("c1", "lookup", "{}", "r1")
        await trio.sleep(1)
        session.say(Token(" Here.", "r1"), ResponseEnd("r1"))
        await trio.sleep(1)
        names = [e.name if isinstance(e, OutCommand) else type(e).__name__ for e in stage.client.elements]
        assert names[1:6] == ["OutTranscript", "OutTranscript", "OutToken", "tool-start", "tool-success"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", list(OnInterruption))
async def test_a_call_in_the_very_moment_of_a_barge_in(
    autojump_clock: MockClock, seed: int, policy: OnInterruption
) -> None:
    """It runs or it does not, and settles once either way; a call that was interrupted before it began does nothing."""
    ran: list[str] = []

    async def order(_: object) -> str:
        ran.append("began")
        await trio.sleep(1)
        return "ordered"

    box = Tools({"order": order}, on_interruption=policy)
    async with open_scene(seed=seed, manager=ScriptedManager(tool_box=box), model=ScriptedModel(echo)) as stage:
        session = stage.model.session
        session.say(interim(), final("order it", response_id="r1"), Token("Ordering", "r1"))
        await trio.sleep(0.5)
        session.call_tool("c1", "order", "{}", "r1")
        await stage.client.send(InputText("stop"))
        await trio.sleep(5)
        assert len(session.settled) == 1
        events = [event for event in commands(stage) if event.startswith("tool")]
        assert events in ([], ["tool-start", "tool-success"], ["tool-start", "tool-error"])
        assert stage.client.sentences[-1] == "You said stop."
        if policy is OnInterruption.CANCEL:
            assert ran == []
