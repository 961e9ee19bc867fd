"""A process that uses a store, for the tests with several of them.

append PATH SESSION…        appends turns to each session for ever; a line "SESSION INDEX" for each acknowledged one
race PATH SESSION COUNT     waits for a line on its input, then opens the file and the session "shared" under the owner SESSION,
                            says "won" or "refused", appends COUNT turns to SESSION and says "done"
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import trio

from engine.errors import NotFoundError
from engine.store.contract import Store
from engine.store.documents import SessionDocument, TurnDocument, TurnInputRecord
from engine.store.embedded import open_embedded

THEN = datetime(2024, 5, 1, tzinfo=UTC)


def say(line: str) -> None:
    """One write each, so that a killed process leaves whole lines."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def append(store: Store, session_id: str, count: int | None = None) -> None:
    """Append turns one after the other, from where the stored ones end."""
    last = await store.get_turns(session_id, limit=1, last=True)
    index = last[0].index + 1 if last else 0
    while count is None or index < count:
        turn = TurnDocument(
            id=f"turn {index}",
            session_id=session_id,
            index=index,
            started_at=THEN,
            input=TurnInputRecord(text="How are you today? " * 20, kind="speech"),
        )
        await store.append_turns([turn], fence=0)
        if count is None:
            say(f"{session_id} {index}")
        index += 1


async def append_for_ever(path: Path, session_ids: list[str]) -> None:
    async with open_embedded(path) as store, trio.open_nursery() as nursery:
        for session_id in session_ids:
            nursery.start_soon(append, store, session_id)


async def race(path: Path, session_id: str, count: int) -> None:
    async with open_embedded(path) as store:
        try:
            await store.open_session(SessionDocument(id="shared", owner=session_id, created_at=THEN, updated_at=THEN))
            say("won")
        except NotFoundError:
            say("refused")
        await append(store, session_id, count)
        say("done")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["append", path, *session_ids]:
            trio.run(append_for_ever, Path(path), session_ids)
        case ["race", path, session_id, count]:
            say("ready")
            sys.stdin.readline()
            trio.run(race, Path(path), session_id, int(count))
        case _:
            sys.exit(__doc__)
