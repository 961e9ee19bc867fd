"""What the models are told: what must be in a prompt, and what must not (SPEC R6, R10; S0)."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from agents.relational.briefing import initial_messages, planning_messages, speaker_prompt
from agents.relational.guard import SpeakerGuard
from agents.relational.plan import RelationalPlan
from agents.relational.session_end_gate import EndPass, SessionEndGate
from agents.relational.state import HelpRequest, RelationalState, ToolCallHint
from agents.tools import FunctionToolBox
from engine.config import PipelineConfiguration
from engine.elements import MultimodalInteraction, MultimodalKind
from engine.interfaces import Context, Message, RealtimeModel, Role, TurnInput
from engine.principal import Principal
from engine.testing.scripted import ScriptedModel, ScriptedProperties
from engine.testing.stage import EPOCH
from tests.agents.relational.troupe import agent, make_context

CARD = {"name": "menu", "description": "Secret description", "urls": ["https://cafe.example/menu"]}


class Internal(ScriptedModel):
    name = "Internal"


async def search_knowledge(query: str) -> str:
    """Search the house rules."""
    await trio.lowlevel.checkpoint()
    return query


def state_for(**fields: Any) -> RelationalState:
    state = RelationalState(
        agent(**fields),
        SpeakerGuard("en"),
        shared_agents={"cook": "Karl"},
        planner_tools=FunctionToolBox([search_knowledge]),
        opening_tools=FunctionToolBox([search_knowledge]),
        knowledge_names=("House rules: dogs and such",),
        mcp_names=("calendar",),
        describe_skills=lambda: "SKILL CONTENT: how to calm people",
        plan=RelationalPlan("THE TURN'S PLAN"),
        initial_plan=RelationalPlan("THE OPENING PLAN"),
        insights=("The user is in a hurry.",),
        webhook_result="WEBHOOK: a regular",
        biography="Likes tea.",
        user_gender="woman",
        last_visit="3 days",
        last_summary="LAST SUMMARY",
        last_evaluation="LAST EVALUATION",
        shared_agent="Karl",
        shared_transcript="SHARED TRANSCRIPT",
    )
    return state


def context_for(*messages: tuple[Role, str], **fields: Any) -> Context:
    context = make_context(principal=Principal(owner="o", name="Petra"), **fields)
    context.messages = [Message(role, text, "turn-0") for role, text in messages]
    context.sensory = {"light": "dim"}
    context.environment = attrs.evolve(context.environment, wall_clock=lambda: EPOCH)
    return context


def speaker(model: RealtimeModel | None = None, *, reconnect: bool = False, **fields: Any) -> str:
    context = context_for((Role.USER, "Hello."), (Role.INSTRUCTION, "WHISPER"), (Role.ASSISTANT, "Good evening."))
    context.is_reconnect = reconnect
    properties = fields.pop("properties", None)
    if properties is not None:
        context.properties = properties
    return speaker_prompt(context, state_for(hasMemory=True, **fields), model or ScriptedModel()).text


HIDDEN = (
    "Ask for the day",
    "THE TURN'S PLAN",
    "SKILL CONTENT",
    "Secret description",
    "WEBHOOK",
    "hurry",
    "LAST SUMMARY",
    "WHISPER",
)


@pytest.mark.parametrize("reconnect", [True, False])
@pytest.mark.parametrize("model", [ScriptedModel(), Internal()])
def test_what_the_speaking_model_is_told(model: RealtimeModel, reconnect: bool) -> None:
    text = speaker(model, reconnect=reconnect, multimodal=[CARD], gender="female", locale="cs")
    for known in (
        "You are Anna.", "Book tables.", "A cheerful barista.", "Take no payments.", "Czech (cs)", "as a woman",
        "The user's name is Petra.", "The user is a woman.", "Likes tea.", "House rules", "- calendar", "- menu",
        "THE OPENING PLAN", "request_help", "finish_session", "dim", "LAST EVALUATION", "Karl", "SHARED TRANSCRIPT",
    ):  # fmt: skip
        assert known in text, known
    for hidden in HIDDEN:
        assert hidden not in text, hidden
    assert "{{" not in text
    assert "{%" not in text
    assert ("Good evening." in text) is reconnect
    assert ("Do not greet again" in text) is reconnect
    assert ("Open it according to this plan" in text) is not reconnect
    assert ("what you write is spoken aloud" in text) is (model.name == "Internal")


def test_each_variant_has_an_id() -> None:
    context = context_for()
    ids: list[str] = []
    for model in (ScriptedModel(), Internal()):
        for context.is_reconnect in (False, True):
            ids.append(speaker_prompt(context, state_for(), model).template_id)
    assert ids == ["realtime", "realtime.reconnect", "internal", "internal.reconnect"]


def test_the_end_of_the_session_is_derived() -> None:
    assert "It only asks for the end" in speaker()
    direct = speaker(properties=ScriptedProperties())
    assert "It only asks for the end" not in direct
    assert "say goodbye in one short sentence and then call" in direct
    assert "finish_session" not in speaker(sessionEndSupport=False)


def test_without_memory_the_model_knows_no_biography() -> None:
    context = context_for()
    text = speaker_prompt(context, state_for(hasMemory=False), ScriptedModel()).text
    assert "Likes tea." not in text


def test_what_operators_wrote_is_never_a_template() -> None:
    text = speaker(purpose="{{ 7 * 7 }} {% raw %}")
    assert "{{ 7 * 7 }} {% raw %}" in text


# --- the planner ------------------------------------------------------------------------------------------------------


def planner(
    *messages: tuple[Role, str],
    requested: bool = False,
    hints: tuple[ToolCallHint, ...] = (),
    questions: tuple[HelpRequest, ...] = (),
    utterance: str = "At six, please.",
    multimodal: tuple[MultimodalInteraction, ...] = (),
    context: Context | None = None,
    **fields: Any,
) -> str:
    context = context or context_for(*messages)
    state = state_for(**fields)
    turn = TurnInput("turn-1", utterance, ("Good.",), multimodal)
    ending = EndPass(SessionEndGate(), requested)
    return "\n".join(m.text for m in planning_messages(context, state, turn, ending, hints, questions))


def test_what_the_planner_is_told() -> None:
    shown = MultimodalInteraction(MultimodalKind.CARD, "menu")
    text = planner(
        (Role.USER, "Hello."), (Role.ASSISTANT, "Good evening."), (Role.INSTRUCTION, "Supporting context: Ask."),
        (Role.INSTRUCTION, "It is noon."), multimodal=(shown,), hasMemory=True, handover="cook", knowledge=["rules.md"],
        businessProcessSteps="Say [[exact]]This call is recorded.[[/exact]] first.",
    )  # fmt: skip
    for known in (
        "Book tables.", "“This call is recorded.”", "Take no payments.", "Work exclusively for the purpose",
        "`search_knowledge`: Search the house rules.", "hand the user over to Karl", "remember things about the user",
        "Karl", "SKILL CONTENT", "The user is a woman.", "Likes tea.", "WEBHOOK: a regular", "3 days ago",
        "User: Hello.", "Agent: Good evening.", "(you whispered) Supporting context: Ask.", "At six, please.",
        "On the user's screen so far: menu", "THE TURN'S PLAN", "dim", "The user is in a hurry.", "[k3]",
        "## Ending the session", "Europe/Prague",
    ):  # fmt: skip
        assert known in text, known
    for hidden in (
        "cheerful barista",
        "THE OPENING PLAN",
        "LAST SUMMARY",
        "LAST EVALUATION",
        "It is noon.",
        "End request",
    ):
        assert hidden not in text, hidden
    assert "[[exact]]" not in text


@pytest.mark.parametrize(
    ("impact", "level"),
    [(0.0, "low"), (0.32, "low"), (0.33, "medium"), (0.65, "medium"), (0.66, "high"), (1.0, "high")],
)
def test_how_much_the_business_counts(impact: float, level: str) -> None:
    text = planner(businessImpact=impact)
    assert ("Work exclusively for the purpose" in text) is (level == "high")
    assert ("Make the user feel heard" in text) is (level != "high")
    assert ("more than the purpose" in text) is (level == "low")


def test_what_was_asked_of_the_planner() -> None:
    hint = ToolCallHint("search_knowledge", '{"query": "dogs"}', "turn-1")
    text = planner(requested=True, hints=(hint,), questions=(HelpRequest("Are dogs allowed?", "turn-1"),))
    assert "## Tool call hint" in text
    assert 'search_knowledge {"query": "dogs"}' in text
    assert "Are dogs allowed?" in text
    assert "## End request" in text
    assert "## Ending the session" not in text


def test_where_planning_cannot_end_the_session_it_is_not_told_of_it() -> None:
    context = context_for(properties=ScriptedProperties())
    assert "endSession" not in planner(context=context)


def test_thirty_messages_are_read() -> None:
    lines = [(Role.USER if n % 2 else Role.ASSISTANT, f"Line {n}.") for n in range(40)]
    text = planner(*lines)
    assert "Line 10." in text
    assert "Line 9." not in text
    assert "(earlier lines left out)" in text
    assert "(earlier lines left out)" not in planner(*lines[:30])


def test_an_action_is_no_words() -> None:
    assert "the action `#intro`" in planner(utterance="#intro")


def _at(instant: datetime) -> datetime:
    return instant


def test_the_time_is_the_users_own() -> None:
    """Case C48: the night in which the clocks change in Prague."""
    for instant, zone, known in (
        (
            datetime(2026, 3, 28, 23, 30, tzinfo=UTC),
            "Europe/Prague",
            "Sunday, 29 March 2026, 00:30 (2026-03-29T00:30+01:00",
        ),
        (
            datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
            "Europe/Prague",
            "Sunday, 29 March 2026, 03:30 (2026-03-29T03:30+02:00",
        ),
        (
            datetime(2026, 6, 2, 2, 10, tzinfo=UTC),
            "America/Los_Angeles",
            "Monday, 1 June 2026, 19:10 (2026-06-01T19:10-07:00",
        ),
    ):
        context = context_for(configuration=PipelineConfiguration(time_zone=zone))
        context.environment = attrs.evolve(context.environment, wall_clock=partial(_at, instant))
        assert known in planner(context=context)


def test_what_the_opening_is_planned_from() -> None:
    messages = initial_messages(context_for(), state_for(hasMemory=True))
    text = "\n".join(message.text for message in messages)
    for known in (
        "Book tables.", "Ask for the day.", "Take no payments.", "Petra", "Likes tea.", "3 days ago", "WEBHOOK: a regular",
        "LAST SUMMARY", "LAST EVALUATION", "Karl", "SHARED TRANSCRIPT", "`search_knowledge`", "SKILL CONTENT",
    ):  # fmt: skip
        assert known in text, known
    for hidden in ("cheerful barista", "THE TURN'S PLAN", "hurry", "dim", "THE OPENING PLAN"):
        assert hidden not in text, hidden
