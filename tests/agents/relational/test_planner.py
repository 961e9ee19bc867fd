"""The planner's passes: what it whispers, when, and what is left when it is stopped (SPEC R8-R12; S0, "Per-Turn Planning")."""

import json
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from agents.relational.guard import SpeakerGuard
from agents.relational.planner import APPROVAL, MAX_PASSES, PERSIST_SECONDS, PLAN, PLANNING_SECONDS
from agents.relational.state import RelationalState
from agents.tools import FunctionToolBox, tool
from engine.elements import RealtimeInstruction
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import ToolBox, ToolError
from engine.memory import MemoryScope
from engine.testing.chat import Script, call, tokens
from engine.texts import Sentence, say
from tests.agents.relational.troupe import FakeMemory, Troupe, agent, troupe

REACTION = ("SUPPORTING_CONTEXT", f"Supporting context: {say(Sentence.SHORT_REACTION, 'en')}", False)
FALLBACK = say(Sentence.END_FALLBACK, "en")
DAY = '{"supportingContext": "Ask for the day."}'
STATE = '{"state": {"currentModule": "day", "workingFocus": "table", "gapType": "process"}}'
BYE = '{"results": "Thank you, goodbye.", "endSession": true}'


def memory_of(scene: Troupe) -> FakeMemory:
    assert isinstance(scene.context.memory, FakeMemory)
    return scene.context.memory


def plans(scene: Troupe) -> list[str]:
    return [body["description"] for body in memory_of(scene).bodies(MemoryScope.SESSION, PLAN)]


# --- what comes out ---------------------------------------------------------------------------------------------------


async def test_prose_is_shown_and_objects_are_whispered(autojump_clock: trio.testing.MockClock) -> None:
    output = f'The day is missing. {DAY} Prices are known. {{"results": "It is 79 crowns."}} {STATE}'
    scene = troupe(tokens(output))
    await scene.plan()
    assert scene.whispers == [
        ("SUPPORTING_CONTEXT", "Supporting context: Ask for the day.", False),
        ("INSTRUCTION", "Instruction: It is 79 crowns.", False),
        REACTION,
    ]
    assert [text.strip() for text in scene.prose] == ["The day is missing.", "Prices are known."]
    assert scene.state.plan.description == output
    assert (scene.state.plan.current_module, scene.state.plan.gap_type) == ("day", "process")
    assert plans(scene) == [output]
    ids = [e.id for _, e in scene.told if isinstance(e, RealtimeInstruction)]
    assert len(set(ids)) == 3


