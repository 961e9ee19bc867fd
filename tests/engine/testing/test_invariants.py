"""A judge has to be judged: for every rule a stream that breaks it, and none that is right."""

import pytest

from engine.elements import (
    MultimodalKind,
    OutCommand,
    OutEmotion,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    SpeechCut,
)
from engine.errors import ErrorCode, Whose
from engine.interfaces import Message, Role
from engine.protocol.promises import Violation
from engine.store.documents import ToolRecord, TurnDocument, TurnInputRecord, TurnOutputRecord
from engine.testing.invariants import (
    UNFINISHED,
    Heard,
    check_memory,
    check_stream,
    check_turns,
    require,
)
from engine.testing.stage import EPOCH

READY, END = OutCommand("ready", {}), OutCommand("session-end", {})
ERROR = OutError(ErrorCode.INTERNAL, "Oops.", recoverable=True, whose=Whose.SERVER)


def interim(turn: str = "t1") -> OutTranscript:
    return OutTranscript(".", True, False, False, "P", turn)


def final(turn: str = "t1", text: str = "hello") -> OutTranscript:
    return OutTranscript(text, False, False, False, "P", turn)


def token(turn: str = "t1", response: str = "r1") -> OutToken:
    return OutToken("Hello", turn, response)


def speech(turn: str = "t1", response: str = "r1", *, size: int = 480, is_last: bool = False) -> OutSpeech:
    return OutSpeech(bytes(size), 24000, turn, response, is_last=is_last)


def last(turn: str = "t1", response: str = "r1") -> OutSpeech:
    return speech(turn, response, size=0, is_last=True)


def end(turn: str = "t1", response: str = "r1", status: str = "completed") -> OutCommand:
    return OutCommand("response-end", {"responseId": response, "status": status}, turn)


def leave(turn: str = "t1") -> OutCommand:
    return OutCommand("exit", {"turnId": turn}, turn)


def tool(phase: str, turn: str = "t1", call: str = "c1", name: str = "find") -> OutCommand:
    return OutCommand(f"tool-{phase}", {"callId": call, "name": name}, turn)


def stream(*elements: OutputElement) -> Heard:
    return [(float(number), element) for number, element in enumerate(elements)]


def rules(*elements: OutputElement, is_over: bool = True) -> list[str]:
    return [violation.rule for violation in check_stream(stream(*elements), is_over=is_over)]


