"""Every promise of the contract has a record that breaks it, and one that keeps all of them."""

from typing import Any

import attrs
import pytest

from engine.elements import (
    InputText,
    InstructionType,
    OutCommand,
    OutError,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    RealtimeInstruction,
    SpeechItem,
    Token,
)
from engine.errors import ErrorCode, Whose
from engine.interfaces import Message, Role
from engine.protocol.promises import GOODBYE_SECONDS
from engine.store.documents import (
    MessageDocument,
    SessionDocument,
    SessionState,
    TurnDocument,
    TurnInputRecord,
    TurnOutputRecord,
    UsageDocument,
)
from engine.testing.contract import (
    INVARIANTS,
    Queue,
    SessionRecord,
    Span,
    StoredSession,
    check_record,
)
from engine.testing.invariants import Heard
from engine.testing.stage import EPOCH
from tests.engine.testing.test_invariants import WRONG

READY, END = OutCommand("ready", {}), OutCommand("session-end", {})
INTERIM = OutTranscript(".", True, True, False, "Client", "t1")
FINAL = OutTranscript("hello", False, False, False, "Client", "t1")
SPEECH = OutSpeech(bytes(4800), 24000, "t1", "r1")
LAST = OutSpeech(b"", 24000, "t1", "r1", is_last=True)
DONE = OutCommand("response-end", {"responseId": "r1", "status": "completed"}, "t1")
EXIT = OutCommand("exit", {"turnId": "t1"}, "t1")
TOKENS = (OutToken("Good ", "t1", "r1"), OutToken("morning.", "t1", "r1"))
TEXT = OutText("Good morning.", "t1", "r1")
SAVED = SessionDocument(id="s1", created_at=EPOCH, updated_at=EPOCH, state=SessionState.CLOSED)
USAGE = UsageDocument(id="u1", session_id="s1", provider="Scripted", created_at=EPOCH)
TURN = TurnDocument(
    id="t1",
    session_id="s1",
    index=0,
    started_at=EPOCH,
    input=TurnInputRecord(text="hello", kind="text"),
    output=[TurnOutputRecord(text="Good morning.", heard="Good morning.")],
)
MEMORY = (Message(Role.USER, "hello", "t1"), Message(Role.ASSISTANT, "Good morning.", "t1"))


def stream(*elements: OutputElement, every: float = 1.0) -> Heard:
    return [(number * every, element) for number, element in enumerate(elements)]


def good(**changes: Any) -> SessionRecord:
    record = SessionRecord(
        stream(READY, INTERIM, FINAL, *TOKENS, TEXT, SPEECH, LAST, DONE, EXIT, END),
        sent=[(0, InputText("hello"))],
        said=[(0, Token("Good ", "r1")), (0, Token("morning.", "r1")), (0, SpeechItem(bytes(4800), 24000, "r1"))],
        settled=["c1", "c2"],
        spans=[Span("r1", 0, 1), Span("r2", 1, 2), Span("r3", 3)],
        stored=[StoredSession([TURN], MEMORY)],
        saved=[SAVED],
        usage=[USAGE],
        disconnects=1,
        asked_to_end=9,
        ended=10,
        queues={"the inbox": Queue(3, 3)},
        has_tokens=True,
    )
    return attrs.evolve(record, **changes)


def with_answer(*elements: OutputElement) -> Heard:
    return stream(READY, INTERIM, FINAL, *elements, LAST, DONE, EXIT, END)


def instruction(turn: str = "t1", number: int = 1) -> OutCommand:
    return OutCommand("realtime-instruction", {"passId": f"{turn}/{number}"}, turn)


def began(number: int, turn: str = "t1") -> OutCommand:
    return OutCommand("planning-pass", {"passId": f"{turn}/{number}", "state": "began"}, turn)


WHISPER = RealtimeInstruction("Ask.", InstructionType.SUPPORTING_CONTEXT, turn_id="t1")
NEXT = OutTranscript(".", True, False, False, "P", "t2")
GOODBYE = OutCommand("sessionShouldEnd", {}, "t1")
OTHER = attrs.evolve(FINAL, turn_id="t2", text="wait")

