"""After a conversation: the order, the time there is, and what is left when something fails."""

import pytest
import trio

from agents.aggregation.conclusion import EXTRACTION_BY, SESSION_BY, USER_BY, conclude_session
from agents.aggregation.user import last_visit, profile_name, read_user_record
from agents.extraction.contract import find_extractors
from agents.extraction.turns import extract_turn
from agents.memory.summaries import previous_summaries
from engine.elements import JsonObject
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import ChatRequest, Context
from engine.memory import MemoryScope
from engine.testing.chat import Script, ScriptedChat
from tests.agents.extraction.room import (
    ENGAGEMENT,
    EVERYTHING,
    SENTIMENT,
    FaultyMemory,
    Rooms,
    chat_of,
    talk,
    turn,
    written,
)

ALL = find_extractors(has_memory=True)
TALK = talk(("Dobrý den, bydlím v Brně.", "Dobrý den."), ("Jednu kávu.", "Hned to bude."))
GOOD = (written(EVERYTHING),)
SUMMARY = "Uživatelka si objednala kávu."
PROFILE = "Bydlí v Brně a má ráda kávu."


def clerk(extraction: Script = GOOD, summary: Script = (SUMMARY,), profile: Script = (PROFILE,)) -> ScriptedChat:
    def answer(request: ChatRequest) -> Script:
        return {"extraction": extraction, "summary": summary, "profile": profile}[task(request)]

    return ScriptedChat(answer)


def task(request: ChatRequest) -> str:
    if request.output_schema is not None:
        return "extraction"
    return "profile" if "profile" in request.messages[0].text else "summary"


async def session_document(context: Context) -> JsonObject | None:
    document = await context.memory.get(MemoryScope.SESSION, "session")
    return None if document is None else document.body


