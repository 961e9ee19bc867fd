"""Remembering and recalling in the middle of a conversation."""

from typing import Annotated, Any

from pydantic import Field

from agents.memory.summaries import previous_summaries
from agents.moment import describe_date, local_now
from agents.tools import FunctionToolBox
from engine.interfaces import Context, ToolBox, ToolError
from engine.memory import MemoryScope
from engine.store.contract import StoreError

NOTES = "notes"
"""In the user's memory with the agent; each note is a revision."""
RECALLED_NOTES = 20
NOTE_CHARACTERS = 1000


async def remember(note: Annotated[str, Field(min_length=1, max_length=NOTE_CHARACTERS)], context: Context) -> str:
    """Remember something for later conversations: a fact, a promise, a preference. Not what everybody knows.

    Args:
        note: One thing, in a sentence that can be understood without this conversation.
    """
    try:
        await context.memory.append(MemoryScope.APPLICATION, NOTES, {"note": note})
    except StoreError as exc:
        raise ToolError("The memory cannot be reached now; nothing was remembered.") from exc
    return "Remembered."


async def recall(context: Context) -> dict[str, Any]:
    """Recall what is remembered: the notes, newest first, and how earlier conversations went."""
    try:
        notes = await context.memory.revisions(MemoryScope.APPLICATION, NOTES, limit=RECALLED_NOTES)
        conversations = await previous_summaries(context)
    except StoreError as exc:
        raise ToolError("The memory cannot be reached now.") from exc
    zone = local_now(context).tzinfo
    return {
        "notes": [
            {"date": describe_date(note.created_at.astimezone(zone)), "note": str(note.body.get("note", ""))}
            for note in notes
        ],
        "conversations": [
            {"date": describe_date(each.at), "turns": each.turns, "summary": each.text or "\n".join(each.lines)}
            for each in conversations
        ],
    }


def memory_tools() -> ToolBox:
    """The tools of an agent that has memory."""
    return FunctionToolBox([remember, recall])
