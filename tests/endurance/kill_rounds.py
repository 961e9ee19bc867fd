"""kill -9 of a server between any two acknowledged turns, again and again: nothing that was acknowledged is lost, and the session
goes on in another process, which knows what was said and does not greet again.

Two servers work on one store. In each round the clients talk to the first one until it is killed, at a random moment; they go on
with the second, which was running already, and a new one is started to stand by.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import attrs
import trio

from engine.store.locate import open_store
from tests.endurance.ledger import ALL_TURNS, Ledger, ViolationError, check_file
from tests.endurance.server import RealServer, hold_server
from tests.endurance.visitor import Answer, LostError, Visitor, visit

SESSIONS = 4
"""Conversations at a time."""
FEWEST, MOST = 1, 12
"""Acknowledged turns, of all sessions together, after which the server is killed."""
LATEST_SECONDS = 0.08
"""The kill comes up to so much later, which is a turn or two: most often in the middle of one."""
STILL_HERE = "I am still here."
"""What the scripted model says to an `intro` when it knows that there was a conversation before; otherwise it greets."""
QUESTIONS = ("When are you open?", "Where are you?", "What is on the menu?", "What is an espresso?", "How are you?")

Tell = Callable[[str], None]


@attrs.define(eq=False)
class Round:
    """One life of a server, from the clients' side."""

    port: int
    random: Random
    _turns: int = attrs.field(default=0, init=False)
    _enough: trio.Event = attrs.field(factory=trio.Event, init=False)
    _kill_after: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._kill_after = self.random.randint(FEWEST, MOST)

    async def talk(self, ledger: Ledger, nursery: trio.Nursery) -> None:
        """Talk in one session until the server has gone. Raises ViolationError, AnswerError."""
        try:
            visitor = await visit(nursery, self.port, ledger.session_id)
        except LostError:
            return  # it was killed already: others were faster
        try:
            await self._converse(ledger, visitor)
        except LostError as lost:
            if lost.code is not None:
                raise ViolationError(f"session {ledger.session_id} was closed with {lost.code}, not cut off") from lost
        finally:
            visitor.hang_up()

    async def _converse(self, ledger: Ledger, visitor: Visitor) -> None:
        opening = await visitor.ask_for_opening()
        check_opening(ledger, opening.text)
        self._note(ledger, "#intro", opening)
        while True:
            said = self.random.choice(QUESTIONS)
            self._note(ledger, said, await visitor.say(said))

    def _note(self, ledger: Ledger, said: str, answer: Answer) -> None:
        if answer.is_saved:
            ledger.note(answer.turn_id, said, answer.text)
        self._turns += 1
        if self._turns >= self._kill_after:
            self._enough.set()

    async def kill(self, server: RealServer) -> None:
        """When enough was said, and then at any moment."""
        await self._enough.wait()
        await trio.sleep(self.random.uniform(0, LATEST_SECONDS))
        await server.kill()


def check_opening(ledger: Ledger, opening: str) -> None:
    if ledger.acknowledged and STILL_HERE not in opening:
        raise ViolationError(f"session {ledger.session_id} was taken up with {opening!r}")


async def run_kill_rounds(store: str, directory: Path, rounds: int, seed: int, tell: Tell) -> str:
    """So many kills; says how many turns were acknowledged, all of which are stored.

    Raises (in groups):
        ViolationError: something was lost, or a session did not go on as it should.
        AnswerError, ServerError: a server did not do what it should.
    """
    random = Random(seed)
    ledgers = [Ledger(f"kill-{number}") for number in range(SESSIONS)]
    async with open_store(store) as kept, trio.open_nursery() as servers:
        hold = partial(hold_server, store, directory)
        serving: RealServer = await servers.start(hold)
        for number in range(1, rounds + 1):
            standing_by = await _play(Round(serving.port, random), serving, ledgers, partial(servers.start, hold))
            check_file(store)
            for ledger in ledgers:
                ledger.check(await kept.get_turns(ledger.session_id, limit=ALL_TURNS), under_way=1)
            turns = sum(len(ledger.acknowledged) for ledger in ledgers)
            tell(f"kill {number} of {rounds}: {turns} turns acknowledged, all of them stored")
            serving = standing_by
        async with trio.open_nursery() as nursery:
            for ledger in ledgers:
                await _say_goodbye(ledger, nursery, serving.port)
        await serving.stop()
    return f"{rounds} kills, {sum(len(ledger.acknowledged) for ledger in ledgers)} turns acknowledged, none lost"


async def _play(
    life: Round, server: RealServer, ledgers: Sequence[Ledger], start_another: Callable[[], Awaitable[RealServer]]
) -> RealServer:
    """A server's life, from the first word to its kill, with another one being started meanwhile; gives that one."""
    async with trio.open_nursery() as sockets:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.kill, server)
            for ledger in ledgers:
                nursery.start_soon(life.talk, ledger, sockets)
            another = await start_another()
    return another


async def _say_goodbye(ledger: Ledger, nursery: trio.Nursery, port: int) -> None:
    """Take the session up once more."""
    visitor = await visit(nursery, port, ledger.session_id)
    check_opening(ledger, (await visitor.ask_for_opening()).text)
    visitor.hang_up()
