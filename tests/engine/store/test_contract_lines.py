"""What every store promises about the documents that have a place in a session: turns, messages and the log."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from engine.store.contract import Store
from engine.store.documents import LogEntry, LogKind, MessageDocument, TurnDocument
from tests.engine.store.samples import ODD_BODY, UNSTORABLE, full_turn, log_entry, message, session, turn

Line = TurnDocument | MessageDocument | LogEntry


@attrs.frozen
class Lines:
    """One of the three, whose places are called differently and whose ids are made alike: "t0", "t1", …"""

    make: Callable[..., Any]
    append: Callable[[Sequence[Any]], Any]
    get: Callable[..., Any]

    async def places(self, session_id: str = "s1", **page: Any) -> list[int]:
        return [place(found) for found in await self.get(session_id, **{"limit": 100, **page})]


def place(line: Line) -> int:
    return line.index if isinstance(line, TurnDocument) else line.position


@pytest.fixture(params=["turns", "messages", "log"])
def lines(store: Store, request: pytest.FixtureRequest) -> Lines:
    match request.param:
        case "turns":
            return Lines(turn, lambda turns: store.append_turns(turns, fence=0), store.get_turns)
        case "messages":
            return Lines(message, lambda messages: store.append_messages(messages, fence=0), store.get_messages)
        case _:
            return Lines(log_entry, store.append_log, store.get_log)


async def test_they_come_in_the_order_of_their_place(lines: Lines) -> None:
    await lines.append([lines.make(10), lines.make(2)])
    await lines.append([lines.make(0)])
    await lines.append([lines.make(1 << 40)])
    assert await lines.places() == [0, 2, 10, 1 << 40]
    assert await lines.places(last=True) == [0, 2, 10, 1 << 40]


async def test_in_one_place_they_come_in_the_order_of_their_ids(store: Store) -> None:
    await store.append_turns([turn(2, turn_id=turn_id) for turn_id in ("b", "a", "é", "B")], fence=0)
    for last in (False, True):
        assert [found.id for found in await store.get_turns("s1", limit=9, last=last)] == ["B", "a", "b", "é"]
    assert [found.id for found in await store.get_turns("s1", limit=2)] == ["B", "a"]
    assert [found.id for found in await store.get_turns("s1", limit=2, last=True)] == ["b", "é"]


@pytest.mark.parametrize(
    ("limit", "after", "first", "last"),
    [
        (-1, -1, [], []),
        (0, -1, [], []),
        (1, -1, [0], [8]),
        (3, -1, [0, 2, 4], [4, 6, 8]),
        (5, -1, [0, 2, 4, 6, 8], [0, 2, 4, 6, 8]),
        (9, -1, [0, 2, 4, 6, 8], [0, 2, 4, 6, 8]),
        (2, 0, [2, 4], [6, 8]),
        (2, 3, [4, 6], [6, 8]),
        (9, 4, [6, 8], [6, 8]),
        (9, 8, [], []),
        (9, 100, [], []),
    ],
)
async def test_a_page_is_the_first_or_the_last_behind_a_place(
    lines: Lines, limit: int, after: int, first: list[int], last: list[int]
) -> None:
    await lines.append([lines.make(place) for place in range(0, 10, 2)])
    assert await lines.places(limit=limit, after=after) == first
    assert await lines.places(limit=limit, after=after, last=True) == last


async def test_sessions_do_not_see_each_others(lines: Lines) -> None:
    mine, yours = lines.make(0, "s1", text="mine"), lines.make(0, "s2", text="yours")
    await lines.append([mine])
    await lines.append([yours])
    assert await lines.get("s1", limit=10) == [mine]
    assert await lines.get("s2", limit=10) == [yours]
    assert await lines.get("s3", limit=10) == []


async def test_what_is_written_together_is_of_one_session(lines: Lines) -> None:
    with pytest.raises(ValueError, match="of one session"):
        await lines.append([lines.make(0, "s1"), lines.make(0, "s2")])
    assert await lines.places("s1") == await lines.places("s2") == []


async def test_repeating_an_append_is_success(lines: Lines) -> None:
    await lines.append([lines.make(0), lines.make(1)])
    await lines.append([lines.make(0), lines.make(1)])
    await lines.append([lines.make(1), lines.make(2), lines.make(2)])
    await lines.append([])
    assert await lines.get("s1", limit=10) == [lines.make(0), lines.make(1), lines.make(2)]


async def test_one_written_again_replaces_what_was_written_of_it(lines: Lines) -> None:
    await lines.append([lines.make(0, text="heard in full"), lines.make(1)])
    await lines.append([lines.make(0, text="heard in part")])
    assert await lines.get("s1", limit=10) == [lines.make(0, text="heard in part"), lines.make(1)]


async def test_one_written_again_may_have_moved(store: Store) -> None:
    await store.append_turns([turn(0), turn(1)], fence=0)
    await store.append_turns([turn(2, turn_id="t0")], fence=0)
    assert [(found.id, found.index) for found in await store.get_turns("s1", limit=5)] == [("t1", 1), ("t0", 2)]


async def test_they_are_appended_all_or_none(lines: Lines) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        await lines.append([lines.make(0), lines.make(1, text=UNSTORABLE), lines.make(2)])
    assert await lines.places() == []
    await lines.append([lines.make(0)])
    assert await lines.places() == [0]


async def test_a_bad_document_fails_nobody_else(store: Store) -> None:
    failed: list[str] = []

    async def appending(index: int) -> None:
        await store.append_turns([turn(index)], fence=0)

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


async def test_many_writers_at_once_lose_nothing(lines: Lines) -> None:
    async def appending(first: int) -> None:
        for index in range(first, first + 5):
            await lines.append([lines.make(index, f"s{first % 2}")])

    async with trio.open_nursery() as nursery:
        for first in range(0, 100, 5):
            nursery.start_soon(appending, first)
    assert sorted(await lines.places("s0") + await lines.places("s1")) == list(range(100))


async def test_a_long_one_comes_back_whole(lines: Lines) -> None:
    text = "Řekni ahoj 👋🏽 " * 40_000
    await lines.append([lines.make(0, text=text), lines.make(1, text=text)])
    assert await lines.get("s1", limit=1, last=True) == [lines.make(1, text=text)]


# --- what is in them -------------------------------------------------------------------------------------------------


async def test_a_turn_comes_back_as_it_was(store: Store) -> None:
    odd = full_turn().model_copy(update={"id": "odd", "index": 1, "multimodal": [ODD_BODY]})
    await store.append_turns([full_turn(), odd], fence=0)
    assert await store.get_turns("s1", limit=10) == [full_turn(), odd]


async def test_a_log_entry_comes_back_as_it_was(store: Store) -> None:
    bare = LogEntry(id="bare", session_id="s1", position=1, at=full_turn().started_at, kind=LogKind.PROMPT)
    await store.append_log([log_entry(0), bare])
    assert await store.get_log("s1", limit=10) == [log_entry(0), bare]


async def test_what_was_stored_is_nobodys_to_change(store: Store) -> None:
    given = full_turn()
    await store.append_turns([given], fence=0)
    given.multimodal[0]["nested"] = "changed by the writer"
    (found,) = await store.get_turns("s1", limit=1)
    found.multimodal[0]["nested"] = "changed by a reader"
    assert await store.get_turns("s1", limit=1) == [full_turn()]


# --- the log is forgotten, its numbers are not -----------------------------------------------------------------------


async def test_a_redacted_log_keeps_numbers_and_names(store: Store) -> None:
    entries = [log_entry(position) for position in range(3)]
    other = log_entry(0, "s2")
    await store.append_log(entries)
    await store.append_log([other])
    assert await store.redact_log("s1") == 3
    assert await store.get_log("s1", limit=9) == [entry.model_copy(update={"content": None}) for entry in entries]
    assert await store.get_log("s2", limit=9) == [other]


async def test_redacting_is_of_what_is_there(store: Store) -> None:
    assert await store.redact_log("s1") == 0
    await store.append_log([log_entry(0)])
    assert await store.redact_log("s1") == 1
    await store.append_log([log_entry(1)])
    assert [found.content is None for found in await store.get_log("s1", limit=9)] == [True, False]
    assert await store.redact_log("s1") == 2
    assert await store.redact_log("s1") == 2
    assert [found.content for found in await store.get_log("s1", limit=9)] == [None, None]