async def test_the_whole_in_order(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    context = rooms.context(messages=TALK, turns=2, locale="cs-CZ")
    await extract_turn(context, turn("Jednu kávu.", "Hned to bude.", turn_id="t2"), clerk(), ALL)
    await trio.sleep(60)
    angry = SENTIMENT | {"valence": -0.5, "expression": "anger"}
    chat = clerk(
        extraction=[1.0, written(EVERYTHING | {"sentiment": angry})], summary=[1.0, SUMMARY], profile=[1.0, PROFILE]
    )
    await conclude_session(context, chat, ALL)
    assert trio.current_time() == 63
    assert [task(request) for request in chat.requests] == ["extraction", "summary", "profile"]
    assert "Brně" in chat.requests[0].messages[1].text
    assert "Hned to bude" not in chat.requests[0].messages[1].text  # that turn was looked at
    document = await session_document(context)
    assert document is not None
    assert document["summary"] == SUMMARY
    assert document["data"]["turns"] == 2
    assert document["data"]["seconds"] == 60.0
    assert document["data"]["metrics"]["sentiment.valence"] == {"value": 0.0, "weight": 2.0}
    assert document["data"]["expressions"]["sentiment.expression"] == {"anger": 1, "joy": 1}
    assert document["data"]["flags"]["engagement.confused"] == {"any": False, "share": 0.0, "weight": 2.0}
    assert document["data"]["topics"] == [{"name": "káva", "weight": 0.9}]
    later = rooms.context("s2")
    (summary,) = await previous_summaries(later)
    assert (summary.turns, summary.text) == (2, SUMMARY)
    record = await read_user_record(later)
    assert (record.biography, record.sessions, record.turns, record.seconds) == (PROFILE, 1, 2, 60.0)
    assert record.traits["sentiment.valence"].value == 0
    visit = last_visit(later, record)
    assert visit is not None
    assert (rooms.environment.wall_clock() - visit).total_seconds() == 3
    assert last_visit(context, record) is None


async def test_a_session_that_is_resumed_is_not_counted_twice(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    await conclude_session(rooms.context("s0", TALK[:2], turns=1), clerk(), ALL)
    for fence, messages in ((1, TALK[:2]), (2, TALK), (3, TALK)):
        await trio.sleep(100)
        await conclude_session(
            rooms.context("s1", messages, turns=len(messages) // 2, fence=fence, began=1), clerk(), ALL
        )
    record = await read_user_record(rooms.context("s2"))
    assert (record.sessions, record.turns) == (2, 3)
    assert record.traits["engagement.level"].weight == 3
    assert len(await previous_summaries(rooms.context("s2"))) == 2


async def test_sessions_that_end_at_the_same_time_are_all_counted(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    async with trio.open_nursery() as nursery:
        for number in range(6):
            context = rooms.context(f"s{number}", TALK, turns=2, began=number)
            nursery.start_soon(conclude_session, context, clerk(), ALL)
    record = await read_user_record(rooms.context("later"))
    assert (record.sessions, record.turns, record.biography) == (6, 12, PROFILE)


async def test_without_a_chat_model_the_facts_are_kept(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    context = rooms.context(messages=TALK, turns=2)
    await trio.sleep(30)
    await conclude_session(context, None, ALL)
    (summary,) = await previous_summaries(rooms.context("s2"))
    assert summary.lines == (
        "User: Dobrý den, bydlím v Brně.",
        "Agent: Dobrý den.",
        "User: Jednu kávu.",
        "Agent: Hned to bude.",
    )
    record = await read_user_record(rooms.context("s2"))
    assert (record.biography, record.sessions, record.turns, record.seconds, record.traits) == ("", 1, 2, 30.0, {})


async def test_nothing_is_kept_of_a_conversation_in_which_nobody_spoke(autojump_clock: trio.testing.MockClock) -> None:
    chat = clerk()
    context = Rooms().context(messages=TALK[1:2])
    await conclude_session(context, chat, ALL)
    assert not chat.asked
    assert await session_document(context) is None
    assert (await read_user_record(context)).sessions == 0


async def test_whatever_hangs_each_step_has_its_time(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rooms = Rooms()
    context = rooms.context(messages=TALK, turns=2)
    chat = clerk([60.0], [60.0], [60.0])
    await conclude_session(context, chat, ALL)
    assert trio.current_time() == SESSION_BY - 0.5  # without a summary there is nothing to write a profile from
    assert chat.times == [0, EXTRACTION_BY - 0.5]
    assert chat.open_streams == 0
    record = await read_user_record(rooms.context("s2"))
    assert (record.sessions, record.turns) == (1, 2)
    (summary,) = await previous_summaries(rooms.context("s2"))
    assert summary.lines


async def test_a_profile_that_hangs_keeps_the_old_one_and_counts(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    await conclude_session(rooms.context("s1", TALK, turns=2), clerk(), ALL)
    await conclude_session(rooms.context("s2", TALK, turns=2), clerk(summary=[2.0, SUMMARY], profile=[60.0]), ALL)
    assert trio.current_time() == USER_BY - 0.5
    record = await read_user_record(rooms.context("s3"))
    assert (record.biography, record.sessions) == (PROFILE, 2)


@pytest.mark.parametrize(
    "operation", ["everything", "revisions extraction", "append session", "append summary", "revisions profile:p"]
)
async def test_a_memory_that_hangs_takes_no_more_than_the_time_there_is(
    operation: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await conclude_session(Rooms().context(messages=TALK, turns=2, hangs=[operation]), clerk(), ALL)
    assert trio.current_time() <= USER_BY
    assert "was not done in time" in caplog.text


@pytest.mark.parametrize(
    ("operation", "has_data", "has_summary", "sessions"),
    [
        ("revisions facts", True, True, 1),
        ("append extraction", True, True, 1),
        ("revisions extraction", True, True, 1),
        ("append session", False, True, 1),
        ("append summary", True, False, 1),
        ("revisions profile:p", True, True, 0),
        ("append profile:p", True, True, 0),
        ("everything", False, False, 0),
    ],
)
async def test_a_memory_that_fails_loses_nothing_else(
    operation: str, has_data: bool, has_summary: bool, sessions: int, autojump_clock: trio.testing.MockClock
) -> None:
    rooms = Rooms()
    context = rooms.context(messages=TALK, turns=2, fails=[operation])
    await conclude_session(context, clerk(), ALL)
    sound = rooms.context()
    assert (await session_document(sound) is not None) == has_data
    assert (len(await previous_summaries(rooms.context("s2"))) == 1) == has_summary
    assert (await read_user_record(sound)).sessions == sessions


async def test_a_record_that_cannot_be_read_is_not_written_over(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    await conclude_session(rooms.context("s1", TALK, turns=2), clerk(), ALL)
    failing = rooms.context("s2", TALK, turns=2, fails=["revisions profile:p"])
    await conclude_session(failing, clerk(), ALL)
    assert isinstance(failing.memory, FaultyMemory)
    assert "append profile:p" not in failing.memory.asked
    assert (await read_user_record(rooms.context("s3"))).biography == PROFILE


@pytest.mark.parametrize("failure", [RuntimeError("Tajné"), RealtimeException(ErrorCode.CHAT_FAILED, "It failed.")])
async def test_a_model_that_fails_is_done_without(
    failure: Exception, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    rooms = Rooms()
    await conclude_session(rooms.context(messages=TALK, turns=2), chat_of([failure]), ALL)
    record = await read_user_record(rooms.context("s2"))
    assert (record.sessions, record.biography) == (1, "")
    assert "Tajné" not in caplog.text


@pytest.mark.parametrize("after", [0.0, 0.5, 1.5, 2.5])
async def test_cancelling_leaves_nothing_running(after: float, autojump_clock: trio.testing.MockClock) -> None:
    chat = clerk([1.0, written(EVERYTHING)], [1.0, SUMMARY], [1.0, PROFILE])
    with trio.move_on_after(after) as scope:
        await conclude_session(Rooms().context(messages=TALK, turns=2), chat, ALL)
    assert scope.cancelled_caught
    assert trio.current_time() == after
    assert chat.open_streams == 0


async def test_projects_do_not_share_a_record(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    await conclude_session(rooms.context("s1", TALK, turns=2), clerk(), ALL)
    other = rooms.context("s2", project="q")
    assert (await read_user_record(other)).sessions == 0
    assert profile_name(other) == "profile:q"
    assert profile_name(rooms.context(project="")) == "profile"


async def test_a_conversation_whose_turns_were_all_looked_at_asks_nobody_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    context = Rooms().context(messages=TALK[:2], turns=1)
    await extract_turn(context, turn("Ahoj"), chat_of([written({"engagement": ENGAGEMENT})]), ALL)
    chat = clerk()
    await conclude_session(context, chat, ALL)
    assert [task(request) for request in chat.requests] == ["summary", "profile"]
