"""The rules without a socket: what an interruption does, and what it leaves of the provider's own history (law 5)."""

import pytest

from providers.openai.asking import BEGIN_SECONDS, CUT_SECONDS
from providers.openai.properties import OpenAIProperties
from tests.providers.openai.books import Books

WORDS_ONLY = OpenAIProperties(stt_provider="Local")


def words_only() -> Books:
    return Books(WORDS_ONLY)


def speaking(text: str = "Well", ms: int = 400) -> Books:
    """An answer under way."""
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.item("r1", "i1")
    books.words("r1", text, "i1")
    books.sound("r1", ms, "i1")
    return books


def history(books: Books) -> list[str]:
    return [each for each in books.sent if each.startswith(("truncate", "delete"))]


# --- what follows -----------------------------------------------------------------------------------------------------


def test_nothing_follows_of_what_was_cut() -> None:
    books = speaking()
    books.interrupt("response-1", 300, "Well")
    mark = len(books.did)
    books.words("r1", " then", "i1")
    books.sound("r1", 200, "i1")
    books.item_done("r1", "i1", "incomplete")
    books.item("r1", "i2")
    books.words("r1", "Also", "i2")
    books.done("r1", "cancelled")
    assert books.since(mark) == ["truncate i1 300", "delete i2"]


def test_an_interruption_before_the_request_begins() -> None:
    """The cancellation waits until there is something to cancel."""
    books = words_only()
    books.say("hello")
    books.interrupt()
    assert "cancel" not in str(books.sent)
    books.say("stop")
    assert books.asked == ["response-1"]
    books.created("r1", "response-1")
    assert books.sent[-1] == "cancel r1"
    books.words("r1", "Hi")
    books.done("r1", "cancelled")
    assert books.asked == ["response-1", "response-2"]
    assert books.said("response-1") == ""
    assert books.ends == [("response-1", "cancelled")]


def test_two_interruptions_cancel_once() -> None:
    books = speaking()
    books.interrupt("response-1", 300, "Well")
    books.interrupt()
    books.done("r1", "cancelled")
    assert books.sent.count("cancel r1") == 1
    assert history(books) == ["truncate i1 300"]


def test_a_cancel_that_is_never_answered() -> None:
    books = speaking()
    books.interrupt("response-1", 300, "Well")
    books.say("stop")
    books.wait(CUT_SECONDS - 0.01)
    assert books.asked == ["response-1"]
    books.wait(0.01)
    assert books.asked == ["response-1", "response-2"]
    books.sound("r1", 200, "i1")
    books.created("r2", "response-2")
    books.speak("r2", "Yes.", 100)
    books.done("r1", "cancelled", usage=(10, 5, 0))
    books.done("r2")
    assert books.ends == [("response-2", "completed")]
    assert books.usage.input == 10


def test_a_request_that_was_cut_and_never_begins() -> None:
    books = words_only()
    books.say("hello")
    books.interrupt()
    books.say("stop")
    books.wait(BEGIN_SECONDS)
    assert books.asked == ["response-1", "response-2"]
    books.created("r1", "response-1")
    assert books.sent[-1] == "cancel r1", "it begins after all, and is not wanted"
    books.done("r1", "cancelled")
    books.created("r2", "response-2")
    books.done("r2")
    assert books.ends == [("response-1", "cancelled"), ("response-2", "completed")]


def test_a_cancel_that_came_too_late() -> None:
    books = speaking()
    books.interrupt("response-1", 400, "Well")
    books.item_done("r1", "i1")
    books.done("r1")
    books.error("response_cancel_not_active")
    books.say("next")
    assert books.errors == []
    assert books.asked == ["response-1", "response-2"]


# --- what was said ----------------------------------------------------------------------------------------------------


def test_words_that_wait_are_said_even_if_they_are_not_answered() -> None:
    """Both sides know of them: the model by its history, the client by the echo."""
    books = speaking()
    books.say("one")
    books.interrupt("response-1", 300, "Well")
    books.say("two")
    books.done("r1", "cancelled")
    assert books.finals == [("hello", "response-1"), ("one", "response-2"), ("two", "response-3")]
    assert books.sent[2:] == ["user: one", "cancel r1", "truncate i1 300", "user: two", "ask response-3"]


def test_words_while_the_cut_response_ends_are_echoed_at_once() -> None:
    books = speaking()
    books.interrupt("response-1", 300, "Well")
    books.say("one")
    assert books.finals[-1] == ("one", "response-2")
    books.interrupt()
    books.say("two")
    books.done("r1", "cancelled")
    assert books.sent[-3:] == ["truncate i1 300", "user: two", "ask response-3"]
    assert "user: one" in books.sent
    assert [text for text, _ in books.finals] == ["hello", "one", "two"]


def test_an_opening_that_was_cut_before_it_was_asked_for_is_forgotten() -> None:
    from engine.elements import Action

    books = speaking()
    books.interrupt("response-1", 300, "Well")
    books.take(Action("intro"))
    books.interrupt()
    books.done("r1", "cancelled")
    assert "user: #intro" not in books.sent
    assert books.asked == ["response-1"]


# --- the provider's history -------------------------------------------------------------------------------------------


