"""What every store promises about managed documents: versions, and pages in the order of ids."""

from datetime import timedelta

import pytest
import trio

from engine.store.contract import ConflictError, Store
from engine.store.documents import Resource, ResourceKind
from tests.engine.store.operations import all_pages
from tests.engine.store.samples import NOON, ODD_BODY, ODD_IDS, UNSTORABLE, resource

LATER = NOON + timedelta(days=1)
AGENT, PROJECT = ResourceKind.AGENT, ResourceKind.PROJECT


# --- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [None, 0])
async def test_a_new_one_has_the_first_version(store: Store, expected: int | None) -> None:
    assert await store.get_resource(AGENT, "r1") is None
    stored = await store.put_resource(resource(version=7), expected=expected)
    assert stored == resource(version=1)
    assert await store.get_resource(AGENT, "r1") == stored


@pytest.mark.parametrize("expected", [None, 1])
async def test_each_write_counts_and_the_first_time_stays(store: Store, expected: int | None) -> None:
    await store.put_resource(resource(), expected=0)
    new = resource(body={"name": "Clerk"}, created_at=LATER, updated_at=LATER)
    stored = await store.put_resource(new, expected=expected)
    assert stored == resource(body={"name": "Clerk"}, updated_at=LATER, version=2)
    assert await store.get_resource(AGENT, "r1") == stored
    assert (await store.put_resource(new, expected=None)).version == 3


@pytest.mark.parametrize(("writes", "expected"), [(0, 1), (0, 7), (1, 0), (1, 2), (3, 0), (3, 2), (3, 4)])
async def test_another_version_than_expected_is_a_conflict(store: Store, writes: int, expected: int) -> None:
    for _ in range(writes):
        await store.put_resource(resource(), expected=None)
    with pytest.raises(ConflictError) as refused:
        await store.put_resource(resource(body={"name": "late"}), expected=expected)
    assert refused.value.current == writes
    with pytest.raises(ConflictError) as refused:
        await store.delete_resource(AGENT, "r1", expected=expected)
    assert refused.value.current == writes
    assert await store.get_resource(AGENT, "r1") == (resource(version=writes) if writes else None)


async def test_a_deleted_one_is_gone(store: Store) -> None:
    for expected in (None, 2):
        await store.put_resource(resource(), expected=0)
        await store.put_resource(resource(), expected=1)
        assert await store.delete_resource(AGENT, "r1", expected=expected)
        assert await store.get_resource(AGENT, "r1") is None
        assert await store.list_resources(AGENT, limit=5) == []
        assert await store.get_resources(AGENT, ["r1"]) == []
    stored = await store.put_resource(resource(created_at=LATER), expected=0)
    assert stored == resource(created_at=LATER, version=1)


@pytest.mark.parametrize("expected", [None, 0])
async def test_deleting_what_is_not_there_deletes_nothing(store: Store, expected: int | None) -> None:
    await store.put_resource(resource("r2"), expected=0)
    assert not await store.delete_resource(AGENT, "r1", expected=expected)
    assert not await store.delete_resource(PROJECT, "r2", expected=expected)
    assert await store.get_resource(AGENT, "r2") is not None


async def test_of_those_who_write_at_once_one_wins(store: Store) -> None:
    won: list[Resource] = []
    lost: list[int] = []

    async def putting(number: int, expected: int) -> None:
        try:
            won.append(await store.put_resource(resource(body={"by": number}), expected=expected))
        except ConflictError as exc:
            lost.append(exc.current)

    for expected in range(3):
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(putting, number, expected)
        assert [stored.version for stored in won] == list(range(1, expected + 2))
        assert lost == [version for version in range(1, expected + 2) for _ in range(9)]
        assert await store.get_resource(AGENT, "r1") == won[-1]


