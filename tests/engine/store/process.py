"""A process that uses a store, for the tests with several of them.

append URL SESSION…     appends turns to each session for ever; a line "SESSION INDEX" for each acknowledged one
crew URL NAME           says "ready"; at the first line of its input it opens the store, and from then on does what the lines
                        say (see `Member`), each answered by any number of lines and "done"
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import attrs
import trio

from engine.errors import NotFoundError
from engine.store.contract import ConflictError, Store, TakenOverError
from engine.store.documents import (
    MemoryDocument,
    Resource,
    ResourceKind,
    SessionDocument,
    TurnDocument,
    TurnInputRecord,
)
from engine.store.locate import open_store

THEN = datetime(2024, 5, 1, tzinfo=UTC)


def say(line: str) -> None:
    """One write each, so that a killed process leaves whole lines."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def turn(index: int, session_id: str, text: str) -> TurnDocument:
    record = TurnInputRecord(text=text, kind="speech")
    return TurnDocument(id=f"turn {index}", session_id=session_id, index=index, started_at=THEN, input=record)


async def append_for_ever(url: str, session_ids: list[str]) -> None:
    async with open_store(url) as store, trio.open_nursery() as nursery:
        for session_id in session_ids:
            nursery.start_soon(append, store, session_id)


async def append(store: Store, session_id: str) -> None:
    """Append turns one after the other, from where the stored ones end."""
    last = await store.get_turns(session_id, limit=1, last=True)
    index = last[0].index + 1 if last else 0
    while True:
        await store.append_turns([turn(index, session_id, "How are you today? " * 20)], fence=0)
        say(f"{session_id} {index}")
        index += 1


@attrs.frozen
class Member:
    """Its methods are the commands: each is called with a number, and says what came of it."""

    store: Store
    name: str

    async def own(self, _: int) -> None:
        """Open the session "owned" as its owner: "won" or "refused"."""
        try:
            await self.store.open_session(self._session("owned", owner=self.name))
            say("won")
        except NotFoundError:
            say("refused")

    async def turns(self, count: int) -> None:
        """Append turns to a session of one's own."""
        for index in range(count):
            await self.store.append_turns([turn(index, self.name, "hello")], fence=0)

    async def lease(self, number: int) -> None:
        """Ask for a lease that everybody asks for: "won", or nothing."""
        if await self.store.acquire_lease(f"lease {number}", self.name, now=THEN, seconds=60) is not None:
            say("won")

    async def expiring(self, number: int) -> None:
        """Ask for one lease that everybody asks for again and again, each time when it has just expired: its fence."""
        now = THEN + timedelta(seconds=60 * number)
        lease = await self.store.acquire_lease("expiring", f"{self.name} {number}", now=now, seconds=60)
        if lease is not None:
            say(str(lease.fence))

    async def opening(self, _: int) -> None:
        """Open a session that everybody opens: its fence."""
        opened = await self.store.open_session(self._session("opened"))
        say(str(opened.fence))

    async def key(self, number: int) -> None:
        """Use a key that everybody uses: "won" when one was the first."""
        if await self.store.use_once(f"key {number}", now=THEN, expires_at=THEN + timedelta(days=1)):
            say("won")

    async def counter(self, _: int) -> None:
        """Add one to a number that everybody adds to, trying again when somebody else did."""
        while True:
            found = await self.store.get_resource(ResourceKind.AGENT, "counter")
            body = {"count": found.body["count"] + 1 if found else 1}
            new = Resource(kind=ResourceKind.AGENT, id="counter", body=body, created_at=THEN, updated_at=THEN)
            try:
                await self.store.put_resource(new, expected=found.version if found else 0)
            except ConflictError:
                continue
            return

    async def memory(self, number: int) -> None:
        """Append a revision to what everybody remembers: its number."""
        document_id = f"{self.name} {number}"
        document = MemoryDocument(id=document_id, scope="crew", name="facts", body={}, created_at=THEN)
        stored = await self.store.append_memory(document, expected=None)
        say(str(stored.revision))

    async def takeovers(self, count: int) -> None:
        """Take over the session "contested", and append until taken over: "FENCE EARLIER WRITTEN", each time.

        EARLIER: turns there are as soon as it is one's own. WRITTEN: turns acknowledged to oneself; at most 20.
        """
        for _ in range(count):
            opened = await self.store.open_session(self._session("contested"))
            earlier = await self.store.get_turns("contested", limit=1 << 30)
            written = 0
            try:
                while written < 20:
                    index = opened.fence * 100 + written
                    await self.store.append_turns([turn(index, "contested", str(opened.fence))], fence=opened.fence)
                    written += 1
            except TakenOverError:
                pass
            say(f"{opened.fence} {len(earlier)} {written}")

    def _session(self, session_id: str, owner: str = "crew") -> SessionDocument:
        return SessionDocument(id=session_id, owner=owner, created_at=THEN, updated_at=THEN)


async def serve(url: str, name: str, read_line: Callable[[], str]) -> None:
    async with open_store(url) as store:
        member = Member(store, name)
        say("done")
        while line := await trio.to_thread.run_sync(read_line):
            command, number = line.split()
            await getattr(member, command)(int(number))
            say("done")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["append", url, *session_ids]:
            trio.run(append_for_ever, url, session_ids)
        case ["crew", url, name]:
            say("ready")
            sys.stdin.readline()
            trio.run(serve, url, name, sys.stdin.readline)
        case _:
            sys.exit(__doc__)
