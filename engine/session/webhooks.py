"""What a session's end tells others: a webhook call that is owed, put into the store before the session is closed (SPEC L6)."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import trio

from engine.config import CamelModel
from engine.interfaces import Environment, Webhook
from engine.protocol.webhooks import LIFETIME
from engine.store.contract import Store, StoreError
from engine.store.documents import Delivery, EvaluationRecord, SessionDocument, SessionState

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.25
LONGEST_RETRY = 5.0
"""Seconds between tries while the store fails."""


class SessionEnded(CamelModel):
    """The body of a post-session webhook.

    It holds no word of the conversation: calls are kept in the store and repeated, and may go over plain HTTP to whatever an
    operator has entered. What was said can be read at `/api/sessions/{sessionId}/turns`, with a credential. The reasons of
    evaluations are whatever their judges wrote.
    """

    type: Literal["session.ended"] = "session.ended"
    session_id: str
    agent: str
    project: str
    state: SessionState
    reason: str
    started_at: datetime
    """When the session was first opened; a resumed one has ended more than once."""
    ended_at: datetime
    turn_count: int
    """Of all its runs."""
    rating: int | None
    evaluations: list[EvaluationRecord]
    test_mode: bool


def session_ended(session: SessionDocument, ended_at: datetime) -> SessionEnded:
    return SessionEnded(
        session_id=session.id,
        agent=session.agent,
        project=session.project_ref,
        state=session.state,
        reason=session.end_reason,
        started_at=session.created_at,
        ended_at=ended_at,
        turn_count=session.turn_count,
        rating=session.rating,
        evaluations=session.evaluations,
        test_mode=session.test_mode,
    )


async def post_session(
    session: SessionDocument,
    webhooks: Sequence[Webhook],
    store: Store,
    environment: Environment,
    *,
    wake: Callable[[], None] = lambda: None,
) -> None:
    """Put one call for each webhook into the store, where a worker finds it; `wake` tells this process's own.

    `session` is as it will be saved. Tries until it can be written: the caller bounds it.
    """
    now = environment.wall_clock()
    body = session_ended(session, now).model_dump_json(by_alias=True)
    for webhook in webhooks:
        delivery = Delivery(
            id=environment.new_id("delivery"),
            session_id=session.id,
            url=webhook.url,
            secret=webhook.secret or "",
            body=body,
            due_at=now,
            expires_at=now + LIFETIME,
        )
        pause = FIRST_RETRY
        while not await _put(delivery, store):
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)
        wake()


async def _put(delivery: Delivery, store: Store) -> bool:
    try:
        await store.put_delivery(delivery)
    except StoreError as exc:
        logger.warning("a webhook call of session %s is not stored yet: %s", delivery.session_id, exc)
        return False
    return True
