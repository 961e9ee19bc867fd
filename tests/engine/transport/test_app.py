"""The application under servers that know less than ours."""

from collections.abc import Iterable
from typing import Any

import trio
from trio.testing import MockClock

from engine.config import Settings
from engine.transport.app import create_app, pipeline_key
from engine.transport.asgi import AsgiApp, Event, Scope
from engine.transport.auth import offered_token
from tests.engine.transport.stack import HOST, Recorder, new_services


async def events_of(app: AsgiApp, scope: Scope, events: Iterable[Event]) -> list[Event]:
    """What the application sends when it receives these, and then nothing."""
    waiting, sent = list(events), list[Event]()

    async def receive() -> Event:
        if not waiting:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return waiting.pop(0)

    async def send(event: Event) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(event)

    await app(scope, receive, send)
    return sent


def websocket_scope(**more: Any) -> Scope:
    return {
        "type": "websocket",
        "path": "/api/pipeline/agent:a",
        "query_string": b"",
        "headers": [(b"host", HOST.encode())],
        "subprotocols": [],
        **more,
    }


async def test_the_life_span_is_answered(autojump_clock: MockClock) -> None:
    app = create_app(new_services(), run=Recorder())
    sent = await events_of(app, {"type": "lifespan"}, [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    assert [event["type"] for event in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_refusal_is_a_close_where_no_answer_can_be_given(autojump_clock: MockClock) -> None:
    app = create_app(new_services(), run=Recorder())
    (refused,) = await events_of(app, websocket_scope(path="/elsewhere"), [])
    assert (refused["type"], refused["code"]) == ("websocket.close", 1008)


async def test_a_conversation_with_plain_asgi(autojump_clock: MockClock) -> None:
    app = create_app(new_services(Settings()), run=Recorder())
    sent = await events_of(
        app,
        websocket_scope(),
        [
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": '{"type":"text","text":"hi"}'},
            {"type": "websocket.receive", "bytes": b"\x00\x00", "text": None},
            {"type": "websocket.receive", "text": '{"type":"token","text":"#end"}'},
        ],
    )
    assert [event["type"] for event in sent] == ["websocket.accept", *["websocket.send"] * 2, "websocket.close"]
    assert sent[-1]["code"] == 1000
    assert app.connections == 0


def test_paths_of_pipelines() -> None:
    assert pipeline_key(b"/api/pipeline/agent:a%2Fb") == "agent:a/b"
    assert pipeline_key(b"/api/pipeline/a?b") == "a"
    assert pipeline_key(b"/api/pipeline/%ff") == "\ufffd"
    assert pipeline_key(b"/api/pipelines") is None


def test_the_first_token_counts() -> None:
    assert offered_token(["a", "souffleur.auth.1", "souffleur.auth.2"]) == "souffleur.auth.1"
    assert offered_token([]) is None
