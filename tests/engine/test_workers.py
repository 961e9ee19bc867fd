"""The supervisor and its workers: processes that die, hang, cannot start, or lose their supervisor."""

import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from engine import workers
from engine.errors import ConfigurationError
from engine.serving import Order, Plan
from engine.transport.server import open_listeners
from engine.workers import (
    LINE_BYTES,
    PAUSES,
    STEADY_SECONDS,
    Channel,
    Handles,
    Restarts,
    Supervisor,
    require_shared_store,
)

LONGEST = 60
"""Seconds; a bound against hanging on a busy machine, not a measurement."""

# Workers without an engine: they start in no time, and each plays one part.
PART = """
import os, pathlib, signal, socket, sys, threading, time
channel, listener = (socket.socket(fileno=int(part)) for part in sys.argv[-1].split(","))
lines = channel.makefile("r")
def say(text):
    channel.sendall(text.encode())
def serve():
    listener.setblocking(True)
    while True:
        client, _ = listener.accept()
        client.sendall(str(os.getpid()).encode())
        client.close()
threading.Thread(target=serve, daemon=True).start()
"""
SERVES = PART + 'say("ready\\n"); lines.readline()'
IGNORES_SIGNALS = PART + 'signal.signal(signal.SIGTERM, signal.SIG_IGN); say("ready\\n"); lines.readline()'
NEEDS_THREE_STOPS = PART + 'say("ready\\n"); [lines.readline() for _ in range(3)]'
HANGS = PART + 'say("ready\\n"); time.sleep(1000)'
IS_NEVER_READY = PART + "time.sleep(1000)"
DIES_AT_ONCE = PART + 'say("ready\\n"); os._exit(7)'
CANNOT_SERVE = PART + 'say("failed the store is not there\\n"); os._exit(1)'
SERVES_ONCE = (
    PART + 'say("failed it is gone\\n" if pathlib.Path("was").exists() else "ready\\n"); pathlib.Path("was").touch()'
)


@attrs.define(eq=False)
class Scene:
    """A supervisor at work."""

    supervisor: Supervisor
    port: int
    ended: list[int]
    """Workers that have ended, as the supervisor tells."""
    one_has_ended: trio.Event
    ready: trio.Event
    over: trio.Event
    orders: trio.MemorySendChannel[Order]

    def stop(self) -> None:
        self.orders.send_nowait(Order.STOP)

    async def ask(self) -> int:
        """The process that answers a connection."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            return int(b"".join([data async for data in stream]))


@asynccontextmanager
async def open_scene(
    program: str, *, count: int = 1, stop_seconds: float = LONGEST, start_seconds: float = LONGEST
) -> AsyncGenerator[Scene]:
    listeners = await open_listeners("127.0.0.1", 0)
    port = listeners[0].socket.getsockname()[1]
    ended: list[int] = []

    def note(pid: int) -> None:
        ended.append(pid)
        scene.one_has_ended.set()

    command = [sys.executable, "-c", program]
    supervisor = Supervisor(command, listeners, count, stop_seconds, start_seconds, when_ended=note)
    orders, next_order = trio.open_memory_channel[Order](10)
    scene = Scene(supervisor, port, ended, trio.Event(), trio.Event(), trio.Event(), orders)

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await supervisor.run(next_order.receive, scene.ready.set)
        scene.over.set()

    with trio.fail_after(LONGEST):
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield scene
            await scene.over.wait()
    assert not [pid for pid in ended if is_alive(pid)]
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", port)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between starts that a test can wait for."""
    monkeypatch.setattr(workers, "PAUSES", (0.01,) * 3)


@pytest.mark.sockets
async def test_workers_serve_on_one_socket_until_they_are_told_to_stop() -> None:
    async with open_scene(SERVES, count=3) as scene:
        await scene.ready.wait()
        assert is_alive(await scene.ask())
        scene.stop()
    assert len(set(scene.ended)) == 3
    assert scene.supervisor.fault == ""


@pytest.mark.sockets
async def test_nobody_is_refused_while_a_worker_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async with open_scene(SERVES) as scene:
        first = await scene.ask()
        os.kill(first, signal.SIGKILL)
        await scene.one_has_ended.wait()
        second = await scene.ask()  # it waits in line until there is somebody to answer
        assert second != first
        scene.stop()
    assert scene.ended == [first, second]
    assert scene.supervisor.fault == ""
    assert [record.message for record in caplog.records] == [
        f"worker 1 (process {first}) is started again: it ended with code -9"
    ]


