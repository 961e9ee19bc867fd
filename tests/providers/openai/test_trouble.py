"""The rules without a socket: errors, apologies, connections that are lost and come back."""

from collections.abc import Callable

import pytest

from engine.elements import Action, Image, InstructionType
from engine.errors import ErrorCode
from engine.interfaces import Message, Role
from providers.openai.conversation import KEPT_CONTEXTS, MAX_APOLOGIES, RATE_LIMIT_SECONDS
from providers.openai.faults import BENIGN, FATAL
from providers.openai.history import RETOLD_MESSAGES
from providers.openai.properties import OpenAIProperties
from providers.openai.texts import APOLOGIZE, GO_ON
from tests.providers.openai.books import Books

WORDS_ONLY = OpenAIProperties(stt_provider="Local")
SORRY = f"system: Instruction: {APOLOGIZE}"


def words_only() -> Books:
    return Books(WORDS_ONLY)


def asked() -> Books:
    books = words_only()
    books.say("hello")
    return books


def begun() -> Books:
    books = asked()
    books.created("r1", "response-1")
    return books


def speaking() -> Books:
    books = begun()
    books.item("r1", "i1")
    books.words("r1", "Well", "i1")
    books.sound("r1", 400, "i1")
    return books


# --- failed responses (case C31) --------------------------------------------------------------------------------------


def test_an_answer_that_fails_before_it_speaks_becomes_the_apology() -> None:
    """One answer, one end, one turn."""
    books = begun()
    books.done("r1", "failed", error="server_error")
    assert books.since(3) == ["RealtimeError", SORRY, "ask response-1"]
    assert (books.errors[0].code, books.errors[0].recoverable) == (ErrorCode.PROVIDER_UNAVAILABLE, True)
    books.created("r2", "response-1")
    books.speak("r2", "Sorry.", 200)
    books.done("r2")
    assert books.ends == [("response-1", "completed")]


def test_an_answer_that_fails_while_it_speaks() -> None:
    books = speaking()
    books.done("r1", "failed", error="server_error")
    assert books.since(-4) == ["RealtimeError", "end response-1 failed", SORRY, "ask response-2"]


@pytest.mark.parametrize("spoken", [True, False])
def test_apologies_come_to_an_end(spoken: bool) -> None:
    books = asked()
    for _ in range(10):
        if len(books.asked) == len(books.ends) and spoken:
            break
        number = len(books.asked)
        books.created(f"r{number}", books.asked[-1])
        if spoken:
            books.words(f"r{number}", "We")
        books.done(f"r{number}", "failed", error="server_error")
        if books.conversation.is_quiet:
            break
    assert books.sent.count(SORRY) == MAX_APOLOGIES
    assert len(books.asked) == MAX_APOLOGIES + 1
    assert [status for _, status in books.ends] == ["failed"] * (MAX_APOLOGIES + 1 if spoken else 1)
    assert books.conversation.is_quiet, "the user is waited for"


def test_an_answer_that_succeeds_makes_apologies_possible_again() -> None:
    books = asked()
    for _ in range(3):
        for _ in range(MAX_APOLOGIES):
            number = len(books.asked)
            books.created(f"r{number}", books.asked[-1])
            books.done(f"r{number}", "failed", error="server_error")
        number = len(books.asked)
        books.created(f"r{number}", books.asked[-1])
        books.done(f"r{number}")
        books.say("again")
        number = len(books.asked)
        books.created(f"r{number}", books.asked[-1])
        books.done(f"r{number}")
        books.say("once more")
    assert books.sent.count(SORRY) == 3 * MAX_APOLOGIES


@pytest.mark.parametrize(
    ("code", "reset", "seconds"),
    [("rate_limit_exceeded", 0, 1), ("rate_limit_exceeded", 4, 4), ("inference_rate_limit_exceeded", 600, 10)],
)
def test_a_rate_limit_is_waited_out(code: str, reset: float, seconds: float) -> None:
    books = begun()
    if reset:
        limit = {"name": "tokens", "limit": 1, "remaining": 0, "reset_seconds": float(reset)}
        books.receive("rate_limits.updated", rate_limits=[limit])
    books.done("r1", "failed", error=code)
    books.instruct("Also this.")
    books.wait(seconds - 0.01)
    assert len(books.asked) == 1
    books.wait(0.01)
    assert len(books.asked) == 2
    assert RATE_LIMIT_SECONDS == (1, 10)


def test_a_limit_that_is_not_used_up_is_none() -> None:
    books = begun()
    limit = {"name": "tokens", "limit": 9, "remaining": 3, "reset_seconds": 8.0}
    books.receive("rate_limits.updated", rate_limits=[limit])
    books.done("r1", "failed", error="rate_limit_exceeded")
    books.wait(1)
    assert len(books.asked) == 2


def test_a_wait_that_is_over_before_anything_is_asked() -> None:
    books = speaking()
    books.done("r1", "failed", error="rate_limit_exceeded")
    books.interrupt()
    assert books.conversation.deadline(books.now) is None
    books.wait(5)
    books.say("hello?")
    assert len(books.asked) == 2


