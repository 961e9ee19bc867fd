"""SessionAggregator: condenses a session into its data and a summary (SPEC R14; S0, "Session Disconnect")."""

import logging
from collections.abc import Sequence
from datetime import datetime

import attrs
import trio

from agents.aggregation.session_data import SessionData, aggregate, talk_seconds
from agents.extraction.records import ExtractionRecord, read_records
from agents.extraction.spoken import SPEAKERS, has_user_spoken, spoken, transcript
from agents.extraction.structured import ask_text
from agents.memory import summaries
from agents.prompts import language_name, render
from engine.interfaces import ChatModel, Context, Role
from engine.memory import MemoryScope
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

NAME = "session"
"""In the session's memory: its data and summary. Each end of the session appends a revision."""
COMPONENT = "summary"
"""In the LLM log."""
WRITE_SECONDS = 0.5
"""Of the time there is, kept for the memory when a chat model is asked."""


@attrs.frozen
class AggregatedSession:
    ended: datetime
    data: SessionData
    summary: str
    """By a chat model; "" when there was none in time."""


@attrs.frozen
class SessionAggregator:
    chat: ChatModel | None

    async def aggregate(self, context: Context, ended: datetime, deadline: float) -> AggregatedSession | None:
        """None when the user has said nothing. The summary goes to the session's memory with the data, and to the user's memory
        with the agent, where `agents.memory.summaries` finds it; there, without a chat model's words, go the facts it knows.
        What of it the memory does not take is logged. The caller bounds it by `deadline`."""
        if not has_user_spoken(context.messages):
            return None
        data = aggregate(records := await _records(context), _turns(context), _seconds(context, records, ended))
        summary = ""
        if self.chat is not None and (seconds := deadline - WRITE_SECONDS - trio.current_time()) > 0:
            instructions = render("summary", language=language_name(context.locale))
            told = transcript(context.messages)
            characters = summaries.SUMMARY_CHARACTERS
            summary = await ask_text(self.chat, context, COMPONENT, instructions, told, seconds, characters)
        try:
            body = {"data": data.to_json(), "summary": summary}
            await context.memory.append(MemoryScope.SESSION, NAME, body)
        except StoreError as exc:
            logger.warning("the data of session %s are not kept: %s", context.session.id, exc)
        try:
            if summary:
                insight = {"turns": data.turns, "text": summary}
                await context.memory.append(MemoryScope.APPLICATION, summaries.NAME, insight)
            else:
                await summaries.remember_conversation(context, SPEAKERS, None)
        except StoreError as exc:
            logger.warning("the summary of session %s is not kept: %s", context.session.id, exc)
        return AggregatedSession(ended, data, summary)


async def _records(context: Context) -> list[ExtractionRecord]:
    """Without them the session still has turns and a length."""
    try:
        return await read_records(context)
    except StoreError as exc:
        logger.warning("the records of session %s cannot be read: %s", context.session.id, exc)
        return []


def _turns(context: Context) -> int:
    """Of the user: what they said, however long ago in this session."""
    return max(context.session.turn_count, sum(message.role is Role.USER for message in spoken(context.messages)))


def _seconds(context: Context, records: Sequence[ExtractionRecord], ended: datetime) -> float:
    session = context.session
    moments = [record.at for record in records]
    return talk_seconds(session.created_at, moments, ended, was_resumed=session.fence > 1)
