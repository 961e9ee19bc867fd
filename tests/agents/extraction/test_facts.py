"""Facts about the user: merging is a set's, whatever happens at the same time."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.extraction.fact_list import MAX_FACTS, Fact, from_json, merge, news, normal_key, to_json
from agents.extraction.facts import add_facts, read_facts
from engine.memory import MemoryScope
from engine.store.contract import StoreError
from tests.agents.extraction.room import Rooms

moments = st.integers(0, 30).map(lambda second: f"2026-03-01T12:00:{second:02}.000000+00:00")
facts = st.builds(
    Fact, moments, st.integers(0, 90).map(lambda number: f"key_{number}"), st.sampled_from(["", "a", "ž"])
)
lists = st.lists(facts, max_size=80).map(merge)


@settings(max_examples=60, deadline=None)
@given(lists, lists, lists)
def test_lists_merge_like_sets(a: tuple[Fact, ...], b: tuple[Fact, ...], c: tuple[Fact, ...]) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)
    assert merge(a, a) == a
    assert len(merge(a, b, c)) <= MAX_FACTS


@settings(max_examples=60, deadline=None)
@given(st.lists(facts, max_size=80))
def test_the_newest_fact_of_a_key_wins(said: list[Fact]) -> None:
    merged = merge(said)
    assert len({fact.key for fact in merged}) == len(merged)
    for fact in merged:
        assert fact.at == max(each.at for each in said if each.key == fact.key)
    assert from_json(to_json(merged)) == merged


def test_what_is_stored_in_another_shape_is_left_out() -> None:
    assert from_json({}) == from_json({"facts": 3}) == from_json({"facts": [1, {"key": "a"}, {"at": 1}]}) == ()


def test_keys_are_compared_as_words() -> None:
    assert normal_key(" Home City ") == normal_key("home-city") == "home_city"
    assert normal_key("Lieblingsgetränk") == "lieblingsgetränk"
    assert normal_key("…") == ""


def test_news() -> None:
    known = (Fact("1", "city", "The user lives in Brno."),)
    same = Fact("2", "home", "the user lives in Brno.")
    confirmed = Fact("2", "city", "The user lives in Brno.")
    taken_back, unknown, keyless = Fact("2", "city", ""), Fact("2", "pet", ""), Fact("2", "", "x")
    assert news(known, [same, confirmed, taken_back, unknown, keyless]) == (taken_back,)


async def test_facts_are_known_to_the_next_session_and_can_be_taken_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rooms = Rooms()
    await add_facts(rooms.context("s1"), {"Home city": "Uživatelka bydlí v Brně.", "pet": "Má psa."}, "1")
    await add_facts(rooms.context("s2"), {"home_city": "Uživatelka bydlí v Praze.", "pet": ""}, "2")
    assert await read_facts(rooms.context("s3")) == (Fact("2", "home_city", "Uživatelka bydlí v Praze."),)


async def test_sessions_that_write_at_the_same_time_lose_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """All read before any writes: the worst order there is."""
    rooms = Rooms()
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(add_facts, rooms.context(f"s{number}"), {f"k{number}": f"Fakt {number}."}, str(number))
    assert [fact.key for fact in await read_facts(rooms.context("later"))] == [f"k{number}" for number in range(6)]
    await add_facts(rooms.context("later"), {"k9": "x"}, "9")
    newest = await rooms.context("later").memory.revisions(MemoryScope.APPLICATION, "facts", limit=1)
    assert len(from_json(newest[0].body)) == 7  # the next one writes them all down together


async def test_what_cannot_be_read_is_not_written_over(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context(fails=["revisions facts"])
    with pytest.raises(StoreError):
        await add_facts(context, {"a": "b"}, "1")
    assert await context.memory.get(MemoryScope.APPLICATION, "facts") is None


async def test_nothing_new_writes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    await add_facts(context, {"pet": ""}, "1")
    assert await context.memory.get(MemoryScope.APPLICATION, "facts") is None
    for at in ("2", "3"):
        await add_facts(context, {"pet": "Má psa."}, at)
    assert len(await context.memory.revisions(MemoryScope.APPLICATION, "facts", limit=9)) == 1
