"""What is kept of a conversation when it has ended, for the next ones with the same user (SPEC R16).

Without a chat model it is only facts: how many turns there were, and the first and last lines of it as they were heard. Nothing
is made up from them. With one, it condenses what was said; when it fails or takes too long, the facts are kept.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any

import attrs
import trio

from agents.moment import local_now
from agents.prompts import language_name, render
from engine.elements import JsonObject
from engine.errors import RemoteError
from engine.interfaces import ChatMessage, ChatModel, ChatRequest, ChatText, Context, Message, Role
from engine.memory import MemoryScope
from engine.store.documents import MemoryDocument

logger = logging.getLogger(__name__)

NAME = "summary"
"""In the user's memory with the agent; each session's end appends a revision."""
SHOWN = 5
"""Conversations in a prompt: the last ones."""
LOOKED_AT = 20
"""Revisions that are read for those: a session that was resumed has several."""
FIRST_LINES, LAST_LINES = 2, 6
"""Kept of a conversation without a chat model: how it began, and how it ended."""
LINE_CHARACTERS = 200
SUMMARY_SECONDS = 6.0
"""What a chat model gets; all that happens after a session has 10 s."""
SUMMARY_CHARACTERS = 2000
TOLD_LINES = 120
TOLD_CHARACTERS = 600
"""Of each line, to a chat model: about 20,000 tokens at the very most."""


@attrs.frozen
class Summary:
    """What is remembered of one conversation."""

    at: datetime
    """In the user's own time zone."""
    turns: int
    text: str
    """By a chat model; "" when there was none."""
    lines: tuple[str, ...]
    """The facts: lines of it, each with who said it, and a mark where some are left out."""


async def previous_summaries(context: Context) -> list[Summary]:
    """Those of the last conversations before this one, oldest first. Raises StoreError."""
    revisions = await context.memory.revisions(MemoryScope.APPLICATION, NAME, limit=LOOKED_AT)
    newest: dict[str, MemoryDocument] = {}
    for document in revisions:
        if document.session_id != context.session.id:
            newest.setdefault(document.session_id, document)
    zone = local_now(context).tzinfo
    return [_summary(document, zone) for document in list(newest.values())[:SHOWN]][::-1]


async def remember_conversation(context: Context, names: dict[Role, str], chat: ChatModel | None) -> None:
    """Keep what there is to keep of this conversation; nothing when nobody said anything. `names` is how the lines call the
    two sides. Raises StoreError."""
    said = [message for message in context.messages if message.role in names]
    if not said:
        return
    body: JsonObject = {"turns": sum(message.role is Role.USER for message in said)}
    text = await _condense(context, said, names, chat) if chat is not None else ""
    body |= {"text": text} if text else {"lines": _facts(said, names)}
    await context.memory.append(MemoryScope.APPLICATION, NAME, body)


def _facts(said: Sequence[Message], names: dict[Role, str]) -> list[str]:
    lines = [_line(message, names, LINE_CHARACTERS) for message in said]
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out <= 0:
        return lines
    return [*lines[:FIRST_LINES], f"… ({left_out} lines left out)", *lines[-LAST_LINES:]]


def _line(message: Message, names: dict[Role, str], characters: int) -> str:
    text = " ".join(message.text.split())
    text = text if len(text) <= characters else f"{text[:characters]}…"
    return f"{names[message.role]}: {text}"


async def _condense(context: Context, said: Sequence[Message], names: dict[Role, str], chat: ChatModel) -> str:
    """A chat model's words about it; "" when there are none in time."""
    told = "\n".join(_line(message, names, TOLD_CHARACTERS) for message in said[-TOLD_LINES:])
    instructions = render("summary", language=language_name(context.locale))
    request = ChatRequest((ChatMessage("system", instructions), ChatMessage("user", told)), locale=context.locale)
    with trio.move_on_after(SUMMARY_SECONDS):
        try:
            async with chat.open_stream(request) as deltas:
                text = "".join([delta.text async for delta in deltas if isinstance(delta, ChatText)])
            return text.strip()[:SUMMARY_CHARACTERS]
        except RemoteError as exc:
            logger.warning("a conversation could not be condensed: %s", exc.message)
            return ""
        except Exception as exc:  # a chat model may fail in any way, and its words may be those of the conversation
            logger.error("a conversation could not be condensed (%s)", type(exc).__name__)
            return ""
    logger.warning("a conversation was not condensed in %g s", SUMMARY_SECONDS)
    return ""


def _summary(document: MemoryDocument, zone: tzinfo | None) -> Summary:
    body: dict[str, Any] = document.body
    return Summary(
        at=document.created_at.astimezone(zone),
        turns=int(body.get("turns", 0)),
        text=str(body.get("text", "")),
        lines=tuple(body.get("lines", ())),
    )