def test_an_answer_that_is_cut_off_is_complete_as_it_is() -> None:
    books = speaking()
    books.done("r1", "incomplete")
    assert books.ends == [("response-1", "incomplete")]
    assert books.errors == []
    assert len(books.asked) == 1


def test_an_answer_that_the_provider_cancels_for_reasons_of_its_own() -> None:
    books = speaking()
    books.done("r1", "cancelled")
    assert books.ends == [("response-1", "cancelled")]


def test_the_words_so_far_are_all_there_will_be() -> None:
    """A recoverable error flushes the pending transcript (P2); what is without a word may still come."""
    books = Books()
    books.started("u1")
    books.hears("u1", "can I move")
    books.stopped("u1")
    books.created("v1")
    books.done("v1", "failed", error="server_error")
    assert books.finals == [("can I move", "response-1")]
    books.heard("u1", "Can I move my booking?")
    assert len(books.finals) == 1
    assert [error.code for error in books.errors] == [ErrorCode.PROVIDER_UNAVAILABLE]
    assert books.asked == ["response-1"]


def test_words_that_have_not_begun_are_not_given_up() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.done("v1", "failed", error="server_error")
    books.heard("u1", "Can I move my booking?")
    assert books.finals == [("Can I move my booking?", "response-1")]


# --- error events -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(BENIGN))
def test_what_does_not_matter(code: str, caplog: pytest.LogCaptureFixture) -> None:
    books = speaking()
    with caplog.at_level("INFO"):
        books.error(code)
    assert code in caplog.text
    books.done("r1")
    assert books.errors == []
    assert books.failures == []
    assert books.ends == [("response-1", "completed")]
    assert len(books.asked) == 1


def test_a_truncation_beyond_the_end_does_not_matter() -> None:
    books = words_only()
    books.error(None, message="Audio content of 300ms is already shorter than 385ms")
    assert books.did == []


@pytest.mark.parametrize("code", sorted(FATAL))
@pytest.mark.parametrize("how", ["event", "response"])
def test_what_ends_the_session(code: str, how: str) -> None:
    books = speaking()
    books.conversation.locale = "de-AT"
    if how == "event":
        books.error(code)
    else:
        books.done("r1", "failed", error=code)
    (failure,) = books.failures
    assert failure.code is FATAL[code]
    assert not failure.recoverable
    assert books.errors == []
    assert books.ends == ([("response-1", "failed")] if how == "response" else [])
    if code == "session_expired":
        assert failure.message == "Das Gespräch hat die längste Dauer erreicht, die der Sprachdienst erlaubt."


def test_an_error_out_of_the_blue() -> None:
    books = words_only()
    books.error("server_error", kind="server_error")
    assert books.since(0) == ["RealtimeError", SORRY, "ask response-1"]


def test_an_error_while_an_answer_is_given() -> None:
    books = speaking()
    books.error("server_error", kind="server_error")
    books.sound("r1", 200)
    books.done("r1")
    assert books.ends == [("response-1", "completed")]
    assert books.sent[-2:] == [SORRY, "ask response-2"]


def test_a_request_that_is_refused() -> None:
    books = asked()
    books.error("invalid_value", event_id=books.requests[-1]["event_id"])
    assert books.since(3) == ["RealtimeError", SORRY, "ask response-1"]
    for _ in range(MAX_APOLOGIES):
        books.error("invalid_value", event_id=books.requests[-1]["event_id"])
    assert books.ends == [("response-1", "failed")]
    assert books.conversation.is_quiet


def test_a_request_that_is_refused_after_it_was_cut() -> None:
    books = asked()
    event_id = books.requests[-1]["event_id"]
    books.interrupt()
    books.say("stop")
    books.error("invalid_value", event_id=event_id)
    assert books.errors == []
    assert books.asked == ["response-1", "response-2"]


def test_a_cut_request_that_meets_another_response() -> None:
    books = Books()
    books.instruct("one")
    books.started("u1")
    books.refuse_active()
    books.stopped("u1")
    books.created("v1")
    books.done("v1")
    assert len(books.asked) == 1


# --- lost connections (case C30) --------------------------------------------------------------------------------------


def test_an_answer_that_was_being_given_has_failed() -> None:
    books = speaking()
    books.lose()
    assert books.since(-2) == ["end response-1 failed", "RealtimeError"]
    mark = len(books.did)
    books.say("are you there?")
    assert books.since(mark) == []
    books.connect(Message(Role.USER, "hello"), Message(Role.ASSISTANT, "Well"))
    assert books.sent[-4:] == ["user: hello", "assistant: Well", SORRY, "ask response-2"]
    books.created("r2", "response-2")
    books.done("r2")
    assert books.since(-3) == [
        "final 'are you there?' response-3",
        "user: are you there?",
        "ask response-3",
    ] or books.sent[-2:] == ["user: are you there?", "ask response-3"]


