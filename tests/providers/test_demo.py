"""Conversations with the demo chat model, over requests as a session makes them."""

import json
import random
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.errors import ConfigurationError
from engine.interfaces import (
    ChatFinished,
    ChatMessage,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ToolCall,
    ToolSpecification,
)
from providers.chat.demo import DemoChatModel, answer, make_chat_model
from providers.chat.demo_talk import Reply

BOOK = ToolSpecification("book_table", "Books a table.", {"type": "object", "properties": {}})
FINISH = ToolSpecification("finish_session", "Ends the conversation.", {"type": "object", "properties": {}})
PROMPT = ChatMessage(
    "system", "You are Café Souffleur. It is Monday, 1 June 2026, 10:00 (2026-06-01T10:00+02:00, Europe/Prague)."
)
CONFIRMED = json.dumps({"number": 101, "confirmation": "Table for 4 people, confirmation number 101."})
GREETING = (
    "Hello, this is Café Souffleur, a scripted demo, as no language model is installed. I can book a table, or tell you our"
    " opening hours and what there is. What would you like?"
)


@attrs.define(eq=False)
class Caller:
    """Keeps the messages as a session does, and runs the tools."""

    tools: tuple[ToolSpecification, ...] = (BOOK, FINISH)
    result: str = CONFIRMED
    locale: str = "en"
    messages: list[ChatMessage] = attrs.field(factory=lambda: [PROMPT])
    calls: list[Reply] = attrs.field(factory=list[Reply])

    def say(self, text: str) -> str:
        """What is answered, tool calls included."""
        self.messages.append(ChatMessage("user", text))
        return self.get_answer()

    def get_answer(self) -> str:
        said: list[str] = []
        while True:
            reply = answer(ChatRequest(tuple(self.messages), self.tools, locale=self.locale))
            said.append(reply.text)
            if not reply.call:
                break
            call = ToolCall(f"c{len(self.calls)}", reply.call, json.dumps(reply.arguments), "r")
            self.calls.append(reply)
            result = self.result if reply.call == "book_table" else "The conversation ends now."
            self.messages.append(ChatMessage("assistant", reply.text, (call,)))
            self.messages.append(ChatMessage("tool", result, tool_call_id=call.call_id))
        self.messages.append(ChatMessage("assistant", said[-1]))
        return " ".join(filter(None, said))


def converse(caller: Caller, lines: Sequence[tuple[str, str]]) -> None:
    for said, answered in lines:
        assert caller.say(said) == answered


# --- the opening -----------------------------------------------------------------------------------------------------


def test_the_first_sentence_says_what_it_is() -> None:
    assert Caller().say("#intro") == GREETING
    without = Caller(tools=()).say("#intro")
    assert without.startswith("Hello, this is Café Souffleur, a scripted demo, as no language model is installed.")
    assert "table" not in without


def test_so_it_does_when_the_caller_speaks_first() -> None:
    caller = Caller()
    assert (
        caller.say("Hello?") == "I am a scripted demo, as no language model is installed. Hello. What would you like?"
    )
    assert caller.say("hi") == "Hello. What would you like?"


@pytest.mark.parametrize(("locale", "sentence"), [("cs-CZ", "mluvím pouze anglicky"), ("de", "nur Englisch")])
def test_in_other_languages_it_says_that_it_speaks_english(locale: str, sentence: str) -> None:
    said = Caller(locale=locale).say("#intro")
    assert sentence in said.split(".")[0]
    assert said.endswith(GREETING)


# --- bookings --------------------------------------------------------------------------------------------------------


def test_a_table_step_by_step() -> None:
    caller = Caller()
    converse(
        caller,
        [
            ("#intro", GREETING),
            ("I'd like to book a table", "Gladly. For which day, and at what time?"),
            ("tomorrow at half past seven", "Tomorrow, at 7:30 pm. For how many people?"),
            ("for", "For four people. And in whose name?"),
            ("Anna", "A table tomorrow, at 7:30 pm, for four people, in the name of Anna. Is that right?"),
            (
                "yes",
                "One moment, please. Done. Table for 4 people, confirmation number 101. Can I do anything else for you?",
            ),
            ("no thanks", "All right. Thank you for calling, and have a nice day."),
            ("goodbye", "Thank you for calling. Goodbye!"),
        ],
    )
    assert caller.calls == [
        Reply(
            "One moment, please.",
            "book_table",
            {"day": "tomorrow", "time": "19:30", "people": 4, "name": "Anna"},
        ),
        Reply("Thank you for calling. Goodbye!", "finish_session"),
    ]


