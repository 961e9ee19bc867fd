"""Clients that connect, talk and vanish, many times over: the server keeps nothing of them but what they said.

After some cycles to warm up, file handles, threads, tasks, sessions and lines have to be what they were, once the last client has
gone; memory may have grown by a bounded amount, which is what an allocator's pages and the caches of libraries come to.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs
import trio

from engine.store.contract import Store
from engine.store.documents import SessionState
from engine.store.locate import open_store
from tests.endurance.ledger import Ledger, ViolationError
from tests.endurance.server import RealServer, ServerError, open_server
from tests.endurance.visitor import visit
from tests.engine.transport.stack import ask

TOGETHER = 8
"""Clients at a time."""
WARM, WARMEST = 2 * TOGETHER, 300
"""Cycles before the first look: half of the run, within these bounds. By then what a process makes once is there: threads,
connections to the store, and most of the caches below."""
GROWTH_BYTES, GROWTH_BYTES_PER_CYCLE = 5 << 19, 3 << 10
"""What memory may grow by. A session that stays costs about 90 KiB and a task that stays about 6 KiB, so that either is seen in a
run of 1,000 cycles, and whole sessions in one of 50. What does grow is bounded: SQLite keeps 2 MiB of pages, pydantic 16,384
short strings, Trio a thousand deadlines that were cancelled, and the allocator what it does not give back."""
SETTLE_SECONDS = 15.0
"""The longest until the last clients' sessions are saved and their sockets closed: the clean-up has 10 s. Trio ends a thread that
has had nothing to do for 10 s, so this is also the time for those."""
LOOK_SECONDS = 0.05
STOP_SECONDS = 10.0
"""The longest that a server takes to stop in which nobody talks. One that waits for somebody does so for 15."""

Tell = Callable[[str], None]


@attrs.frozen
class Usage:
    """What a server holds: handles, threads and memory as the system says, the rest as it says itself."""

    handles: int
    threads: int
    tasks: int
    sessions: int
    lines: int
    resident_bytes: int

    @property
    def counts(self) -> dict[str, int]:
        """What has to be what it was."""
        return {
            "file handles": self.handles,
            "threads": self.threads,
            "tasks": self.tasks,
            "sessions": self.sessions,
            "lines to clients": self.lines,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        return f"{counts}, {self.resident_bytes >> 20} MiB"


async def usage_of(server: RealServer) -> Usage:
    measured = await ask(await trio.open_tcp_stream("127.0.0.1", server.port), "/metrics")
    if measured.status != 200:
        raise ServerError(f"/metrics was answered with {measured.status}")
    text = measured.body.decode()
    handles, status = of_process(server.pid)
    return Usage(
        handles=handles,
        threads=_sum(r"^Threads:\s+(\d+)", status),
        tasks=_sum(r"^souffleur_tasks(?:{.*})? (\d+)", text),
        sessions=_sum(r"^souffleur_sessions(?:{.*})? (\d+)", text),
        lines=_sum(r"^souffleur_lines(?:{.*})? (\d+)", text),
        resident_bytes=_sum(r"^VmRSS:\s+(\d+)", status) << 10,
    )


def of_process(pid: int) -> tuple[int, str]:
    """How many file handles a process has open, and its status."""
    return len(os.listdir(f"/proc/{pid}/fd")), Path(f"/proc/{pid}/status").read_text()


def _sum(pattern: str, text: str) -> int:
    """Of all that fit: a metric has a line for each of its labels. Raises ServerError when none does."""
    found = re.findall(pattern, text, re.MULTILINE)
    if not found:
        raise ServerError(f"there is no {pattern} in what was measured")
    return sum(int(number) for number in found)


def judge(before: Usage, after: Usage, cycles: int) -> None:
    """Raises ViolationError."""
    for name, count in after.counts.items():
        if count > before.counts[name]:
            raise ViolationError(f"{count - before.counts[name]} {name} more after {cycles} cycles")
    grown = after.resident_bytes - before.resident_bytes
    if grown > GROWTH_BYTES + cycles * GROWTH_BYTES_PER_CYCLE:
        raise ViolationError(f"{grown >> 10} KiB of memory more after {cycles} cycles")


@attrs.define(eq=False)
class Visits:
    """The cycles of one run."""

    server: RealServer
    random: Random
    ledgers: list[Ledger] = attrs.field(factory=list[Ledger], init=False)

    async def make(self, count: int) -> None:
        """So many visits, some at a time; each client has gone when this returns."""
        left = count

        async def come_and_go() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self._visit(sockets)

        async with trio.open_nursery() as sockets, trio.open_nursery() as clients:
            for _ in range(TOGETHER):
                clients.start_soon(come_and_go)

    async def _visit(self, sockets: trio.Nursery) -> None:
        ledger = Ledger(f"cycle-{len(self.ledgers)}")
        self.ledgers.append(ledger)
        visitor = await visit(sockets, self.server.port, ledger.session_id)
        answer = await visitor.say("When are you open?")
        if answer.is_saved:
            ledger.note(answer.turn_id, "When are you open?", answer.text)
        if self.random.random() < 1 / 3:  # in the middle of a turn
            await visitor.send({"type": "text", "text": "Where are you?"})
        match self.random.randrange(3):
            case 0:
                visitor.vanish()
            case 1:
                visitor.hang_up()
            case _:
                await visitor.vanish_in_a_frame()

    async def settle(self, kept: Store, before: Usage | None) -> Usage:
        """Wait until the last clients' sessions are saved and what they held is free; gives what is held then."""
        with trio.move_on_after(SETTLE_SECONDS):
            while True:  # the server is another process: nothing tells when it is done
                saved = [await _is_saved(kept, ledger) for ledger in self.ledgers[-2 * TOGETHER :]]
                now = await usage_of(self.server)
                if all(saved) and now.sessions == now.lines == 0 and _is_free(now, before):
                    return now
                await trio.sleep(LOOK_SECONDS)
        return await usage_of(self.server)


