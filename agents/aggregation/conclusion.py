"""After a conversation: extraction, then SessionAggregator, then UserMemoryAggregator, strictly in that order (S0, R14).

Whatever fails or hangs is logged and left out, and nothing is propagated. Each step has a deadline of its own: time that one does not
need is the next one's, and none can take what belongs to those behind it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from agents.aggregation.session import WRITE_SECONDS, SessionAggregator
from agents.aggregation.user import UserMemoryAggregator
from agents.extraction.contract import Extractor
from agents.extraction.turns import extract_session
from engine.interfaces import ChatModel, Context
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T")

EXTRACTION_BY, SESSION_BY, USER_BY = 3.0, 6.5, 9.0
"""Seconds from the beginning; all that happens after a session has 10 s. Usually extraction has nothing left to do."""


async def conclude_session(context: Context, chat: ChatModel | None, extractors: Sequence[Extractor]) -> None:
    """Keep what is to be kept of a conversation that is over; for agents that have memory. May be called again when the session has
    been resumed: it is not counted twice. Never raises but for cancellation."""
    began, ended = trio.current_time(), context.environment.wall_clock()

    async def extraction() -> None:
        await extract_session(context, chat, extractors, EXTRACTION_BY - WRITE_SECONDS)

    await _step(context, "extraction", began + EXTRACTION_BY, extraction)
    by = began + SESSION_BY
    session = await _step(
        context, "SessionAggregator", by, lambda: SessionAggregator(chat).aggregate(context, ended, by)
    )
    if session is None:
        return
    until = began + USER_BY
    await _step(
        context, "UserMemoryAggregator", until, lambda: UserMemoryAggregator(chat).fold(context, session, until)
    )


async def _step(context: Context, name: str, deadline: float, step: Callable[[], Awaitable[T]]) -> T | None:
    """None when it failed or was not done by its deadline."""
    session_id = context.session.id
    try:
        with trio.move_on_at(deadline):
            return await step()
        logger.warning("session %s: %s was not done in time", session_id, name)
    except StoreError as exc:
        logger.warning("session %s: %s: the memory failed: %s", session_id, name, exc)
    except Exception as exc:  # its words may be those of the conversation
        logger.error("session %s: %s failed (%s)", session_id, name, type(exc).__name__)
    return None
