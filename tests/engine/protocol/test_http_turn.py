"""What a call for one turn brings, and what it is told."""

from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.elements import (
    BadInput,
    Commit,
    InputAudio,
    InputElement,
    InputText,
    OutCommand,
    OutError,
    OutputElement,
    OutText,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.http_turn import MESSAGES, TurnAnswer, UnreadableBodyError, read_array, read_lines

TEXT = b'{"type":"text","text":"a"}'


def codes(elements: list[InputElement]) -> list[object]:
    return [element.code if isinstance(element, BadInput) else element for element in elements]


def test_a_message_a_line() -> None:
    body = TEXT + b"\r\n\n  \n" + b'{"type":"commit"} \n{"type":"audio","data":""}\n{"type":"audio","data":"AAA="}'
    assert read_lines(body) == [InputText("a"), Commit(), InputAudio(b"\0\0")]
    assert read_lines(b"") == read_lines(b"\n") == []


def test_what_cannot_be_read_keeps_its_place() -> None:
    body = b"\n".join([TEXT, b"{", b"[]", b'{"type":"x"}', b"\xff", b'{"type":"text"}', TEXT])
    bad_json, unknown, bad = ErrorCode.BAD_JSON, ErrorCode.UNKNOWN_TYPE, ErrorCode.BAD_ELEMENT
    a = InputText("a")
    assert codes(read_lines(body)) == [a, bad_json, bad_json, unknown, bad_json, bad, a]


def test_an_array_of_messages() -> None:
    assert codes(read_array(b"[" + TEXT + b',5,{"type":"x"},{"type":"audio","data":""}]')) == [
        InputText("a"),
        ErrorCode.BAD_JSON,
        ErrorCode.UNKNOWN_TYPE,
    ]
    assert read_array(b"[]") == []


@pytest.mark.parametrize("body", [b"", b"{", TEXT, b'"[]"', b"[" * 5000, b"[\xff]"])
def test_what_is_no_array(body: bytes) -> None:
    with pytest.raises(UnreadableBodyError, match="JSON array"):
        read_array(body)


def test_what_is_nested_too_deep_is_one_bad_message() -> None:
    deep = b'{"type":"sensory","data":{"a":' + b"[" * 500 + b"]" * 500 + b"}}"
    assert codes(read_array(b"[" + deep + b"," + TEXT + b"]")) == [ErrorCode.BAD_JSON, InputText("a")]


def test_more_messages_than_can_be_answered() -> None:
    assert len(read_lines((TEXT + b"\n") * MESSAGES)) == MESSAGES
    with pytest.raises(UnreadableBodyError, match="more than 4096 messages"):
        read_lines((TEXT + b"\n") * (MESSAGES + 1))
    with pytest.raises(UnreadableBodyError, match="more than 4096 messages"):
        read_array(b"[" + b",".join([TEXT] * (MESSAGES + 1)) + b"]")


MESSAGE = st.dictionaries(
    st.sampled_from(["type", "text", "data", "name"]), st.sampled_from(["text", "commit", "action", "#exit", "a", 5])
)


@given(st.lists(MESSAGE, max_size=5))
def test_lines_and_an_array_are_the_same(messages: list[dict[str, object]]) -> None:
    lines = b"\n".join(map(orjson.dumps, messages))
    assert read_lines(lines) == read_array(orjson.dumps(messages))


@given(st.binary(max_size=40))
def test_no_body_raises_anything_else(body: bytes) -> None:
    assert len(read_lines(body)) <= body.count(b"\n") + 1
    with suppress(UnreadableBodyError):
        read_array(body)


# --- the answer --------------------------------------------------------------------------------------------------------

READY = OutCommand("ready", {"sessionId": "S"})
SENTENCE = OutText("Hello.", "t1", "r1")
EXIT = OutCommand("exit", {"turnId": "t1"}, "t1")
IDLE = OutCommand("session-end", {"state": "IDLE"})
CLOSED = OutCommand("session-end", {"state": "CLOSED"})
GONE = OutCommand("session-end", {"state": "DISCONNECTED"})
ERROR = OutError(ErrorCode.NOT_FOUND, "No such agent.", recoverable=False, whose=Whose.CLIENT)
OTHER = OutError(ErrorCode.INTERNAL, "Sorry.", recoverable=False, whose=Whose.SERVER)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([READY, SENTENCE, EXIT, IDLE], [READY, SENTENCE, EXIT]),
        ([READY, EXIT, SENTENCE, EXIT, IDLE], [READY, EXIT, SENTENCE, EXIT]),  # a second turn cut the first
        ([READY, IDLE], [READY, IDLE]),  # there was nothing to answer
        ([READY, EXIT, SENTENCE, IDLE], [READY, EXIT, SENTENCE, IDLE]),
        ([READY, EXIT, CLOSED], [READY, EXIT, CLOSED]),  # the agent has ended it
        ([READY, ERROR, EXIT, GONE], [READY, ERROR, EXIT, GONE]),
        ([ERROR, GONE], []),
        ([ERROR, OTHER], []),
        ([], []),
    ],
)
def test_what_is_told(said: list[OutputElement], told: list[OutputElement]) -> None:
    answer = TurnAnswer()
    assert [element for element in said if answer.passes(element)] == told
    assert answer.has_begun == bool(told)
    assert answer.refusal == (ERROR if said and not told else None)  # the first is the reason, others come of it


def test_the_turn_is_told_from_its_exit_on() -> None:
    answer = TurnAnswer()
    states: list[bool] = []
    for element in (READY, SENTENCE, EXIT, IDLE, SENTENCE, EXIT):
        answer.passes(element)
        states.append(answer.is_told)
    assert states == [False, False, True, True, False, True]
