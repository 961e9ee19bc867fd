"""The rules without a socket: a user who speaks to the provider itself, the words in their order, push-to-talk."""

from collections.abc import Callable
from functools import partial

import pytest

from engine.elements import Commit, EmotionalState, Partial, SpeakingState, Transcript
from engine.errors import ErrorCode
from providers.openai.asking import CUT_SECONDS
from providers.openai.microphone import GAP_SECONDS, HELD_SECONDS, MAX_SILENCE_SECONDS
from providers.openai.properties import OpenAIProperties, TurnDetection
from providers.openai.utterances import LATE_WORDS_SECONDS, MAX_OPEN, WORDS_SECONDS
from tests.providers.openai.books import Books

PUSH_TO_TALK = OpenAIProperties(turn_detection={"type": "none"})


def answered(books: Books, response_id: str, ms: int = 100) -> None:
    """The provider answers by itself."""
    books.created(response_id)
    books.speak(response_id, "Yes.", ms)
    books.done(response_id)


def states(books: Books) -> list[SpeakingState | None]:
    return [each.state for each in books.elements if isinstance(each, EmotionalState)]


def interims(books: Books) -> int:
    return sum(isinstance(each, Transcript) and each.is_interim for each in books.elements)


# --- a voice turn -----------------------------------------------------------------------------------------------------


def test_a_voice_turn() -> None:
    books = Books()
    books.audio()
    books.started("u1")
    books.hears("u1", "when do")
    books.hears("u1", " you open")
    books.stopped("u1")
    books.created("v1")
    books.heard("u1", "When do you open?")
    books.speak("v1", "At nine.", 300)
    books.done("v1")
    assert books.since(0) == [
        "append",
        "EmotionalState",
        "interim",
        "Partial",
        "Partial",
        "EmotionalState",
        "final 'When do you open?' response-1",
        "token 'At nine.' response-1",
        "SpeechItem",
        "end response-1 completed",
    ]
    assert states(books) == [SpeakingState.USER_SPEAKING, SpeakingState.USER_NOT_SPEAKING]
    assert [each for each in books.elements if isinstance(each, Partial)] == [
        Partial("when do", "OpenAI"),
        Partial("when do you open", "OpenAI"),
    ]
    assert books.elements[1] == Transcript(".", is_interim=True, provider="OpenAI")
    assert books.conversation.is_quiet


@pytest.mark.parametrize("at", range(5))
def test_the_words_come_at_any_time(at: int) -> None:
    """From before the response to after its end. A final names its answer, once that has begun."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    named = ["", *["response-1"] * 4][at]
    steps: list[Callable[[], None]] = [
        partial(books.created, "v1"),
        partial(books.item, "v1", "i1"),
        partial(books.words, "v1", "Yes.", "i1"),
        partial(books.done, "v1"),
    ]
    for step in steps[:at]:
        step()
    books.heard("u1", "open?")
    for step in steps[at:]:
        step()
    assert books.finals == [("open?", named)]
    assert books.ends == [("response-1", "completed")]
    assert books.conversation.is_quiet


def test_a_silent_answer_ends_behind_the_words_it_answers() -> None:
    """Before them nobody knows of it, and its end would be none."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.done("v1", "incomplete")
    assert books.ends == []
    books.heard("u1", "open?")
    assert books.since(-2) == ["final 'open?' response-1", "end response-1 incomplete"]