@pytest.mark.sockets
async def test_a_worker_that_dies_again_and_again_ends_the_whole(hasty: None, caplog: pytest.LogCaptureFixture) -> None:
    async with open_scene(DIES_AT_ONCE) as scene:
        pass
    assert scene.supervisor.fault == "worker 1 cannot be kept running: it ended with code 7"
    assert len(scene.ended) == 1 + len(workers.PAUSES)


@pytest.mark.sockets
async def test_what_is_wrong_at_the_start_ends_the_whole_at_once() -> None:
    async with open_scene(CANNOT_SERVE, count=2) as scene:
        pass
    assert scene.supervisor.fault == "the store is not there"
    assert len(scene.ended) == 2
    assert not scene.ready.is_set()


@pytest.mark.sockets
async def test_what_is_wrong_later_may_pass(
    hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_scene(SERVES_ONCE) as scene:
        await scene.ready.wait()
    assert scene.supervisor.fault == "worker 1 cannot be kept running: it is gone"
    assert len(scene.ended) == 1 + len(workers.PAUSES)


@pytest.mark.sockets
async def test_a_worker_that_accepts_no_connections_in_time_is_killed() -> None:
    async with open_scene(IS_NEVER_READY, start_seconds=0.1) as scene:
        pass
    assert scene.supervisor.fault == "worker 1 accepted no connections in 0.1 s"


@pytest.mark.sockets
async def test_a_worker_that_hangs_is_killed() -> None:
    async with open_scene(HANGS, count=2, stop_seconds=0.1) as scene:
        await scene.ready.wait()
        scene.stop()
    assert scene.supervisor.fault in {
        f"worker {number} did not stop in 0.1 s and had to be killed" for number in (1, 2)
    }


@pytest.mark.sockets
async def test_a_worker_that_is_not_ready_is_not_waited_for() -> None:
    async with open_scene(IS_NEVER_READY) as scene:
        scene.stop()
    assert scene.supervisor.fault == ""
    assert not scene.ready.is_set()


@pytest.mark.sockets
async def test_every_order_reaches_every_worker() -> None:
    async with open_scene(NEEDS_THREE_STOPS, count=2) as scene:
        await scene.ready.wait()
        scene.stop()
        scene.stop()
        with trio.move_on_after(0.1):
            await scene.over.wait()
        assert not scene.over.is_set()
        scene.stop()
    assert scene.supervisor.fault == ""


@pytest.mark.sockets
async def test_a_supervisor_that_fails_leaves_no_worker() -> None:
    listeners = await open_listeners("127.0.0.1", 0)
    ended: list[int] = []
    supervisor = Supervisor([sys.executable, "-c", HANGS], listeners, 2, LONGEST, when_ended=ended.append)

    def fail() -> None:
        raise RuntimeError("on purpose")

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="on purpose")):
        await supervisor.run(trio.sleep_forever, fail)
    assert len(ended) == 2
    assert not [pid for pid in ended if is_alive(pid)]


def test_several_processes_need_a_store_that_they_can_share() -> None:
    require_shared_store(Plan((), "sqlite:"))
    with pytest.raises(ConfigurationError, match="the memory: store is of one process"):
        require_shared_store(Plan((), "memory:"))


def test_a_worker_that_serves_for_long_begins_anew() -> None:
    restarts = Restarts()
    assert [restarts.pause_after(0) for _ in PAUSES] == list(PAUSES)
    assert restarts.pause_after(STEADY_SECONDS) == PAUSES[0]
    assert [restarts.pause_after(STEADY_SECONDS - 1) for _ in PAUSES] == [*PAUSES[1:], None]


async def test_a_channel_carries_lines() -> None:
    ours, theirs = (Channel(each) for each in socket.socketpair())
    ours.say(b"one")
    ours.say(b"two\nlines")
    ours.say(b"a" * LINE_BYTES)
    assert await theirs.hear() == b"one"
    assert await theirs.hear() == b"two lines"
    assert await theirs.hear() == b"a" * (LINE_BYTES - 1)
    ours.close()
    assert await theirs.hear() is None
    theirs.say(b"to nobody")
    theirs.close()
    assert await theirs.hear() is None


async def test_a_channel_that_carries_no_lines_is_given_up() -> None:
    raw, theirs = socket.socketpair()
    channel = Channel(theirs)
    with raw:
        raw.sendall(b"a" * (2 * LINE_BYTES + 1))
        assert await channel.hear() is None
    channel.close()


def test_handles_are_written_and_read() -> None:
    handles = Handles(7, (5, 6))
    assert str(handles) == "7,5,6"
    assert Handles.parse("7,5,6") == handles
    with pytest.raises(ValueError, match="invalid literal"):
        Handles.parse("x")
