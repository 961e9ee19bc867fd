"""What agents of a project that share memory know of a user (SPEC R3). Only the planner may look."""

import logging
from collections.abc import Mapping
from typing import Any

from agents.memory.summaries import previous_summaries
from agents.moment import describe_date, local_now
from agents.tools import FunctionToolBox
from engine.interfaces import Context, ToolBox, ToolError
from engine.memory import MemoryScope, PastConversation
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

EVALUATION = "evaluation"
"""In the user's memory with an agent: how the last conversation was judged."""
TRANSCRIPT_LINES = 40
PROMPT_LINES = 20
LINE_CHARACTERS = 500
_SPEAKERS = {"user": "User", "assistant": "Agent"}


def shared_memory_tools(shared: Mapping[str, str]) -> ToolBox:
    """The tool that reads another agent's memory of the user; none when no agent shares."""
    if not shared:
        return FunctionToolBox([])
    refs = {name.casefold(): ref for ref, name in shared.items()} | {ref.casefold(): ref for ref in shared}

    async def read_shared_agent(agent: str, context: Context) -> dict[str, Any]:
        """Read the user's last conversation with a colleague, and how it was judged.

        Args:
            agent: The colleague's name.
        """
        ref = refs.get(agent.strip().casefold())
        if ref is None:
            raise ToolError(f"No such colleague. There are: {', '.join(shared.values())}.")
        memory = context.memory.with_agent(ref)
        try:
            past = await memory.last_conversation(lines=TRANSCRIPT_LINES)
            judged = await memory.get(MemoryScope.APPLICATION, EVALUATION)
        except StoreError as exc:
            raise ToolError("The memory cannot be reached now.") from exc
        if past is None:
            return {"agent": shared[ref], "conversation": "none"}
        zone = local_now(context).tzinfo
        return {
            "agent": shared[ref],
            "date": describe_date(past.ended_at.astimezone(zone)),
            "transcript": transcript_of(past),
            "evaluation": judged.body if judged is not None else "none",
        }

    return FunctionToolBox([read_shared_agent])


def transcript_of(past: PastConversation) -> str:
    return "\n".join(
        f"{_SPEAKERS.get(role, role)}: {' '.join(text.split())[:LINE_CHARACTERS]}" for role, text in past.lines
    )


async def newest_shared_transcript(context: Context, shared: Mapping[str, str]) -> tuple[str, str]:
    """The name of the agent that has talked with the user last, and what was said. Both "" when there is none.

    Raises:
        StoreError: it cannot be read.
    """
    found: list[tuple[PastConversation, str]] = []
    for ref, name in shared.items():
        past = await context.memory.with_agent(ref).last_conversation(lines=PROMPT_LINES)
        if past is not None:
            found.append((past, name))
    if not found:
        return "", ""
    newest, name = max(found, key=lambda each: each[0].ended_at)
    return name, transcript_of(newest)


async def last_summary(context: Context) -> str:
    """What is remembered of the last conversation with this agent. Raises StoreError."""
    summaries = await previous_summaries(context)
    return (summaries[-1].text or "\n".join(summaries[-1].lines)) if summaries else ""
