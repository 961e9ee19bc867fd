"""C41: a client comes back while its old connection is not yet known to be dead.

The real server and client over byte streams in memory, at the case's own times; in one process, and in two that share a store.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import orjson
import pytest
import trio
from trio.testing import MockClock
from trio_websocket import ConnectionClosed, WebSocketConnection

from engine.session.live import LiveSessions
from engine.session.watch import watch_sessions
from engine.session.windowing import run_connection
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, echo
from engine.testing.stage import ScriptedManager, scripted_environment, scripted_services
from tests.engine.transport.stack import Stack, open_stack


@attrs.define(eq=False)
class Peer:
    """A client of one process."""

    client: WebSocketConnection
    stream: Any
    heard: list[tuple[float, Any]] = attrs.field(factory=list[tuple[float, Any]])
    closed: int | None = None

    async def listen(self) -> None:
        try:
            while True:
                self.heard.append((trio.current_time(), orjson.loads(await self.client.get_message())))
        except ConnectionClosed as exc:
            self.closed = exc.reason.code if exc.reason is not None else 0

    async def say(self, text: str) -> None:
        await self.client.send_message(orjson.dumps({"type": "text", "text": text}).decode())

    def lose_network(self) -> None:
        """Nothing of what this client sends arrives any more."""

        async def into_nothing(_: object) -> None:
            await trio.lowlevel.checkpoint()

        self.stream.send_stream.send_all = into_nothing

    @property
    def sentences(self) -> list[str]:
        return [each["text"] for _, each in self.heard if each["type"] == "text"]

    def commands(self, name: str) -> list[Any]:
        return [each["parameters"] for _, each in self.heard if each["type"] == "command" and each["name"] == name]


@attrs.define(eq=False)
class Process:
    stack: Stack
    model: ScriptedModel
    manager: ScriptedManager
    live: LiveSessions

    async def ring(self) -> Peer:
        stream = self.stack.dial()
        path = "/api/pipeline/agent:tester?sessionId=s1&deviceRef=d1&textOnly=true"
        peer = Peer(await self.stack.connect(path, stream=stream), stream)
        self.stack.clients.start_soon(peer.listen)
        return peer


@asynccontextmanager
async def open_process(store: FaultyStore, environment: Any) -> AsyncGenerator[Process]:
    model, manager = ScriptedModel(echo), ScriptedManager()
    services = scripted_services(model=model, managers=[manager], store=store, environment=environment)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_sessions, services)
        async with open_stack(run_connection, services=services) as stack:
            yield Process(stack, model, manager, services.live)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("processes", [1, 2])
async def test_c41(processes: int, autojump_clock: MockClock) -> None:
    store, environment = FaultyStore(), scripted_environment()
    async with open_process(store, environment) as first, open_process(store, environment) as second:
        of_b = first if processes == 1 else second
        a = await first.ring()
        await a.say("one")
        await trio.sleep(2)
        await a.say("two")
        await trio.sleep_until(10)
        a.lose_network()
        await trio.sleep_until(12)
        b = await of_b.ring()
        await trio.sleep_until(13)
        await b.say("three")
        await trio.sleep_until(13.2 if processes == 1 else 14)

        running = [session for process in {id(first): first, id(of_b): of_b}.values() for session in process.live.all]
        assert [session.session_id for session in running] == ["s1"], "one live pipeline"
        assert b.sentences == ["You said three."]
        assert of_b.manager.contexts[-1].is_reconnect
        assert [message.text for message in of_b.manager.contexts[-1].messages][:4] == [
            *("one", "You said one.", "two", "You said two."),
        ]
        assert b.commands("ready")[0]["sessionId"] == "s1"
        said_to_a = len(a.heard)
        assert a.sentences == ["You said one.", "You said two."]
        assert [each["code"] for _, each in a.heard if each["type"] == "error"] == ["taken_over"]

        await trio.sleep_until(60)  # by now A's connection has timed out
        assert len(a.heard) == said_to_a
        session = await store.get_session("s1")
        assert session is not None
        assert session.state is SessionState.OPEN, "the end of A does not mark it while B runs"
        await b.say("four")
        await trio.sleep(1)
        await b.client.send_message('{"type":"token","text":"#end"}')
        await trio.sleep(1)
        assert b.closed == 1000
        assert [turn.input.text for turn in await store.get_turns("s1", limit=10)] == ["one", "two", "three", "four"]
        session = await store.get_session("s1")
        assert session is not None
        assert (session.state, session.turn_count) == (SessionState.CLOSED, 4)
        assert [what for _, what in first.manager.ran].count("disconnected") == (2 if processes == 1 else 1)


async def test_c41_b_what_is_written_to_a_dead_connection_stays_there(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A's bytes go nowhere and come back as an error; the other client's conversation does not notice."""
    async with open_process(FaultyStore(), scripted_environment()) as process:
        a = await process.ring()
        b_stream = process.stack.dial()
        b = Peer(await process.stack.connect("/api/pipeline/agent:tester?textOnly=true", stream=b_stream), b_stream)
        process.stack.clients.start_soon(b.listen)
        await trio.aclose_forcefully(a.stream)
        process.model.sessions[0].say()  # nothing: it is being closed
        await b.say("hello")
        await trio.sleep(1)
        assert b.sentences == ["You said hello."]
        assert "Traceback" not in caplog.text
