"""The evaluation of a turn, whose insights steer the planning of the next one (SPEC R13)."""

from collections.abc import Sequence
from typing import Annotated

import attrs
from pydantic import StringConstraints

from agents.evaluation.agent_facts import facts_of
from agents.extraction.outputs import Share, at_most
from agents.extraction.spoken import has_user_spoken, transcript
from agents.extraction.structured import Output, ask_object
from agents.prompts import language_name, render
from engine.interfaces import ChatModel, Context, Message

COMPONENT = "evaluation"
"""In the LLM log, and the template's id."""
EVALUATION_SECONDS = 6.0
"""What the chat model gets, both tries: it has to be there when the next turn is planned, and turn_end has 10 s in all."""
MAX_INSIGHTS = 3
INSIGHT_CHARACTERS = 300
LINES = 30
"""Of the conversation: what planning reads of it (R10)."""


@attrs.frozen
class Insight:
    """Something for the planner to heed in the next turn."""

    text: str
    weight: float
    """0 to 1: how much it matters."""


class _Insight(Output):
    text: Annotated[str, at_most(INSIGHT_CHARACTERS), StringConstraints(strip_whitespace=True)]
    weight: Share


class _Insights(Output):
    insights: list[_Insight]


async def evaluate_turn(
    context: Context, chat: ChatModel | None, messages: Sequence[Message], seconds: float = EVALUATION_SECONDS
) -> tuple[Insight, ...]:
    """At most three insights, the weightiest first; none without a chat model, when it fails, or in time. `messages` end with the
    turn. Never raises but for cancellation."""
    if chat is None or not has_user_spoken(messages):
        return ()
    agent = facts_of(context.content)
    instructions = render(COMPONENT, agent=agent, language=language_name(context.locale), count=MAX_INSIGHTS)
    told = transcript(messages, LINES)
    found = await ask_object(chat, context, COMPONENT, instructions, told, _Insights, seconds)
    if not isinstance(found, _Insights):
        return ()
    insights = [Insight(each.text, each.weight) for each in found.insights if each.text]
    return tuple(sorted(insights, key=lambda insight: -insight.weight)[:MAX_INSIGHTS])
