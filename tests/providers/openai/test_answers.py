"""The rules without a socket: what is asked for and when, answers, tools, the goodbye."""

import pytest

from engine.elements import (
    Action,
    Image,
    InputAudio,
    InstructionType,
    RealtimeCommand,
    Sensory,
    Transcript,
)
from engine.errors import ErrorCode
from engine.texts import Sentence, say
from providers.openai.answers import MAX_ROUNDS, REMEMBERED
from providers.openai.asking import BEGIN_SECONDS, MAX_WAITING, RETRY_SECONDS, UNASKED_SECONDS
from providers.openai.conversation import KEPT_IMAGES, MAX_APOLOGIES
from providers.openai.properties import OpenAIProperties
from providers.openai.texts import GO_ON, INTERRUPTED, STILL_RUNNING
from tests.providers.openai.books import Books

WORDS_ONLY = OpenAIProperties(stt_provider="Local")
"""The engine recognizes; the provider gets words."""


def words_only() -> Books:
    return Books(WORDS_ONLY)


# --- one answer -------------------------------------------------------------------------------------------------------


def test_an_answer() -> None:
    books = words_only()
    books.say("hello")
    assert books.since(0) == ["final 'hello' response-1", "user: hello", "ask response-1"]
    books.created("r1", "response-1")
    books.item("r1", "i1")
    books.words("r1", "Hi", "i1")
    books.sound("r1", 200, "i1")
    books.words("r1", ".", "i1")
    books.item_done("r1", "i1")
    books.done("r1")
    assert books.since(3) == ["token 'Hi' response-1", "SpeechItem", "token '.' response-1", "end response-1 completed"]
    assert (books.said("response-1"), books.sound_of("response-1")) == ("Hi.", 200)
    assert books.conversation.is_quiet


def test_the_echo_is_that_of_the_input() -> None:
    books = words_only()
    books.say("hello", "Soniox")
    assert books.elements == [Transcript("hello", provider="Soniox", response_id="response-1")]
    books.created("r1", "response-1")
    books.done("r1")
    books.take(Action("intro"))
    assert books.elements[-1] == Transcript("#intro", is_synthetic=True, provider="OpenAI", response_id="response-2")
    assert books.sent[-2:] == ["user: #intro", "ask response-2"]


def test_written_answers() -> None:
    books = Books(WORDS_ONLY, text_only=True)
    books.say("hello")
    books.created("r1", "response-1")
    books.words("r1", "Hi.")
    books.done("r1")
    assert books.since(3) == ["token 'Hi.' response-1", "end response-1 completed"]


def test_empty_pieces_are_nothing() -> None:
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.words("r1", "")
    books.sound("r1", 0)
    books.done("r1")
    assert books.since(3) == ["end response-1 completed"]


def test_what_needs_no_answer() -> None:
    books = words_only()
    books.take(Sensory({"light": 1}))
    books.take(InputAudio(b"\0\0"))
    books.instruct("It is noon.", InstructionType.SUPPORTING_CONTEXT)
    assert books.since(0) == ["system: It is noon."]
    assert books.conversation.is_quiet


def test_usage_counts_whatever_became_of_the_response() -> None:
    books = words_only()
    books.say("one")
    books.created("r1", "response-1")
    books.done("r1", usage=(100, 50, 40))
    books.say("two")
    books.created("r2", "response-2")
    books.interrupt("response-2")
    books.done("r2", "cancelled", usage=(80, 10, 0))
    books.say("three")
    books.created("r3", "response-3")
    books.done("r3", "failed", error="server_error", usage=(60, 0, 0))
    books.created("r4", "response-3")
    books.done("r4")
    assert (books.usage.input, books.usage.output, books.usage.cached) == (240, 60, 40)


def test_images() -> None:
    books = words_only()
    for _ in range(KEPT_IMAGES + 2):
        books.take(Image(b"\xff\xd8", "image/jpeg"))
    created = [frame["item"]["id"] for frame in books.frames if frame["type"] == "conversation.item.create"]
    assert len(created) == KEPT_IMAGES + 2
    assert [frame["item_id"] for frame in books.frames if frame["type"] == "conversation.item.delete"] == created[:2]
    assert books.frames[0]["item"]["content"][0]["image_url"] == "data:image/jpeg;base64,/9g="


# --- one at a time (case C16) -----------------------------------------------------------------------------------------


