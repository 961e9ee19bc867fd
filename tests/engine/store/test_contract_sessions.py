"""What every store promises about sessions: opening, fences, owners and lists."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
import trio

from engine.errors import NotFoundError
from engine.store.contract import SessionFilter, Store, TakenOverError
from engine.store.documents import EvaluationRecord, SessionDocument, SessionState, Staleness, SteeringRecord
from tests.engine.store.operations import all_pages
from tests.engine.store.samples import NOON, ODD_BODY, ODD_IDS, message, session, turn, usage

MILLISECOND = timedelta(milliseconds=1)

# --- opening and saving ----------------------------------------------------------------------------------------------


async def test_a_new_session_is_the_one_given(store: Store) -> None:
    assert await store.get_session("s1") is None
    opened = await store.open_session(session(agent="coach", time_zone="Europe/Prague"))
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


async def test_every_field_comes_back(store: Store) -> None:
    full = session(
        state="CLOSED",
        fence=3,
        key="k1",
        user_id="u1",
        user_name="Žofie 👋🏽",
        user_email="zofie@example.org",
        device_ref="device",
        agent="coach",
        project_ref="p1",
        locale="cs",
        time_zone="Europe/Prague",
        test_mode=True,
        turn_count=12,
        rating=5,
        rating_text="'; nice\0\n",
        end_reason="exit",
        evaluations=[
            EvaluationRecord(name="mood", score=0.25, reasons=["$a.b"], data=ODD_BODY),
            EvaluationRecord(name="x"),
        ],
        recordings=["s1.wav"],
        steering=SteeringRecord(instructions=3, used=2, responses=2, plan_staleness_seconds=Staleness(mean=0.1, max=7)),
    )
    await store.save_session(full)
    assert await store.get_session("s1") == full


@pytest.mark.parametrize(
    "at",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2024, 5, 1, 12, 0, 0, 1_000, tzinfo=UTC),
        datetime(2199, 12, 31, 23, 59, 59, 501_000, tzinfo=UTC),
    ],
)
async def test_times_are_kept_to_the_millisecond(store: Store, at: datetime) -> None:
    await store.save_session(session(created_at=at, updated_at=at + MILLISECOND))
    kept = await store.get_session("s1")
    assert kept is not None
    assert (kept.created_at, kept.updated_at) == (at, at + MILLISECOND)
    assert kept.created_at.utcoffset() == timedelta(0)


async def test_saving_twice_is_saving_once_and_the_last_save_counts(store: Store) -> None:
    for count in (1, 1, 2):
        await store.save_session(session(turn_count=count))
    assert await store.get_session("s1") == session(turn_count=2)


async def test_ids_are_compared_exactly(store: Store) -> None:
    for session_id in ODD_IDS:
        await store.open_session(session(session_id, key=session_id, owner=session_id))
        await store.append_turns([turn(0, session_id, turn_id=session_id, text=session_id)], fence=1)
    for session_id in ODD_IDS:
        kept = session(session_id, key=session_id, owner=session_id, fence=1)
        assert await store.get_session(session_id) == kept
        assert await store.list_sessions(SessionFilter(owner=session_id), limit=5) == [kept]
        (found,) = await store.get_turns(session_id, limit=5)
        assert (found.id, found.input.text) == (session_id, session_id)
    assert await store.fences(ODD_IDS) == dict.fromkeys(ODD_IDS, 1)
    for stranger in ("Case", "%", "", "s%", "x" * 1999):
        assert await store.get_session(stranger) is None


# --- owners (case C43) -----------------------------------------------------------------------------------------------


async def test_another_owner_learns_nothing_and_changes_nothing(store: Store) -> None:
    mine = await store.open_session(session(owner="alice", agent="coach", state="CLOSED"))
    with pytest.raises(NotFoundError) as refused:
        await store.open_session(session(owner="mallory"))
    assert str(refused.value) == "There is no such session."
    assert refused.value.__cause__ is None
    assert await store.get_session("s1") == mine
    assert await store.list_sessions(SessionFilter(owner="mallory"), limit=5) == []
    await store.append_turns([turn(0)], fence=mine.fence)  # nobody has taken it over


async def test_a_session_of_nobody_is_not_everybodys(store: Store) -> None:
    await store.open_session(session(owner=""))
    with pytest.raises(NotFoundError):
        await store.open_session(session(owner="mallory"))
    assert (await store.open_session(session(owner=""))).fence == 2


async def test_saving_replaces_the_document_but_never_its_owner(store: Store) -> None:
    await store.open_session(session(owner="alice"))
    await store.save_session(session(owner="bob", user_id="bob", state="CLOSED", turn_count=3, fence=1))
    kept = session(owner="alice", user_id="bob", state="CLOSED", turn_count=3, fence=1)
    assert await store.get_session("s1") == kept
    assert await store.list_sessions(SessionFilter(owner="alice"), limit=5) == [kept]
    assert await store.list_sessions(SessionFilter(owner="bob"), limit=5) == []
    with pytest.raises(NotFoundError):
        await store.open_session(session(owner="bob"))
    await store.open_session(session(owner="alice"))


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
    assert kept.fence == 1


# --- fences (case C41) -----------------------------------------------------------------------------------------------


async def test_who_was_taken_over_writes_nothing_more(store: Store) -> None:
    old = await store.open_session(session())
    await store.append_turns([turn(0, text="by the old"), turn(1, text="by the old")], fence=old.fence)
    await store.append_messages([message(0, text="by the old")], fence=old.fence)
    await store.save_session(session(turn_count=2, fence=old.fence))
    new = await store.open_session(session())
    assert (new.fence, new.turn_count, new.state) == (old.fence + 1, 2, SessionState.OPEN)
    await store.append_turns([turn(2, text="by the new")], fence=new.fence)
    await store.save_session(session(turn_count=3, fence=new.fence))

    late: list[Callable[[], Any]] = [
        lambda: store.append_turns([turn(2, text="late"), turn(3, text="late")], fence=old.fence),
        lambda: store.append_turns([turn(0, text="late")], fence=0),
        lambda: store.append_messages([message(0, text="late"), message(1, text="late")], fence=old.fence),
        lambda: store.save_session(session(turn_count=2, state="DISCONNECTED", fence=old.fence)),
    ]
    for write in late:
        with pytest.raises(TakenOverError):
            await write()

    assert await store.get_session("s1") == session(turn_count=3, fence=new.fence)
    texts = [found.input.text for found in await store.get_turns("s1", limit=10)]
    assert texts == ["by the old", "by the old", "by the new"]
    assert [found.text for found in await store.get_messages("s1", limit=10)] == ["by the old"]
    await store.save_usage(usage(turns=2))  # what was used was used
    await store.append_turns([turn(3)], fence=new.fence)


async def test_each_opening_has_a_fence_of_its_own(store: Store) -> None:
    opened: list[SessionDocument] = []

    async def opening(number: int) -> None:
        opened.append(await store.open_session(session(key=f"k{number}")))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(opening, number)
    assert sorted(document.fence for document in opened) == list(range(1, 21))
    assert len({document.key for document in opened}) == 1
    kept = await store.get_session("s1")
    assert kept is not None
    assert kept.fence == 20


async def test_a_fence_is_known_by_its_session(store: Store) -> None:
    for _ in range(3):
        await store.open_session(session("s1"))
    await store.open_session(session("s2"))
    await store.save_session(session("s3"))
    assert await store.fences(["s1", "s2", "s3", "s4", "s1"]) == {"s1": 3, "s2": 1, "s3": 0}
    assert await store.fences(()) == {}
    many = {f"n{number}" for number in range(1200)}
    assert await store.fences(many | {"s1"}) == {"s1": 3}


async def test_without_a_document_the_fence_is_zero(store: Store) -> None:
    await store.append_turns([turn(0)], fence=0)
    await store.append_messages([message(0)], fence=0)
    await store.open_session(session())
    with pytest.raises(TakenOverError):
        await store.append_turns([turn(1)], fence=0)
    assert len(await store.get_turns("s1", limit=5)) == 1


async def test_a_fence_is_its_sessions_alone(store: Store) -> None:
    for _ in range(3):
        await store.open_session(session("s1"))
    await store.open_session(session("s2"))
    await store.append_turns([turn(0, "s2")], fence=1)
    await store.save_session(session("s2", fence=1, turn_count=1))


# --- lists -----------------------------------------------------------------------------------------------------------


def matches(found: SessionDocument, which: SessionFilter) -> bool:
    return (
        which.owner in ("", found.owner)
        and (which.project_refs is None or found.project_ref in which.project_refs)
        and which.agent in ("", found.agent)
        and which.state in (None, found.state)
    )


async def page_after(store: Store, which: SessionFilter, after: SessionDocument | None) -> list[SessionDocument]:
    return await store.list_sessions(which, limit=5, after=after.id if after else "")


async def test_lists_are_of_those_asked_for_newest_first_in_pages(store: Store) -> None:
    sessions = [
        session(
            f"s{number:02}",
            owner=("alice", "bob")[number % 2],
            project_ref=("p1", "p2", "")[number % 3],
            agent=("coach", "clerk")[number // 5 % 2],
            state=list(SessionState)[number % 4],
            created_at=NOON + MILLISECOND * (number * 7 % 10),  # of most times there are two or three
        )
        for number in range(24)
    ]
    async with trio.open_nursery() as nursery:
        for document in sessions:
            nursery.start_soon(store.save_session, document)
    filters = [
        SessionFilter(owner, project_refs, agent, state)
        for owner, project_refs, agent, state in product(
            ("", "alice", "nobody"),
            (None, frozenset[str](), frozenset({"p1"}), frozenset({"p2", "", "p3"})),
            ("", "coach"),
            (None, SessionState.IDLE),
        )
    ]
    newest_first = sorted(sessions, key=lambda document: (document.created_at, document.id), reverse=True)
    for which in filters:
        expected = [document for document in newest_first if matches(document, which)]
        assert await store.list_sessions(which, limit=100) == expected
        paged = await all_pages(partial(page_after, store, which))
        assert paged == [expected[first : first + 5] for first in range(0, len(expected), 5)]


async def test_a_page_follows_a_session_whether_it_matches_or_not(store: Store) -> None:
    for number in range(4):
        await store.save_session(session(f"s{number}", created_at=NOON + timedelta(days=number), state="CLOSED"))
    await store.save_session(session("s2", created_at=NOON + timedelta(days=2), state="OPEN"))
    closed = SessionFilter(state=SessionState.CLOSED)
    assert [found.id for found in await store.list_sessions(closed, limit=5)] == ["s3", "s1", "s0"]
    assert [found.id for found in await store.list_sessions(closed, limit=5, after="s2")] == ["s1", "s0"]
    assert await store.list_sessions(closed, limit=5, after="s0") == []
    assert await store.list_sessions(closed, limit=5, after="never was") == []
    for limit in (0, -1):
        assert await store.list_sessions(closed, limit=limit) == []


async def test_a_list_follows_what_was_saved_last(store: Store) -> None:
    await store.open_session(session(agent="", project_ref=""))
    await store.save_session(session(agent="coach", project_ref="p1", state="IDLE", fence=1))
    for which in (
        SessionFilter(agent="coach"),
        SessionFilter(project_refs=frozenset({"p1"})),
        SessionFilter(state=SessionState.IDLE),
    ):
        assert [found.id for found in await store.list_sessions(which, limit=5)] == ["s1"]
    assert await store.list_sessions(SessionFilter(state=SessionState.OPEN), limit=5) == []
    assert await store.list_sessions(SessionFilter(project_refs=frozenset({""})), limit=5) == []
    await store.open_session(session())
    assert [found.fence for found in await store.list_sessions(SessionFilter(state=SessionState.OPEN), limit=5)] == [2]
