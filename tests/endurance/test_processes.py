"""Real processes and signals: a drain, several workers, and those that are killed."""

import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from engine.store.documents import SessionState
from engine.store.locate import open_store
from tests.endurance.kill_rounds import STILL_HERE
from tests.endurance.server import KEY, RealServer, ServerError, open_server
from tests.endurance.visitor import LostError, Visitor, visit
from tests.engine.transport.stack import UPGRADE, Answer, ask

pytestmark = pytest.mark.sockets

LONGEST = 60
"""Seconds; a bound against hanging on a busy machine, not a measurement."""


def children(pid: int) -> list[int]:
    """Of all of its threads: the one that started a process counts as its parent."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sorted(int(child) for thread in threads for child in (thread / "children").read_text().split())


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def has_ended(pid: int) -> None:
    """Wait until a process that is not ours has ended: nothing tells."""
    while True:
        if not is_alive(pid):
            return
        await trio.sleep(0.02)


async def request(server: RealServer, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    return await ask(await trio.open_tcp_stream("127.0.0.1", server.port), path, headers=headers)


async def has_begun_to_stop(server: RealServer) -> None:
    """Ask until it says so: nothing else tells when a signal was seen."""
    while True:
        ready = await request(server, "/readyz")
        if ready.status == 503 and ready.json["parts"].get("server") == "is stopping":
            return


async def knock(server: RealServer) -> Answer:
    """Ask for a WebSocket that will not be opened."""
    return await request(server, f"/api/pipeline/{KEY}", UPGRADE)


async def end_of(visitor: Visitor) -> tuple[dict[str, Any], int | None]:
    """The last thing a client is told, and the close code."""
    last: dict[str, Any] = {}
    while True:  # noqa: ASYNC913 - every way round waits, or ends
        try:
            last = await visitor.hear()
        except LostError as lost:
            return last, lost.code


@attrs.define(eq=False)
class Visitors:
    """Clients of a test; all of them have left when it ends."""

    _nursery: trio.Nursery
    _all: list[Visitor] = attrs.field(factory=list[Visitor], init=False)

    async def visit(self, server: RealServer, session_id: str = "s1") -> Visitor:
        self._all.append(await visit(self._nursery, server.port, session_id))
        return self._all[-1]

    def leave(self) -> None:
        for visitor in self._all:
            visitor.hang_up()


@asynccontextmanager
async def open_visitors() -> AsyncGenerator[Visitors]:
    async with trio.open_nursery() as nursery:
        visitors = Visitors(nursery)
        try:
            yield visitors
        finally:
            visitors.leave()


async def test_a_drain(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/souffleur.db"
    with trio.fail_after(LONGEST):
        async with (
            open_server(store, tmp_path, workers=2, drain_seconds="3") as server,
            open_visitors() as visitors,
        ):
            assert (await request(server, "/healthz")).status == 200
            visitor = await visitors.visit(server)
            answer = await visitor.say("When are you open?")
            server.signal(signal.SIGTERM)
            await has_begun_to_stop(server)
            refused = await knock(server)
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert (await visitor.say("Where are you?")).is_saved
            last, code = await end_of(visitor)
            assert last["parameters"] == {
                "sessionId": "s1",
                "state": "DISCONNECTED",
                "reason": "the server is stopping",
            }
            assert code == 1001
            assert await server.wait() == 0
    async with open_store(store) as kept:
        session = await kept.get_session("s1")
        assert session is not None
        assert session.state is SessionState.DISCONNECTED
        assert len(await kept.get_turns("s1", limit=10)) == 2
    assert answer.is_saved


async def test_workers_share_what_they_serve_and_are_replaced(tmp_path: Path) -> None:
    """One is killed while it serves: its session goes on in another, and there are as many as before again."""
    with trio.fail_after(LONGEST):
        async with (
            open_server(f"sqlite:{tmp_path}/souffleur.db", tmp_path, workers=2, log_format="json") as server,
            open_visitors() as visitors,
        ):
            first = children(server.pid)
            assert len(first) == 2
            visitor = await visitors.visit(server)
            assert (await visitor.say("When are you open?")).is_saved
            for pid in first:
                os.kill(pid, signal.SIGKILL)
                await has_ended(pid)
            assert (await end_of(visitor))[1] is None
            again = await visitors.visit(server)
            assert STILL_HERE in (await again.ask_for_opening()).text
            again.hang_up()
            await server.stop()
            replaced = [json.loads(line) for line in server.log.read_text().splitlines()]
    messages = [entry["message"] for entry in replaced if entry["logger"] == "engine.workers"]
    assert sorted(messages) in [
        [
            f"worker {number} (process {pid}) is started again: it ended with code -9"
            for number, pid in enumerate(pids, 1)
        ]
        for pids in (first, first[::-1])
    ]


async def test_a_second_signal_ends_the_conversations_and_a_worker_takes_no_signals(tmp_path: Path) -> None:
    with trio.fail_after(LONGEST):
        async with (
            open_server(f"sqlite:{tmp_path}/souffleur.db", tmp_path, workers=2) as server,
            open_visitors() as visitors,
        ):
            visitor = await visitors.visit(server)
            for pid in children(server.pid):
                os.kill(pid, signal.SIGINT)  # as a terminal and a service manager do, which tell all at once
                os.kill(pid, signal.SIGTERM)
            assert (await visitor.say("When are you open?")).is_saved
            server.signal(signal.SIGINT)
            await has_begun_to_stop(server)
            assert (await visitor.say("Where are you?")).is_saved
            server.signal(signal.SIGINT)
            assert (await end_of(visitor))[1] == 1001
            assert await server.wait() == 0


async def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/souffleur.db"
    with trio.fail_after(LONGEST):
        async with (
            open_server(store, tmp_path, workers=2, drain_seconds="3") as server,
            open_visitors() as visitors,
        ):
            visitor = await visitors.visit(server)
            workers = children(server.pid)
            await server.kill()
            async with open_server(store, tmp_path, port=server.port) as another:  # the port is free at once
                assert another.port == server.port
                assert (await visitor.say("When are you open?")).is_saved
                assert (await end_of(visitor))[1] == 1001
                for pid in workers:
                    await has_ended(pid)
                again = await visitors.visit(another)
                assert STILL_HERE in (await again.ask_for_opening()).text


async def test_workers_that_cannot_serve_say_why_once(tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        async with open_server("sqlite:/dev/null/souffleur.db", tmp_path, workers=2):
            pass
    _, said = str(caught.value).split("\n", 1)
    assert said.startswith("souffleur: ")
    assert "/dev/null" in said
    assert "\n" not in said