async def _is_saved(kept: Store, ledger: Ledger) -> bool:
    session = await kept.get_session(ledger.session_id)
    return session is not None and session.state is SessionState.DISCONNECTED


def _is_free(now: Usage, before: Usage | None) -> bool:
    return before is None or all(count <= before.counts[name] for name, count in now.counts.items())


async def run_cycles(store: str, directory: Path, rounds: int, seed: int, tell: Tell) -> str:
    """So many visits after those to warm up; says what the server held before and after.

    Raises (in groups):
        ViolationError: the server holds more than before, or a session was not saved.
        AnswerError, LostError, ServerError: it did not do what it should.
    """
    async with open_server(store, directory) as server, open_store(store) as kept:
        visits = Visits(server, Random(seed))
        warm = min(max(WARM, rounds // 2), WARMEST)
        await visits.make(warm)
        before = await visits.settle(kept, None)
        tell(f"{warm} cycles to warm up: {before}")
        done = 0
        while done < rounds:
            some = min(100, rounds - done)
            await visits.make(some)
            done += some
            tell(f"{done} of {rounds} cycles: {await usage_of(server)}")
        after = await visits.settle(kept, before)
        judge(before, after, rounds)
        for ledger in visits.ledgers:
            if not await _is_saved(kept, ledger):
                raise ViolationError(f"session {ledger.session_id} was not saved as DISCONNECTED")
            ledger.check(await kept.get_turns(ledger.session_id, limit=2), under_way=1)
        stopping_at = trio.current_time()
        await server.stop()
        if trio.current_time() - stopping_at > STOP_SECONDS:
            raise ViolationError("the server waited for somebody when it was stopped, and nobody was there")
    grown = (after.resident_bytes - before.resident_bytes) >> 10
    return f"{rounds} cycles, and then {after}; {grown} KiB more than before"