def test_one_response_is_asked_for_at_a_time() -> None:
    books = words_only()
    books.say("hello")
    books.instruct("Mention the discount.")
    books.instruct("Ask for the date.", InstructionType.COMMENTARY)
    assert books.asked == ["response-1"]
    books.created("r1", "response-1")
    assert books.asked == ["response-1"]
    books.done("r1")
    assert books.sent[2:] == ["system: Instruction: Mention the discount.", "ask response-2"]
    books.created("r2", "response-2")
    books.done("r2")
    assert books.sent[4:] == ["system: Instruction: Say: Ask for the date.", "ask response-3"]
    books.created("r3", "response-3")
    books.done("r3")
    assert [answer for answer, _ in books.ends] == ["response-1", "response-2", "response-3"]
    assert books.finals == [("hello", "response-1")]


def test_an_instruction_that_says_so_itself() -> None:
    books = words_only()
    books.instruct("Instruction: be brief.")
    assert books.sent[0] == "system: Instruction: be brief."


def test_an_input_waits_for_its_echo_too() -> None:
    """Inputs inside a window are answered in order, each behind the end of the one before."""
    books = words_only()
    books.say("one")
    books.created("r1", "response-1")
    books.say("two")
    assert books.finals == [("one", "response-1")]
    books.done("r1")
    assert books.since(3)[0] == "end response-1 completed"
    assert books.finals == [("one", "response-1"), ("two", "response-2")]


def test_too_many_requests() -> None:
    books = words_only()
    books.say("one")
    for number in range(MAX_WAITING + 1):
        books.instruct(f"instruction {number}")
    assert [error.code for error in books.errors] == [ErrorCode.TOO_BUSY]


def test_a_response_of_the_providers_own_comes_first() -> None:
    """Ours is refused while the provider answers by itself; it is asked for when that is done, with nothing told twice."""
    books = Books()
    books.instruct("Mention the discount.")
    books.created("v1")
    books.refuse_active()
    books.speak("v1", "At nine.", 300)
    assert books.asked == ["response-1"]
    books.done("v1")
    assert books.asked == ["response-1", "response-1"]
    assert books.sent.count("system: Instruction: Mention the discount.") == 1
    books.created("r1", "response-1")
    books.done("r1")
    assert books.ends == [("response-2", "completed"), ("response-1", "completed")]
    assert books.errors == []


def test_a_refusal_before_the_other_response_is_seen() -> None:
    books = Books()
    books.instruct("Mention the discount.")
    books.refuse_active()
    books.created("v1")
    books.wait(RETRY_SECONDS)
    assert books.asked == ["response-1"], "another one is active"
    books.done("v1")
    assert books.asked == ["response-1", "response-1"]


def test_a_refusal_by_a_response_that_is_never_seen() -> None:
    books = words_only()
    books.instruct("Mention the discount.")
    books.refuse_active()
    books.wait(RETRY_SECONDS - 0.01)
    assert books.asked == ["response-1"]
    books.wait(0.01)
    assert books.asked == ["response-1", "response-1"]
    books.error("conversation_already_has_active_response")
    books.wait(RETRY_SECONDS)
    assert len(books.asked) == 3, "without turn detection it can only be ours that was refused"


def test_a_request_taken_for_refused_that_begins_all_the_same() -> None:
    books = words_only()
    books.say("hello")
    books.refuse_active()
    books.created("r1", "response-1")
    books.speak("r1", "Hi.", 100)
    books.done("r1")
    books.wait(10)
    assert books.asked == ["response-1"]
    assert books.ends == [("response-1", "completed")]


def test_the_provider_could_not_answer_the_user() -> None:
    """Its own request met one of ours: the user is answered behind that."""
    books = Books()
    books.started("u1")
    books.say("typed")
    books.created("r1", "response-1")
    books.stopped("u1")
    books.error("conversation_already_has_active_response")
    books.heard("u1", "spoken")
    books.speak("r1", "Yes.", 100)
    books.done("r1")
    assert books.asked == ["response-1", "response-2"]
    books.created("r2", "response-2")
    books.speak("r2", "And yes.", 100)
    books.done("r2")
    assert books.ends == [("response-1", "completed"), ("response-2", "completed")]


def test_nothing_is_asked_for_while_the_provider_is_going_to_answer() -> None:
    """It would be refused, or be said over the user's words."""
    books = Books()
    books.started("u1")
    books.instruct("Mention the discount.")
    books.stopped("u1")
    assert books.asked == []
    books.created("v1")
    books.speak("v1", "At nine.", 100)
    books.done("v1")
    assert books.asked == ["response-1"]


