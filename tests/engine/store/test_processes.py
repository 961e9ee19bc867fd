"""Several processes on one store, and processes that are killed. Some seconds: every process has to start."""

from collections.abc import Callable, Coroutine, Generator
from itertools import chain
from typing import Any, TypeVar

import pytest
import trio

from engine.store.contract import Store
from engine.store.documents import ResourceKind, TurnDocument
from engine.store.locate import open_store
from tests.engine.store.crew import Crew, open_crew, race
from tests.engine.store.kill_rounds import MOST, check_integrity, run_rounds
from tests.engine.store.stores import SHARED_STORES

T = TypeVar("T")

PROCESSES = 3
KILLS = 5


@pytest.fixture(scope="module", params=SHARED_STORES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with SHARED_STORES[request.param](tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest.fixture(scope="module")
def crew(url: str) -> Generator[Crew]:
    """All of them have opened the store at once, when there was none yet."""
    with open_crew(url, PROCESSES) as opened:
        yield opened
    check_integrity(url)


def look(url: str, read: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """What this process, another one, finds in the store."""

    async def reading() -> T:
        async with open_store(url) as store:
            return await read(store)

    return trio.run(reading)


def turns(url: str, session_id: str) -> list[TurnDocument]:
    return look(url, lambda store: store.get_turns(session_id, limit=10_000))


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(shared_url: str) -> None:
    # Of a file's writing a killed process is part, and has to be met anywhere in it; of a server's it is not.
    most = MOST if shared_url.startswith("sqlite:") else MOST // 10
    assert run_rounds(shared_url, rounds=KILLS, seed=1, most=most) > KILLS


def test_of_owners_one_has_the_session(crew: Crew, url: str) -> None:
    said = crew.all("own 0")
    (winner,) = (name for name, lines in said.items() if lines == [["won"]])
    assert [lines for name, lines in said.items() if name != winner] == [[["refused"]]] * (PROCESSES - 1)
    owned = look(url, lambda store: store.get_session("owned"))
    assert owned is not None
    assert (owned.owner, owned.fence) == (winner, 1)


def test_no_turn_is_lost_beside_other_processes(crew: Crew, url: str) -> None:
    crew.all("turns 50")
    for name in crew.members:
        assert [turn.index for turn in turns(url, name)] == list(range(50))


def test_each_lease_has_one_holder(crew: Crew) -> None:
    winners = race(crew, "lease", 30)
    assert race(crew, "lease", 30) == winners  # asked again, each has its own and nobody else's


def test_a_lease_that_expires_has_one_holder_each_time(crew: Crew) -> None:
    fences: list[int] = []
    for said in crew.rounds("expiring", 30):
        (fence,) = chain.from_iterable(said)
        fences.append(fence)
    assert fences == sorted(set(fences))


def test_each_opening_has_a_fence_of_its_own(crew: Crew) -> None:
    for number, said in enumerate(crew.rounds("opening", 20)):
        assert sorted(chain.from_iterable(said)) == [number * PROCESSES + first for first in range(1, PROCESSES + 1)]


def test_a_key_is_used_once(crew: Crew) -> None:
    race(crew, "key", 30)
    assert crew.all("key 0") == {name: [] for name in crew.members}


def test_no_write_is_lost_by_those_who_try_again(crew: Crew, url: str) -> None:
    crew.rounds("counter", 20)
    found = look(url, lambda store: store.get_resource(ResourceKind.AGENT, "counter"))
    assert found is not None
    assert (found.body["count"], found.version) == (20 * PROCESSES, 20 * PROCESSES)


def test_each_revision_is_somebodys(crew: Crew, url: str) -> None:
    said = crew.rounds("memory", 20)
    revisions = list(range(1, 20 * PROCESSES + 1))
    assert sorted(chain.from_iterable(chain.from_iterable(said))) == revisions
    found = look(url, lambda store: store.get_memory_revisions("crew", "facts", limit=100))
    assert [document.revision for document in found] == revisions[::-1]


def test_nothing_is_written_after_a_takeover(crew: Crew, url: str) -> None:
    said = crew.all("takeovers 10")
    by_fence = [int(turn.input.text) for turn in turns(url, "contested")]
    takeovers = sorted([int(word) for word in words] for words in chain.from_iterable(said.values()))
    assert [fence for fence, _, _ in takeovers] == list(range(1, 10 * PROCESSES + 1))
    for fence, earlier, written in takeovers:
        assert by_fence.count(fence) == written  # all that was acknowledged, and nothing that was not
        # Behind its opening nobody older wrote. (It may have been taken over itself before it looked.)
        assert sum(other < fence for other in by_fence) <= earlier
