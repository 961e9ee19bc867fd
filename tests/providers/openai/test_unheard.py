"""What the engine never showed, as the user went on speaking or typing: the provider's history must not hold it, though nobody says so.

Each of these was found by a conversation with faults (`tests/providers/openai/faults.py`).
"""

import pytest
import trio

from engine.elements import (
    Action,
    EmotionalState,
    InputElement,
    InputText,
    JsonObject,
    OnInterruption,
    SpeakingState,
)
from engine.testing.scripted import final, interim
from providers.openai.conversation import TOLD_SECONDS
from providers.openai.history import IDLE_SECONDS
from providers.openai.properties import OpenAIProperties
from providers.openai.simulator import Call, ErrorEvent, Pace, Reply, Script, Trouble
from tests.cases.support import Tools
from tests.providers.openai.books import Books
from tests.providers.openai.scene import open_scene, properties

WORDS_ONLY = OpenAIProperties(stt_provider="Local")


def history(books: Books) -> list[str]:
    return [each for each in books.sent if each.startswith(("truncate", "delete"))]


def answered(books: Books, number: int, ms: int) -> None:
    """The service answers what the user has said, at once and to the end."""
    books.created(f"v{number}")
    books.speak(f"v{number}", "Well.", ms)
    books.done(f"v{number}")


# --- while the user speaks --------------------------------------------------------------------------------------------


def test_nobody_apologizes_while_the_engine_hears_the_user() -> None:
    """The engine shows nothing before the words that it waits for; and those are answered."""
    books = Books(WORDS_ONLY)
    books.say("hello")
    books.created("r1", "response-1")
    books.interrupt("response-1")
    books.error("server_error", kind="server_error")
    books.done("r1", "cancelled")
    books.wait(10)
    assert len(books.errors) == 1
    assert books.asked == ["response-1"]
    books.say("a taxi")
    assert books.asked == ["response-1", "response-2"]


def test_nobody_apologizes_to_a_user_whose_words_wait() -> None:
    """They are answered next; before their echo the engine shows nothing."""
    books = Books(WORDS_ONLY)
    books.say("hello")
    books.interrupt()
    books.say("a taxi")
    books.error("server_error", kind="server_error")
    books.created("r1", "response-1")
    books.done("r1", "cancelled")
    assert books.asked == ["response-1", "response-2"]
    assert books.finals == [("hello", "response-1"), ("a taxi", "response-2")]


@pytest.mark.parametrize("what", ["words", "again", "action", "instruction"])
def test_there_are_apologies_again_when_the_user_has_spoken(what: str) -> None:
    books = Books(WORDS_ONLY)
    books.interrupt()
    match what:
        case "words":
            books.say("hello")
        case "again":
            books.again("hello")
        case "action":
            books.take(Action("intro"))
        case _:
            books.instruct("Mention the discount.")
    books.created("r1", "response-1")
    books.speak("r1", "Well.", 100)
    books.done("r1")
    books.error("server_error", kind="server_error")
    assert books.asked == ["response-1", "response-2"]


def test_where_the_provider_hears_the_user_it_apologizes_behind_the_answer() -> None:
    books = Books()
    books.started("u1")
    books.error("server_error", kind="server_error")
    books.stopped("u1")
    assert books.asked == []
    answered(books, 1, 100)
    assert len(books.asked) == 1


async def test_the_model_says_nothing_to_a_user_who_speaks(autojump_clock: trio.testing.MockClock) -> None:
    """With an error from the service in the middle of it: the client is told, and the words are answered at once."""
    reply = Reply(
        "One two three four five six.",
        pace=Pace(token_seconds=0.3, audio_speed=1.0),
        mishaps=[ErrorEvent(Trouble("server_error"), at=0.6)],
        cancel_lag=0.5,
    )
    async with open_scene(Script(replies=[reply]), openai=properties(stt_provider="Scripted")) as scene:
        await scene.type("hello")
        await trio.sleep(0.5)
        scene.recognizer.hear(EmotionalState(SpeakingState.USER_SPEAKING), interim())
        await trio.sleep(2.5)
        scene.recognizer.hear(EmotionalState(SpeakingState.USER_NOT_SPEAKING), final("a taxi"))
        await trio.sleep(5)
        assert scene.sentences[-1] == "You said: a taxi"
        assert len(scene.received("response.create")) == 2
        assert len(scene.errors) == 1
        scene.check_history()


# --- what was held behind a turn that is being closed -----------------------------------------------------------------


