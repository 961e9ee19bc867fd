"""What the speaking model may call, and what it is told (SPEC R7, R8, R9)."""

from typing import Any

import pytest
import trio

from agents.finish import FINISH_SESSION
from agents.relational.guard import SpeakerGuard
from agents.relational.state import MAX_REQUESTS, RelationalState
from agents.relational.toolbox import speaker_tools
from agents.tools import FunctionToolBox
from engine.elements import MultimodalKind
from engine.interfaces import Context, ToolBox, ToolError, UnknownToolError
from engine.testing.scripted import ScriptedProperties
from engine.texts import Sentence, languages, say
from tests.agents.relational.troupe import agent, make_context


async def search_knowledge(query: str) -> str:
    """Search."""
    await trio.lowlevel.checkpoint()
    return query


def made(**fields: Any) -> tuple[ToolBox, RelationalState, Context]:
    properties = fields.pop("properties", None)
    context = make_context(**({} if properties is None else {"properties": properties}))
    state = RelationalState(
        agent(**fields),
        SpeakerGuard("en"),
        shared_agents={"cook": "Karl"},
        planner_tools=FunctionToolBox([search_knowledge]),
    )
    context.agent_state = state
    return speaker_tools(context, state), state, context


def names(box: ToolBox) -> list[str]:
    return [specification.name for specification in box.specifications]


CARD = {"name": "menu", "description": "What there is.", "urls": ["https://cafe.example/menu"]}


def test_the_model_has_what_it_needs_to_act_at_once() -> None:
    box, _, _ = made()
    assert names(box) == [FINISH_SESSION, "request_help"]
    box, _, _ = made(handover="cook", multimodal=[CARD])
    assert names(box) == [FINISH_SESSION, "request_help", "handover", "display"]


@pytest.mark.parametrize(
    ("fields", "finish"),
    [({}, True), ({"sessionEndSupport": False}, False), ({"properties": ScriptedProperties(turnless=True)}, False)],
)
def test_who_may_end_the_session(fields: dict[str, Any], finish: bool) -> None:
    assert (FINISH_SESSION in names(made(**fields)[0])) is finish


async def test_a_planners_tool_is_promised_and_the_planner_told() -> None:
    box, state, context = made()
    result = await box.call("search_knowledge", {"query": "dogs"}, context)
    assert result.output == "Tool search_knowledge will return results in a few seconds."
    [hint] = state.take_hints()
    assert (hint.name, hint.parameters, hint.turn_id) == ("search_knowledge", '{"query": "dogs"}', "turn-1")
    assert state.take_hints() == []


async def test_any_other_tool_that_is_not_there_gives_the_error_it_gives() -> None:
    box, state, context = made()
    with pytest.raises(UnknownToolError, match="Tool fly does not exist"):
        await box.call("fly", {}, context)
    assert [hint.name for hint in state.take_hints()] == ["fly"]


async def test_help_is_asked_for() -> None:
    box, state, context = made()
    result = await box.call("request_help", {"question": "Are dogs allowed?"}, context)
    assert result.output == say(Sentence.HELP_ASKED, "en")
    assert [(each.question, each.turn_id) for each in state.take_help()] == [("Are dogs allowed?", "turn-1")]
    with pytest.raises(ToolError):
        await box.call("request_help", {"question": ""}, context)
    for number in range(2 * MAX_REQUESTS):
        await box.call("request_help", {"question": f"{number}?"}, context)
    assert [each.question for each in state.take_help()] == [f"{n}?" for n in range(MAX_REQUESTS, 2 * MAX_REQUESTS)]


async def test_a_card_is_shown() -> None:
    box, _, context = made(multimodal=[CARD])
    result = await box.call("display", {"name": "menu"}, context)
    [card] = result.interactions
    assert (card.kind, card.name) == (MultimodalKind.CARD, "menu")
    assert card.data == {"description": "What there is.", "urls": ["https://cafe.example/menu"]}
    with pytest.raises(ToolError, match="There is: menu"):
        await box.call("display", {"name": "wine list"}, context)
    [specification] = [each for each in box.specifications if each.name == "display"]
    assert "menu: What there is." in specification.description


async def test_the_user_is_handed_over() -> None:
    box, _, context = made(handover="cook")
    result = await box.call("handover", {"reason": "about the soup"}, context)
    [interaction] = result.interactions
    assert (interaction.kind, interaction.name) == (MultimodalKind.HANDOVER, "cook")
    assert interaction.data == {"name": "Karl", "reason": "about the soup"}
    assert "Karl" in result.output
    assert not result.ends_session


async def test_where_planning_decides_the_call_only_asks() -> None:
    box, state, context = made()
    result = await box.call(FINISH_SESSION, {}, context)
    assert (result.requests_end, result.ends_session) == (True, False)
    assert result.output == say(Sentence.END_REQUESTED, "en")
    assert state.end.is_asked("turn-1")
    state.end.begin("turn-1").answer(ends_session=True)
    result = await box.call(FINISH_SESSION, {}, context)
    assert (result.requests_end, result.ends_session) == (False, True)
    assert result.output == say(Sentence.END_APPROVED, "en")


async def test_with_other_models_the_call_ends_the_session() -> None:
    box, state, context = made(properties=ScriptedProperties())
    result = await box.call(FINISH_SESSION, {}, context)
    assert (result.requests_end, result.ends_session) == (False, True)
    assert not state.end.is_asked("turn-1")


# --- what the engine itself says --------------------------------------------------------------------------------------


def test_every_language_has_every_sentence() -> None:
    assert languages() >= {"cs", "de", "en"}
    for sentence in Sentence:
        english = say(sentence, "en")
        assert english.strip()
        for language in languages() - {"en"}:
            text = say(sentence, language)
            assert text != english, f"{sentence} is not translated into {language}"
            assert text.count("{name}") == english.count("{name}")


def test_a_language_without_texts_is_spoken_to_in_english() -> None:
    assert say(Sentence.SHOWN, "fi-FI") == say(Sentence.SHOWN, "en")
    assert say(Sentence.SHOWN, "cs_CZ") == say(Sentence.SHOWN, "cs")
