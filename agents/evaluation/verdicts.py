"""The evaluation of a conversation that is over: all judges at once, and the newest verdicts kept for the next one (SPEC R3, R14)."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, cast

import attrs
import trio
from pydantic import StringConstraints

from agents.evaluation.agent_facts import AgentFacts
from agents.evaluation.contract import Judge
from agents.extraction.outputs import Share, at_most
from agents.extraction.spoken import has_user_spoken, transcript
from agents.extraction.structured import Output, ask_object
from agents.prompts import language_name, render
from engine.elements import OutEvaluation
from engine.interfaces import ChatModel, Context
from engine.memory import Memory, MemoryScope
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

NAME = "evaluation"
"""In the user's memory with the agent; each session's end appends a revision."""
JUDGE_SECONDS = 8.0
"""What each judge gets, both tries; they run at the same time, and a client that waits for the results waits so long."""
MAX_REASONS = 3
REASON_CHARACTERS = 300


@attrs.frozen
class Verdict:
    name: str
    score: float
    """0 to 1."""
    reasons: tuple[str, ...] = ()


@attrs.frozen
class Evaluation:
    """What was found of one conversation."""

    at: datetime
    session_id: str
    verdicts: tuple[Verdict, ...]
    """In the order of their names."""


class _Verdict(Output):
    reasons: list[Annotated[str, at_most(REASON_CHARACTERS), StringConstraints(strip_whitespace=True)]]
    """Before the score, so that the model thinks before it gives one."""
    score: Share


async def judge_session(
    context: Context,
    chat: ChatModel | None,
    agent: AgentFacts,
    emit: Callable[[OutEvaluation], None],
    judges: Sequence[Judge],
    seconds: float = JUDGE_SECONDS,
) -> tuple[Verdict, ...]:
    """Let all judges that have a case look at the conversation, at the same time. Each verdict is emitted when it is there; the
    verdicts are kept and given in the order of their names. A judge that fails or takes too long loses only its own. Nothing without
    a chat model, or when the user has said nothing. Never raises but for cancellation."""
    if chat is None or not has_user_spoken(context.messages):
        return ()
    told = transcript(context.messages)
    verdicts: list[Verdict] = []

    async def judge_one(judge: Judge) -> None:
        try:
            if not judge.has_a_case(agent):
                return
            language = language_name(context.locale)
            instructions = render("evaluation.judge", agent=agent, language=language, question=judge.question(agent))
            found = await ask_object(chat, context, judge.name, instructions, told, _Verdict, seconds)
            if isinstance(found, _Verdict):
                verdict = Verdict(
                    judge.name, found.score, tuple(reason for reason in found.reasons if reason)[:MAX_REASONS]
                )
                verdicts.append(verdict)
                emit(OutEvaluation(verdict.name, verdict.score, verdict.reasons))
        except Exception as exc:  # judges come from anywhere
            logger.error("the judge %s failed (%s)", judge.name, type(exc).__name__)

    async with trio.open_nursery() as nursery:
        for judge in judges:
            nursery.start_soon(judge_one, judge, name=f"judge {judge.name}")
            await trio.lowlevel.checkpoint()  # each asks the chat model before the next does, in every run
    found = tuple(sorted(verdicts, key=lambda verdict: verdict.name))
    if found:
        try:
            body = {"verdicts": [{"name": v.name, "score": v.score, "reasons": list(v.reasons)} for v in found]}
            await context.memory.append(MemoryScope.APPLICATION, NAME, body)
        except StoreError as exc:
            logger.warning("the evaluation of session %s is not remembered: %s", context.session.id, exc)
    return found


async def previous_evaluation(context: Context, memory: Memory | None = None) -> Evaluation | None:
    """The newest one of this user's conversations with this agent, or with another, whose memory is given. Raises StoreError."""
    document = await (memory or context.memory).get(MemoryScope.APPLICATION, NAME)
    if document is None:
        return None
    stored = document.body.get("verdicts")
    items = cast("list[object]", stored) if isinstance(stored, list) else []
    verdicts = tuple(verdict for item in items if (verdict := _verdict(item)) is not None)
    return Evaluation(document.created_at, document.session_id, verdicts)


def describe(evaluation: Evaluation) -> str:
    """For a prompt: a line for each verdict."""
    return "\n".join(
        f"- {verdict.name}: {verdict.score:.2f} of 1.00{'. ' if verdict.reasons else ''}{' '.join(verdict.reasons)}"
        for verdict in evaluation.verdicts
    )


def _verdict(item: object) -> Verdict | None:
    """As stored; None when it has another shape."""
    if not isinstance(item, dict):
        return None
    values = cast("dict[str, object]", item)
    name, score, reasons = values.get("name"), values.get("score"), values.get("reasons")
    if not isinstance(name, str) or not isinstance(score, int | float):
        return None
    lines = cast("list[object]", reasons) if isinstance(reasons, list) else []
    return Verdict(name, float(score), tuple(line for line in lines if isinstance(line, str)))
