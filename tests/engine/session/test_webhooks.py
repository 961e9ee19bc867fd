"""A session's end owes one call to each webhook, with the facts of the session and no word of it."""

import json
from datetime import timedelta

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.session.webhooks import post_session
from engine.store.documents import EvaluationRecord, SessionDocument, SessionState
from engine.store.memory import MemoryStore
from engine.testing.faults import Fault, FaultyStore
from engine.testing.stage import EPOCH, scripted_environment


@attrs.frozen
class Hook:
    url: str
    secret: str | None = None


HOOKS = (Hook("https://a.example/x", "env:HOOK_SECRET"), Hook("https://b.example/y"))
SESSION = SessionDocument(
    id="s1",
    state=SessionState.CLOSED,
    owner="anonymous-1",
    user_name="Anna",
    user_email="anna@example.org",
    device_ref="d1",
    agent="barista",
    project_ref="demo",
    created_at=EPOCH,
    updated_at=EPOCH,
    turn_count=7,
    rating=4,
    rating_text="It was slow.",
    end_reason="the client ended the session",
    evaluations=[EvaluationRecord(name="goal", score=0.5, reasons=["no order was placed"])],
)


async def test_each_webhook_is_owed_a_call(autojump_clock: MockClock) -> None:
    store, woken = MemoryStore(), 0

    def wake() -> None:
        nonlocal woken
        woken += 1

    await trio.sleep(90)
    await post_session(SESSION, HOOKS, store, scripted_environment(), wake=wake)

    now = EPOCH + timedelta(seconds=90)
    first, second = await store.due_deliveries(now=now, limit=10)
    assert [(each.id, each.url, each.secret) for each in (first, second)] == [
        ("delivery-1", "https://a.example/x", "env:HOOK_SECRET"),
        ("delivery-2", "https://b.example/y", ""),
    ]
    assert (first.session_id, first.attempts, first.due_at) == ("s1", 0, now)
    assert first.expires_at == now + timedelta(minutes=10)
    assert first.body == second.body
    assert woken == 2


async def test_the_body_has_the_facts_and_no_word_of_the_conversation(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await post_session(SESSION, HOOKS[:1], store, scripted_environment())
    (delivery,) = await store.due_deliveries(now=EPOCH, limit=10)
    assert json.loads(delivery.body) == {
        "type": "session.ended",
        "sessionId": "s1",
        "agent": "barista",
        "project": "demo",
        "state": "CLOSED",
        "reason": "the client ended the session",
        "startedAt": "2026-03-01T12:00:00Z",
        "endedAt": "2026-03-01T12:00:00Z",
        "turnCount": 7,
        "rating": 4,
        "evaluations": [{"name": "goal", "score": 0.5, "reasons": ["no order was placed"], "data": None}],
        "testMode": False,
    }


async def test_an_agent_without_webhooks_owes_nothing(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await post_session(SESSION, (), store, scripted_environment())
    assert await store.due_deliveries(now=EPOCH, limit=10) == []


async def test_a_store_that_fails_is_tried_again_and_each_is_put_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(lambda call: Fault.FAIL if call.number in (2, 3) else None)
    await post_session(SESSION, HOOKS, store, scripted_environment())
    assert [call.at for call in store.calls] == [0, 0, 0.25, 0.75]
    due = await store.inner.due_deliveries(now=EPOCH + timedelta(seconds=1), limit=10)
    assert [each.id for each in due] == ["delivery-1", "delivery-2"]
    assert "is not stored yet" in caplog.text
