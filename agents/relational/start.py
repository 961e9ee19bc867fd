"""What is found out before the first word (SPEC R5): four tasks at the same time, each timed, each failing alone."""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import trio

from agents.aggregation.user import last_visit, read_user_record
from agents.evaluation.verdicts import describe, previous_evaluation
from agents.extraction.facts import read_facts
from agents.memory.shared import last_summary, newest_shared_transcript
from agents.relational.state import RelationalState
from engine.boundary import Outside
from engine.deliveries import Post, open_post
from engine.elements import JsonObject
from engine.interfaces import Context, Webhook
from engine.protocol.webhooks import SIGNATURE_HEADER, CallError, sign
from engine.secrets import resolve_secret
from engine.timing import timed

logger = logging.getLogger(__name__)

TASK_SECONDS = 3.0
"""What each of them may take: the caller hears nothing meanwhile."""
TOLD_FACTS = 30
"""The newest, beside the biography."""
GENDER = "gender"
"""The key of the fact that grammar needs."""
MAX_RESULT = 8000
"""Characters of the webhook's answer that reach a prompt."""

Task = Callable[[Context, RelationalState], Awaitable[None]]


class OpenPost(Protocol):
    """See `engine.deliveries.open_post`."""

    def __call__(self, *, allow_private: bool) -> AbstractAsyncContextManager[Post]: ...


async def find_out(context: Context, state: RelationalState, open_post: OpenPost = open_post) -> None:
    """Run the tasks. Never raises; what could not be found out is left out of the prompts."""
    tasks: dict[str, Task] = {"seeding the links": seed_links}
    if state.agent.has_memory:
        tasks |= {
            "the pre-session webhook": partial(call_webhook, open_post=open_post),
            "the user's facts": refresh_facts,
            "the last session's summary": load_last_session,
        }
    async with trio.open_nursery() as nursery:
        for name, task in tasks.items():
            nursery.start_soon(_run, name, task, context, state, name=name)
            await trio.lowlevel.checkpoint()  # each asks the store before the next does, in every run


async def _run(name: str, task: Task, context: Context, state: RelationalState) -> None:
    with trio.move_on_after(TASK_SECONDS) as limit:
        try:
            with timed(context, name):
                await task(context, state)
        except Exception as exc:
            logger.warning("%s failed (%s); the session starts without", name, type(exc).__name__)
            logger.debug("%s failed", name, exc_info=exc)
    if limit.cancelled_caught:
        logger.warning("%s took over %g s; the session starts without", name, TASK_SECONDS)


async def seed_links(context: Context, state: RelationalState) -> None:
    await trio.lowlevel.checkpoint()
    state.guard.see_urls(url for element in state.agent.multimodal for url in element.urls)


async def call_webhook(context: Context, state: RelationalState, *, open_post: OpenPost = open_post) -> None:
    """Ask the operator's systems about the user; the answer reaches the planning prompts only."""
    webhook = state.agent.pre_session_webhook
    if webhook is None:
        await trio.lowlevel.checkpoint()
        return
    ask = partial(_ask_webhook, webhook, context, open_post)
    state.webhook_result = await context.boundary.ask(Outside.TOOL, "pre-session webhook", ask)


async def _ask_webhook(webhook: Webhook, context: Context, open_post: OpenPost) -> str:
    body = json.dumps(session_starts(context), ensure_ascii=False).encode()
    headers: dict[str, str] = {}
    secret = resolve_secret(webhook.secret, "preSessionWebhook.secret") if webhook.secret else None
    if secret:
        headers[SIGNATURE_HEADER] = sign(secret, body, context.environment.wall_clock())
    async with open_post(allow_private=context.settings.webhook_private_addresses) as post:
        answer = await post(webhook.url, body, headers)
    if not 200 <= answer.status < 300 or answer.body is None:
        raise CallError(f"it answered {answer.status}")
    return answer.body.decode(errors="replace").strip()[:MAX_RESULT]


def session_starts(context: Context) -> JsonObject:
    """The body of a pre-session webhook."""
    session = context.session
    return {
        "type": "session.starting",
        "sessionId": session.id,
        "agent": session.agent,
        "project": context.project_ref,
        "userId": session.user_id,
        "locale": session.locale,
        "timeZone": session.time_zone,
        "testMode": session.test_mode,
    }


async def refresh_facts(context: Context, state: RelationalState) -> None:
    record = await read_user_record(context)
    facts = await read_facts(context)
    told = [f"- {fact.text}" for fact in facts[-TOLD_FACTS:]]
    state.biography = "\n".join([record.biography, *told]).strip()
    state.user_gender = next((fact.text for fact in facts if fact.key == GENDER), "")
    visit = last_visit(context, record)
    if visit is not None:
        state.last_visit = describe_span(context.environment.wall_clock(), visit)


async def load_last_session(context: Context, state: RelationalState) -> None:
    """How the last conversation went and how it was judged; and the newest one with an agent that shares memory."""
    state.last_summary = await last_summary(context)
    judged = await previous_evaluation(context)
    if judged is not None:
        state.last_evaluation = describe(judged)
    state.shared_agent, state.shared_transcript = await newest_shared_transcript(context, state.shared_agents)


def describe_span(now: datetime, then: datetime) -> str:
    """How long ago, as people say it: "3 days". Real time, whatever the clocks did meanwhile (case C48)."""
    passed = max(now - then, timedelta(0))
    for unit, name in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute")):
        if passed >= unit:
            count = passed // unit
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "less than a minute"
