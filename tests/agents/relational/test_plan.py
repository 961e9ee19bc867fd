"""What a planner's output means (R4, R11), with vectors J03 and J09 of the cases' annex."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.relational.plan import (
    CUT,
    MAX_DESCRIPTION,
    MAX_STATE,
    Instruction,
    PlanReading,
    RelationalPlan,
    Skipped,
    State,
    interpret,
    read_initial_plan,
)
from agents.relational.plan_stream import Prose
from engine.elements import InstructionType


def say(text: str, *, ends_session: bool = False) -> Instruction:
    return Instruction(InstructionType.INSTRUCTION, text, ends_session)


def know(text: str) -> Instruction:
    return Instruction(InstructionType.SUPPORTING_CONTEXT, text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"results": "A"}, [say("A")]),
        ({"supportingContext": "B"}, [know("B")]),
        ({"supportingContext": "B", "results": "A"}, [say("A"), know("B")]),
        ({"results": " A\n"}, [say(" A\n")]),
        ({"results": "A", "endSession": True}, [say("A", ends_session=True)]),
        ({"results": "A", "endSession": False}, [say("A")]),
        ({"results": "A", "supportingContext": "B", "endSession": True}, [say("A", ends_session=True), know("B")]),
        ({"results": "A", "meta": {"endSession": True}}, [say("A")]),
        ({"results": " ", "endSession": True}, [Skipped("endSession without results")]),
        ({"supportingContext": "B", "endSession": True}, [Skipped("endSession without results"), know("B")]),
        ({"results": "A", "endSession": "true"}, [Skipped("endSession is neither true nor false"), say("A")]),
        ({"results": "A", "endSession": 1}, [Skipped("endSession is neither true nor false"), say("A")]),
        ({"results": ["A"], "supportingContext": "B"}, [Skipped("results is no text"), know("B")]),
        ({"results": "A", "supportingContext": 3}, [Skipped("supportingContext is no text"), say("A")]),
        ({"results": None, "supportingContext": None, "endSession": None, "state": None}, []),
        ({"results": "", "supportingContext": "\n"}, []),
        ({"Results": "A", "note": "B"}, []),
        (
            {"state": {"currentModule": "m", "workingFocus": "f", "gapType": "process", "more": 1}},
            [State("m", "f", "process")],
        ),
        ({"currentModule": "m", "gapType": "mindset"}, [State("m", "", "mindset")]),
        ({"state": {}}, [State()]),
        ({"state": "m"}, [Skipped("state is no object")]),
        ({"state": {"currentModule": 1, "workingFocus": "f"}}, [Skipped("currentModule is no text"), State("", "f")]),
        ({"results": "A", "state": {"gapType": "knowledge"}}, [say("A"), State("", "", "knowledge")]),
        ({"gapType": "g" * (MAX_STATE + 1)}, [State("", "", "g" * MAX_STATE)]),
    ],
)
def test_an_object(value: dict[str, Any], expected: list[object]) -> None:
    assert interpret(value) == expected


def read(output: str) -> tuple[list[object], RelationalPlan]:
    reading = PlanReading()
    return [*reading.feed(output), *reading.finish()], reading.plan()


def test_a_pass() -> None:
    output = (
        'They want a table. {"state":{"currentModule":"early"}}{"supportingContext":"Full on Friday."}\n'
        '{"results":"Offer Saturday.","endSession":true}Done.\n'
        '{"state":{"currentModule":"booking","workingFocus":"the day","gapType":"knowledge"}}'
    )
    assert read(output) == (
        [
            Prose("They want a table. "),
            know("Full on Friday."),
            say("Offer Saturday.", ends_session=True),
            Prose("Done.\n"),
        ],
        RelationalPlan(output, "booking", "the day", "knowledge"),
    )


@pytest.mark.parametrize("end", ["", '{"state":{"currentModule":"book', '{"state":[]}', '{"gapType":,}'])
def test_without_a_state_its_texts_are_empty(end: str) -> None:
    output = 'Well. {"results":"A"}' + end
    meaning, plan = read(output)
    assert say("A") in meaning
    assert plan == RelationalPlan(output)


def test_a_state_may_survive_an_object_that_was_cut_off() -> None:
    _, plan = read('{"state": {"currentModule": "m"}')
    assert plan.current_module == "m"


def test_a_long_output_loses_its_middle() -> None:
    output = "a" * MAX_DESCRIPTION + "b" * MAX_DESCRIPTION + "c" * 3 * MAX_DESCRIPTION
    _, whole = read(output)
    pieces = PlanReading()
    for begin in range(0, len(output), 999):
        pieces.feed(output[begin : begin + 999])
    assert pieces.plan() == whole
    assert len(whole.description) <= MAX_DESCRIPTION
    assert set(whole.description.split(CUT)[0]) == {"a"}
    assert set(whole.description.split(CUT)[1]) == {"c"}
    assert RelationalPlan(whole.description) == whole
    longest = "d" * MAX_DESCRIPTION
    assert RelationalPlan(longest).description == longest


def test_the_stored_form() -> None:
    plan = RelationalPlan("Say hello.", "opening", "names", "mindset")
    assert plan.to_json() == {
        "description": "Say hello.",
        "currentModule": "opening",
        "workingFocus": "names",
        "gapType": "mindset",
    }
    assert RelationalPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("stored", [None, "x", [], {}, {"description": 1, "gapType": None, "other": 2}])
def test_a_stored_form_that_is_none(stored: object) -> None:
    assert RelationalPlan.from_json(stored) == RelationalPlan("", "", "", "")


def test_a_plan_keeps_its_bounds() -> None:
    plan = RelationalPlan("d" * 2 * MAX_DESCRIPTION, "m" * 2 * MAX_STATE, "f" * 2 * MAX_STATE, "g" * 2 * MAX_STATE)
    assert [len(text) for text in attrs.astuple(plan)[1:]] == [MAX_STATE] * 3
    assert len(plan.description) <= MAX_DESCRIPTION


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(
            'Hm.\n```json\n{"results":"Ask for the name."}\n```', RelationalPlan("Ask for the name."), id="one"
        ),
        pytest.param('{"results":"A"} or {"results":"B"}', RelationalPlan("A\n\nB"), id="several"),
        pytest.param(
            '{"results":"A","state":{"currentModule":"m"}}', RelationalPlan("A", "m", "", ""), id="with a state"
        ),
        pytest.param('{"results":"A","supportingContext":"B"}', RelationalPlan("A"), id="context is no plan"),
        pytest.param("", None, id="nothing"),
        pytest.param("Ask for the name.", None, id="prose only"),
        pytest.param('{"supportingContext":"B"}', None, id="context only"),
        pytest.param('{"results":" "}', None, id="blank"),
        pytest.param('{"results":["A"]}', None, id="no text"),
        pytest.param('{"results":"A', None, id="cut off"),
    ],
)
def test_the_initial_plan(output: str, expected: RelationalPlan | None) -> None:
    assert read_initial_plan(output) == expected


@given(
    st.lists(
        st.sampled_from(
            ['{"results":"A"}', '{"state":{"gapType":"x"}}', '{"gapType":"y"}', "Prose. ", "{", '"', '{"results":1}']
        )
    ).map("".join)
)
def test_the_cuts_do_not_matter(output: str) -> None:
    reading = PlanReading()
    meaning = [part for delta in output for part in reading.feed(delta)] + reading.finish()
    assert (meaning, reading.plan()) == read(output)
