"""Remembering and recalling in the middle of a conversation."""

from typing import Annotated, Any

from pydantic import Field

from agents.extraction.facts import read_facts
from agents.memory.shared import TRANSCRIPT_LINES, transcript_of
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
    """Recall what is remembered: the facts about the user, the notes, newest first, and how earlier conversations went."""
    try:
        facts = await read_facts(context)
        notes = await context.memory.revisions(MemoryScope.APPLICATION, NOTES, limit=RECALLED_NOTES)
        conversations = await previous_summaries(context)
    except StoreError as exc:
        raise ToolError("The memory cannot be reached now.") from exc
    zone = local_now(context).tzinfo
    return {
        "facts": [fact.text for fact in facts],
        "notes": [
            {"date": describe_date(note.created_at.astimezone(zone)), "note": str(note.body.get("note", ""))}
            for note in notes
        ],
        "conversations": [
            {"date": describe_date(each.at), "turns": each.turns, "summary": each.text or "\n".join(each.lines)}
            for each in conversations
        ],
    }


async def read_last_conversation(context: Context) -> dict[str, Any]:
    """Read the user's last conversation before this one, word for word; of a long one the end."""
    try:
        past = await context.memory.last_conversation(lines=TRANSCRIPT_LINES)
    except StoreError as exc:
        raise ToolError("The memory cannot be reached now.") from exc
    if past is None:
        return {"transcript": "none"}
    ended_at = past.ended_at.astimezone(local_now(context).tzinfo)
    return {"date": describe_date(ended_at), "transcript": transcript_of(past)}


def memory_tools() -> ToolBox:
    """The tools of an agent that has memory."""
    return FunctionToolBox([remember, recall, read_last_conversation])