def test_of_an_answer_that_was_open_the_engine_would_have_said() -> None:
    """Though all that came of it could have been played by then, as it came in real time."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    books.created("v1")
    books.item("v1", "i1")
    for _ in range(10):
        books.sound("v1", 20, "i1")
        books.wait(0.02)
    books.started("u2")
    books.item_done("v1", "i1", "incomplete")
    books.done("v1", "cancelled")
    books.wait(TOLD_SECONDS - 0.01)
    assert history(books) == []
    books.wait(0.01)
    assert history(books) == ["delete i1"]


def test_an_answer_that_fell_silent_has_ended_for_the_engine() -> None:
    books = Books(WORDS_ONLY)
    books.say("hello")
    books.created("r1", "response-1")
    books.item("r1", "i1")
    books.words("r1", "Well", "i1")
    books.sound("r1", 400, "i1")
    books.wait(IDLE_SECONDS)
    books.interrupt()
    books.item_done("r1", "i1", "incomplete")
    books.done("r1", "cancelled")
    assert history(books) == ["truncate i1 400"], "it was heard, and may have grown at the service"


def test_one_that_went_silent_only_now_has_not() -> None:
    books = Books(WORDS_ONLY)
    books.say("hello")
    books.created("r1", "response-1")
    books.item("r1", "i1")
    books.sound("r1", 400, "i1")
    books.wait(IDLE_SECONDS - 0.1)
    books.interrupt()
    books.done("r1", "cancelled")
    assert history(books) == ["delete i1"]


def test_a_third_barge_in_before_the_second_is_settled() -> None:
    """Neither names what the first cut; it is not forgotten over that."""
    books = Books()
    for number in (1, 2):
        books.started(f"u{number}")
        books.wait(0.05)
        books.stopped(f"u{number}")
        books.created(f"v{number}")
        books.item(f"v{number}", f"i{number}")
        books.sound(f"v{number}", 200, f"i{number}")
    books.started("u3")
    books.done("v2", "cancelled")
    books.interrupt("response-77")
    assert history(books) == ["delete i1", "delete i2"]


def test_words_leave_when_it_is_known_what_was_shown_of_the_answer_to_them() -> None:
    """It was not: the user just went on speaking, and the client was told of one utterance."""
    books = Books()
    books.started("u1")
    books.stopped("u1")
    answered(books, 1, 3000)
    books.started("u2")
    books.heard("u1", "a taxi")
    assert books.finals == []
    books.wait(TOLD_SECONDS)
    books.stopped("u2")
    answered(books, 2, 300)
    books.heard("u2", "for two")
    assert books.finals == [("a taxi for two", "response-2")]
    assert history(books) == ["delete item_v1"]


def test_words_leave_at_once_when_the_engine_names_the_answer() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    answered(books, 1, 3000)
    books.wait(0.5)
    books.started("u2")
    books.interrupt("response-1", 500, "Well")
    books.heard("u1", "a taxi")
    assert books.finals == [("a taxi", "response-1")]
    assert history(books) == ["truncate item_v1 500"]


def test_words_leave_when_the_connection_is_lost() -> None:
    books = Books()
    books.started("u1")
    books.stopped("u1")
    answered(books, 1, 3000)
    books.started("u2")
    books.heard("u1", "a taxi")
    books.lose()
    assert books.finals[0][0] == "a taxi"


def shielded(text_only: bool) -> Books:
    """An answer with a tool that an interruption does not stop, cut; and behind it a whole one."""
    books = Books(WORDS_ONLY, text_only=text_only, shielded=frozenset({"book"}))
    books.say("book it")
    books.created("r1", "response-1")
    books.words("r1", "One moment.", "i1")
    books.call("r1", "c1", "book")
    books.done("r1")
    books.interrupt("response-1", 0, "One moment.")
    books.say("and a taxi")
    books.created("r2", "response-2")
    books.item("r2", "i2")
    books.words("r2", "Yes.", "i2")
    if not text_only:
        books.sound("r2", 300, "i2")
    books.item_done("r2", "i2")
    books.done("r2")
    books.wait(1)
    return books


@pytest.mark.parametrize("text_only", [True, False])
def test_nothing_is_shown_while_a_shielded_tool_works(text_only: bool) -> None:
    books = shielded(text_only)
    books.interrupt()
    assert history(books)[-1] == "delete i2"


@pytest.mark.parametrize("text_only", [True, False])
def test_what_was_shown_when_the_shielded_tool_was_done(text_only: bool) -> None:
    books = shielded(text_only)
    books.settle("c1")
    books.wait(1)
    books.interrupt()
    assert "delete i2" not in history(books)


@pytest.mark.parametrize("text_only", [True, False])
async def test_a_user_who_types_on_while_a_shielded_tool_works(
    autojump_clock: trio.testing.MockClock, text_only: bool
) -> None:
    async def book(_: JsonObject) -> str:
        await trio.sleep(5)
        return "booked"

    box = Tools({"book": book}, on_interruption=OnInterruption.SHIELD)
    replies = [Reply(["One moment.", Call("book")]), Reply("Yes."), Reply("It is being done.")]
    async with open_scene(Script(replies=replies), tool_box=box, text_only=text_only) as scene:
        await scene.type("book it")
        await trio.sleep(1)
        await scene.type("and a taxi")
        await trio.sleep(2)
        await scene.type("is it done?")
        await trio.sleep(10)
        assert scene.sentences[-1] == "It is being done."
        assert "Yes." not in scene.sentences
        if text_only:
            assert scene.known_words() == ["One moment.", "It is being done."]
        else:
            assert scene.known_ms() == [600, 1200]


# --- the same again ---------------------------------------------------------------------------------------------------


def test_one_that_was_only_announced_ends() -> None:
    books = Books(WORDS_ONLY)
    books.say("yes")
    books.interrupt()
    books.say("yes")
    assert books.ends == [("response-1", "cancelled")]


def test_one_that_waited_ends() -> None:
    """Its words are told, and name an answer that will not come."""
    books = Books(WORDS_ONLY)
    books.say("hello")
    books.interrupt("response-1")
    books.say("yes")
    books.interrupt()
    assert books.finals == [("hello", "response-1"), ("yes", "response-2")]
    assert books.ends == [("response-2", "cancelled")]


def test_one_that_the_engine_names_has_ended_there() -> None:
    books = Books(WORDS_ONLY)
    books.say("yes")
    books.interrupt("response-1")
    assert books.ends == []


@pytest.mark.parametrize("what", [Action("intro"), InputText("yes")])
async def test_the_same_twice_at_once(autojump_clock: trio.testing.MockClock, what: InputElement) -> None:
    """The engine meets the first echo when it waits for the second, which looks the same; it must not wait for the first answer."""
    async with open_scene(Script(answer=lambda _: Reply("Welcome."))) as scene:
        await scene.say(what, what)
        await trio.sleep(5)
        assert scene.sentences == ["Welcome."]
        assert scene.ends() == ["cancelled", "completed"]
        scene.check_history()