@pytest.mark.parametrize("stage", [asked, begun])
def test_an_answer_that_had_not_begun_is_asked_for_again(stage: Callable[[], Books]) -> None:
    books = stage()
    books.lose()
    assert books.ends == []
    books.connect()
    assert books.sent[-2:] == ["user: hello", "ask response-1"]
    assert books.finals == [("hello", "response-1")], "it is echoed once"
    books.created("r9", "response-1")
    books.speak("r9", "Hi.", 100)
    books.done("r9")
    assert books.ends == [("response-1", "completed")]
    assert SORRY not in books.sent


def test_what_waits_keeps_its_order() -> None:
    books = asked()
    books.instruct("two")
    books.instruct("three")
    books.lose()
    books.instruct("four")
    books.connect()
    for number, answer in enumerate(["response-1", "response-2", "response-3", "response-4"]):
        assert books.asked[-1] == answer
        books.created(f"n{number}", answer)
        books.done(f"n{number}")
    assert books.sent[2:] == [
        "user: hello",
        "ask response-1",
        "system: Instruction: two",
        "ask response-2",
        "system: Instruction: three",
        "ask response-3",
        "system: Instruction: four",
        "ask response-4",
    ]


def test_an_idle_connection_is_lost() -> None:
    books = words_only()
    books.lose()
    books.connect()
    assert books.since(0) == ["RealtimeError"]


def test_a_connection_that_is_replaced_on_purpose() -> None:
    books = words_only()
    books.lose(is_told=False)
    books.connect()
    assert books.did == []


def test_the_user_was_speaking() -> None:
    books = Books()
    books.started("u1")
    books.hears("u1", "can I mo")
    books.lose()
    assert books.since(-3) == ["EmotionalState", "final 'can I mo'", "RealtimeError"]
    books.connect()
    assert books.sent[-2:] == [SORRY, "ask response-1"]
    books.heard("u1", "can I move")
    assert len(books.finals) == 1


@pytest.mark.parametrize("answered", [True, False])
def test_the_user_had_spoken(answered: bool) -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.heard("u1", "can I move")
    if answered:
        books.created("v1")
    books.lose()
    books.connect(Message(Role.USER, "can I move"))
    assert books.sent[-3:-1] == ["user: can I move", SORRY]
    assert books.ends == ([("response-1", "failed")] if answered else [])


def test_calls_of_a_lost_connection_are_told_as_notes() -> None:
    books = begun()
    books.call("r1", "c1")
    books.done("r1")
    books.lose()
    assert books.ends == [("response-1", "failed")]
    books.settle("c1", "found")
    books.connect()
    assert books.sent[-3:] == ["system: The tool look has finished. Its result: found", SORRY, "ask response-2"]
    assert "output c1" not in books.sent


def test_an_interruption_without_a_connection() -> None:
    books = speaking()
    books.lose()
    books.interrupt("response-1", 300, "Well")
    books.say("hello?")
    books.connect()
    assert books.sent[2:] == ["user: hello?", "ask response-3"], "the apology is moot, and there is nothing to cut"
    books.again("hello?")


def test_steering_without_a_connection() -> None:
    books = words_only()
    books.instruct("context 0", InstructionType.SUPPORTING_CONTEXT)
    books.lose()
    for number in range(1, KEPT_CONTEXTS + 1):
        books.instruct(f"context {number}", InstructionType.SUPPORTING_CONTEXT)
    books.take(Image(b"\xff", "image/png"))
    books.connect()
    assert books.sent[1:] == [*(f"system: context {n}" for n in range(1, KEPT_CONTEXTS + 1)), "user: input_image"]


def test_the_first_connection_is_told_everything_once() -> None:
    books = Books(WORDS_ONLY, connects=False)
    books.instruct("It is noon.", InstructionType.SUPPORTING_CONTEXT)
    books.take(Action("intro"))
    assert books.finals == [("#intro", "response-1")]
    books.connect()
    assert books.sent == ["system: It is noon.", "user: #intro", "ask response-1"]


def test_a_new_connection_is_told_the_end_of_the_conversation() -> None:
    books = words_only()
    books.lose(is_told=False)
    messages = [Message(Role.USER, f"line {number}") for number in range(RETOLD_MESSAGES + 5)]
    books.connect(*messages, Message(Role.INSTRUCTION, "secret"), Message(Role.ASSISTANT, " "))
    assert books.sent == [f"user: line {number}" for number in range(5, RETOLD_MESSAGES + 5)]


def test_lost_again_and_again() -> None:
    """An apology that is lost is asked for again, and not without end."""
    books = speaking()
    for _ in range(5):
        books.lose()
        books.connect()
    assert books.sent.count("ask response-2") == 5
    books.created("r2", "response-2")
    books.words("r2", "Sorry")
    for number in range(5):
        books.lose()
        books.connect()
        if books.asked[-1] != "response-2":
            books.created(f"x{number}", books.asked[-1])
            books.words(f"x{number}", "Sorry")
    assert len(set(books.asked)) <= 1 + MAX_APOLOGIES


def test_deadlines_of_a_lost_connection_are_gone() -> None:
    books = speaking()
    books.interrupt("response-1", 100)
    books.lose()
    assert books.conversation.deadline(books.now) is None
    books.again("hello")
    books.connect()
    assert books.sent[-2:] == [f"system: {GO_ON}", "ask response-2"]
