"""What every store promises. The stores are those of `tests/engine/store/stores.py`."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
import trio

from engine.errors import NotFoundError
from engine.store.contract import Store, StoreError
from engine.store.documents import SessionDocument, SessionState
from tests.engine.store.conftest import Opener
from tests.engine.store.samples import NOON, UNSTORABLE, full_turn, session, turn, usage

# --- sessions --------------------------------------------------------------------------------------------------------


async def test_a_new_session_is_the_one_given(store: Store) -> None:
    given = session(agent="coach", time_zone="Europe/Prague")
    assert await store.get_session("s1") is None
    opened = await store.open_session(given)
    assert opened == session(agent="coach", time_zone="Europe/Prague", fence=1)
    assert await store.get_session("s1") == opened


@pytest.mark.parametrize("state", list(SessionState))
async def test_a_known_session_is_open_again_and_otherwise_as_it_was(store: Store, state: SessionState) -> None:
    await store.open_session(session())
    await store.save_session(session(state=state, turn_count=7, agent="coach", rating=4, fence=1))
    later = NOON + timedelta(hours=1)
    opened = await store.open_session(session(updated_at=later, created_at=later))
    assert opened == session(state="OPEN", turn_count=7, agent="coach", rating=4, updated_at=later, fence=2)
    assert await store.get_session("s1") == opened


async def test_another_owner_learns_nothing_and_changes_nothing(store: Store) -> None:
    mine = await store.open_session(session(owner="alice", agent="coach", state="CLOSED"))
    with pytest.raises(NotFoundError) as refused:
        await store.open_session(session(owner="mallory"))
    assert str(refused.value) == "There is no such session."
    assert refused.value.__cause__ is None
    assert await store.get_session("s1") == mine


async def test_sessions_opened_at_once_are_one_session(store: Store) -> None:
    opened: list[SessionDocument] = []

    async def opening(number: int) -> None:
        opened.append(await store.open_session(session(key=f"k{number}")))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(opening, number)
    kept = await store.get_session("s1")
    assert kept is not None
    assert sorted(document.fence for document in opened) == list(range(1, 21))
    assert kept.fence == 20


async def test_of_owners_who_open_at_once_one_has_the_session(store: Store) -> None:
    outcomes: dict[str, bool] = {}

    async def opening(owner: str) -> None:
        try:
            outcomes[owner] = (await store.open_session(session(owner=owner))).owner == owner
        except NotFoundError:
            outcomes[owner] = False

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(opening, f"owner {number}")
    kept = await store.get_session("s1")
    assert kept is not None
    assert [owner for owner, won in outcomes.items() if won] == [kept.owner]


async def test_saving_replaces_the_document_but_never_its_owner(store: Store) -> None:
    await store.open_session(session(owner="alice"))
    await store.save_session(session(owner="bob", user_id="bob", state="CLOSED", turn_count=3, fence=1))
    kept = session(owner="alice", user_id="bob", state="CLOSED", turn_count=3, fence=1)
    assert await store.get_session("s1") == kept
    with pytest.raises(NotFoundError):
        await store.open_session(session(owner="bob"))
    await store.open_session(session(owner="alice"))


async def test_saving_twice_is_saving_once_and_the_last_save_counts(store: Store) -> None:
    for count in (1, 1, 2):
        await store.save_session(session(turn_count=count))
    assert await store.get_session("s1") == session(turn_count=2)


async def test_ids_are_compared_exactly(store: Store) -> None:
    for session_id in ("s", "S", "s ", "'; DROP TABLE sessions; --"):
        await store.open_session(session(session_id, agent=session_id))
    assert await store.get_session("S") == session("S", agent="S", fence=1)
    assert await store.get_session("s ") == session("s ", agent="s ", fence=1)
    assert await store.get_session("s%") is None


# --- turns -----------------------------------------------------------------------------------------------------------


async def test_a_turn_comes_back_as_it_was(store: Store) -> None:
    await store.append_turns([full_turn()], fence=1)
    assert await store.get_turns("s1", limit=10) == [full_turn()]


async def test_turns_come_in_the_order_of_their_index(store: Store) -> None:
    await store.append_turns([turn(10), turn(2)], fence=1)
    await store.append_turns([turn(0)], fence=1)
    await store.append_turns([turn(2, turn_id="a second one")], fence=1)
    found = await store.get_turns("s1", limit=10)
    assert [(found.index, found.id) for found in found] == [(0, "t0"), (2, "a second one"), (2, "t2"), (10, "t10")]
    assert await store.get_turns("s1", limit=10, last=True) == found


@pytest.mark.parametrize(
    ("limit", "first", "last"),
    [
        (-1, [], []),
        (0, [], []),
        (1, [0], [4]),
        (3, [0, 1, 2], [2, 3, 4]),
        (5, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        (9, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
    ],
)
async def test_a_limit_takes_the_first_or_the_last(store: Store, limit: int, first: list[int], last: list[int]) -> None:
    await store.append_turns([turn(index) for index in range(5)], fence=1)
    assert [found.index for found in await store.get_turns("s1", limit=limit)] == first
    assert [found.index for found in await store.get_turns("s1", limit=limit, last=True)] == last


async def test_sessions_do_not_see_each_others_turns(store: Store) -> None:
    await store.append_turns([turn(0, "s1", text="mine")], fence=1)
    await store.append_turns([turn(0, "s2", text="yours")], fence=1)
    assert await store.get_turns("s1", limit=10) == [turn(0, "s1", text="mine")]
    assert await store.get_turns("s2", limit=10) == [turn(0, "s2", text="yours")]
    assert await store.get_turns("s3", limit=10) == []


async def test_repeating_an_append_is_success(store: Store) -> None:
    await store.append_turns([turn(0), turn(1)], fence=1)
    await store.append_turns([turn(0), turn(1)], fence=1)
    await store.append_turns([turn(1), turn(2), turn(2)], fence=1)
    await store.append_turns([], fence=1)
    assert await store.get_turns("s1", limit=10) == [turn(0), turn(1), turn(2)]


async def test_a_turn_written_again_replaces_what_was_written_of_it(store: Store) -> None:
    await store.append_turns([turn(0, text="heard in full"), turn(1)], fence=1)
    await store.append_turns([turn(0, text="heard in part")], fence=1)
    assert await store.get_turns("s1", limit=10) == [turn(0, text="heard in part"), turn(1)]


async def test_turns_are_appended_all_or_none(store: Store) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        await store.append_turns([turn(0), turn(1, text=UNSTORABLE), turn(2)], fence=1)
    assert await store.get_turns("s1", limit=10) == []
    await store.append_turns([turn(0)], fence=1)
    assert await store.get_turns("s1", limit=10) == [turn(0)]


async def test_a_bad_document_fails_nobody_else(store: Store) -> None:
    failed: list[str] = []

    async def appending(index: int) -> None:
        await store.append_turns([turn(index)], fence=1)

    async def saving_badly(number: int) -> None:
        with pytest.raises(ValueError, match="surrogates"):
            await store.save_session(session(f"bad {number}", agent=UNSTORABLE))
        failed.append(f"bad {number}")

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(appending, number)
            nursery.start_soon(saving_badly, number)
    assert len(failed) == 20
    assert [found.index for found in await store.get_turns("s1", limit=100)] == list(range(20))
    assert await store.get_session("bad 3") is None


async def test_what_was_stored_is_nobodys_to_change(store: Store) -> None:
    given = full_turn()
    await store.append_turns([given], fence=1)
    given.multimodal[0]["nested"] = "changed by the writer"
    (found,) = await store.get_turns("s1", limit=1)
    found.multimodal[0]["nested"] = "changed by a reader"
    assert await store.get_turns("s1", limit=1) == [full_turn()]


# --- usage -----------------------------------------------------------------------------------------------------------


async def test_usage_is_one_record_per_id_oldest_first(store: Store) -> None:
    second = usage("u2", created_at=NOON + timedelta(milliseconds=500), input_tokens=2)
    first = usage("u3", created_at=NOON, input_tokens=3, cached_tokens=1, active_seconds=12.5)
    await store.save_usage(second)
    await store.save_usage(first)
    await store.save_usage(second)
    await store.save_usage(usage("u2", "s2"))
    assert await store.get_usage("s1") == [first, second]
    assert await store.get_usage("s2") == [usage("u2", "s2")]
    assert await store.get_usage("s3") == []


async def test_saving_usage_again_replaces_it(store: Store) -> None:
    await store.save_usage(usage(turns=1))
    await store.save_usage(usage(turns=2))
    assert await store.get_usage("s1") == [usage(turns=2)]


# --- cancelled, closed -----------------------------------------------------------------------------------------------


def operations(store: Store) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: store.open_session(session()),
        lambda: store.save_session(session()),
        lambda: store.get_session("s1"),
        lambda: store.append_turns([turn(0)], fence=1),
        lambda: store.get_turns("s1", limit=1),
        lambda: store.save_usage(usage()),
        lambda: store.get_usage("s1"),
        lambda: store.check(),
    ]


async def test_a_caller_already_cancelled_writes_nothing(store: Store) -> None:
    for operation in operations(store):
        with trio.CancelScope() as scope:
            scope.cancel()
            await operation()
        assert scope.cancelled_caught
    await store.check()
    assert await store.get_session("s1") is None
    assert await store.get_turns("s1", limit=1) == []
    assert await store.get_usage("s1") == []


async def test_a_store_in_use_checks_out(store: Store) -> None:
    await store.check()
    await store.check()


async def test_a_closed_store_says_so(opener: Opener) -> None:
    async with opener() as store:
        await store.check()
    for operation in operations(store):
        with pytest.raises(StoreError):
            await operation()
