"""Asking for objects: what is sent, how leniently it is read, and what is left when the model fails."""

import json
import logging
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agents.extraction.sentiment import Sentiment
from agents.extraction.structured import (
    ANSWER_CHARACTERS,
    Output,
    ask_object,
    ask_sections,
    ask_text,
    for_component,
    read_sections,
    schema_of,
)
from agents.extraction.topics import Topics
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import ChatFinished, ChatUsage, SessionLog
from engine.llm_log import LoggedChat
from engine.testing.chat import Script, ScriptedChat
from tests.agents.extraction.room import SENTIMENT, TOPICS, Rooms, chat_of, written

BOTH: dict[str, type[BaseModel]] = {"sentiment": Sentiment, "topics": Topics}
GOOD = written({"sentiment": SENTIMENT, "topics": TOPICS})
SECRET = "Moje heslo je tajné"


class Log(SessionLog):
    def __init__(self) -> None:
        self.entries: list[tuple[str, Any, Any]] = []

    def record(self, kind: Any, content: Any, **more: Any) -> None:
        self.entries.append((more["component"], content["outcome"], more["usage"]))


async def ask(*scripts: Script, seconds: float = 5.0) -> tuple[dict[str, BaseModel], ScriptedChat]:
    chat = chat_of(*scripts)
    context = Rooms().context(locale="cs-CZ")
    found = await ask_sections(chat, context, "extraction", "Read.", f"User: {SECRET}", BOTH, seconds)
    assert chat.open_streams == 0
    return found, chat


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Tady to je:\n\n{GOOD}\n\nDoufám, že to pomůže {{snad}}.",
        f"Gern – hier das Ergebnis: {GOOD}",
        f'{{"thought": "grün"}} {GOOD}',
        json.dumps(json.loads(GOOD), indent=2),
    ],
)
def test_an_object_is_found_in_what_surrounds_it(answer: str) -> None:
    reading = read_sections(answer, BOTH)
    assert reading.faults == []
    assert {name: section.model_dump(by_alias=True) for name, section in reading.found.items()} == json.loads(GOOD)


def test_one_wrong_section_does_not_take_the_other_with_it() -> None:
    reading = read_sections(written({"sentiment": SENTIMENT | {"valence": 7}, "topics": TOPICS}), BOTH)
    assert list(reading.found) == ["topics"]
    assert reading.faults == ["sentiment.valence: Input should be less than or equal to 1."]


@pytest.mark.parametrize(
    "answer",
    ["", "Nevím.", "{", '{"sentiment": {"valence": 0.5', "[]", "null", '"x"', '{"sentiment": [1], "topics": 3}'],
)
def test_what_is_no_object_gives_nothing_but_faults(answer: str) -> None:
    reading = read_sections(answer, BOTH)
    assert not reading.found
    assert reading.faults


def test_labels_may_be_written_in_any_way_and_the_only_section_may_lack_its_name() -> None:
    value = {"valence": "-0.5", "label": " Negative", "expression": "ANGER", "note": "…"}
    found = read_sections(written(value), {"answer": Sentiment}).found["answer"]
    assert found == Sentiment(valence=-0.5, label="negative", expression="anger")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_reading_never_raises_and_finds_what_stands_in_a_line_of_its_own(before: str, after: str) -> None:
    read_sections(before + after, BOTH)
    before, after = before.replace("{", "("), after.replace("{", "(")
    assert set(read_sections(f"{before}\n{GOOD}\n{after}", BOTH).found) == {"sentiment", "topics"}


def test_the_schema_has_all_sections_and_no_titles() -> None:
    class Topic(Output):
        title: str

    class Others(Output):
        topics: list[Topic]

    schema = schema_of({"topics": Topics, "others": Others})
    assert schema["required"] == ["topics", "others"]
    assert len(schema["$defs"]) == 4  # two of the same name are kept apart
    assert any("title" in each["properties"] for each in schema["$defs"].values())
    assert '"title": "' not in json.dumps(schema)


# --- asking -----------------------------------------------------------------------------------------------------------


async def test_the_request_has_the_schema_twice(autojump_clock: trio.testing.MockClock) -> None:
    found, chat = await ask([GOOD])
    (request,) = chat.requests
    assert request.output_schema == schema_of(BOTH)
    assert json.loads(request.messages[0].text.splitlines()[-1]) == request.output_schema
    assert request.locale == "cs-CZ"
    assert list(found) == ["sentiment", "topics"]