def test_the_provider_does_not_answer_the_user() -> None:
    """Then it is asked to; should it do so by itself after all, it is asked for nothing else."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.wait(UNASKED_SECONDS - 0.01)
    assert books.asked == []
    books.wait(0.01)
    assert books.asked == ["response-1"]
    books.heard("u1", "hello?")
    books.created("v1")
    books.refuse_active()
    books.speak("v1", "Yes.", 100)
    books.done("v1")
    books.wait(60)
    assert books.asked == ["response-1"]
    assert books.ends == [("response-2", "completed")]


def test_typed_words_before_the_provider_answers_spoken_ones() -> None:
    """One answer is enough."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.interrupt()
    books.say("typed")
    books.created("v1")
    assert books.sent[-1] == "cancel v1"
    books.refuse_active()
    books.done("v1", "cancelled")
    assert books.asked == ["response-1", "response-1"]
    books.created("r1", "response-1")
    books.speak("r1", "Yes.", 100)
    books.done("r1")
    assert books.ends == [("response-1", "completed")]


def test_it_is_not_asked_again_for_what_is_being_answered() -> None:
    """The engine has lost patience; but the words are only late, or a noise is answered by the provider itself."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.again("earlier words")
    books.created("v1")
    books.again("earlier words")
    books.speak("v1", "Yes.", 100)
    books.done("v1")
    books.again("earlier words")
    assert books.asked == []
    books.heard("u1", "hello")
    books.again("hello")
    assert books.asked == ["response-2"]


def test_a_request_that_nothing_comes_of() -> None:
    books = words_only()
    books.say("hello")
    books.wait(BEGIN_SECONDS - 0.01)
    assert books.asked == ["response-1"]
    books.wait(0.01)
    assert books.asked == ["response-1", "response-1"]
    assert books.finals == [("hello", "response-1")]


def test_another_response_of_the_provider_while_tools_run() -> None:
    """Nothing of the kind is known of the service; both answers come to their end."""
    books = Books()
    books.say("hello")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.done("r1")
    books.created("v1")
    books.speak("v1", "Hm.", 100)
    books.settle("c1")
    assert books.asked == ["response-1"]
    books.done("v1")
    assert books.asked == ["response-1", "response-1"]
    books.created("r2", "response-1")
    books.done("r2")
    assert sorted(books.ends) == [("response-1", "completed"), ("response-2", "completed")]


def test_old_answers_are_forgotten() -> None:
    books = words_only()
    for number in range(1, REMEMBERED + 10):
        books.say("hello")
        books.created(f"r{number}", f"response-{number}")
        books.speak(f"r{number}", "Hi.", 100)
        books.done(f"r{number}")
    books.interrupt("response-1", 50)
    assert "truncate" not in books.sent[-1]


def test_events_of_unknown_responses() -> None:
    books = words_only()
    books.words("r0", "Hi")
    books.sound("r0", 20)
    books.item("r0", "i0")
    books.item_done("r0", "i0")
    books.call("r0", "c0")
    books.done("r0", usage=(1, 1, 0))
    assert books.did == []
    assert books.usage.input == 1


# --- asked again ------------------------------------------------------------------------------------------------------


def test_asked_again_from_where_it_was_cut() -> None:
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.speak("r1", "Hi there.", 800)
    books.done("r1")
    books.interrupt("response-1", 300, "Hi")
    books.again("hello")
    assert books.elements[-1] == Transcript("hello", is_synthetic=True, provider="OpenAI", response_id="response-2")
    assert books.sent[-3:] == ["truncate item_r1 300", f"system: {GO_ON}", "ask response-2"]


def test_asked_again_when_nothing_was_heard() -> None:
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.interrupt("response-1", 0)
    books.done("r1", "cancelled")
    books.again("hello")
    assert books.sent[-2:] == ["cancel r1", "ask response-2"]
    assert books.sent.count("user: hello") == 1


# --- tools ------------------------------------------------------------------------------------------------------------


def test_a_tool() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.speak("r1", "Let me see.", 300)
    books.call("r1", "c1", "look", '{"a":1}')
    assert books.calls == ["c1"]
    books.done("r1")
    assert books.ends == []
    books.settle("c1", '{"found":true}')
    assert books.sent[2:] == ["output c1", "ask response-1"]
    books.created("r2", "response-1")
    books.speak("r2", "It is there.", 300)
    books.done("r2")
    assert books.ends == [("response-1", "completed")]
    assert books.said("response-1") == "Let me see.\nIt is there."


def test_a_message_is_complete_before_the_tool_runs() -> None:
    """Its last sentence is not held back until the tool has finished, and is none with what follows."""
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.speak("r1", "One.", 100, "i1")
    books.speak("r1", "Two.", 100, "i2")
    books.call("r1", "c1")
    books.done("r1")
    assert books.said("response-1") == "One.\nTwo.\n"
    assert books.since(-1) == ["start c1"]


def test_a_tool_that_is_faster_than_the_response() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.settle("c1")
    assert books.sent[2:] == ["output c1"], "nothing is asked for before the response is done"
    books.done("r1")
    assert books.sent[3:] == ["ask response-1"]


def test_several_calls_in_one_response() -> None:
    """Each gets its output, and the model is asked to go on once (case C14)."""
    books = words_only()
    books.say("weather")
    books.created("r1", "response-1")
    for call_id in ("c1", "c2", "c3"):
        books.call("r1", call_id)
    books.done("r1")
    books.settle("c3")
    books.settle("c1")
    assert books.asked == ["response-1"]
    books.settle("c2", '{"error":"no"}', is_error=True)
    assert books.sent[2:] == ["output c3", "output c1", "output c2", "ask response-1"]


def test_a_call_that_is_told_twice_is_started_once() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.call("r1", "c1")
    assert books.calls == ["c1"]


def test_a_result_that_comes_twice_is_told_once() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.settle("c1")
    books.settle("c1")
    assert books.sent.count("output c1") == 1


def test_a_call_that_was_cut_in_its_arguments_is_none() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1", arguments='{"a":', status="incomplete")
    books.done("r1", "incomplete")
    assert books.calls == []
    assert books.ends == [("response-1", "incomplete")]


def test_tools_without_end() -> None:
    books = words_only()
    books.say("look")
    for number in range(MAX_ROUNDS + 1):
        books.created(f"r{number}", "response-1")
        books.call(f"r{number}", f"c{number}")
        books.done(f"r{number}")
        books.settle(f"c{number}")
    assert books.ends == [("response-1", "incomplete")]
    assert len(books.errors) == 1
    assert len(books.asked) == MAX_ROUNDS + 1


def test_a_call_of_a_dead_response_gets_its_output() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.interrupt("response-1", 0)
    books.call("r1", "c1")
    books.done("r1", "cancelled")
    assert books.calls == []
    books.say("stop")
    assert books.sent[-3:] == ["output c1", "user: stop", "ask response-2"]
    assert books.frames[-3]["item"]["output"] == INTERRUPTED


@pytest.mark.parametrize("first", ["result", "interruption"])
def test_a_call_that_an_interruption_stops(first: str) -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.speak("r1", "Let me see.", 300)
    books.call("r1", "c1")
    books.done("r1")
    if first == "interruption":
        books.interrupt("response-1", 200)
    books.settle("c1", '{"error":"The user interrupted this call."}', is_error=True, interrupted=True)
    if first == "result":
        books.interrupt("response-1", 200)
    books.say("stop")
    assert books.sent.count("output c1") == 1
    assert "truncate item_r1 200" in books.sent
    assert books.sent[-2:] == ["user: stop", "ask response-2"]
    assert books.ends in ([], [("response-1", "cancelled")])


def test_a_call_that_goes_on_after_an_interruption() -> None:
    """The service wants an output before the next response; the result follows when it is there."""
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.done("r1")
    books.interrupt("response-1", 0)
    books.say("and now?")
    assert books.sent[2:] == ["output c1", "user: and now?", "ask response-2"]
    assert books.frames[2]["item"]["output"] == STILL_RUNNING
    books.settle("c1", "found", late=True)
    assert books.sent[5:] == ["system: The tool look has finished. Its result: found"]
    books.created("r2", "response-2")
    books.done("r2")
    assert books.ends == [("response-2", "completed")]


def test_a_late_result_before_the_next_request_is_its_output() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.done("r1")
    books.interrupt("response-1", 0)
    books.settle("c1", "found", late=True)
    assert books.sent[2:] == ["output c1"]
    books.say("and?")
    assert books.sent[3:] == ["user: and?", "ask response-2"]


# --- the goodbye ------------------------------------------------------------------------------------------------------


def should_end(books: Books) -> list[str]:
    return [each.response_id for each in books.elements if isinstance(each, RealtimeCommand)]


def test_the_goodbye_was_said_with_the_call() -> None:
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.speak("r1", "Goodbye.", 500)
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", ends_session=True)
    assert books.asked == ["response-1"], "it is not said twice"
    assert books.since(-2) == ["RealtimeCommand", "end response-1 completed"]
    assert should_end(books) == ["response-1"]


def test_the_goodbye_comes_after_the_call() -> None:
    """What was said before another tool is no goodbye."""
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.speak("r1", "Let me see.", 500)
    books.call("r1", "c1", "look")
    books.done("r1")
    books.settle("c1")
    books.created("r2", "response-1")
    books.call("r2", "c2", "finish_session")
    books.done("r2")
    books.settle("c2", ends_session=True)
    assert len(books.asked) == 3
    books.created("r3", "response-1")
    books.speak("r3", "Goodbye.", 500)
    books.done("r3")
    assert books.since(-2) == ["RealtimeCommand", "end response-1 completed"]


def test_a_model_that_says_no_goodbye_ends_all_the_same() -> None:
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", ends_session=True)
    books.created("r2", "response-1")
    books.call("r2", "c2", "finish_session")
    books.done("r2")
    books.settle("c2", ends_session=True)
    assert should_end(books) == ["response-1"]
    assert books.ends == [("response-1", "completed")]


def test_a_finish_that_failed_ends_nothing() -> None:
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.speak("r1", "Goodbye.", 500)
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", ends_session=True, is_error=True)
    books.created("r2", "response-1")
    books.done("r2")
    assert should_end(books) == []


def test_an_instruction_that_ends_the_session() -> None:
    books = words_only()
    books.instruct("Thank you, goodbye.", ends_session=True)
    books.created("r1", "response-1")
    books.speak("r1", "Thank you, goodbye.", 500)
    assert should_end(books) == []
    books.done("r1")
    assert books.since(-2) == ["RealtimeCommand", "end response-1 completed"]
    assert should_end(books) == ["response-1"]


def test_an_instruction_whose_model_calls_finish_before_it_speaks() -> None:
    books = words_only()
    books.instruct("Thank you, goodbye.", ends_session=True)
    books.created("r1", "response-1")
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", "Say the goodbye.")
    books.created("r2", "response-1")
    books.speak("r2", "Goodbye.", 500)
    books.done("r2")
    assert books.since(-2) == ["RealtimeCommand", "end response-1 completed"]


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_goodbye_that_breaks_off_ends_the_session_all_the_same(status: str) -> None:
    books = words_only()
    books.instruct("Goodbye.", ends_session=True)
    books.created("r1", "response-1")
    books.speak("r1", "Good", 100)
    books.done("r1", status)
    assert should_end(books) == ["response-1"]
    assert books.since(-2) == ["RealtimeCommand", f"end response-1 {status}"]
    assert len(books.asked) == 1


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_goodbye_that_fails_is_said_in_another_try(failures: int) -> None:
    """And nobody is asked to say anything again. After three the session ends without."""
    books = words_only()
    books.instruct("Goodbye.", ends_session=True)
    for number in range(failures):
        books.created(f"r{number}", "response-1")
        books.done(f"r{number}", "failed", error="server_error")
    if failures <= MAX_APOLOGIES:
        assert should_end(books) == []
        books.created("r9", "response-1")
        books.speak("r9", "Goodbye.", 300)
        books.done("r9")
    assert should_end(books) == ["response-1"]
    assert books.asked == ["response-1"] * min(failures + 1, 3)
    assert [line for line in books.sent if "Goodbye." in line] == ["system: Instruction: Goodbye."]
    assert books.conversation.is_quiet


# --- planning approves the end (S0) -----------------------------------------------------------------------------------

SUPERSEDED = f"system: {say(Sentence.END_SUPERSEDED, 'en')}"


def end_requested() -> Books:
    """The user wants to leave; the model asks for the end, says its neutral sentence and waits."""
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", "Wait.", requests_end=True)
    books.created("r2", "response-1")
    books.speak("r2", "One moment.", 500)
    books.done("r2")
    return books


def test_the_model_asks_for_the_end_and_waits() -> None:
    books = end_requested()
    assert books.asked == ["response-1", "response-1"]
    assert books.ends == [("response-1", "completed")]
    assert should_end(books) == []
    books.instruct("Thank you, goodbye.", ends_session=True)
    assert SUPERSEDED not in books.sent
    books.created("r3", "response-2")
    books.speak("r3", "Thank you, goodbye.", 500)
    books.done("r3")
    assert should_end(books) == ["response-2"]


def test_what_was_said_with_the_request_is_not_yet_the_neutral_sentence() -> None:
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.speak("r1", "Hm.", 100)
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", "Wait.", requests_end=True)
    assert books.asked == ["response-1", "response-1"]


@pytest.mark.parametrize("spoken", [True, False])
def test_a_model_that_asks_for_the_end_again_is_not_asked_to_go_on(spoken: bool) -> None:
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", "Wait.", requests_end=True)
    books.created("r2", "response-1")
    if spoken:
        books.speak("r2", "One moment.", 500)
    books.call("r2", "c2", "finish_session")
    books.done("r2")
    books.settle("c2", "Wait.", requests_end=True)
    assert books.asked == ["response-1", "response-1"]
    assert books.ends == [("response-1", "completed")]


def test_another_tool_beside_the_request_still_gets_its_word() -> None:
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.settle("c1", "Wait.", requests_end=True)
    books.created("r2", "response-1")
    books.call("r2", "c2", "weather")
    books.done("r2")
    books.settle("c2", "sunny")
    assert len(books.asked) == 3
    books.created("r3", "response-1")
    books.speak("r3", "One moment.", 500)
    books.done("r3")
    assert books.ends == [("response-1", "completed")]


def test_new_words_supersede_the_request() -> None:
    """The model knows right before it reads the user, and only once."""
    books = end_requested()
    books.interrupt()
    books.say("wait, one more thing")
    at = books.sent.index("user: wait, one more thing")
    assert books.sent[at - 1] == SUPERSEDED
    books.interrupt()
    books.say("and another")
    assert books.sent.count(SUPERSEDED) == 1


def test_words_after_planning_has_answered_supersede_nothing() -> None:
    books = end_requested()
    books.instruct("First ask for the date.")
    books.interrupt()
    books.say("yes?")
    assert SUPERSEDED not in books.sent


def test_a_late_request_is_none() -> None:
    """The user went on before the tool had answered: nothing is waited for."""
    books = words_only()
    books.say("bye")
    books.created("r1", "response-1")
    books.call("r1", "c1", "finish_session")
    books.done("r1")
    books.interrupt("response-1", 0, "")
    books.say("no, wait")
    books.settle("c1", "Wait.", requests_end=True)
    books.interrupt()
    books.say("hello?")
    assert SUPERSEDED not in books.sent


def test_an_approved_goodbye_that_also_calls_finish_is_not_asked_to_go_on() -> None:
    books = end_requested()
    books.instruct("Thank you, goodbye.", ends_session=True)
    books.created("r3", "response-2")
    books.speak("r3", "Thank you, goodbye.", 500)
    books.call("r3", "c3", "finish_session")
    books.done("r3")
    books.settle("c3", "Say it.", ends_session=True)
    assert books.asked == ["response-1", "response-1", "response-2"]
    assert should_end(books) == ["response-2"]


def test_a_goodbye_that_is_interrupted() -> None:
    """The end is cancelled, and the model knows before it hears the user."""
    books = words_only()
    books.instruct("Goodbye.", ends_session=True)
    books.created("r1", "response-1")
    books.words("r1", "Thank you")
    books.sound("r1", 400)
    books.interrupt("response-1", 300, "Thank")
    books.say("wait")
    books.done("r1", "cancelled")
    assert should_end(books) == []
    assert books.sent[2:] == [
        f"system: {say(Sentence.GOODBYE_CUT, 'en')}",
        "cancel r1",
        "truncate item_r1 300",
        "user: wait",
        "ask response-2",
    ]


# --- the end of the input ---------------------------------------------------------------------------------------------


def test_the_input_ends() -> None:
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.end_input()
    assert not books.conversation.is_done
    books.speak("r1", "Hi.", 100)
    books.done("r1")
    assert books.ends == [("response-1", "completed")]
    assert books.conversation.is_done


def test_the_input_ends_while_a_tool_runs() -> None:
    """Its result is an input too, so none will come."""
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.done("r1")
    books.end_input()
    assert books.ends == [("response-1", "completed")]
    assert books.conversation.is_done


def test_the_input_ends_before_a_call() -> None:
    books = words_only()
    books.say("look")
    books.created("r1", "response-1")
    books.call("r1", "c1")
    books.end_input()
    books.done("r1")
    assert books.ends == [("response-1", "completed")]


def test_the_input_ends_before_the_user_is_answered() -> None:
    books = Books()
    books.started("u1")
    books.end_input()
    assert not books.conversation.is_done
    books.stopped("u1")
    assert not books.conversation.is_done
    books.created("v1")
    books.done("v1")
    assert books.conversation.is_done