UNSAVED = stream(
    *(READY, INTERIM, FINAL, *TOKENS, TEXT, SPEECH, LAST, DONE),
    *(OutCommand("exit", {"turnId": "t1", "saved": False}, "t1"), END),
)
TAKEN_OVER = OutError(ErrorCode.TAKEN_OVER, "Elsewhere.", recoverable=False, whose=Whose.CLIENT)
LINES = [
    MessageDocument(id="m1", session_id="s1", position=0, role="user", text="hello", created_at=EPOCH),
    MessageDocument(id="m2", session_id="s1", position=1, role="assistant", text="Good morning.", created_at=EPOCH),
]

BROKEN: dict[str, list[tuple[str, SessionRecord]]] = {
    "text": [
        ("other words than those typed", good(sent=[(0, InputText("hullo"))])),
        ("a token is missing", good(heard=with_answer(TOKENS[0], TEXT, SPEECH))),
        ("tokens change places", good(heard=with_answer(*TOKENS[::-1], TEXT, SPEECH))),
        ("a sentence is missing", good(heard=with_answer(*TOKENS, SPEECH))),
        ("a sentence comes twice", good(heard=with_answer(*TOKENS, TEXT, TEXT, SPEECH))),
        ("words nobody said", good(said=[(0, SpeechItem(bytes(4800), 24000, "r1"))])),
    ],
    "samples": [
        ("some are missing", good(heard=with_answer(*TOKENS, TEXT, attrs.evolve(SPEECH, data=bytes(2400))))),
        ("some are new", good(heard=with_answer(*TOKENS, TEXT, SPEECH, SPEECH))),
    ],
    "tools": [("the model is told twice", good(settled=["c1", "c2", "c1"]))],
    "one-response": [
        ("two at a time", good(spans=[Span("r1", 0, 2), Span("r2", 1, 3)])),
        ("behind one that does not end", good(spans=[Span("r1", 0), Span("r2", 1, 3)])),
        ("a short one in a long one", good(spans=[Span("r1", 0, 9), Span("r2", 1, 2), Span("r3", 5, 6)])),
    ],
    "once": [
        ("never saved", good(saved=[])),
        ("saved twice", good(saved=[SAVED, SAVED.model_copy(update={"end_reason": "again"})])),
        ("saved open", good(saved=[SAVED, SAVED.model_copy(update={"id": "s2", "state": SessionState.OPEN})])),
        ("no usage record", good(usage=[])),
        ("two usage records", good(usage=[USAGE, USAGE.model_copy(update={"id": "u2"})])),
        ("no hook", good(disconnects=0)),
        ("two hooks", good(disconnects=2)),
    ],
    "left-running": [("a task", good(left_running=["1 task"]))],
    "bound": [("too late", good(ended=99)), ("never", good(ended=None))],
    "answered": [("nobody answers", good(unanswered=["are you there?"]))],
    "isolation": [("a turn goes on", good(heard=stream(READY, INTERIM, FINAL, EXIT, END, READY, FINAL, END)))],
    "queues": [("one too many", good(queues={"the inbox": Queue(4, 3)}))],
    "superseded-plan": [
        ("the user has gone on", good(heard=stream(READY, INTERIM, FINAL, NEXT, instruction(), EXIT, END))),
        ("a newer pass", good(heard=stream(READY, INTERIM, FINAL, began(1), began(2), instruction(), EXIT, END))),
        ("at the model", good(heard=stream(READY, INTERIM, FINAL, NEXT, EXIT, END), instructed=[(9.0, WHISPER)])),
    ],
    "goodbye": [
        ("the session goes on", good(heard=stream(READY, INTERIM, FINAL, GOODBYE, EXIT, every=GOODBYE_SECONDS + 1))),
        ("its end is late", good(heard=stream(READY, INTERIM, FINAL, GOODBYE, EXIT, END, every=GOODBYE_SECONDS + 1))),
    ],
    "memory": [
        ("in another order", good(stored=[StoredSession([TURN], MEMORY[::-1])])),
        ("lines in another order", good(has_turns=False, stored=[StoredSession([], MEMORY, lines=LINES[::-1])])),
    ],
    "heard": [
        (
            "other words",
            good(
                stored=[
                    StoredSession(
                        [
                            TURN.model_copy(
                                update={"output": [TurnOutputRecord(text="Good morning.", heard="Good night")]}
                            )
                        ],
                        MEMORY,
                    )
                ]
            ),
        )
    ],
    "stored-turns": [
        ("not saved, though nobody has taken over", good(heard=UNSAVED, stored=[StoredSession([], MEMORY)])),
        ("none", good(stored=[StoredSession([], ())])),
    ],
}
"""By promise: what breaks it, in words and as a record. Those of a client's stream alone have theirs in `test_invariants`."""


