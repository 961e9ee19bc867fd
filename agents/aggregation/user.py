"""UserMemoryAggregator: folds a session into the one record of its user (SPEC R14; S0, "Session Disconnect")."""

import logging
from datetime import UTC, datetime

import attrs
import trio

from agents.aggregation.session import WRITE_SECONDS, AggregatedSession
from agents.aggregation.user_record import (
    BIOGRAPHY_CHARACTERS,
    Contribution,
    UserRecord,
    fold,
    from_json,
    merge,
    to_json,
)
from agents.extraction.structured import ask_text
from agents.prompts import language_name, render
from engine.interfaces import ChatModel, Context
from engine.memory import MemoryScope

logger = logging.getLogger(__name__)

NAME = "profile"
"""In the user's memory, for each project: what one project's agents have heard is not told to another's."""
MERGED = 8
"""Revisions that are read: so many sessions may have ended since one of them read, and all are counted."""
COMPONENT = "profile"
"""In the LLM log."""


@attrs.frozen
class UserMemoryAggregator:
    chat: ChatModel | None

    async def fold(self, context: Context, session: AggregatedSession, deadline: float) -> UserRecord:
        """Count the session, and write the profile anew when there is something to write it from. The caller bounds it by `deadline`.

        Raises:
            StoreError: the record cannot be read, so nothing is written over it; or it cannot be written.
        """
        record = fold(await read_user_record(context), _contribution(context, session))
        if (
            self.chat is not None
            and session.summary
            and (seconds := deadline - WRITE_SECONDS - trio.current_time()) > 0
        ):
            biography = await self._biography(self.chat, context, record.biography, session.summary, seconds)
            record = attrs.evolve(record, biography=biography or record.biography)
        await context.memory.append(MemoryScope.USER, profile_name(context), to_json(record))
        return record

    async def _biography(self, chat: ChatModel, context: Context, known: str, summary: str, seconds: float) -> str:
        instructions = render("aggregation.profile", language=language_name(context.locale))
        told = render("aggregation.profile.told", known=known, summary=summary)
        return await ask_text(chat, context, COMPONENT, instructions, told, seconds, BIOGRAPHY_CHARACTERS)


async def read_user_record(context: Context) -> UserRecord:
    """The record of the session's user; an empty one when there is none. Raises StoreError."""
    revisions = await context.memory.revisions(MemoryScope.USER, profile_name(context), limit=MERGED)
    record = UserRecord()
    for revision in revisions:  # the newest first
        record = merge(record, from_json(revision.body))
    return record


def profile_name(context: Context) -> str:
    """What the record is called in the user's memory."""
    return f"{NAME}:{context.project_ref}" if context.project_ref else NAME


def last_visit(context: Context, record: UserRecord) -> datetime | None:
    """When the user's last session before this one ended, in UTC; None when it is not known."""
    try:
        moment = datetime.fromisoformat(record.last_ended(other_than=context.session.id))
    except ValueError:  # there was none
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None


def _contribution(context: Context, session: AggregatedSession) -> Contribution:
    data = session.data
    return Contribution(
        context.session.id,
        _iso(context.session.created_at),
        _iso(session.ended),
        data.turns,
        data.seconds,
        data.traits,
    )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