RIGHT: dict[str, list[OutputElement]] = {
    "nothing": [],
    "a session without words": [READY, ERROR, OutEvaluation("polite"), END],
    "a refused one": [ERROR, END],
    "a turn": [READY, interim(), final(), token(), speech(), last(), end(), leave(), END],
    "two sessions, whose responses have the same ids": [
        *(READY, interim(), final(), token(), end(), leave(), END),
        *(ERROR, READY, interim("t2"), final("t2"), token("t2"), end("t2"), leave("t2"), END),
    ],
    "a barge-in": [
        *(READY, interim(), final(), speech(), tool("start")),
        *(SpeechCut("t1", "r1"), interim("t2"), end(status="cancelled"), tool("error"), leave()),
        *(final("t2"), token("t2", "r2"), end("t2", "r2"), leave("t2"), END),
    ],
    "a late transcript of the old turn": [
        *(READY, interim(), token(), interim("t2"), end(status="cancelled"), final(), leave(), END),
    ],
    "a noise": [READY, interim(), OutPartial("he", "t1"), OutEmotion(None, {}, "t1"), END],
    "a noise, then a turn without an interim": [READY, interim(), token("t2", "r2"), end("t2", "r2"), leave("t2"), END],
    "a call that goes on": [
        *(READY, interim(), final(), token(), tool("start"), interim("t2"), end(status="cancelled"), leave()),
        *(tool("success", "t2"), END),
    ],
    "cuts of what is no longer open": [
        *(READY, interim(), final(), speech(), last(), end(), leave(), SpeechCut("t1", "r1"), SpeechCut("t1", "r9")),
        *(interim("t2"), END),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_found_right(name: str) -> None:
    assert check_stream(stream(*RIGHT[name]), is_over=bool(RIGHT[name])) == []


WRONG: dict[str, tuple[str, list[OutputElement]]] = {
    "a response ends twice": ("response-end", [READY, token(), end(), end(), leave(), END]),
    "words after the end": ("response-end", [READY, token(), end(), token(), leave(), END]),
    "an exit before the end": ("response-end", [READY, token(), leave(), END]),
    "no end at all": ("response-end", [READY, token(), END]),
    "a response in two turns": ("turn-ids", [READY, token(), token("t2"), end(), leave(), END]),
    "a sentence of no turn": ("turn-ids", [READY, OutText("Hello.", "", "r1"), END]),
    "words after an interim": (
        "barge-in",
        [READY, token(), interim("t2"), token(), end(status="cancelled"), leave(), END],
    ),
    "a card of the old turn after an interim": (
        "barge-in",
        [READY, token(), interim("t2"), OutMultimodal(MultimodalKind.CARD, "m", {}, "t1"), *[end(), leave(), END]],
    ),
    "a cut response ends completed": ("barge-in", [READY, token(), interim("t2"), end(), leave(), END]),
    "an open run": ("barge-in", [READY, speech(), interim("t2"), end(status="cancelled"), leave(), END]),
    "speech after its cut": (
        "barge-in",
        [READY, speech(), SpeechCut("t1", "r1"), speech(), SpeechCut("t1", "r1"), end(status="failed"), leave(), END],
    ),
    "the new turn before the old exit": (
        "turn-order",
        [READY, token(), interim("t2"), end(status="cancelled"), final("t2"), leave(), leave("t2"), END],
    ),
    "two exits": ("exit", [READY, token(), end(), leave(), leave(), END]),
    "something after the exit": ("exit", [READY, token(), end(), leave(), tool("start"), tool("error"), END]),
    "no exit": ("exit", [READY, token(), end(), END]),
    "an exit for a noise": ("exit", [READY, interim(), leave(), END]),
    "two interims": ("transcripts", [READY, interim(), interim(), END]),
    "a final without an interim": ("transcripts", [READY, final(), leave(), END]),
    "two finals": ("transcripts", [READY, interim(), final(), final(), leave(), END]),
    "an interim in the middle": ("transcripts", [READY, token(), interim(), end(status="cancelled"), leave(), END]),
    "a call that starts twice": (
        "tools",
        [READY, token(), tool("start"), tool("start"), tool("error"), end(), leave(), END],
    ),
    "a call that settles twice": (
        "tools",
        [READY, token(), tool("start"), tool("error"), tool("success"), end(), leave(), END],
    ),
    "a call that never settles": ("tools", [READY, token(), tool("start"), end(), leave(), END]),
    "a call that never started": ("tools", [READY, token(), tool("success"), end(), leave(), END]),
    "a call under another name": (
        "tools",
        [READY, token(), tool("start"), tool("success", name="lose"), end(), leave(), END],
    ),
    "no last frame": ("last-frame", [READY, speech(), SpeechCut("t1", "r1"), end(), leave(), END]),
    "two last frames": ("last-frame", [READY, speech(), last(), last(), end(), leave(), END]),
    "a last frame of a cut response": ("last-frame", [READY, speech(), last(), end(status="cancelled"), leave(), END]),
    "half a sample": ("frames", [READY, speech(size=481), last(), end(), leave(), END]),
    "a long frame": ("frames", [READY, speech(size=4802), last(), end(), leave(), END]),
    "a turn of the session before": ("isolation", [READY, interim(), END, READY, interim(), END]),
    "something after the session's end": ("session-end", [READY, END, token()]),
    "a command before it begins": ("session-end", [OutCommand("response-end", {}), READY, END]),
    "a session in a session": ("session-end", [READY, READY, END]),
    "no end of the session": ("session-end", [READY]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_by_its_rule(name: str) -> None:
    rule, elements = WRONG[name]
    assert rule in rules(*elements)


def test_a_stream_that_goes_on_may_have_something_open() -> None:
    assert rules(READY, interim(), final(), speech(), tool("start"), is_over=False) == []


def test_without_turns_only_sessions_and_frames_count() -> None:
    elements = stream(READY, final(), token(), speech(size=481), token("t2"))
    assert [v.rule for v in check_stream(elements, has_turns=False)] == ["frames", "session-end"]


def test_a_violation_says_where_and_when() -> None:
    (violation,) = check_stream(stream(READY, interim(), interim(), END))
    assert str(violation) == "transcripts: a second interim in turn t1 (element 2, t = 2)"
    require([])
    with pytest.raises(AssertionError, match=r"one: 1 .*\n.*two: 2"):
        require([Violation("one", "1"), Violation("two", "2")])


# --- what is stored ---------------------------------------------------------------------------------------------------


def turn(
    index: int = 0,
    turn_id: str = "",
    said: str = "hello",
    text: str = "Hello you.",
    heard: str = "Hello",
    error: str = "",
) -> TurnDocument:
    return TurnDocument(
        id=turn_id or f"t{index + 1}",
        session_id="s1",
        index=index,
        started_at=EPOCH,
        input=TurnInputRecord(text=said, kind="speech" if said else "none"),
        output=[TurnOutputRecord(text=text, heard=heard)],
        tools=[ToolRecord(call_id="c1", name="find", error=error)] if error else [],
    )


def test_turns_that_are_right() -> None:
    heard = stream(READY, interim(), final(), leave(), interim("t2"), final("t2"), leave("t2"), END)
    assert check_turns([turn(0), turn(1)], heard) == []
    assert check_turns([turn(4), turn(5)]) == []
    assert check_turns([]) == []


@pytest.mark.parametrize(
    ("rule", "turns"),
    [
        ("stored-turns", [turn(0), turn(1, "t1")]),
        ("stored-turns", [turn(0), turn(2)]),
        ("heard", [turn(0, heard="Hello me")]),
        ("heard", [turn(0, heard="you.")]),
        ("tools", [turn(0, error=UNFINISHED)]),
    ],
)
def test_turns_that_are_wrong(rule: str, turns: list[TurnDocument]) -> None:
    assert rule in [violation.rule for violation in check_turns(turns)]


def test_turns_that_are_not_those_the_client_saw() -> None:
    heard = stream(READY, interim(), final(text="hello"), leave(), END)
    assert [v.rule for v in check_turns([], heard)] == ["stored-turns"]
    assert [v.rule for v in check_turns([turn(0), turn(1)], heard)] == ["stored-turns", "transcripts"]
    assert [v.rule for v in check_turns([turn(0, said="hullo")], heard)] == ["transcripts"]


def message(role: Role, text: str, turn_id: str) -> Message:
    return Message(role, text, turn_id)


def test_memory_is_the_turns_as_they_were_heard() -> None:
    said = [message(Role.USER, "hello", "t1"), message(Role.ASSISTANT, "Hello", "t1")]
    silent = turn(1, said="", heard=" ")
    assert check_memory(said, [turn(0), silent]) == []
    assert check_memory(said[1:], [turn(0)]) == [], "older lines may have been forgotten"
    assert check_memory([*said, message(Role.INSTRUCTION, "Be kind.", "t1")], [turn(0)]) == []
    for wrong in ([said[1], said[0]], [*said, said[0]], [message(Role.USER, "hello", "t9"), said[1]]):
        assert [v.rule for v in check_memory(wrong, [turn(0)])] == ["memory"]
