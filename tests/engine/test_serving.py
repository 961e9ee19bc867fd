"""The end of a serving process: who may finish, who is told what, and when it is over, to the second."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock
from trio_websocket import WebSocketConnection

from engine.config import Settings
from engine.elements import OutEvaluation
from engine.serving import Ending, Order, closing_seconds
from engine.session.live import LiveSession, LiveSessions, server_stops
from engine.session.services import Services
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.scripted import ScriptedModel, ScriptedProperties, echo
from engine.testing.stage import PUBLIC_PROJECT, ScriptedAgent, ScriptedCatalog, ScriptedManager, scripted_environment
from engine.transport.app import create_app
from engine.transport.server import Server
from tests.engine.transport.stack import UPGRADE, Stack, close_of, hear, hear_all, say, upgraded

DRAIN, CLEANUP, CLOSE = 15, 10, 2
"""Seconds: the settings, and each of the two waits of a close."""
AT = 100.0
"""When the order to stop comes."""


@attrs.define(eq=False)
class Process:
    """A serving process whose listeners are played by the stack."""

    stack: Stack
    ending: Ending
    services: Services
    store: FaultyStore
    manager: ScriptedManager
    over_at: float = 0.0
    """When nothing of it ran any more."""

    async def connect(self, session_id: str = "s1", **parameters: Any) -> WebSocketConnection:
        """A client whose session is ready."""
        client = await self.stack.connect(f"/api/pipeline/agent:tester?textOnly=true&sessionId={session_id}")
        assert (await hear(client))["name"] == "ready"
        return client

    async def connect_and_take_nothing(self) -> None:
        """A client with a session that reads `ready` and nothing more; it has come only now, or its silence would be noticed."""
        await trio.sleep_until(AT - 1)
        stream = self.stack.dial(takes_nothing=True)
        await upgraded(stream, "/api/pipeline/agent:tester?sessionId=s1")
        assert b'"ready"' in await stream.receive_some()

    def saved(self, session_id: str = "s1") -> tuple[SessionState, str]:
        document = [document for document in self.store.saved_sessions if document.id == session_id][-1]
        return document.state, document.end_reason


@asynccontextmanager
async def open_process(manager: ScriptedManager | None = None) -> AsyncGenerator[Process]:
    """The order to stop comes at `AT` by itself. Everything has ended when the context is left."""
    settings = Settings()
    assert (settings.drain_seconds, settings.cleanup_seconds) == (DRAIN, CLEANUP)
    store, manager = FaultyStore(), manager or ScriptedManager()
    services = Services(
        settings=settings,
        catalog=ScriptedCatalog(ScriptedAgent(), ScriptedProperties(), PUBLIC_PROJECT),
        store=store,
        environment=scripted_environment(),
        models={"Scripted": ScriptedModel(echo)},
        managers=[manager],
    )
    app, ending = create_app(services), Ending(services.live, settings)
    server = Server(app, settings, loopback_only=True)
    server.hurry = ending.cut

    async def serve(clients: trio.Nursery, *, task_status: trio.TaskStatus[Process]) -> None:
        async with trio.open_nursery() as nursery:
            connections = await nursery.start(server.hold_connections, closing_seconds(settings))
            process = Process(Stack(app, server, clients, connections), ending, services, store, manager)
            nursery.start_soon(ending.run)
            with ending.serving:
                task_status.started(process)
                await trio.sleep_forever()
            server.stop()
        process.over_at = trio.current_time()

    async with trio.open_nursery() as clients:
        async with trio.open_nursery() as serving:
            yield await serving.start(serve, clients)
        clients.cancel_scope.cancel()


async def order(process: Process, *, at: float = AT) -> None:
    await trio.sleep_until(at)
    process.ending.take(Order.STOP)


async def talk(client: WebSocketConnection, text: str) -> None:
    """One turn, acknowledged."""
    await say(client, type="text", text=text)
    while (message := await hear(client)).get("name") != "exit":
        pass
    assert message["parameters"]["saved"] is True


async def test_a_conversation_may_go_on_for_the_drain_time(autojump_clock: MockClock) -> None:
    async with open_process() as process:
        client = await process.connect()
        await order(process)
        await trio.sleep_until(AT + DRAIN - 0.5)
        await talk(client, "still here")
        messages = await hear_all(client)
        assert messages == [
            {
                "type": "command",
                "name": "session-end",
                "parameters": {"sessionId": "s1", "state": "DISCONNECTED", "reason": "the server is stopping"},
            }
        ]
        assert client.closed is not None
        assert (client.closed.code, client.closed.reason) == (1001, "the server is stopping")
        assert trio.current_time() == AT + DRAIN
    assert process.over_at == AT + DRAIN
    assert process.saved() == (SessionState.DISCONNECTED, "the server is stopping")
    assert [turn.input.text for turn in process.store.turns] == ["still here"]


async def test_the_end_comes_when_nobody_is_talking_any_more(autojump_clock: MockClock) -> None:
    async with open_process() as process:
        first, second = await process.connect("s1"), await process.connect("s2")
        await order(process)
        await trio.sleep_until(AT + 3)
        await say(first, type="token", text="#end")
        assert await close_of(first) == (1000, "the client ended the connection")
        await trio.sleep_until(AT + 4)
        assert not process.ending.serving.cancel_called
        await say(second, type="token", text="#end")
        assert await close_of(second) == (1000, "the client ended the connection")
    assert process.over_at == AT + 4
    assert process.saved("s1")[0] is process.saved("s2")[0] is SessionState.CLOSED


async def test_a_process_where_nobody_talks_ends_at_once(autojump_clock: MockClock) -> None:
    async with open_process() as process:
        client = await process.connect()
        await client.aclose()
        await order(process)
    assert process.over_at == AT


async def test_nobody_new_is_let_in_from_the_first_moment_on(autojump_clock: MockClock) -> None:
    async with open_process() as process:
        talking = await process.connect()
        waiting = await process.stack.connect("/api/pipeline")
        await order(process)
        answer = await process.stack.request("/api/pipeline/agent:tester", headers=UPGRADE)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert answer.json["detail"] == "This server is stopping; connect again."
        assert await close_of(waiting) == (1001, "the server is stopping")
        assert (await process.stack.request("/healthz")).status == 200
        assert trio.current_time() == AT
        await say(talking, type="token", text="#ready:key=agent:tester")
        end, error = await hear_all(talking)
        assert end["parameters"]["state"] == "CLOSED"
        assert (error["code"], error["whose"]) == ("too_busy", "server")
        assert talking.closed is not None
        assert (talking.closed.code, talking.closed.reason) == (1013, "too_busy")
    assert process.over_at == AT


async def test_a_late_process_lets_nobody_in_and_serves_those_inside(autojump_clock: MockClock) -> None:
    async with open_process() as process:
        talking, waiting = await process.connect(), await process.stack.connect("/api/pipeline")
        process.services.admission.lateness = lambda: 0.11
        refused = await process.stack.request("/api/pipeline/agent:tester", headers=UPGRADE)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        await say(waiting, type="token", text="#ready:key=agent:tester")
        (error,) = await hear_all(waiting)
        assert (error["code"], error["recoverable"]) == ("too_busy", False)
        assert error["message"] == "This server is too busy now; try again shortly."
        assert waiting.closed is not None
        assert (waiting.closed.code, waiting.closed.reason) == (1013, "too_busy")
        await talk(talking, "still here")
        process.services.admission.lateness = lambda: 0.0
        again = await process.connect("s2")
        for client in (talking, again):
            await say(client, type="token", text="#end")
            assert (await close_of(client))[0] == 1000
        await order(process)


async def test_a_second_order_ends_the_conversations_now(autojump_clock: MockClock) -> None:
    async with open_process() as process:
        client = await process.connect()
        await order(process)
        await order(process, at=AT + 3)
        assert await close_of(client) == (1001, "the server is stopping")
    assert process.over_at == AT + 3
    assert process.saved() == (SessionState.DISCONNECTED, "the server is stopping")


async def test_a_session_that_was_on_its_way_in_is_ended_too(autojump_clock: MockClock) -> None:
    async with open_process(ScriptedManager(start_seconds=20)) as process:
        await trio.sleep_until(AT - 1)
        client = await process.stack.connect("/api/pipeline/agent:tester?sessionId=s1")
        await order(process)
        assert await close_of(client) == (1001, "the server is stopping")
    assert process.over_at == AT + DRAIN
    assert process.saved() == (SessionState.DISCONNECTED, "the server is stopping")


async def test_a_session_that_was_let_in_and_not_held_yet_is_ended_too(autojump_clock: MockClock) -> None:
    live = LiveSessions()
    live.refuse_new()
    live.end_all(server_stops())
    session = LiveSession("s1", "me", 1)
    with live.enter(session), session.open_scope() as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert session.cut == server_stops()
    await live.wait_for_none()


async def test_an_evaluation_is_not_waited_for_longer_than_a_conversation(autojump_clock: MockClock) -> None:
    manager = ScriptedManager(evaluations=[(1, OutEvaluation("first")), (19, OutEvaluation("second"))])
    async with open_process(manager) as process:
        client = await process.connect()
        await order(process)
        await trio.sleep_until(AT + 10)
        await say(client, type="token", text="#end")
        told = await hear_all(client)
        assert [(message["type"], message.get("name")) for message in told] == [
            ("evaluation", "first"),
            ("command", "session-end"),
        ]
        assert told[-1]["parameters"]["state"] == "CLOSED"
    assert process.over_at == AT + DRAIN
    assert process.saved() == (SessionState.CLOSED, "the client ended the session")


def hang_on(*operations: str) -> Callable[[StoreCall], Fault | None]:
    return lambda call: Fault.HANG if call.operation in operations else None


async def test_a_store_that_hangs_holds_up_the_end_no_longer_than_the_clean_up(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_process() as process:
        client = await process.connect()
        process.store.plan = hang_on("save_session")
        await order(process)
        assert await close_of(client) == (1001, "the server is stopping")
        assert trio.current_time() == AT + DRAIN + CLEANUP
    assert process.over_at == AT + DRAIN + CLEANUP


async def test_whatever_hangs_it_is_over_after_the_longest_time(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that hangs, and a client that takes nothing and answers no close."""
    async with open_process() as process:
        await process.connect_and_take_nothing()
        process.store.plan = hang_on("save_session")
        await order(process)
    assert closing_seconds(process.services.settings) == CLEANUP + 2 * CLOSE
    assert process.over_at == AT + DRAIN + CLEANUP + 2 * CLOSE
    assert process.over_at < AT + 30  # what orchestrators commonly give


async def test_a_third_order_cuts_the_connections(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with open_process() as process:
        await process.connect_and_take_nothing()
        await order(process)
        await order(process, at=AT + 1)
        await order(process, at=AT + 2)
    assert process.over_at == AT + 2
    assert process.saved() == (SessionState.DISCONNECTED, "the server is stopping")


async def test_what_is_asked_for_more_often_changes_nothing(autojump_clock: MockClock) -> None:
    ending = Ending(LiveSessions(), Settings())
    for _ in range(5):
        ending.take(Order.STOP)
    await ending.run()
    assert ending.serving.cancel_called
    assert ending.cut.is_set()
    assert not ending.accepting.cancel_called
    assert trio.current_time() == 0


async def test_a_port_that_is_needed_is_freed_at_once(autojump_clock: MockClock) -> None:
    ending = Ending(LiveSessions(), Settings())
    ending.take(Order.FREE_PORT)
    assert ending.accepting.cancel_called
    await ending.run()
    assert ending.serving.cancel_called
    assert not ending.cut.is_set()