async def test_no_write_is_lost_by_those_who_try_again(store: Store) -> None:
    await store.put_resource(resource(body={"count": 0}), expected=0)

    async def counting() -> None:
        while True:
            found = await store.get_resource(AGENT, "r1")
            assert found is not None
            try:
                await store.put_resource(resource(body={"count": found.body["count"] + 1}), expected=found.version)
            except ConflictError:
                continue
            return

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(counting)
    assert await store.get_resource(AGENT, "r1") == resource(body={"count": 10}, version=11)


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_lists_are_in_the_order_of_ids_in_pages(store: Store) -> None:
    for resource_id in ODD_IDS:
        await store.put_resource(resource(resource_id, body={"id": resource_id}), expected=0)
    await store.put_resource(resource("another kind", PROJECT), expected=0)
    expected = sorted(ODD_IDS)  # by code point, as Python sorts
    assert [found.id for found in await store.list_resources(AGENT, limit=100)] == expected
    paged = await all_pages(lambda after: store.list_resources(AGENT, limit=7, after=after.id if after else ""))
    assert paged == [
        [resource(resource_id, body={"id": resource_id}, version=1) for resource_id in expected[first : first + 7]]
        for first in range(0, len(expected), 7)
    ]
    assert [found.id for found in await store.list_resources(PROJECT, limit=9)] == ["another kind"]
    assert await store.list_resources(ResourceKind.DEVICE, limit=9) == []
    for limit in (0, -1):
        assert await store.list_resources(AGENT, limit=limit) == []


async def test_a_page_follows_an_id_that_is_not_there(store: Store) -> None:
    for resource_id in ("a", "c", "e"):
        await store.put_resource(resource(resource_id), expected=0)
    assert [found.id for found in await store.list_resources(AGENT, limit=9, after="b")] == ["c", "e"]
    assert [found.id for found in await store.list_resources(AGENT, limit=1, after="c")] == ["e"]
    assert await store.list_resources(AGENT, limit=9, after="e") == []


async def test_some_are_found_by_their_ids(store: Store) -> None:
    for resource_id in ODD_IDS:
        await store.put_resource(resource(resource_id), expected=0)
    await store.put_resource(resource("another kind", PROJECT), expected=0)
    asked = [*ODD_IDS[::2], ODD_IDS[0], "another kind", "nobody's"]
    found = await store.get_resources(AGENT, asked)
    assert sorted(found.id for found in found) == sorted(ODD_IDS[::2])
    assert await store.get_resources(AGENT, ()) == []
    assert await store.get_resources(AGENT, [f"n{number}" for number in range(1200)]) == []


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_a_body_comes_back_as_it_was(store: Store) -> None:
    stored = await store.put_resource(resource(body=ODD_BODY), expected=0)
    found = await store.get_resource(AGENT, "r1")
    assert found is not None
    assert found == stored
    assert repr(found.body) == repr(ODD_BODY)  # 1 is not 1.0 or True, and the order is the one given


async def test_a_large_body_comes_back_whole(store: Store) -> None:
    body = {"prompts": ["Řekni ahoj 👋🏽 " * 1000 for _ in range(100)], "deep": ODD_BODY}
    await store.put_resource(resource(body=body), expected=0)
    assert await store.list_resources(AGENT, limit=1) == [resource(body=body, version=1)]


async def test_what_cannot_be_stored_changes_nothing(store: Store) -> None:
    await store.put_resource(resource(), expected=0)
    with pytest.raises(ValueError, match="surrogates"):
        await store.put_resource(resource(body={"name": UNSTORABLE}), expected=1)
    assert await store.get_resource(AGENT, "r1") == resource(version=1)


async def test_what_was_stored_is_nobodys_to_change(store: Store) -> None:
    given = resource(body={"nested": {"name": "Coach"}})
    stored = await store.put_resource(given, expected=0)
    given.body["nested"]["name"] = "changed by the writer"
    stored.body["nested"]["name"] = "changed by the writer"
    assert await store.get_resource(AGENT, "r1") == resource(body={"nested": {"name": "Coach"}}, version=1)