def test_a_good_record_is_found_good() -> None:
    assert check_record(good()) == []
    assert check_record(SessionRecord(good().heard)) == []


@pytest.mark.parametrize(
    ("rule", "record"),
    [pytest.param(rule, record, id=f"{rule}: {how}") for rule, cases in BROKEN.items() for how, record in cases],
)
def test_a_broken_promise_is_found(rule: str, record: SessionRecord) -> None:
    assert rule in [violation.rule for violation in check_record(record)]


def test_every_promise_can_be_broken_and_every_rule_is_published() -> None:
    published = {invariant.id for invariant in INVARIANTS}
    assert published == set(BROKEN) | {rule for rule, _ in WRONG.values()}
    assert len(published) == len(INVARIANTS)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(good(saved=[SAVED, SAVED]), id="saved again, as the answer was lost"),
        pytest.param(good(usage=[USAGE, USAGE]), id="the same usage record again"),
        pytest.param(good(saved=[SAVED, SAVED.model_copy(update={"fence": 2})]), id="saved again when it was resumed"),
        pytest.param(
            good(heard=[*UNSAVED[:-1], (99, TAKEN_OVER), *UNSAVED[-1:]], saved=[], stored=[StoredSession([], MEMORY)]),
            id="taken over before it was saved",
        ),
        pytest.param(
            good(has_turns=False, stored=[StoredSession([TURN], MEMORY, lines=LINES)]), id="the lines are what was said"
        ),
        pytest.param(good(heard=with_answer(*TOKENS, TEXT), text_only=True), id="no speech was wanted"),
        pytest.param(good(heard=with_answer(TEXT, SPEECH), has_tokens=False), id="no tokens were wanted"),
    ],
)
def test_what_is_no_breach(record: SessionRecord) -> None:
    assert check_record(record) == []


def rules(heard: Heard, **changes: Any) -> set[str]:
    return {violation.rule for violation in check_record(SessionRecord(heard, is_over=False, **changes))}


def test_a_user_who_speaks_takes_the_goodbye_back() -> None:
    later = stream(READY, INTERIM, FINAL, GOODBYE, NEXT, OTHER, EXIT, every=GOODBYE_SECONDS + 1)
    assert "goodbye" not in rules(later)


def test_plans_of_the_present_turn_and_pass_are_right() -> None:
    heard = stream(READY, INTERIM, FINAL, began(1), instruction(), began(2), instruction(number=2), EXIT, NEXT)
    assert rules(heard, instructed=[(4.0, WHISPER)]) == set()


def test_an_answer_that_fell_silent_is_carried_on_under_another_id() -> None:
    idle = attrs.evolve(DONE, parameters={"responseId": "r1", "status": "idle"})
    later = attrs.evolve(TOKENS[1], response_id="r9")
    done = attrs.evolve(DONE, parameters={"responseId": "r9", "status": "completed"})
    said = [(0.0, Token("Good ", "r1")), (0.0, Token("morning.", "r1"))]
    whole = stream(
        READY,
        INTERIM,
        FINAL,
        TOKENS[0],
        OutText("Good", "t1", "r1"),
        idle,
        later,
        OutText("morning.", "t1", "r9"),
        done,
        EXIT,
    )
    assert rules(whole, said=said, has_tokens=True) == set()
    short = stream(
        READY, INTERIM, FINAL, TOKENS[0], OutText("Good", "t1", "r1"), idle, OutText("night.", "t1", "r9"), done, EXIT
    )
    assert rules(short, said=said, has_tokens=True) == {"text"}
