"""Sessions that are taken over under load, back and forth between two processes on one store.

Each session has a client that talks without a pause. Again and again a second one opens the session elsewhere, most often in the
other process. From then on it has it: the older one is told, and closed, within a bounded time; what either was acknowledged is
stored, in order, without a gap or a duplicate.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs
import trio

from engine.store.locate import open_store
from tests.endurance.ledger import ALL_TURNS, Ledger, ViolationError
from tests.endurance.server import RealServer, open_server
from tests.endurance.visitor import LostError, Visitor, visit

SESSIONS = 6
"""Conversations at a time."""
LONGEST_SECONDS = 6.0
"""From the newer client's `ready` to the older one's close. A process looks for takeovers every second, and a machine with two
processors and everything else on them may be late with that by seconds; without the looking an idle session would never notice."""
ELSEWHERE = 0.8
"""Share of the takeovers by the other process; the rest are by another connection to the same one."""
QUIET = 0.2
"""Share of the clients that say nothing."""
TALK_SECONDS = 0.3
"""The most a client talks alone before it is taken over."""
POLICY, TAKEN_OVER = 1008, "taken_over"
QUESTIONS = ("When are you open?", "Where are you?", "What is on the menu?", "What is an espresso?", "How are you?")

Tell = Callable[[str], None]


@attrs.define(eq=False)
class Holder:
    """A client that has a session and talks in it until it is taken away."""

    ledger: Ledger
    visitor: Visitor
    place: int
    """Which of the servers it is at."""
    random: Random
    number: int
    """Of the session's holders, counted from 0."""
    is_quiet: bool = False
    """It says nothing, so that no write of its session is refused: only looking finds the takeover."""
    lost_at: float = attrs.field(default=0.0, init=False)
    lost: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def talk(self) -> None:
        """Raises ViolationError: the connection ended in another way than by a takeover."""
        code = await self._talk_until_lost()
        self.lost_at = trio.current_time()
        if code != POLICY or TAKEN_OVER not in self.visitor.errors:
            raise ViolationError(
                f"session {self.ledger.session_id}: who had it was closed with {code} after {self.visitor.errors}"
            )
        self.lost.set()

    async def _talk_until_lost(self) -> int | None:
        try:
            while not self.is_quiet:
                said = self.random.choice(QUESTIONS)
                answer = await self.visitor.say(said)
                if answer.is_saved:
                    self.ledger.note(answer.turn_id, said, answer.text, self.number)
                await trio.sleep(self.random.uniform(0, 0.05))
        except LostError:
            pass  # perhaps while it was typing, with more to be read
        return (await self.visitor.wait_for_end()).code


@attrs.define(eq=False)
class Contest:
    """All takeovers of a run."""

    servers: tuple[RealServer, RealServer]
    rounds: int
    tell: Tell
    begun: int = attrs.field(default=0, init=False)
    done: int = attrs.field(default=0, init=False)
    of: Counter[str] = attrs.field(factory=Counter[str], init=False)
    """Takeovers of each session."""
    longest: float = attrs.field(default=0.0, init=False)
    """From a takeover to the close of the older connection, in seconds."""

    async def fight_over(self, ledger: Ledger, random: Random) -> None:
        """Take one session over again and again, until there were enough takeovers of all sessions together."""
        async with trio.open_nursery() as nursery:
            place = random.randrange(2)
            holder = Holder(ledger, await visit(nursery, self.servers[place].port, ledger.session_id), place, random, 0)
            talking = await nursery.start(talk, holder)
            while self.begun < self.rounds:
                self.begun += 1
                await trio.sleep(random.uniform(0, TALK_SECONDS))
                place = 1 - holder.place if random.random() < ELSEWHERE else holder.place
                visitor = await visit(nursery, self.servers[place].port, ledger.session_id)
                self.of[ledger.session_id] += 1
                is_quiet = random.random() < QUIET
                newer = Holder(ledger, visitor, place, random, holder.number + 1, is_quiet)
                holder, older = newer, holder
                talking = await nursery.start(talk, holder)
                await self._see_off(older)
            talking.cancel()
            holder.visitor.hang_up()

    async def _see_off(self, older: Holder) -> None:
        taken_at = trio.current_time()
        with trio.move_on_after(LONGEST_SECONDS) as limit:
            await older.lost.wait()
        if limit.cancelled_caught:
            raise ViolationError(
                f"session {older.ledger.session_id}: who had it still has it {LONGEST_SECONDS:g} s after the takeover"
            )
        older.visitor.hang_up()
        self.longest = max(self.longest, older.lost_at - taken_at)
        self.done += 1
        if self.done % 10 == 0:
            self.tell(f"takeover {self.done} of {self.rounds}; the slowest took {self.longest:.2f} s")


async def talk(holder: Holder, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await holder.talk()


async def run_takeovers(store: str, directory: Path, rounds: int, seed: int, tell: Tell) -> str:
    """So many takeovers; says how long the slowest took, and how many turns were acknowledged.

    Raises (in groups):
        ViolationError: two had a session at once for too long, or turns were lost, repeated or mixed up.
        AnswerError, ServerError: a server did not do what it should.
    """
    random = Random(seed)
    ledgers = [Ledger(f"take-{number}") for number in range(SESSIONS)]
    async with open_server(store, directory) as one, open_server(store, directory) as other, open_store(store) as kept:
        contest = Contest((one, other), rounds, tell)
        async with trio.open_nursery() as nursery:
            for ledger in ledgers:
                nursery.start_soon(contest.fight_over, ledger, Random(random.random()))
        for server in (one, other):
            await server.stop()
        for ledger in ledgers:
            ledger.check(
                await kept.get_turns(ledger.session_id, limit=ALL_TURNS), under_way=contest.of[ledger.session_id] + 1
            )
    turns = sum(len(ledger.acknowledged) for ledger in ledgers)
    return (
        f"{contest.done} takeovers, the slowest in {contest.longest:.2f} s; {turns} turns acknowledged, all stored once"
    )
