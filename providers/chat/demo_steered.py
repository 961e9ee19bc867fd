"""The speaker that is whispered to: a `Conversation` whose colleague has the booking book and the documents.

What it does not know it asks for (`request_help`), and the answer comes as an instruction. Supporting context is used in the next
answer that has room for it: a sentence to be said, or what to answer to a yes or a no. Sans-I/O; nothing here raises.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from providers.chat.demo_lines import (
    AGREED,
    ASKED_FOR,
    ASKS,
    BOOK,
    DONE,
    GOODBYE,
    GOODBYE_WORDS,
    GREETING,
    LOOK_UP,
    MENU,
    NO,
    NOBODY_TO_ASK,
    PASSED_ON,
    QUESTIONS,
    SEEING,
    THAT_WAS_ALL,
    WHAT,
    is_yes,
    plain,
    say_table,
)
from providers.chat.demo_prompts import Briefing, Quotation, Whisper, quotations
from providers.chat.demo_results import error_of, parse_result
from providers.chat.demo_slots import Heard
from providers.chat.demo_talk import FINISH_SESSION, Asked, Conversation, Reply

REQUEST_HELP = "request_help"
DISPLAY = "display"
QUESTION_CHARACTERS = 400
"""Of what the caller asks, as it is passed on."""
BOOKING = "Please book a table"
"""How a request for a table begins; the rest is as it is said to the caller."""


@attrs.define(eq=False)
class SteeredConversation(Conversation):
    briefing: Briefing = attrs.field(factory=Briefing)
    told: tuple[Whisper, ...] = ()
    """Supporting context for the answer to come."""
    _spoken: str = ""
    """Plain: all that was said so far."""
    _spoken_last: str = ""
    _passes_on: bool = False
    """The help that was asked for is a booking."""

    @property
    def can_book(self) -> bool:
        return self.briefing.books_tables

    # What comes in

    def open(self) -> Reply:
        if self.has_spoken or not self.briefing.welcome:
            return super().open()
        greeting = GREETING.removeprefix("Hello, ")
        return self._reply(f"{self.briefing.welcome} {greeting[0].upper()}{greeting[1:]} {self._offer()} {WHAT}")

    def speak(self, text: str) -> None:
        if not text.strip():
            return  # a call, and no words yet
        super().speak(text)
        self._spoken_last = plain(text)
        self._spoken = f"{self._spoken} {self._spoken_last}"
        if self.asked in (Asked.OFFER, Asked.ELSE) and plain(self._question()) not in self._spoken_last:
            self.asked = Asked.NOTHING  # a whisper took its place

    def instruct(self, text: str) -> Reply:
        """What a planner wants to be said: its longest quotation, and where that is from."""
        found = quotations(text)
        if not found:
            if GOODBYE.search(plain(text)):  # told to say goodbye, but not how
                return self._reply(GOODBYE_WORDS)
            return super().instruct(text)
        words = _said(max(found, key=lambda each: len(each.words)))
        if words.startswith(DONE):
            self._close(words)
            self.asked = Asked.NOTHING
        elif self.is_booking:
            for slots, question in QUESTIONS.items():
                if words.endswith(question):
                    for slot in slots:
                        self._clear(slot)
            if not words.endswith("?") and not GOODBYE.search(plain(words)):
                words = f"{words} {self._question()}"
        return self._reply(words)

    def hear(self, text: str) -> Reply:
        return self._react(text) or self._follow(super().hear(text))

    def take_result(self, name: str, output: str) -> Reply:
        result = parse_result(output)
        if name == REQUEST_HELP:
            self.calling = ""
            return self._reply(NOBODY_TO_ASK if error_of(result) else PASSED_ON if self._passes_on else ASKED_FOR)
        if name == FINISH_SESSION and self.briefing.asks_for_end:
            self.calling = ""
            return self._reply(GOODBYE_WORDS if GOODBYE.search(plain(output)) and "approved" in output else SEEING)
        return super().take_result(name, output)

    # Steering

    def _react(self, text: str) -> Reply | None:
        """What was whispered for a yes or a no to the last question."""
        said = plain(text)
        if self.is_booking or GOODBYE.search(said):
            return None
        for whisper in reversed(self.told):
            if whisper.question and plain(whisper.question) in self._spoken_last:
                answers = whisper.on_yes if is_yes(said) else whisper.on_no if NO.search(said) else ()
                if answers:
                    self.calling = ""
                    self.asked = Asked.NOTHING
                    return self._reply(" ".join(map(_said, answers)))
        return None

    def _follow(self, reply: Reply) -> Reply:
        """Say what was whispered, where the answer leaves room: instead of an offer, and never beside another question."""
        whispered = self._next_whispered()
        if whispered is None or self.is_booking or reply.call not in ("", DISPLAY):
            return reply
        text = reply.text
        if self.asked in (Asked.OFFER, Asked.ELSE):
            text = text.removesuffix(self._question()).strip()
        if text.endswith("?"):
            return reply
        self.asked = Asked.NOTHING
        return self._reply(f"{text} {_said(whispered)}", reply.call, reply.arguments)

    def _next_whispered(self) -> Quotation | None:
        sayings: Iterable[Quotation] = (saying for whisper in self.told for saying in whisper.next)
        return next((saying for saying in sayings if plain(saying.words) not in self._spoken), None)

    # Steps of an answer

    def _answer(self, text: str, said: str, heard: Heard) -> Reply:
        if THAT_WAS_ALL.search(said) and not self.is_booking:
            return self._say_goodbye()
        if LOOK_UP.search(said) and _is_question(text, said) and not (BOOK.search(said) and heard.slots()):
            return self._ask(" ".join(text.split())[:QUESTION_CHARACTERS])
        return super()._answer(text, said, heard)

    def _say_not_understood(self, text: str, said: str) -> Reply:
        if _is_question(text, said):
            return self._ask(" ".join(text.split())[:QUESTION_CHARACTERS])
        if not self.is_booking and (is_yes(said) or NO.search(said)):
            return self._reply(AGREED)
        return super()._say_not_understood(text, said)

    def _inform(self, fact: str) -> Reply:
        reply = self._reply(f"{fact} {self._question()}") if self.booked else super()._inform(fact)
        if fact == MENU and self.briefing.card and DISPLAY in self.tools:
            return self._reply(reply.text, DISPLAY, {"name": self.briefing.card})
        return reply

    def _call(self) -> Reply:
        return self._ask(f"{BOOKING} {say_table(self.table)}.", passes_on=True)

    def _ask(self, question: str, *, passes_on: bool = False) -> Reply:
        self.calling = REQUEST_HELP
        self._passes_on = passes_on
        arguments: dict[str, Any] = {"question": question}
        return self._reply("", REQUEST_HELP, arguments)

    def _say_goodbye(self) -> Reply:
        if not self.briefing.asks_for_end or FINISH_SESSION not in self.tools:
            return super()._say_goodbye()
        self.calling = FINISH_SESSION  # a table that was begun is kept: the planner may want to ask for it
        return self._reply("", FINISH_SESSION)


def _said(quotation: Quotation) -> str:
    return f"{quotation.words} I have that from: {quotation.source}." if quotation.source else quotation.words


def _is_question(text: str, said: str) -> bool:
    return text.rstrip().endswith("?") or ASKS.search(said) is not None