def test_a_table_in_one_sentence() -> None:
    caller = Caller()
    caller.say("#intro")
    assert (
        caller.say("Can I reserve a table for five at six p.m. on June 12th? My name is Karel Čapek.")
        == "A table on June 12, at 6 pm, for five people, in the name of Karel Čapek. Is that right?"
    )
    caller.say("Yes, please.")
    assert caller.calls[0].arguments == {"day": "2026-06-12", "time": "18:00", "people": 5, "name": "Karel Čapek"}


@pytest.mark.parametrize(
    ("said", "confirmed"),
    [
        ("no make it five people", "tomorrow, at 7 pm, for five people, in the name of Anna"),
        ("no, make it eight", "tomorrow, at 8 pm, for four people, in the name of Anna"),
        ("actually on Friday", "on Friday, at 7 pm, for four people, in the name of Anna"),
        ("yes but for two", "tomorrow, at 7 pm, for two people, in the name of Anna"),
        ("the name is Hana", "tomorrow, at 7 pm, for four people, in the name of Hana"),
        ("not tomorrow, Tuesday at noon", "on Tuesday, at noon, for four people, in the name of Anna"),
    ],
)
def test_corrections_are_confirmed_again(said: str, confirmed: str) -> None:
    caller = Caller()
    caller.say("book a table for four tomorrow at seven under Anna")
    assert caller.say(said) == f"A table {confirmed}. Is that right?"
    assert not caller.calls


def test_a_correction_right_after_an_answer_is_about_that_answer() -> None:
    caller = Caller()
    caller.say("book a table for tomorrow at seven")
    assert caller.say("three") == "For three people. And in whose name?"
    assert caller.say("no, make it two") == "For two people. And in whose name?"


def test_a_number_that_may_be_both_is_asked_for() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow at three under Anna")
    assert caller.say("no, make it four") == "Do you mean four people, or 4 o'clock?"
    assert caller.say("what") == "Do you mean four people, or 4 o'clock?"
    assert caller.say("people") == "A table tomorrow, at 3 pm, for four people, in the name of Anna. Is that right?"
    assert caller.say("no make it five") == "Do you mean five people, or 5 o'clock?"
    assert caller.say("o'clock") == "A table tomorrow, at 5 pm, for four people, in the name of Anna. Is that right?"


def test_no_asks_what_to_change() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow at three under Anna")
    converse(
        caller,
        [
            ("no", "What shall I change?"),
            ("the time", "At what time?"),
            ("six", "A table tomorrow, at 6 pm, for two people, in the name of Anna. Is that right?"),
            ("the name is wrong", "And in whose name?"),
            ("it's Hana", "A table tomorrow, at 6 pm, for two people, in the name of Hana. Is that right?"),
        ],
    )


def test_what_cannot_be_booked_is_said_at_once() -> None:
    caller = Caller()
    caller.say("book a table for tomorrow")
    assert caller.say("at nine in the evening") == "Tables are given from 8 am to 8:30 pm. At what time?"
    caller.say("at eight")
    assert caller.say("ten people") == "A table is for up to six people. For how many people?"


def test_questions_in_between_lead_back() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow")
    hours = "We are open every day from 8 am to 10 pm, and the last table is given at 8:30 pm."
    assert caller.say("until when are you open") == f"{hours} At what time?"
    assert caller.say("how are you") == "I am fine, thank you. At what time?"
    assert caller.say("gibberish words") == "I heard: gibberish words. At what time?"
    assert caller.say("...") == "I did not catch that. At what time?"
    assert caller.say("stop") == "All right. At what time?"
    assert caller.say("never mind") == "All right, I have dropped the booking. What else can I do for you?"


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (
            "All tables are taken at that time. Offer the user a time at least ninety minutes away.",
            "I am sorry. All tables are taken at that time. At what time?",
        ),
        (
            "Friday, 5 June 2026 at 19:30 has passed already. Ask the user for a later time.",
            "I am sorry. Friday, 5 June 2026 at 19:30 has passed already. At what time?",
        ),
        (
            "The day is not clear. Give it as today, tomorrow, a weekday, or a date such as 2026-06-01.",
            "I am sorry. The day is not clear. For which day?",
        ),
        (
            "A table is for one to 6 people. Tell the user, and ask how many they are.",
            "I am sorry. A table is for one to 6 people. For how many people?",
        ),
        ("Tool book_table failed.", "I am sorry, the booking did not go through. Shall I try again?"),
    ],
)
def test_a_failed_booking_is_explained_and_goes_on(error: str, answered: str) -> None:
    caller = Caller(result=json.dumps({"error": error}))
    caller.say("book a table for two tomorrow at three under Anna")
    assert caller.say("yes") == f"One moment, please. {answered}"
    caller.result = CONFIRMED
    if "again" in answered:
        assert "Done." in caller.say("yes")


