"""C43 at the doors: the real server, the real authenticator, and nothing opened for who does not come in."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock
from trio_websocket import WebSocketConnection

from engine.session.windowing import run_connection
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, echo
from engine.testing.stage import ScriptedManager, scripted_services
from tests.engine.identity.support import SECRET, open_identities, token
from tests.engine.transport.stack import Stack, open_stack

PATH = "/api/pipeline/agent:tester"


@attrs.define(eq=False)
class Server:
    stack: Stack
    model: ScriptedModel
    manager: ScriptedManager
    store: FaultyStore

    def nothing_was_opened(self) -> bool:
        return not self.model.sessions and not self.manager.contexts and not self.store.calls


@asynccontextmanager
async def open_server() -> AsyncGenerator[Server]:
    store, model, manager = FaultyStore(), ScriptedModel(echo), ScriptedManager()
    async with open_identities(jwt_secret="env:MY_SECRET") as identities:
        services = scripted_services(
            model=model, managers=[manager], store=store, authenticator=identities.authenticator
        )
        async with open_stack(run_connection, services=services) as stack:
            yield Server(stack, model, manager, store)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", SECRET)


def bearer(sub: str, **claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(sub=sub, **claims)}"}


async def heard_until(client: WebSocketConnection, kind: str, name: str = "") -> list[Any]:
    heard: list[Any] = []
    with trio.fail_after(30):
        while not heard or heard[-1]["type"] != kind or heard[-1].get("name", "") != name:
            heard.append(json.loads(await client.get_message()))
    return heard


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}

WRONG = {
    "tampered": {"Authorization": f"Bearer {token(sub='u1')[:-4]}AAAA"},
    "expired": bearer("u1", exp=1),
    "no token": {"Authorization": "Bearer not.a.token"},
    "no scheme": {"Authorization": "Digest abc"},
    "unknown key": {"X-API-Key": "sf_nobody_xxxxxxxxxxxxxxxxxxxxxxxx"},
    "unknown user": {"Authorization": "Basic dTE6dGVh"},
    "two that disagree": {**bearer("u1"), "X-API-Key": "sf_nobody_xxxxxxxxxxxxxxxxxxxxxxxx"},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG.keys())
async def test_c_d_wrong_credentials_open_nothing_at_any_door(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """In real time: passwords are checked in threads."""
    caplog.set_level(logging.DEBUG)
    async with open_server() as server:
        refused = await server.stack.request(PATH, headers=UPGRADE | headers)
        assert refused.status == 401
        assert "www-authenticate" in refused.headers
        for path in (PATH, f"{PATH}/turn"):
            json_headers = {**headers, "Content-Type": "application/json"}
            body = b'{"type":"text","text":"hello"}' if path == PATH else b'[{"type":"text","text":"hello"}]'
            answer = await server.stack.request(path, method="POST", headers=json_headers, body=body)
            assert answer.status == 401
            assert answer.headers["content-type"] == "application/problem+json"
        assert server.nothing_was_opened()
    for secret in (value.partition(" ")[2] or value for value in headers.values()):
        assert secret not in caplog.text


async def test_a_another_users_session_is_refused_at_every_door(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        path = f"{PATH}?sessionId=s1&textOnly=true"
        first = await server.stack.connect(path, headers=bearer("u1"))
        await first.send_message('{"type":"text","text":"my secret"}')
        await heard_until(first, "command", "exit")

        second = await server.stack.connect(path, headers=bearer("u2"))
        heard = await heard_until(second, "command", "session-end")
        assert [each["code"] for each in heard if each["type"] == "error"] == ["forbidden"]
        assert "secret" not in json.dumps(heard)

        headers = {**bearer("u2"), "Content-Type": "application/json"}
        query = "?sessionId=s1&textOnly=true"
        event = await server.stack.request(f"{PATH}{query}", method="POST", headers=headers, body=b"{}")
        turn = await server.stack.request(
            f"{PATH}/turn{query}", method="POST", headers=headers, body=b'[{"type":"text","text":"hello"}]'
        )
        assert (event.status, turn.status) == (403, 403)
        assert b"secret" not in event.body + turn.body
        for part in ("", "/turns", "/usage", "/llm-log"):
            read = await server.stack.request(f"/api/sessions/s1{part}", headers=bearer("u2"))
            assert read.status == 404

        assert len(server.model.sessions) == 1, "nothing was opened for the other"
        assert server.manager.events == []
        await first.send_message('{"type":"text","text":"still here"}')
        heard = await heard_until(first, "command", "exit")
        assert "You said still here." in [each.get("text") for each in heard]
        session = await server.store.get_session("s1")
        assert session is not None
        assert (session.state, session.user_id) == (SessionState.OPEN, "u1")


async def test_a_browser_says_who_it_is_by_a_subprotocol(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        offered = [f"souffleur.auth.{token(sub='u1')}"]
        client = await server.stack.connect(PATH, subprotocols=offered)
        assert client.subprotocol == offered[0]
        heard = await heard_until(client, "command", "ready")
        assert heard[-1]["parameters"]["userId"] == "u1"
        refused = await server.stack.request(
            PATH, headers=UPGRADE | {"Sec-WebSocket-Protocol": "souffleur.auth.nonsense"}
        )
        assert refused.status == 401


async def test_claims_are_copied_onto_the_session(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        headers = bearer("u1", name="Anna", email="anna@example.com")
        client = await server.stack.connect(f"{PATH}?sessionId=s1", headers=headers)
        await heard_until(client, "command", "ready")
        session = await server.store.get_session("s1")
        assert session is not None
        assert (session.user_name, session.user_email) == ("Anna", "anna@example.com")