def test_that_there_were_no_words_is_said_behind_the_answer() -> None:
    """The turn then need not wait for any."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.heard("u1", " ")
    books.speak("v1", "Pardon?", 200)
    assert books.finals == []
    books.done("v1")
    assert books.since(-2) == ["end response-1 completed", "final '' response-1"]


def test_no_words_and_no_answer() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.heard("u1", "")
    assert books.finals == []
    books.started("u2")
    books.stopped("u2")
    books.created("v1")
    books.heard("u2", "hello")
    assert books.finals == [("hello", "response-1")]


def test_words_that_never_come_behind_an_answer() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    answered(books, "v1")
    books.wait(LATE_WORDS_SECONDS - 0.01)
    assert not books.conversation.is_quiet
    books.wait(0.01)
    assert books.finals == [("", "response-1")]
    books.heard("u1", "too late")
    assert books.finals == [("", "response-1")], "words that have left do not come back"
    assert books.conversation.is_quiet


# --- their order (case C10) -------------------------------------------------------------------------------------------


def test_finals_leave_in_order() -> None:
    books = Books()
    books.committed("u1")
    books.committed("u2")
    books.hears("u1", "I need a ta")
    books.hears("u2", "for")
    books.hears("u1", "xi")
    books.hears("u2", " two")
    books.heard("u2", "for two")
    assert books.finals == []
    books.heard("u1", "I need a taxi")
    assert books.finals == [("I need a taxi", ""), ("for two", "")]
    partials = [each.text for each in books.elements if isinstance(each, Partial)]
    assert partials == ["I need a ta", "I need a taxi"], "no partial has words of both"


def test_a_failed_transcription_holds_nobody_up() -> None:
    books = Books()
    books.committed("u1")
    books.committed("u2")
    books.heard("u2", "for two")
    books.not_heard("u1")
    assert books.finals == [("for two", "")]
    assert books.errors == []


def test_words_are_waited_for_no_longer_than_that() -> None:
    books = Books()
    books.committed("u1")
    books.hears("u1", "I need")
    books.committed("u2")
    books.heard("u2", "for two")
    books.wait(WORDS_SECONDS - 0.01)
    assert books.finals == []
    books.wait(0.01)
    assert books.finals == [("I need", ""), ("for two", "")]
    books.heard("u1", "I need a taxi")
    assert len(books.finals) == 2


def test_a_missing_transcription_model_is_told_once() -> None:
    books = Books(locale="cs-CZ")
    for item_id in ("u1", "u2"):
        books.started(item_id)
        books.stopped(item_id)
        answered(books, f"v{item_id}")
        books.not_heard(item_id, "DeploymentNotFound")
    assert [(error.code, error.message) for error in books.errors] == [
        (ErrorCode.RECOGNITION_FAILED, "Vaši řeč se nepodařilo zapsat.")
    ]


def test_very_many_utterances_without_words() -> None:
    books = Books()
    for number in range(MAX_OPEN + 5):
        books.committed(f"u{number}")
        books.hears(f"u{number}", f"words {number}")
    books.heard(f"u{MAX_OPEN + 4}", "the end")
    assert [text for text, _ in books.finals] == [f"words {number}" for number in range(5)]


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words_first", [True, False])
def test_a_user_who_goes_on_before_the_answer_begins(words_first: bool) -> None:
    """The engine has seen one interim, so it is one utterance: its words leave together, and name the answer to all of it."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.started("u2")
    books.done("v1", "cancelled")
    books.hears("u2", "for two")
    if words_first:
        books.heard("u1", "I need a taxi")
        assert books.finals == []
    books.stopped("u2")
    books.created("v2")
    if not words_first:
        books.heard("u1", "I need a taxi")
    books.speak("v2", "Where to?", 300)
    books.heard("u2", "for two")
    books.done("v2")
    assert books.finals == [("I need a taxi for two", "response-2")]
    assert books.ends == [("response-2", "completed")]