def test_without_the_tool_there_are_no_bookings() -> None:
    caller = Caller(tools=(FINISH,))
    caller.say("#intro")
    assert caller.say("a table for two please").startswith("I am sorry, bookings are not possible here.")
    assert "table" not in caller.say("what do you mean")


def test_the_last_booking_is_remembered() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow at three under Anna")
    caller.say("yes")
    assert caller.say("what did I book") == "Table for 4 people, confirmation number 101."
    assert "cannot change it" in caller.say("change my booking")
    assert "cannot cancel" in caller.say("cancel it")
    assert caller.say("book a table") == "Gladly. For which day, and at what time?"


def test_a_booking_that_still_runs_is_not_made_twice() -> None:
    caller = Caller(result='{"status": "This call is still running. Its result will follow."}')
    caller.say("book a table for two tomorrow at three under Anna")
    assert caller.say("yes") == "One moment, please. I am still booking the table."
    caller.say("yes")
    assert len(caller.calls) == 1


# --- the café --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        ("When do you open?", "We are open every day from 8 am to 10 pm"),
        ("are you open on Sunday", "We are open every day"),
        ("Where are you?", "beside the theatre"),
        ("what is on the menu", "coffee, tea, cake and soup"),
        ("how much is an espresso", "An espresso is 55 crowns."),
        ("two coffees please", "I cannot take orders here"),
        ("can I bring my dog", "Dogs are welcome."),
        ("are you a robot", "no language model is installed"),
        ("thank you", "You are welcome."),
        ("colourless green ideas", "I heard: colourless green ideas. I can book a table"),
        ("what can you do", "I can book a table"),
    ],
)
def test_small_questions(said: str, answered: str) -> None:
    caller = Caller()
    caller.say("#intro")
    assert answered in caller.say(said)


def test_yes_to_its_own_offer() -> None:
    caller = Caller()
    caller.say("#intro")
    assert caller.say("where is it").endswith("Would you like to book a table?")
    assert caller.say("yes please") == "Gladly. For which day, and at what time?"


def test_it_repeats_itself() -> None:
    caller = Caller()
    caller.say("#intro")
    assert caller.say("sorry, what?") == GREETING
    caller.say("book a table for two")
    assert caller.say("can you repeat that please") == "For two people. For which day, and at what time?"


# --- messages as a session makes them --------------------------------------------------------------------------------


def test_a_cut_answer_changes_nothing() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow at three under Anna")
    caller.messages[-1] = attrs.evolve(caller.messages[-1], text="A table tomo")
    assert caller.say("no, at four o'clock").startswith("A table tomorrow, at 4 pm, for two people")


def test_an_answer_is_asked_for_again_after_it_was_cut() -> None:
    caller = Caller()
    first = caller.say("book a table for two")
    caller.messages[-1] = ChatMessage("assistant", "For two")
    assert caller.get_answer() == first


def test_words_in_two_pieces_are_heard_together() -> None:
    caller = Caller()
    caller.messages.append(ChatMessage("user", "book a table for"))
    assert "For two people" in caller.say("two people")


def test_a_reconnect_goes_on() -> None:
    caller = Caller()
    caller.say("#intro")
    caller.say("book a table for two tomorrow")
    caller.messages = [message for message in caller.messages if message.text != "#intro"]
    assert caller.say("#intro") == "I am still here. At what time?"
    assert caller.say("at four") == "At 4 pm. And in whose name?"


def test_a_reconnect_after_the_booking_does_not_book_again() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow at three under Anna")
    caller.say("yes")
    caller.messages = [
        attrs.evolve(message, tool_calls=()) for message in caller.messages if message.role in ("user", "assistant")
    ]
    caller.say("#intro")
    caller.say("yes")
    assert len(caller.calls) == 1


