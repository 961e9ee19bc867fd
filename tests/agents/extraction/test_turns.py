"""Extraction after a turn and at the end: one invocation for all, each section for itself."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import trio
from pydantic import BaseModel

from agents.extraction.contract import Extractor, find_extractors
from agents.extraction.facts import read_facts
from agents.extraction.records import read_records
from agents.extraction.structured import Output
from agents.extraction.turns import TURN_SECONDS, extract_session, extract_turn
from engine.errors import ConfigurationError
from engine.interfaces import Context, Message, Role
from engine.memory import MemoryScope
from tests.agents.extraction.room import (
    ENGAGEMENT,
    EVERYTHING,
    FACTS,
    SENTIMENT,
    TOPICS,
    Rooms,
    chat_of,
    talk,
    turn,
    written,
)

ALL = find_extractors(has_memory=True)


async def test_one_invocation_serves_all_extractors(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    before = talk(("Dobrý den", "Dobrý den, co to bude?"), ("Jednu kávu. Bydlím v Brně.", "Hned to bude."))
    context = rooms.context(messages=before, locale="cs-CZ")
    chat = chat_of(["```json\n", 0.5, written(EVERYTHING), "\n```"])
    found = await extract_turn(context, turn("Jednu kávu. Bydlím v Brně.", "Hned to bude.", turn_id="t2"), chat, ALL)
    assert found == EVERYTHING
    (request,) = chat.requests
    told = request.messages[1].text
    assert "Czech (cs-CZ)" in request.messages[0].text
    assert told == (
        "# Before\n\nUser: Dobrý den\nAgent: Dobrý den, co to bude?\n\n"
        "# The last exchange\n\nUser: Jednu kávu. Bydlím v Brně.\nAgent: Hned to bude."
    )
    (record,) = await read_records(context)
    assert (record.turn_ids, record.turns, record.results) == (("t2",), 1, EVERYTHING)
    assert [fact.text for fact in await read_facts(rooms.context("s2"))] == ["Uživatel bydlí v Brně."]


async def test_known_facts_are_told_so_that_they_can_be_replaced(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    chat = chat_of(
        [written(EVERYTHING)], [written({"facts": {"facts": [{"key": "home_city", "text": "Er wohnt in Köln."}]}})]
    )
    await extract_turn(rooms.context("s1"), turn("Bydlím v Brně."), chat, ALL)
    await trio.sleep(1)
    await extract_turn(rooms.context("s2"), turn("Ich bin nach Köln gezogen."), chat, ALL)
    assert "- home_city: Uživatel bydlí v Brně." in chat.requests[1].messages[1].text
    assert [fact.text for fact in await read_facts(rooms.context("s3"))] == ["Er wohnt in Köln."]


@pytest.mark.parametrize("text", ["#intro", "", "  "])
async def test_what_is_no_users_word_is_not_looked_at(text: str, autojump_clock: trio.testing.MockClock) -> None:
    chat = chat_of([written(EVERYTHING)])
    assert await extract_turn(Rooms().context(), turn(text, "Hallo!"), chat, ALL) == {}
    assert not chat.asked


async def test_without_a_chat_model_nothing_is_found(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context(messages=talk(("Hallo", "Guten Tag")))
    assert await extract_turn(context, turn("Hallo", "Guten Tag"), None, ALL) == {}
    assert await extract_session(context, None, ALL, 3) == {}
    assert await read_records(context) == []


async def test_a_section_that_fails_is_dropped_alone(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    chat = chat_of([written(EVERYTHING | {"sentiment": {"valence": "sehr gut"}})], ["Das kann ich nicht."])
    found = await extract_turn(context, turn("Ja"), chat, ALL)
    assert set(found) == {"engagement", "facts", "topics"}
    assert (await read_records(context))[0].results == found


async def test_a_slow_model_is_left(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    assert await extract_turn(context, turn("Ja"), chat_of([60.0]), ALL) == {}
    assert trio.current_time() == TURN_SECONDS
    assert await read_records(context) == []


@pytest.mark.parametrize("operation", ["append extraction", "append facts", "revisions facts", "everything"])
async def test_a_failing_memory_loses_nothing_else(operation: str, autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    context = rooms.context(fails=[operation])
    assert await extract_turn(context, turn("Bydlím v Brně."), chat_of([written(EVERYTHING)]), ALL) == EVERYTHING
    sound = rooms.context()
    assert len(await read_records(sound)) == (operation in ("append facts", "revisions facts"))
    assert len(await read_facts(sound)) == (operation == "append extraction")


class Mood(Output):
    mood: str


class Broken(Extractor):
    """An extractor from somewhere else."""

    name = "broken"
    output: ClassVar[type[BaseModel]] = Mood
    prompt = "extraction.sentiment"
    breaks: str = ""

    def instructions(self) -> str:
        self._break("instructions")
        return super().instructions()

    async def known(self, context: Context) -> str:
        self._break("known")
        return "Wenig."

    async def keep(self, context: Context, found: BaseModel) -> None:
        self._break("keep")

    def _break(self, what: str) -> None:
        if self.breaks == what:
            raise KeyError("Geheimnis")


@pytest.mark.parametrize("breaks", ["instructions", "known", "keep"])
async def test_a_broken_extractor_takes_no_other_with_it(
    breaks: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken()
    broken.breaks = breaks
    rooms = Rooms()
    chat = chat_of([written(EVERYTHING | {"broken": {"mood": "gut"}})])
    found = await extract_turn(rooms.context(), turn("Bydlím v Brně."), chat, (broken, *ALL))
    assert set(EVERYTHING) <= set(found)
    assert len(await read_facts(rooms.context())) == 1
    assert "(KeyError)" in caplog.text
    assert "Geheimnis" not in caplog.text


@pytest.mark.parametrize("after", [0.0, 0.5, 1.5, 2.5])
async def test_a_barge_in_leaves_nothing_running_and_no_half_record(
    after: float, autojump_clock: trio.testing.MockClock
) -> None:
    rooms = Rooms()
    chat = chat_of([1.0, written({"topics": TOPICS}), 1.0], [1.0, written(EVERYTHING)])
    with trio.move_on_after(after) as scope:
        await extract_turn(rooms.context(), turn("Ja"), chat, ALL)
    assert scope.cancelled_caught
    assert chat.open_streams == 0
    assert await read_records(rooms.context()) == []


@pytest.mark.parametrize("operation", ["revisions facts", "append extraction", "append facts"])
async def test_it_can_be_cancelled_in_the_memory(operation: str, autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context(hangs=[operation])
    with trio.move_on_after(30) as scope:
        await extract_turn(context, turn("Ja"), chat_of([written(EVERYTHING)]), ALL)
    assert scope.cancelled_caught
    assert trio.current_time() == 30


# --- at the end


def said(*turns: tuple[str, str, str]) -> list[Message]:
    lines: list[Message] = []
    for turn_id, user, agent in turns:
        lines += [Message(Role.USER, user, turn_id), Message(Role.ASSISTANT, agent, turn_id)]
    return lines


async def test_the_end_looks_at_what_no_turn_has_brought(autojump_clock: trio.testing.MockClock) -> None:
    rooms = Rooms()
    messages = said(("t1", "Eins", "A"), ("t2", "Zwei", "B"), ("t3", "Drei", "C"))
    messages.insert(2, Message(Role.INSTRUCTION, "Sag nichts.", "t1"))
    context = rooms.context(messages=messages)
    await extract_turn(context, turn("Zwei", "B", turn_id="t2"), chat_of([written(EVERYTHING)]), ALL)
    chat = chat_of([written({"sentiment": SENTIMENT, "engagement": ENGAGEMENT, "topics": TOPICS, "facts": FACTS})])
    assert await extract_session(context, chat, ALL, 3) == EVERYTHING
    told = chat.requests[0].messages[1].text
    assert told.endswith("# The conversation\n\nUser: Eins\nAgent: A\nUser: Drei\nAgent: C")
    records = await read_records(context)
    assert [(record.turn_ids, record.turns) for record in records] == [(("t2",), 1), (("t1", "t3"), 2)]
    assert await extract_session(context, chat, ALL, 3) == {}  # nothing is left
    assert len(chat.asked) == 1


async def test_a_conversation_without_turns_is_one_record_however_often_it_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    messages = [Message(Role.USER, "Ahoj"), Message(Role.ASSISTANT, "Dobrý den")]
    context = Rooms().context(messages=messages)
    for _ in range(2):
        await extract_session(context, chat_of([written(EVERYTHING)]), ALL, 3)
        messages.append(Message(Role.USER, "Kávu"))
        context.messages = messages
    (record,) = await read_records(context)
    assert (record.turn_ids, record.turns) == ((), 2)


@pytest.mark.parametrize("messages", [[], [Message(Role.ASSISTANT, "Hallo?", "t1")]])
async def test_nothing_is_asked_about_nothing(
    messages: Sequence[Message], autojump_clock: trio.testing.MockClock
) -> None:
    chat = chat_of([written(EVERYTHING)])
    assert await extract_session(Rooms().context(messages=messages), chat, ALL, 3) == {}
    assert not chat.asked


async def test_records_that_cannot_be_read_are_not_made_twice(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context(messages=talk(("Hallo", "Guten Tag")), fails=["revisions extraction"])
    chat = chat_of([written(EVERYTHING)])
    assert await extract_session(context, chat, ALL, 3) == {}
    assert not chat.asked


async def test_old_records_never_stop_a_session(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    await context.memory.append(MemoryScope.SESSION, "extraction", {"turnIds": 3, "results": [1], "turns": "x"})
    (record,) = await read_records(context)
    assert (record.turn_ids, record.turns, record.results) == ((), 1, {})


# --- the declaration


def test_extractors_are_found_by_declaration() -> None:
    assert [each.name for each in ALL] == ["engagement", "facts", "sentiment", "topics"]
    assert [each.name for each in find_extractors(has_memory=False)] == ["engagement", "sentiment", "topics"]
    assert find_extractors("realtime", has_memory=True) == ()


def test_one_that_cannot_be_loaded_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def load(group: str, name: str) -> Any:
        if name == "lost":
            raise ConfigurationError("extractor 'lost' cannot be loaded")
        return Broken

    found = find_extractors(has_memory=False, names=lambda group: ["lost", "broken"], load=load)
    assert [each.name for each in found] == ["broken"]
    assert "'lost' cannot be loaded" in caplog.text


@pytest.mark.parametrize("extractor", ALL, ids=lambda each: each.name)
def test_each_says_what_it_wants(extractor: Extractor) -> None:
    assert len(extractor.instructions()) > 50