async def test_an_instruction_is_injected_as_soon_as_its_object_is_complete(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = troupe([1.0, DAY, 2.0, "More thoughts."])
    await scene.plan()
    assert [at for at, e in scene.told if isinstance(e, RealtimeInstruction)] == [1.0, 3.0]


async def test_the_stream_is_read_while_the_model_speaks(autojump_clock: trio.testing.MockClock) -> None:
    """And only reading has a time limit: a long answer costs the planner nothing."""
    scene = troupe(['{"results": "Tell the whole story."}', 1.0, DAY, 1.0, STATE])
    scene.speaking_seconds = PLANNING_SECONDS + 10
    await scene.plan()
    assert [at for at, e in scene.told if isinstance(e, RealtimeInstruction)] == [0.0, 30.0, 30.0]
    assert scene.state.plan.current_module == "day"


async def test_the_plan_is_written_last(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([STATE + '{"results": "Say it."}'])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.plan)
        await trio.sleep(0.5)
        assert plans(scene) == []
    assert trio.current_time() == 1.0
    assert len(plans(scene)) == 1


async def test_each_turn_reads_what_the_one_before_has_written(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([f"First thoughts. {STATE}"], ["Second thoughts."])
    await scene.plan()
    await scene.plan("At six.", "turn-2")
    assert "First thoughts." not in scene.prompt(0)
    assert "What you wrote the last time\n\nFirst thoughts." in scene.prompt(1)
    assert plans(scene) == [f"First thoughts. {STATE}", "Second thoughts."]


async def test_links_of_instructions_are_known_to_the_guard(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe(['{"supportingContext": "The menu is at https://cafe.example/menu."}'])
    await scene.plan()
    guard = scene.state.guard
    text = "See https://cafe.example/menu or https://evil.example/x."
    assert guard.feed("r1", text) + guard.finish("r1") == "See https://cafe.example/menu or (link removed)."
    assert guard.removed == 1


# --- time and failure -------------------------------------------------------------------------------------------------


async def test_a_timeout_is_silent_and_leaves_the_plan(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([f"Old. {STATE}"], ["Thinking.", PLANNING_SECONDS + 1, DAY])
    await scene.plan()
    scene.told.clear()
    await scene.plan("At six.", "turn-2")
    assert trio.current_time() == PLANNING_SECONDS
    assert scene.whispers == []
    assert scene.state.plan.description == f"Old. {STATE}"
    assert len(plans(scene)) == 1


@pytest.mark.parametrize(
    "failure",
    [RealtimeException(ErrorCode.CHAT_FAILED, "It failed."), RuntimeError("a bug"), ExceptionGroup("", [OSError()])],
)
async def test_a_failure_keeps_what_was_whispered(failure: Exception, autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([DAY, 1.0, failure])
    await scene.plan()
    assert scene.whispers == [("SUPPORTING_CONTEXT", "Supporting context: Ask for the day.", False)]
    assert plans(scene) == []


async def test_a_store_that_is_away_costs_only_the_revision(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([STATE])
    memory_of(scene).fails = {PLAN}
    await scene.plan()
    assert scene.state.plan.current_module == "day"
    memory_of(scene).fails, memory_of(scene).seconds = set(), 100
    await scene.plan("At six.", "turn-2")
    assert trio.current_time() == PERSIST_SECONDS


# --- tools ------------------------------------------------------------------------------------------------------------


async def price_of(drink: str) -> str:
    """What a drink costs.

    Args:
        drink: As on the menu.
    """
    await trio.sleep(1.0)
    if drink == "beer":
        raise ToolError("There is no beer.")
    return f"{drink}: 79 crowns"


def with_tools(*scripts: Script) -> Troupe:
    box: ToolBox = FunctionToolBox([price_of])
    return troupe(*scripts, state=RelationalState(agent(), SpeakerGuard("en"), planner_tools=box))


async def test_the_planner_looks_things_up(autojump_clock: trio.testing.MockClock) -> None:
    scene = with_tools(
        ["Prices. ", call("price_of", "c1", '{"drink": "tea"}'), call("price_of", "c2", '{"drink": "beer"}')],
        ['{"results": "Tea is 79 crowns."}'],
    )
    await scene.plan()
    assert trio.current_time() == 2.0, "both at once, then the answer is spoken"
    phases = [(phase, error) for phase, _, error in scene.tools]
    assert phases[:2] == [("start", "")] * 2
    assert sorted(phases[2:]) == [("error", "There is no beer."), ("success", "")]
    results = [message.text for message in scene.chat.requests[1].messages if message.role == "tool"]
    assert results == ["tea: 79 crowns", json.dumps({"error": "There is no beer."})]
    assert scene.spoken == [(1.0, "Tea is 79 crowns.", False)]


@pytest.mark.parametrize("arguments", ["{", "[]", '{"drink": 5}', "{}"])
async def test_bad_arguments_are_told_to_the_model(arguments: str, autojump_clock: trio.testing.MockClock) -> None:
    scene = with_tools([call("price_of", "c1", arguments)], [DAY])
    await scene.plan()
    assert [phase for phase, *_ in scene.tools] == ["start", "error"]
    assert len(scene.whispers) == 2


async def test_a_tool_that_is_not_there(autojump_clock: trio.testing.MockClock) -> None:
    scene = with_tools([call("book_table", "c1")], [DAY])
    await scene.plan()
    assert scene.tools[-1] == ("error", "book_table", "Tool book_table does not exist.")


async def test_a_planner_that_calls_without_end_is_stopped(autojump_clock: trio.testing.MockClock) -> None:
    scene = with_tools([call("price_of", "", '{"drink": "tea"}')])
    scene.chat.answer = lambda _: [call("price_of", f"c{len(scene.chat.asked)}", '{"drink": "tea"}')]
    with trio.fail_after(60):
        await scene.plan()
    assert scene.chat.requests[-1].tools == ()
    assert len(scene.chat.requests) == 6


@pytest.mark.parametrize("at", [0.0, 0.4, 0.5, 0.7, 1.5, 1.6, 2.0, 2.6])
async def test_a_barge_in_stops_everything(at: float, autojump_clock: trio.testing.MockClock) -> None:
    """Whatever it is at: no whisper follows, every call is settled, no stream is open, and the plan is the old one."""
    scene = with_tools(
        [0.5, "Prices. ", call("price_of", "c1", '{"drink": "tea"}')], [0.1, '{"results": "Tea."}', 0.5, STATE]
    )
    with trio.move_on_at(at):
        await scene.plan()
    assert trio.current_time() == at
    told = len(scene.told)
    await trio.sleep(10)
    assert len(scene.told) == told
    assert scene.chat.open_streams == 0
    phases = [phase for phase, *_ in scene.tools]
    assert phases in ([], ["start", "error"], ["start", "success"])
    assert plans(scene) == []
    assert scene.state.plan.description == ""


booked: list[float] = []


@tool(on_interruption="shield")
async def book_table(day: str) -> str:
    """Book a table."""
    await trio.sleep(1.0)
    booked.append(trio.current_time())
    return f"booked for {day}, number 101"


@pytest.mark.parametrize("at", [0.6, 1.6, 2.2])
async def test_what_was_done_is_not_lost_when_the_user_cuts_in(
    at: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A call that may not be stopped finishes, and the next pass knows what it gave: also when it was done and not told yet."""
    booked.clear()
    scene = troupe(
        [0.5, call("book_table", "c1", '{"day": "Monday"}')],
        [0.5, '{"results": "It is booked."}'],
        ['{"results": "Number 101."}'],
        state=RelationalState(agent(), SpeakerGuard("en"), planner_tools=FunctionToolBox([book_table])),
    )
    with trio.move_on_at(at):
        await scene.plan()
    assert booked == [1.5]
    assert trio.current_time() == max(at, 1.5)
    assert [phase for phase, *_ in scene.tools] == ["start", "success"]
    scene.chat.answer = lambda _: ['{"results": "Number 101."}']
    await scene.plan("Is it booked?", "turn-2")
    known = 'book_table {"day": "Monday"}: booked for Monday, number 101'
    assert known in scene.prompt()
    await scene.plan("Thanks.", "turn-3")
    assert known not in scene.prompt()


# --- help and hints ---------------------------------------------------------------------------------------------------


async def test_help_and_hints_are_offered_to_one_pass(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe(['{"results": "Dogs are welcome."}'], [DAY])
    scene.state.ask_for_help("Are dogs allowed?", "turn-1")
    scene.state.note_attempt("search_knowledge", '{"query": "dogs"}', "turn-1")
    await scene.plan()
    assert "Are dogs allowed?" in scene.prompt(0)
    assert 'search_knowledge {"query": "dogs"}' in scene.prompt(0)
    await scene.plan("And cats?", "turn-2")
    assert "dogs" not in scene.prompt(1).split("# Now")[1]


async def test_what_is_asked_while_a_pass_is_under_way_gets_one_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The response that the pass has caused asks: the user was told to wait."""
    scene = troupe(['{"results": "Say the price."}'], ['{"results": "It is 79 crowns."}'])

    def speak(instruction: RealtimeInstruction) -> None:
        if "price" in instruction.text:
            scene.state.ask_for_help("What is the price?", "turn-1")

    scene.while_speaking = speak
    await scene.plan()
    assert [text for _, text, _ in scene.spoken] == ["Say the price.", "It is 79 crowns."]
    assert "What is the price?" in scene.prompt(1)


async def test_a_model_that_asks_for_ever_is_not_planned_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe(['{"results": "Go on."}'])
    scene.while_speaking = lambda _: scene.state.ask_for_help("And?", "turn-1")
    await scene.plan()
    assert len(scene.chat.requests) == MAX_PASSES


# --- what is told of passes -------------------------------------------------------------------------------------------


async def test_each_pass_is_told_and_its_whispers_name_it(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe(['{"results": "Say the price."}'], [1.0, DAY])

    def speak(instruction: RealtimeInstruction) -> None:
        scene.state.ask_for_help("What is the price?", "turn-1")

    scene.while_speaking = speak
    await scene.plan()
    assert scene.passes == [
        (0.0, "turn-1/1", "began"),
        (1.0, "turn-1/1", "planned"),
        (1.0, "turn-1/2", "began"),
        (2.0, "turn-1/2", "planned"),
    ]
    whispers = [(e.pass_id, e.type.is_contextual) for _, e in scene.told if isinstance(e, RealtimeInstruction)]
    assert whispers == [("turn-1/1", False), ("turn-1/1", True), ("turn-1/2", True), ("turn-1/2", True)]


async def test_a_pass_that_is_cut_short_writes_no_plan_and_says_so(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([1.0, DAY, 1.0, STATE], [PLANNING_SECONDS + 1, STATE])
    with trio.move_on_after(1.5):
        await scene.plan()
    await scene.plan("At six.", "turn-2")
    assert scene.passes == [(0.0, "turn-1/1", "began"), (1.5, "turn-2/1", "began")]
    assert scene.state.plan.description == ""


# --- the end of the session (R9) --------------------------------------------------------------------------------------


def asked(scene: Troupe) -> Troupe:
    assert not scene.state.end.ask("turn-1")
    return scene


@pytest.mark.parametrize(
    ("output", "spoken"),
    [
        (BYE, [("Thank you, goodbye.", True)]),
        ('{"results": "Ask for the name first."}', [("Ask for the name first.", False)]),
        (f'{{"results": "One more thing."}} {BYE}', [("One more thing.", False), ("Thank you, goodbye.", True)]),
        (f'{BYE} {{"results": "And another."}} {DAY}', [("Thank you, goodbye.", True)]),
        ('{"results": "  ", "endSession": true}', [(FALLBACK, True)]),
        ('{"supportingContext": "Goodbye.", "endSession": true}', [(FALLBACK, True)]),
        ("Nothing to say.", [(FALLBACK, True)]),
        ("", [(FALLBACK, True)]),
    ],
)
async def test_a_request_is_always_answered(
    output: str, spoken: Sequence[tuple[str, bool]], autojump_clock: trio.testing.MockClock
) -> None:
    scene = asked(troupe([output] if output else []))
    await scene.plan()
    assert "## End request" in scene.prompt()
    assert [(text, ends) for _, text, ends in scene.spoken] == spoken
    assert not scene.state.end.is_asked("turn-1")
    ends = spoken[-1][1]
    assert (REACTION in scene.whispers) is not ends, "nothing is whispered behind a goodbye"
    assert len(memory_of(scene).bodies(MemoryScope.SESSION, APPROVAL)) == ends


@pytest.mark.parametrize("failure", [RuntimeError(), PLANNING_SECONDS + 1])
async def test_a_pass_that_fails_says_goodbye_for_the_planner(
    failure: Exception | float, autojump_clock: trio.testing.MockClock
) -> None:
    scene = asked(troupe([failure, BYE]))
    await scene.plan()
    assert [(text, ends) for _, text, ends in scene.spoken] == [(FALLBACK, True)]


async def test_without_a_planner_there_is_a_goodbye_too(autojump_clock: trio.testing.MockClock) -> None:
    scene = asked(troupe([]))
    scene.state.agent = agent(llmConfiguration={"relationalPlanning": {"provider": "Nobody", "model": "x"}})
    from agents.relational.planner import RelationalPlanningManager
    from engine.errors import ConfigurationError
    from engine.interfaces import PartFactory, TurnInput

    def find(group: str, name: str) -> PartFactory:
        raise ConfigurationError("not installed")

    await RelationalPlanningManager(find).process(scene.context, TurnInput("turn-1", "bye", ()), scene.emit)
    assert [(text, ends) for _, text, ends in scene.spoken] == [(FALLBACK, True)]


async def test_an_approval_that_cannot_be_stored_does_not_answer(autojump_clock: trio.testing.MockClock) -> None:
    """The engine's own goodbye is sent directly then: the store's trouble keeps nobody on the line."""
    scene = asked(troupe([BYE]))
    memory_of(scene).fails = {APPROVAL}
    await scene.plan()
    assert [(text, ends) for _, text, ends in scene.spoken] == [(FALLBACK, True)]


async def test_an_agent_that_never_ends_the_session_does_not_by_planning_either(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = troupe([BYE], sessionEndSupport=False)
    await scene.plan()
    assert scene.spoken == [(0.0, "Thank you, goodbye.", False)]
    assert REACTION in scene.whispers


async def test_planning_may_end_the_session_by_itself(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe([BYE])
    await scene.plan()
    assert "## Ending the session" in scene.prompt()
    assert "## End request" not in scene.prompt()
    assert scene.spoken == [(0.0, "Thank you, goodbye.", True)]


async def test_a_model_that_calls_before_the_approved_goodbye_is_reminded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = asked(troupe([BYE]))
    said: list[bool] = []
    scene.while_speaking = lambda _: said.append(scene.state.end.ask("turn-1"))
    await scene.plan()
    assert said == [True]
    assert len(scene.chat.requests) == 1, "planning is not asked again"


async def test_a_request_in_the_response_to_a_whisper_is_answered(autojump_clock: trio.testing.MockClock) -> None:
    scene = troupe(['{"results": "Say that all is booked."}'], [BYE])
    scene.while_speaking = lambda e: "booked" in e.text and scene.state.end.ask("turn-1")
    await scene.plan()
    assert [(text, ends) for _, text, ends in scene.spoken] == [
        ("Say that all is booked.", False),
        ("Thank you, goodbye.", True),
    ]


@pytest.mark.parametrize("at", [0.5, 1.2])
async def test_a_goodbye_that_is_cut_is_not_approved_any_more(
    at: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Before it began, and while it is said: the next wish to stop is a new request."""
    scene = asked(troupe([1.0, BYE]))
    with trio.move_on_at(at):
        await scene.plan()
    assert not scene.state.end.ask("turn-2")
    await scene.plan("Wait.", "turn-2")
    assert scene.spoken[-1][2]


async def test_a_request_that_was_overtaken_is_an_ordinary_turn(autojump_clock: trio.testing.MockClock) -> None:
    scene = asked(troupe([DAY]))
    await scene.plan("One more thing.", "turn-2")
    assert "## End request" not in scene.prompt()
    assert scene.spoken == []