def test_context_does_not_confuse_it() -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow")
    caller.messages.append(ChatMessage("system", "The user wants a table for six at eight. yes. goodbye"))
    caller.messages.append(ChatMessage("user", "at four"))
    caller.messages.append(ChatMessage("system", "It is Monday. Say nothing."))
    assert caller.get_answer() == "At 4 pm. And in whose name?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Instruction: Are you still there?", "Are you still there?"),
        ('Instruction: Tell the user "We close in ten minutes." and wait.', "We close in ten minutes."),
        ("Instruction: Say: Goodbye for now.", "Goodbye for now."),
        ("Instruction: „Haben Sie noch einen Wunsch?“ fragen", "Haben Sie noch einen Wunsch?"),
    ],
)
def test_an_instruction_is_said(text: str, said: str) -> None:
    caller = Caller()
    caller.say("book a table for two tomorrow")
    caller.messages.append(ChatMessage("system", text))
    assert caller.get_answer() == said
    assert caller.say("at four") == "At 4 pm. And in whose name?"


# --- the model -------------------------------------------------------------------------------------------------------


async def test_it_streams_word_by_word() -> None:
    async with make_chat_model({"provider": "Demo"}).open_stream(
        ChatRequest((ChatMessage("user", "#intro"),), (BOOK,))
    ) as deltas:
        received = [delta async for delta in deltas]
    assert received[:2] == [ChatText("Hello, "), ChatText("this ")]
    assert received[-1] == ChatFinished()
    assert "".join(delta.text for delta in received if isinstance(delta, ChatText)) == GREETING


async def test_a_call_follows_the_words_and_its_id_is_new() -> None:
    insisting = attrs.evolve(FINISH, parameters={"type": "object", "required": ["reason"]})
    model = DemoChatModel()
    ids: set[str] = set()
    for _ in range(2):
        async with model.open_stream(ChatRequest((ChatMessage("user", "bye"),), (insisting,))) as deltas:
            received = [delta async for delta in deltas]
        call = received[-2]
        assert isinstance(call, ChatToolCall)
        assert (call.name, json.loads(call.arguments)) == ("finish_session", {"reason": "The user said goodbye."})
        ids.add(call.call_id)
    assert len(ids) == 2


async def test_leaving_early_is_fine() -> None:
    async with DemoChatModel().open_stream(ChatRequest((ChatMessage("user", "#intro"),))) as deltas:
        assert await deltas.receive() == ChatText("Hello, ")


def test_there_is_nothing_to_configure() -> None:
    assert make_chat_model({}).model == "demo"
    with pytest.raises(ConfigurationError, match="remove model"):
        make_chat_model({"provider": "Demo", "model": "big"})


# --- anything at all -------------------------------------------------------------------------------------------------

LINES = [
    *("#intro", "book a table", "tomorrow", "at seven", "for two", "two", "for", "ate", "Anna", "yes", "no", "no make it four"),
    *("change the time", "people", "goodbye", "cancel", "never mind", "what", "stop", "when do you open", "thanks", "..."),
    *("a table for four on Friday at noon under Bob", "not seven eight", "how much is cake", "what did I book", "6 people"),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_said_only_whole_tables_are_booked_and_only_once(seed: int) -> None:
    choose = random.Random(seed)
    caller = Caller()
    caller.say("#intro")
    for _ in range(30):
        before = len(caller.calls)
        said = choose.choice(LINES)
        assert caller.say(said)
        made = [call for call in caller.calls[before:] if call.call == "book_table"]
        assert len(made) <= (said in ("yes", "no"))
        for call in made:
            assert call.arguments["day"]
            assert "08:00" <= call.arguments["time"] <= "20:30"
            assert 1 <= call.arguments["people"] <= 6
            assert call.arguments["name"]


texts = st.text() | st.sampled_from(LINES) | st.just("Instruction: ") | st.just('{"error": "5.5 a. b"}')
calls = st.builds(ToolCall, st.sampled_from("ab"), st.sampled_from(["book_table", "x"]), st.text(), st.just("r"))
messages: st.SearchStrategy[ChatMessage] = st.builds(
    ChatMessage,
    st.sampled_from(["system", "user", "user", "assistant", "tool", "odd"]),
    texts,
    st.lists(calls, max_size=2).map(tuple),
    st.sampled_from(["", "a", "b"]),
)


@settings(deadline=None)
@given(st.lists(messages, max_size=12), st.booleans(), st.text(max_size=5))
@example([], True, "")
def test_no_conversation_is_too_strange(said: list[ChatMessage], with_tools: bool, locale: str) -> None:
    request = ChatRequest(tuple(said), (BOOK, FINISH) if with_tools else (), locale=locale)
    reply = answer(request)
    assert reply == answer(request)
    assert reply.text == " ".join(reply.text.split())
    json.dumps(reply.arguments)


@settings(deadline=None)
@given(st.text())
def test_no_result_is_too_strange(output: str) -> None:
    caller: Any = Caller(result=output)
    caller.say("book a table for two tomorrow at three under Anna")
    assert caller.say("yes")
