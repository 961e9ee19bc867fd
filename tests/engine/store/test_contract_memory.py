"""What every store promises about memory: revisions that are only added, and never two of one number."""

from datetime import timedelta

import pytest
import trio

from engine.store.contract import ConflictError, Store
from engine.store.documents import MemoryDocument
from tests.engine.store.operations import all_pages
from tests.engine.store.samples import NOON, ODD_BODY, ODD_IDS, UNSTORABLE, memory

ANNA = ("user:anna", "facts")


async def revisions(store: Store, scope: str = "user:anna", name: str = "facts") -> list[tuple[int, str]]:
    found = await store.get_memory_revisions(scope, name, limit=100)
    return [(document.revision, document.id) for document in found]


async def test_revisions_count_from_one(store: Store) -> None:
    assert await store.get_memory(*ANNA) is None
    assert await store.append_memory(memory("m1", revision=9), expected=0) == memory("m1", revision=1)
    assert await store.append_memory(memory("m2"), expected=1) == memory("m2", revision=2)
    assert await store.append_memory(memory("m3"), expected=None) == memory("m3", revision=3)
    assert await store.get_memory(*ANNA) == memory("m3", revision=3)
    assert await revisions(store) == [(3, "m3"), (2, "m2"), (1, "m1")]


async def test_of_revisions_the_newest_come_first(store: Store) -> None:
    for number in range(5):
        await store.append_memory(memory(f"m{number}"), expected=None)
    for limit, expected in ((0, []), (-1, []), (1, [5]), (3, [5, 4, 3]), (9, [5, 4, 3, 2, 1])):
        found = await store.get_memory_revisions(*ANNA, limit=limit)
        assert [document.revision for document in found] == expected
    assert await store.get_memory_revisions("user:anna", "plan", limit=9) == []


@pytest.mark.parametrize(("written", "expected"), [(0, 1), (1, 0), (1, 2), (3, 2), (3, 4)])
async def test_another_newest_than_expected_is_a_conflict(store: Store, written: int, expected: int) -> None:
    for number in range(written):
        await store.append_memory(memory(f"m{number}"), expected=None)
    with pytest.raises(ConflictError) as refused:
        await store.append_memory(memory("late"), expected=expected)
    assert refused.value.current == written
    assert len(await revisions(store)) == written


async def test_a_repeated_write_gives_what_is_stored(store: Store) -> None:
    first = await store.append_memory(memory("m1"), expected=0)
    assert await store.append_memory(memory("m1"), expected=0) == first
    await store.append_memory(memory("m2"), expected=1)
    changed = memory("m1", body={"by": "somebody else"}, created_at=NOON + timedelta(days=1))
    for expected in (0, 1, 2, None):
        assert await store.append_memory(changed, expected=expected) == first
    assert await revisions(store) == [(2, "m2"), (1, "m1")]


async def test_an_id_is_one_within_its_scope_and_name(store: Store) -> None:
    for scope, name in (ANNA, ("user:anna", "plan"), ("user:bob", "facts")):
        document = memory("m1", scope, name)
        assert await store.append_memory(document, expected=0) == memory("m1", scope, name, revision=1)
        assert await store.get_memory(scope, name) == memory("m1", scope, name, revision=1)


async def test_of_those_who_write_at_once_one_wins(store: Store) -> None:
    won: list[MemoryDocument] = []
    lost: list[int] = []

    async def appending(number: int, expected: int) -> None:
        try:
            won.append(await store.append_memory(memory(f"{expected} {number}"), expected=expected))
        except ConflictError as exc:
            lost.append(exc.current)

    for expected in range(3):
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(appending, number, expected)
    assert [document.revision for document in won] == [1, 2, 3]
    assert lost == [1] * 9 + [2] * 9 + [3] * 9
    assert await revisions(store) == [(document.revision, document.id) for document in reversed(won)]


async def test_without_an_expectation_all_are_written(store: Store) -> None:
    async def appending(number: int) -> None:
        await store.append_memory(memory(f"m{number}"), expected=None)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(appending, number)
    found = await revisions(store)
    assert [revision for revision, _ in found] == list(range(20, 0, -1))
    assert {document_id for _, document_id in found} == {f"m{number}" for number in range(20)}


async def test_repeated_at_once_it_is_written_once(store: Store) -> None:
    given: list[MemoryDocument] = []

    async def appending() -> None:
        given.append(await store.append_memory(memory("m1"), expected=0))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(appending)
    assert given == [memory("m1", revision=1)] * 10
    assert await revisions(store) == [(1, "m1")]


async def test_a_scope_is_listed_by_name_in_pages(store: Store) -> None:
    for name in ODD_IDS:
        for number in range(1 + len(name) % 2):
            await store.append_memory(memory(f"m{number}", name=name), expected=number)
    await store.append_memory(memory(scope="user:bob", name="his"), expected=0)
    expected = [memory(f"m{len(name) % 2}", name=name, revision=1 + len(name) % 2) for name in sorted(ODD_IDS)]
    assert await store.list_memory("user:anna", limit=100) == expected
    paged = await all_pages(lambda after: store.list_memory("user:anna", limit=7, after=after.name if after else ""))
    assert paged == [expected[first : first + 7] for first in range(0, len(expected), 7)]
    assert await store.list_memory("user:anna", limit=1, after=" cas") == [expected[sorted(ODD_IDS).index(" case")]]
    assert await store.list_memory("user:nobody", limit=9) == []
    for limit in (0, -1):
        assert await store.list_memory("user:anna", limit=limit) == []


async def test_scopes_are_compared_exactly(store: Store) -> None:
    for scope in ODD_IDS:
        await store.append_memory(memory(scope, scope, scope), expected=0)
    for scope in ODD_IDS:
        kept = memory(scope, scope, scope, revision=1)
        assert await store.get_memory(scope, scope) == kept
        assert await store.list_memory(scope, limit=9) == [kept]
    assert await store.forget_memory("case") == 1
    assert await store.get_memory("CASE", "CASE") is not None


async def test_a_forgotten_scope_is_empty(store: Store) -> None:
    for number in range(3):
        await store.append_memory(memory(f"m{number}"), expected=number)
    await store.append_memory(memory("m0", name="plan"), expected=0)
    await store.append_memory(memory("m0", "user:anna2"), expected=0)
    assert await store.forget_memory("user:anna") == 4
    assert await store.forget_memory("user:anna") == 0
    assert await store.get_memory(*ANNA) is None
    assert await store.list_memory("user:anna", limit=9) == []
    assert await revisions(store) == []
    assert await revisions(store, "user:anna2") == [(1, "m0")]
    assert await store.append_memory(memory("m0"), expected=0) == memory("m0", revision=1)


async def test_a_body_comes_back_as_it_was(store: Store) -> None:
    await store.append_memory(memory(body=ODD_BODY, session_id="s1"), expected=0)
    assert await store.get_memory(*ANNA) == memory(body=ODD_BODY, session_id="s1", revision=1)
    long = {"plan": "Řekni ahoj 👋🏽 " * 40_000}
    await store.append_memory(memory("m2", body=long), expected=1)
    assert await store.get_memory(*ANNA) == memory("m2", body=long, revision=2)


async def test_what_cannot_be_stored_changes_nothing(store: Store) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        await store.append_memory(memory(body={"name": UNSTORABLE}), expected=0)
    assert await store.get_memory(*ANNA) is None
    assert await store.list_memory("user:anna", limit=9) == []