def test_an_answer_that_has_ended_and_is_still_playing() -> None:
    books = speaking(ms=2000)
    books.item_done("r1", "i1")
    books.done("r1")
    books.interrupt("response-1", 700, "Well")
    assert history(books) == ["truncate i1 700"]
    assert "cancel r1" not in books.sent


@pytest.mark.parametrize(
    ("heard_ms", "left"),
    [
        (0, ["delete i1", "delete i2", "delete i3"]),
        (200, ["truncate i1 200", "delete i2", "delete i3"]),
        (500, ["delete i2", "delete i3"]),
        (600, ["truncate i2 100", "delete i3"]),
        (1000, ["delete i3"]),
        (1200, ["truncate i3 200"]),
        (1500, []),
    ],
)
def test_several_items_and_continuations(heard_ms: int, left: list[str]) -> None:
    """The heard milliseconds are those of the whole engine response."""
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.speak("r1", "One.", 500, "i1")
    books.speak("r1", "Two.", 500, "i2")
    books.call("r1", "c1")
    books.done("r1")
    books.settle("c1")
    books.created("r2", "response-1")
    books.speak("r2", "Three.", 500, "i3")
    books.done("r2")
    books.interrupt("response-1", heard_ms)
    assert history(books) == left


def test_all_that_came_was_heard_but_more_may_be_there() -> None:
    """The service may have made more of an item that was open than it has sent."""
    books = speaking(ms=400)
    books.interrupt("response-1", 400, "Well")
    books.item_done("r1", "i1", "incomplete")
    books.done("r1", "cancelled")
    assert history(books) == ["truncate i1 400"]


def test_less_than_a_millisecond_is_nothing() -> None:
    """The service refuses to truncate to nothing."""
    books = speaking()
    books.interrupt("response-1", 0)
    books.done("r1", "cancelled")
    assert history(books) == ["delete i1"]


def test_an_answer_that_had_no_sound_yet() -> None:
    books = words_only()
    books.say("hello")
    books.created("r1", "response-1")
    books.item("r1", "i1")
    books.words("r1", "Well", "i1")
    books.interrupt("response-1", 0)
    books.done("r1", "cancelled")
    assert history(books) == ["delete i1"]


def test_nothing_was_heard_of_what_followed() -> None:
    """The first answer is playing; a second one is complete, a third under way."""
    books = speaking(ms=3000)
    books.item_done("r1", "i1")
    books.done("r1")
    books.instruct("two")
    books.created("r2", "response-2")
    books.speak("r2", "Two.", 500)
    books.done("r2")
    books.instruct("three")
    books.created("r3", "response-3")
    books.item("r3", "i3")
    books.sound("r3", 200, "i3")
    books.interrupt("response-1", 1000, "Well")
    books.done("r3", "cancelled")
    assert history(books) == ["delete item_r2", "delete i3", "truncate i1 1000"] or sorted(history(books)) == [
        "delete i3",
        "delete item_r2",
        "truncate i1 1000",
    ]


def test_what_came_before_was_heard() -> None:
    books = speaking(ms=500)
    books.item_done("r1", "i1")
    books.done("r1")
    books.say("next")
    books.created("r2", "response-2")
    books.item("r2", "i2")
    books.sound("r2", 500, "i2")
    books.interrupt("response-2", 100)
    books.done("r2", "cancelled")
    assert history(books) == ["truncate i2 100"]


def test_an_answer_that_is_not_named_was_not_heard() -> None:
    books = speaking()
    books.interrupt()
    books.done("r1", "cancelled")
    assert history(books) == ["delete i1"]


def test_a_name_that_is_the_engines_own() -> None:
    """It names the window of an answer that it has not seen."""
    books = words_only()
    books.instruct("Mention the discount.")
    books.created("r1", "response-1")
    books.item("r1", "i1")
    books.interrupt("response-77", 0)
    books.done("r1", "cancelled")
    assert history(books) == ["delete i1"]
    assert books.ends == []


def test_an_answer_is_cut_once() -> None:
    books = speaking(ms=2000)
    books.item_done("r1", "i1")
    books.done("r1")
    books.interrupt("response-1", 700)
    books.interrupt("response-1", 700)
    assert history(books) == ["truncate i1 700"]


# --- written words ----------------------------------------------------------------------------------------------------


def written(*texts: str) -> Books:
    books = Books(WORDS_ONLY, text_only=True)
    books.say("hello")
    books.created("r1", "response-1")
    for number, text in enumerate(texts):
        books.item("r1", f"i{number}")
        books.words("r1", text, f"i{number}")
    return books


def test_of_written_words_what_was_read_takes_their_place() -> None:
    books = written("One. Two. Thr")
    books.interrupt("response-1", 0, "One. Two.")
    books.done("r1", "cancelled")
    assert books.sent[2:] == ["cancel r1", "assistant: One. Two.", "delete i0"]
    assert books.frames[-2]["previous_item_id"] == "i0"


def test_written_words_that_nobody_has_read() -> None:
    books = written("One", "Two")
    books.interrupt("response-1", 0, "")
    books.done("r1", "cancelled")
    assert books.sent[2:] == ["cancel r1", "delete i0", "delete i1"]


def test_written_words_that_were_read() -> None:
    books = written("One.\n", " Two.")
    books.interrupt("response-1", 0, "One. Two.")
    books.done("r1", "cancelled")
    assert books.sent[2:] == ["cancel r1"]