async def test_what_does_not_fit_is_asked_for_once_more(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bad = written({"sentiment": SENTIMENT | {"label": SECRET}, "topics": TOPICS})
    found, chat = await ask([bad], [written({"sentiment": SENTIMENT})])
    assert set(found) == {"sentiment", "topics"}
    again = chat.requests[1]
    assert again.output_schema == schema_of({"sentiment": Sentiment})
    assert [message.role for message in again.messages] == ["system", "user", "assistant", "user"]
    assert "sentiment.label: Input should be 'negative', 'neutral' or 'positive'" in again.messages[-1].text
    assert SECRET not in caplog.text


async def test_there_is_no_third_try_and_what_fits_is_kept(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    found, chat = await ask([written({"topics": TOPICS})], [f"Ne. {SECRET}"], [GOOD])
    assert list(found) == ["topics"]
    assert len(chat.requests) == 2
    assert "sentiment; they are left out" in caplog.text
    assert SECRET not in caplog.text


async def test_time_is_bounded_for_both_tries(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    found, _ = await ask([3.0, written({"topics": TOPICS})], [1.0, GOOD[:20], 60.0])
    assert trio.current_time() == 5
    assert list(found) == ["topics"]
    assert "extraction: the chat model took longer than 5 s" in caplog.text


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (RealtimeException(ErrorCode.PROVIDER_QUOTA, "The quota is used up."), "The quota is used up."),
        (RuntimeError(SECRET), "(RuntimeError)"),
        (ExceptionGroup(SECRET, [ValueError(SECRET)]), "(ExceptionGroup)"),
    ],
)
async def test_a_failing_model_gives_nothing_and_tells_nothing(
    failure: Exception, words: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await ask([failure]))[0] == {}
    assert (await ask(["{", failure]))[0] == {}
    assert words in caplog.text
    assert SECRET not in caplog.text


async def test_a_model_that_does_not_stop_is_left(autojump_clock: trio.testing.MockClock) -> None:
    endless = ["x" * 1000] * (ANSWER_CHARACTERS // 1000 + 5)
    found, chat = await ask([*endless, 60.0], [GOOD])
    assert set(found) == {"sentiment", "topics"}
    assert trio.current_time() == 0
    assert len(chat.requests) == 2


async def test_a_cut_answer_is_asked_for_again(autojump_clock: trio.testing.MockClock) -> None:
    found, _ = await ask([GOOD[:-5], ChatFinished(complete=False)], [GOOD])
    assert set(found) == {"sentiment", "topics"}


async def test_each_invocation_is_logged_once_under_its_component(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    context.log = log = Log()
    chat = for_component(chat_of([ChatUsage(10, 5), "{}"], [GOOD]), context, "planner")
    assert isinstance(chat, LoggedChat)
    await ask_sections(chat, context, "extraction", "Read.", "User: hi", BOTH, 5)
    assert [(component, outcome) for component, outcome, _ in log.entries] == [("extraction", "completed")] * 2
    assert log.entries[0][2].input == 10


async def test_an_object_and_a_text(autojump_clock: trio.testing.MockClock) -> None:
    context = Rooms().context()
    assert await ask_object(chat_of([written(SENTIMENT)]), context, "c", "i", "t", Sentiment, 5) == Sentiment(
        valence=0.5, label="positive", expression="joy"
    )
    assert await ask_object(chat_of(["?"]), context, "c", "i", "t", Sentiment, 5) is None
    assert await ask_text(chat_of(["  Schöne ", "Grüße  "]), context, "c", "i", "t", 5, 9) == "Schöne Gr"
    assert await ask_text(chat_of(["a", 9.0, "b"]), context, "c", "i", "t", 5, 9) == ""
    assert await ask_text(chat_of([RuntimeError("x")]), context, "c", "i", "t", 5, 9) == ""
    assert (
        await ask_text(chat_of(["a", RealtimeException(ErrorCode.CHAT_FAILED, "x")]), context, "c", "i", "t", 5, 9)
        == ""
    )


@pytest.mark.parametrize("after", [0.0, 0.5, 1.5, 2.5, 3.5])
async def test_cancelling_leaves_nothing_running(after: float, autojump_clock: trio.testing.MockClock) -> None:
    chat = chat_of([1.0, "{", 1.0, "}"], [1.0, GOOD, 1.0])
    with trio.move_on_after(after) as scope:
        await ask_sections(chat, Rooms().context(), "extraction", "Read.", "User: hi", BOTH, 60)
    assert scope.cancelled_caught
    assert trio.current_time() == after
    assert chat.open_streams == 0