def test_a_user_who_goes_on_before_the_response_is_made() -> None:
    """The service begins it and cancels it at once."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.started("u2")
    books.created("v1")
    books.done("v1", "cancelled")
    books.stopped("u2")
    books.heard("u2", "for two")
    books.heard("u1", "I need a taxi")
    answered(books, "v2")
    assert books.finals == [("I need a taxi for two", "")]
    assert books.ends == [("response-2", "completed")]


def test_a_user_who_cuts_in_on_an_answer_has_said_two_things() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.words("v1", "Where")
    books.sound("v1", 200)
    books.started("u2")
    books.done("v1", "cancelled")
    books.interrupt("response-1", 100, "Where")
    books.stopped("u2")
    books.heard("u2", "for two")
    answered(books, "v2")
    books.heard("u1", "I need a taxi")
    assert books.finals == [("I need a taxi", "response-1"), ("for two", "response-2")]


def test_three_in_one() -> None:
    books = Books()
    for number in (1, 2):
        books.started(f"u{number}")
        books.stopped(f"u{number}")
        books.created(f"v{number}")
        books.done(f"v{number}", "cancelled") if number == 1 else None
    books.started("u3")
    books.done("v2", "cancelled")
    books.stopped("u3")
    books.heard("u3", "tomorrow")
    books.heard("u2", "")
    books.heard("u1", "a taxi")
    answered(books, "v3")
    assert books.finals == [("a taxi tomorrow", "")]


def test_a_noise_without_words() -> None:
    """It cuts the answer, and the service answers again by itself (case C02)."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.heard("u1", "book it for nine")
    books.created("v1")
    books.started("u2")
    books.done("v1", "cancelled")
    books.stopped("u2")
    books.heard("u2", "")
    answered(books, "v2")
    assert books.finals == [("book it for nine", ""), ("", "response-2")]
    assert books.ends == [("response-2", "completed")]


# --- interruptions ----------------------------------------------------------------------------------------------------


def test_the_provider_cancels_by_itself() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.words("v1", "Well")
    books.sound("v1", 400)
    books.started("u2")
    books.words("v1", " then")
    books.sound("v1", 200)
    books.interrupt("response-1", 250, "Well")
    assert "cancel v1" not in books.sent
    books.item_done("v1", "item_v1", "incomplete")
    books.done("v1", "cancelled")
    assert books.sent[-1:] == ["truncate item_v1 250"]
    assert books.said("response-1") == "Well"
    assert books.sound_of("response-1") == 400
    assert books.ends == []


