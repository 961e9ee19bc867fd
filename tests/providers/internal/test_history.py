"""The rules of an Internal session's history: what was heard, every call answered, and never more than it may hold."""

from collections.abc import Sequence
from typing import Literal

import attrs
from hypothesis import given
from hypothesis import strategies as st

from engine.elements import Image
from engine.interfaces import ChatMessage, Message, Role, ToolCall
from engine.testing.chat import check_messages
from providers.internal.history import (
    CONTEXTUAL_INSTRUCTIONS,
    KEPT_IMAGES,
    MAX_ENTRIES,
    STILL_RUNNING,
    ChatHistory,
)

WORDS = st.lists(st.text("abcě.,!", min_size=1, max_size=6), min_size=1, max_size=12)


def made(call_id: str, response_id: str = "r") -> ToolCall:
    return ToolCall(call_id, "lookup", "{}", response_id)


def lines(history: ChatHistory, *roles: str) -> list[str]:
    return [message.text for message in history.request("Be brief.")[1:] if not roles or message.role in roles]


# --- what was heard ---------------------------------------------------------------------------------------------------


@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(0, 50))
def test_a_cut_keeps_the_heard_words_of_all_rounds_of_a_response(rounds: list[list[str]], heard: int) -> None:
    words = [word for part in rounds for word in part]
    heard = min(heard, len(words))
    history = ChatHistory()
    history.add_user("Go")
    for part in rounds:
        history.add_answer("r", " ".join(part))
    history.cut("r", " ".join(words[:heard]))
    kept = [word for text in lines(history, "assistant") for word in text.split()]
    assert kept == words[:heard]
    assert "" not in lines(history)


@given(st.text(min_size=1, max_size=60).filter(str.strip), st.integers(0, 60))
def test_a_cut_keeps_a_prefix_in_every_script(text: str, place: int) -> None:
    history = ChatHistory()
    history.add_answer("r", text)
    history.cut("r", text[:place])
    kept = "".join(lines(history, "assistant"))
    assert text.startswith(kept)
    assert kept.split() == text[: len(kept)].split()


def test_a_sentence_without_spaces_is_cut_where_it_was_heard() -> None:
    history = ChatHistory()
    history.add_answer("r", "你好。我是助手。请说。")
    history.cut("r", "你好。 我是助手。")
    assert lines(history) == ["你好。我是助手。"]


def test_a_cut_keeps_the_calls_of_words_that_were_not_heard() -> None:
    history = ChatHistory()
    history.add_user("Go")
    history.add_answer("r", "Let me see.", (made("c1"),))
    history.add_answer("r", "Here it is.")
    history.cut("r", "")
    assert lines(history) == ["Go", "", STILL_RUNNING]


def test_a_cut_takes_what_would_have_been_heard_later() -> None:
    history = ChatHistory()
    for index in range(3):
        history.add_user(f"Question {index}")
        history.add_answer(f"r{index}", f"Answer {index}")
    history.add_instruction("Instruction: go on")
    history.cut("r1", "Answer")
    assert lines(history) == [
        "Question 0",
        "Answer 0",
        "Question 1",
        "Answer",
        "Question 2",
        "Instruction: go on",
    ]


def test_a_cut_of_what_is_not_there_changes_nothing() -> None:
    history = ChatHistory()
    history.resume([Message(Role.USER, "Hi"), Message(Role.ASSISTANT, "Hello.")])
    history.add_answer("r", "Fine.")
    history.cut("other", "")
    assert lines(history) == ["Hi", "Hello.", "Fine."]


# --- requests ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Act:
    what: Literal["user", "answer", "calls", "output", "cut", "instruction", "context"]
    number: int


ACTS = st.builds(
    Act,
    st.sampled_from(["user", "answer", "calls", "output", "cut", "instruction", "context"]),
    st.integers(0, 6),
)


