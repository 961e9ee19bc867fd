"""The evaluation of a turn: a few insights, weightiest first, and never a reason to wait."""

import pytest
import trio

from agents.evaluation.agent_facts import AgentFacts, facts_of
from agents.evaluation.insights import EVALUATION_SECONDS, INSIGHT_CHARACTERS, Insight, evaluate_turn
from engine.elements import JsonObject
from engine.interfaces import Message, Role
from engine.testing.chat import Script
from engine.testing.stage import ScriptedAgent
from tests.agents.extraction.room import Rooms, chat_of, relational_agent, talk, written
from tests.agents.support import make_agent

TALK = talk(("Chci to vrátit.", "Máte účtenku?"))


def insights(*pairs: tuple[str, float]) -> JsonObject:
    return {"insights": [{"text": text, "weight": weight} for text, weight in pairs]}


async def test_insights_come_by_weight_and_are_few(autojump_clock: trio.testing.MockClock) -> None:
    agent = relational_agent(purpose="Vyřídit reklamaci.", businessProcessSteps="1. účtenka", guardrails="Žádné sliby.")
    context = Rooms().context(locale="cs", agent=agent)
    answer = written(insights(("Spíchá.", 0.2), ("Účtenku nemá.", 0.9), ("  ", 1.0), ("Je naštvaný.", 0.5), ("x", 0.1)))
    chat = chat_of([answer])
    found = await evaluate_turn(context, chat, TALK)
    assert found == (Insight("Účtenku nemá.", 0.9), Insight("Je naštvaný.", 0.5), Insight("Spíchá.", 0.2))
    instructions, told = chat.requests[0].messages
    assert all(text in instructions.text for text in ("Vyřídit reklamaci.", "1. účtenka", "Žádné sliby.", "Czech"))
    assert told.text == "User: Chci to vrátit.\nAgent: Máte účtenku?"


async def test_an_insight_is_short(autojump_clock: trio.testing.MockClock) -> None:
    (found,) = await evaluate_turn(Rooms().context(), chat_of([written(insights(("ä" * 5000, 1)))]), TALK)
    assert found == Insight("ä" * INSIGHT_CHARACTERS, 1.0)


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ([60.0], EVALUATION_SECONDS),
        ([RuntimeError("weg")], 0.0),
        (["Alles gut."], 0.0),
        ([written(insights(("x", 4)))], 0.0),
        ([written(insights())], 0.0),
    ],
)
async def test_what_fails_gives_none(script: Script, seconds: float, autojump_clock: trio.testing.MockClock) -> None:
    chat = chat_of(script)
    assert await evaluate_turn(Rooms().context(), chat, TALK) == ()
    assert trio.current_time() == seconds
    assert chat.open_streams == 0


async def test_nothing_is_asked_without_a_model_or_a_users_word(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    chat = chat_of([written(insights(("x", 1)))])
    assert await evaluate_turn(context, None, TALK) == ()
    assert await evaluate_turn(context, chat, [Message(Role.ASSISTANT, "Hallo?")]) == ()
    assert not chat.asked


async def test_it_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    chat = chat_of([1.0, "{", 60.0])
    with trio.move_on_after(2) as scope:
        await evaluate_turn(Rooms().context(), chat, TALK)
    assert scope.cancelled_caught
    assert chat.open_streams == 0


def test_what_is_known_of_an_agent() -> None:
    agent = relational_agent(purpose=" Verkaufen. ", businessProcessSteps="1. Gruß", guardrails="Höflich.")
    assert facts_of(agent) == AgentFacts("Ada", "Verkaufen.", "1. Gruß", "Höflich.")
    assert facts_of(make_agent(purpose="x")) == AgentFacts("Ada", "x")
    assert facts_of(ScriptedAgent()) == AgentFacts("Tester")
    assert facts_of(None) == AgentFacts()