def test_a_response_that_the_provider_does_not_cancel() -> None:
    """It is told to, then left behind."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.started("u2")
    assert "cancel v1" not in books.sent
    books.wait(CUT_SECONDS)
    assert "cancel v1" in books.sent
    books.say("typed")
    assert books.asked == []
    books.wait(CUT_SECONDS)
    assert len(books.asked) == 1


def test_what_was_asked_for_is_cut_when_it_begins() -> None:
    books = Books()
    books.instruct("Mention the discount.")
    books.started("u1")
    books.created("r1", "response-1")
    assert books.sent[-1] == "cancel r1"
    books.words("r1", "There is")
    books.done("r1", "cancelled")
    assert books.said("response-1") == ""
    assert books.ends == []


def test_what_waits_is_dropped_when_the_user_speaks() -> None:
    books = Books()
    books.instruct("one")
    books.created("r1", "response-1")
    books.instruct("two")
    books.started("u1")
    books.done("r1", "cancelled")
    books.stopped("u1")
    answered(books, "v1")
    assert books.asked == ["response-1"]


# --- the client's commit ----------------------------------------------------------------------------------------------


def test_the_client_says_that_it_is_complete() -> None:
    books = Books()
    books.started("u1")
    books.take(Commit())
    assert books.sent == ["commit"]
    books.committed("u1")
    assert books.sent == ["commit", "ask response-1"]
    assert states(books) == [SpeakingState.USER_SPEAKING, SpeakingState.USER_NOT_SPEAKING]
    books.created("r1", "response-1")
    books.heard("u1", "hello")
    assert books.finals == [("hello", "response-1")]


def test_a_commit_that_the_provider_is_faster_than() -> None:
    books = Books()
    books.started("u1")
    books.take(Commit())
    books.stopped("u1")
    books.created("v1")
    books.error("input_audio_buffer_commit_empty")
    assert books.asked == []
    assert books.errors == []


def test_a_commit_of_nothing() -> None:
    books = Books()
    books.take(Commit())
    Books(OpenAIProperties(stt_provider="Local")).take(Commit())
    assert books.sent == []


# --- push-to-talk -----------------------------------------------------------------------------------------------------


def test_push_to_talk() -> None:
    books = Books(PUSH_TO_TALK)
    for _ in range(10):
        books.audio(20)
    assert interims(books) == 1
    books.take(Commit())
    assert books.sent == ["append"] * 10 + ["commit", "ask response-1"]
    assert states(books) == [SpeakingState.USER_SPEAKING, SpeakingState.USER_NOT_SPEAKING]
    books.committed("u1")
    books.created("r1", "response-1")
    books.heard("u1", "hello")
    books.speak("r1", "Hi.", 200)
    books.done("r1")
    assert books.finals == [("hello", "response-1")]
    assert books.asked == ["response-1"]
    books.audio(200)
    assert interims(books) == 2


def test_too_short_a_press_is_none() -> None:
    books = Books(PUSH_TO_TALK)
    books.audio(80)
    books.take(Commit())
    assert books.sent == ["append", "clear"]
    assert states(books)[-1] is SpeakingState.USER_NOT_SPEAKING
    books.take(Commit())
    assert books.sent == ["append", "clear"]


def test_too_short_a_press_takes_no_answer_away() -> None:
    books = Books(PUSH_TO_TALK)
    books.audio(200)
    books.take(Commit())
    books.committed("u1")
    books.created("r1", "response-1")
    books.audio(50)
    books.take(Commit())
    books.done("r1", "cancelled")
    books.created("r2", "response-2")
    books.heard("u1", "hello")
    books.speak("r2", "Hi.", 200)
    books.done("r2")
    assert books.finals == [("hello", "response-2")]
    assert books.ends == [("response-2", "completed")]


def test_a_press_cuts_what_is_said() -> None:
    books = Books(PUSH_TO_TALK)
    books.audio(200)
    books.take(Commit())
    books.committed("u1")
    books.created("r1", "response-1")
    books.heard("u1", "hello")
    books.words("r1", "Well")
    books.sound("r1", 300)
    books.audio(20)
    books.interrupt("response-1", 150, "Well")
    books.done("r1", "cancelled")
    assert books.sent[3:] == ["cancel r1", "append", "truncate item_r1 150"]


def test_two_presses_before_the_answer_begins() -> None:
    books = Books(PUSH_TO_TALK)
    books.audio(200)
    books.take(Commit())
    books.committed("u1")
    books.created("r1", "response-1")
    books.audio(200)
    books.take(Commit())
    books.done("r1", "cancelled")
    books.committed("u2")
    books.created("r2", "response-2")
    books.heard("u2", "for two")
    books.heard("u1", "a taxi")
    assert books.finals == [("a taxi for two", "response-2")]


# --- gaps in the audio ------------------------------------------------------------------------------------------------


def silences(books: Books) -> int:
    return sum(frame["type"] == "input_audio_buffer.append" for frame in books.frames)


def test_a_client_that_falls_silent_is_silent() -> None:
    """The service measures silence in the audio: without any it would wait for the end of the utterance for ever."""
    books = Books()
    books.audio()
    books.started("u1")
    books.wait(GAP_SECONDS - 0.01)
    assert silences(books) == 1
    books.wait(0.01)
    assert silences(books) == 2
    assert len(books.frames[-1]["audio"]) == 24000 * 2 * GAP_SECONDS / 3 * 4
    books.wait(GAP_SECONDS)
    assert silences(books) == 3
    books.stopped("u1")
    books.wait(60)
    assert silences(books) == 3


def test_a_gap_is_not_filled_for_ever() -> None:
    books = Books()
    books.started("u1")
    books.wait(600)
    assert silences(books) == MAX_SILENCE_SECONDS / GAP_SECONDS
    books.audio()
    books.wait(GAP_SECONDS)
    assert silences(books) == MAX_SILENCE_SECONDS / GAP_SECONDS + 2


def test_no_gap_while_audio_comes() -> None:
    books = Books()
    books.started("u1")
    for _ in range(100):
        books.audio(400)
        books.wait(0.4)
    assert silences(books) == 100


def test_no_silence_is_put_into_push_to_talk() -> None:
    books = Books(PUSH_TO_TALK)
    books.audio()
    books.wait(60)
    assert silences(books) == 1


# --- without a connection ---------------------------------------------------------------------------------------------


def test_audio_waits_for_the_connection_in_order_and_bounded() -> None:
    books = Books(connects=False)
    for _ in range(int(HELD_SECONDS) + 10):
        books.audio(1000)
    assert books.did == []
    books.connect()
    assert books.sent == ["append"] * int(HELD_SECONDS)
    books.audio()
    assert len(books.sent) == HELD_SECONDS + 1


@pytest.mark.parametrize("refused", [True, False])
def test_two_presses_before_the_service_says_anything(refused: bool) -> None:
    """The client was told of one utterance, and gets the words of one."""
    books = Books(PUSH_TO_TALK)
    for _ in range(2):
        books.audio(200)
        books.take(Commit())
    books.committed("u1")
    books.heard("u1", "a taxi")
    if refused:
        books.error("input_audio_buffer_commit_empty")
    else:
        books.committed("u2")
        books.heard("u2", "for two")
    assert books.finals == [("a taxi" if refused else "a taxi for two", "")]


@pytest.mark.parametrize("at", range(4))
def test_typed_words_overtake_spoken_ones(at: int) -> None:
    """What was said before and had no answer is known to the model only: its words would cut the answer to the typed ones."""
    books = Books()
    steps: list[Callable[[], None]] = [
        partial(books.started, "u1"),
        partial(books.stopped, "u1"),
        partial(books.created, "v1"),
        partial(books.words, "v1", "Well"),
    ]
    for step in steps[: at + 1]:
        step()
    books.interrupt("response-1" if at == 3 else None)
    books.say("typed")
    if at == 0:
        books.stopped("u1")
    if at >= 2:
        books.done("v1", "cancelled")
    books.heard("u1", "spoken")
    spoken = {0: [("spoken", "")], 3: [("spoken", "response-1")]}.get(at, [])
    answer = "response-1" if at < 2 else "response-2"
    assert sorted(books.finals) == sorted([("typed", answer), *spoken])


def test_push_to_talk_waits_for_the_connection() -> None:
    books = Books(PUSH_TO_TALK, connects=False)
    books.audio(200)
    books.take(Commit())
    books.audio(200)
    books.take(Commit())
    books.audio(50)
    books.take(Commit())
    books.connect()
    assert books.sent == ["append", "commit", "append", "commit", "ask response-3"]


@pytest.mark.parametrize(
    ("setting", "wire"),
    [
        ({}, {"type": "server_vad", "create_response": True, "interrupt_response": True}),
        (
            {"silenceMs": 700, "threshold": 0.4, "prefixPaddingMs": 100},
            {
                "type": "server_vad",
                "create_response": True,
                "interrupt_response": True,
                "threshold": 0.4,
                "prefix_padding_ms": 100,
                "silence_duration_ms": 700,
            },
        ),
        (
            {"type": "semantic_vad", "eagerness": "low", "silenceMs": 500},
            {"type": "semantic_vad", "create_response": True, "interrupt_response": True, "eagerness": "low"},
        ),
        ({"type": "none"}, None),
    ],
)
def test_turn_detection_on_the_wire(setting: dict[str, object], wire: dict[str, object] | None) -> None:
    assert TurnDetection.model_validate(setting).wire() == wire