@given(st.lists(ACTS, max_size=120))
def test_every_call_is_answered_in_every_request(acts: Sequence[Act]) -> None:
    history = ChatHistory()
    for index, act in enumerate(acts):
        match act.what:
            case "user":
                history.add_user(f"line {index}", (Image(b"", "image/png"),) * (act.number % 3))
            case "answer":
                history.add_answer(f"r{act.number}", "one two three" if act.number else " ")
            case "calls":
                history.add_answer(f"r{act.number}", "", tuple(made(f"c{index}-{n}") for n in range(act.number)))
            case "output":
                history.add_output(f"c{max(0, index - act.number)}-0", "done")
            case "cut":
                history.cut(f"r{act.number}", "one"[: act.number])
            case "instruction":
                history.add_instruction("Instruction: speak")
            case "context":
                history.add_context(f"fact {index}")
        request = history.request("Be brief.")
        check_messages(request)
        assert sum(len(message.images) for message in request) <= KEPT_IMAGES


def test_results_stand_behind_their_calls_however_late_they_come() -> None:
    history = ChatHistory()
    history.add_answer("r", "Wait.", (made("c1"), made("c2")))
    history.add_user("And?")
    history.add_output("c2", "second")
    assert lines(history) == ["Wait.", STILL_RUNNING, "second", "And?"]
    history.add_output("c1", "first")
    assert [message.tool_call_id for message in history.request("") if message.role == "tool"] == ["c1", "c2"]
    assert lines(history) == ["Wait.", "first", "second", "And?"]


def test_an_id_is_given_to_one_call() -> None:
    history = ChatHistory()
    assert history.take_call_id("c1")
    assert not history.take_call_id("c1")
    assert not history.take_call_id("")


def test_context_is_told_before_the_conversation_and_the_oldest_goes() -> None:
    history = ChatHistory()
    history.add_user("Hi")
    for index in range(CONTEXTUAL_INSTRUCTIONS + 1):
        history.add_context(f"fact {index}")
    request = history.request("Be brief.")
    assert [message.text for message in request] == [
        "Be brief.",
        *(f"fact {index}" for index in range(1, CONTEXTUAL_INSTRUCTIONS + 1)),
        "Hi",
    ]
    assert {message.role for message in request[:-1]} == {"system"}


def test_an_empty_prompt_is_no_message() -> None:
    history = ChatHistory()
    history.add_user("Hi")
    assert history.request("") == (ChatMessage("user", "Hi"),)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_long_conversation_loses_its_oldest_turns_whole() -> None:
    history = ChatHistory()
    for index in range(MAX_ENTRIES):
        history.add_user(f"line {index}")
        history.add_answer(f"r{index}", f"answer {index}", (made(f"c{index}"),))
        history.add_output(f"c{index}", f"output {index}")
        request = history.request("Be brief.")
        check_messages(request)
        assert request[1].role == "user"
        assert len([message for message in request if message.role != "tool"]) <= MAX_ENTRIES + 1
    last = MAX_ENTRIES - 1
    assert lines(history)[-3:] == [f"line {last}", f"answer {last}", f"output {last}"]
    assert "output 0" not in lines(history)


def test_a_long_conversation_without_the_user_keeps_its_newest_part() -> None:
    history = ChatHistory()
    for index in range(2 * MAX_ENTRIES):
        history.add_answer(f"r{index}", f"answer {index}")
    kept = lines(history)
    assert kept[-1] == f"answer {2 * MAX_ENTRIES - 1}"
    assert MAX_ENTRIES * 0.8 < len(kept) <= MAX_ENTRIES


def test_only_the_newest_images_are_kept() -> None:
    history = ChatHistory()
    first, second = (tuple(Image(bytes([n]), "image/png") for n in numbers) for numbers in ((1, 2, 3), (4, 5)))
    history.add_user("a", first)
    history.add_user("b", second)
    history.add_user("c")
    assert [message.images for message in history.request("")] == [first[1:], second, ()]
    history.add_user("d", second * 3)
    assert [len(message.images) for message in history.request("")] == [0, 0, 0, KEPT_IMAGES]
