"""The same seed is the same conversation, byte for byte and at the same virtual times, whichever store keeps it; and the stores then
hold the same."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import trio

from engine.store.contract import Store
from engine.store.documents import SessionDocument, TurnDocument, UsageDocument
from engine.store.memory import MemoryStore
from engine.testing.explore import World, explore
from tests.engine.store.secantus import SHARED
from tests.engine.testing.inline_stores import inline_embedded, inline_mongo

SEEDS = (25, 10, 4)
"""One that ends with a goodbye; one that begins a second session on its connection; one that vanishes."""
STORES: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    "embedded": inline_embedded,
    "mongo": inline_mongo,
}
Kept = tuple[SessionDocument | None, list[TurnDocument], list[UsageDocument]]


@pytest.fixture(scope="module", autouse=True)
def shared_server() -> Generator[None]:
    try:
        yield
    finally:
        SHARED.stop()


async def kept(store: Store) -> list[Kept]:
    """What is in a store of the first two sessions."""
    found: list[Kept] = []
    for session_id in ("session-1", "session-2"):
        turns = await store.get_turns(session_id, limit=1000)
        found.append((await store.get_session(session_id), turns, await store.get_usage(session_id)))
    return found


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_conversation_is_the_same_on_every_store(seed: int, name: str, tmp_path: Path) -> None:
    memory = MemoryStore()
    expected = explore(seed, store=memory)
    with STORES[name](tmp_path) as store:
        found = explore(seed, store=store)
        held = trio.run(kept, store)
    assert found.violations == expected.violations == []
    assert found.record.heard == expected.record.heard
    assert found.digest == expected.digest
    assert held == trio.run(kept, memory)
    assert held[0][1]


def test_the_seeds_are_what_they_are_said_to_be() -> None:
    assert [World.of(seed).end for seed in SEEDS] == ["goodbye", "again", "vanish"]
