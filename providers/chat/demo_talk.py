"""A conversation about a café and its tables, step by step. Sans-I/O; nothing here raises.

A `Conversation` is fed what was said, utterance by utterance, and answers each with a `Reply`. It holds nothing but what follows
from that, so that feeding it the same words again leads to the same place: a reconnected or interrupted conversation goes on.
"""

import re
from collections.abc import Set as AbstractSet
from datetime import date
from enum import Enum, auto
from typing import Any, cast

import attrs

from providers.chat.demo_lines import (
    BOOK,
    BOOKED,
    CANCEL,
    CANNOT_CHANGE,
    CHANGED,
    CHANGES,
    CORRECTS,
    DONE,
    FINE,
    GOODBYE,
    GOODBYE_WORDS,
    GREETING,
    HELLO,
    MOMENT,
    NO,
    NO_BOOKINGS,
    NOT_CAUGHT,
    OFFER,
    OFFER_WITHOUT_TABLES,
    OTHER_LANGUAGES,
    QUESTIONS,
    REPEAT,
    SEATS,
    SPOKEN_CHARACTERS,
    STILL_BOOKING,
    STOP,
    THAT_IS_ALL,
    WHAT,
    find_fact,
    is_yes,
    plain,
    say_again,
    say_people,
    say_table,
    say_time,
    small_talk,
)
from providers.chat.demo_results import confirmation_of, error_of, explain, parse_result
from providers.chat.demo_slots import LAST_TABLE, OPENS, Heard, Slot, Table, hear, on_the_day

BOOK_TABLE = "book_table"
FINISH_SESSION = "finish_session"


class Asked(Enum):
    """What the last reply has asked."""

    NOTHING = auto()
    SLOTS = auto()
    CONFIRM = auto()
    """Whether what is known is right."""
    CHANGE = auto()
    """What is to be changed."""
    WHICH_NUMBER = auto()
    """Whether a number was the guests or the hour."""
    OFFER = auto()
    """Whether a table is wanted."""
    ELSE = auto()
    """Whether there is anything else."""


@attrs.frozen
class Reply:
    text: str
    call: str = ""
    """A tool to call after the text."""
    arguments: dict[str, Any] = attrs.field(factory=dict[str, Any])


# --- the conversation ------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Conversation:
    tools: AbstractSet[str] = frozenset()
    today: date | None = None
    locale: str = "en"
    table: Table = attrs.field(factory=Table)
    asked: Asked = Asked.NOTHING
    has_spoken: bool = False
    """Whether the caller has heard anything yet."""
    last: Reply = Reply("")
    calling: str = ""
    """The tool whose result is still to come."""
    booked: str = ""
    """The confirmation of the last booking."""
    _is_booking: bool = False
    _given: frozenset[Slot] = frozenset()
    """What the last utterance has told."""
    _number: int = 0

    @property
    def can_book(self) -> bool:
        return BOOK_TABLE in self.tools

    @property
    def is_booking(self) -> bool:
        """A table was begun, and is not booked."""
        return self._is_booking

    @property
    def open_question(self) -> str:
        """What was asked last and not answered; "" for nothing."""
        return self._question()

    def open(self) -> Reply:
        """The caller asks for the opening; in a conversation under way it goes on instead."""
        if self.has_spoken:
            return self._reply(f"I am still here. {self._question() or WHAT}")
        other = OTHER_LANGUAGES.get(self.locale.partition("-")[0].lower(), "")
        return self._reply(f"{other} {GREETING} {self._offer()} {WHAT}")

    def speak(self, text: str) -> None:
        """What the caller has heard, perhaps cut in the middle."""
        self.has_spoken = True
        if self.calling == BOOK_TABLE and DONE in text:  # its result is no longer in the history, but was told
            self._close(text)

    def instruct(self, text: str) -> Reply:
        """The whisper from behind the stage: its quoted sentence, or the text itself, is said."""
        quotes = cast("list[str]", re.findall(r"[\"“„]([^\"“”„]{2,})[\"”“]", text))
        words = (
            max(quotes, key=len)
            if quotes
            else re.sub(r"^\s*(?:please )?say(?: that)?:?\s+", "", text, flags=re.IGNORECASE)
        )
        return self._reply(words)

    def hear(self, text: str) -> Reply:
        """The answer to what the caller says."""
        said = plain(text)
        self.calling = ""
        if not said:
            return self._reply(f"{NOT_CAUGHT} {self._question()}")
        if REPEAT.search(said) and len(said) < SPOKEN_CHARACTERS:
            return (
                self.last if self.last.text and not self.last.call else self._reply(self._question() or self._offer())
            )
        if GOODBYE.search(said):
            return self._say_goodbye()
        if CANCEL.search(said):
            return self._cancel()
        if STOP.search(said):
            return self._reply(f"All right. {self._question()}")
        heard = hear(text, self._expected(), self.table, self.today)
        answer = self._answer(text, said, heard)
        self._given = frozenset(heard.slots())
        return answer

    def take_result(self, name: str, output: str) -> Reply:
        """What follows a tool's result."""
        self.calling = ""
        if name != BOOK_TABLE:
            return self._reply("")  # a goodbye has been said already
        result = parse_result(output)
        if result.keys() == {"status"}:  # it still runs; until its result is here there is nothing to confirm again
            self._drop()
            return self._reply(STILL_BOOKING)
        if error := error_of(result):
            return self._take_error(error)
        confirmation = confirmation_of(result)
        self._close(confirmation)
        return self._reply(f"{DONE} {confirmation} Can I do anything else for you?")

    # Steps of an answer

    def _answer(self, text: str, said: str, heard: Heard) -> Reply:
        wants_table = BOOK.search(said) is not None
        if self.booked and not self._is_booking and BOOKED.search(said):
            return self._reply(f"{self.booked} {CANNOT_CHANGE if CHANGES.search(said) else ''}")
        if not (wants_table and heard.slots()) and (fact := find_fact(said)):
            return self._inform(fact)
        if self._is_booking:
            return self._continue_booking(text, said, heard)
        likely = len(heard.slots() - {Slot.NAME}) >= 2 or (heard.people is not None and "people" in said)
        if wants_table or likely or (self.asked is Asked.OFFER and (is_yes(said) or heard.slots())):
            return self._start_booking(heard)
        if self.asked in (Asked.OFFER, Asked.ELSE):
            if NO.search(said) or THAT_IS_ALL.search(said):
                self.asked = Asked.NOTHING
                return self._reply("All right. Thank you for calling, and have a nice day.")
            if is_yes(said):
                self.asked = Asked.NOTHING
                return self._reply(WHAT)
        if chat := small_talk(said):
            self.asked = Asked.NOTHING
            return self._reply(f"{chat} {WHAT}" if chat in (HELLO, FINE) else chat)
        self.asked = Asked.NOTHING
        return self._say_not_understood(text, said)

    def _say_not_understood(self, text: str, said: str) -> Reply:
        return self._reply(f"I heard: {say_again(text)}. {self._question() or self._offer()}")

    def _inform(self, fact: str) -> Reply:
        if question := self._question():
            return self._reply(f"{fact} {question}")
        if not self.can_book:
            return self._reply(fact)
        self.asked = Asked.OFFER
        return self._reply(f"{fact} {self._question()}")

    def _start_booking(self, heard: Heard) -> Reply:
        if not self.can_book:
            self.asked = Asked.NOTHING
            return self._reply(f"{NO_BOOKINGS} {self._offer()}")
        self._is_booking = True
        self.asked = Asked.SLOTS
        return self._take(heard, "Gladly.")

    def _continue_booking(self, text: str, said: str, heard: Heard) -> Reply:
        if self.asked is Asked.WHICH_NUMBER and not heard.slots():
            heard = self._which_number(said, heard)
        elif heard.number is not None:
            placed = self._place_number(said, heard)
            if placed is None:
                self._number = heard.number
                self.asked = Asked.WHICH_NUMBER
                return self._reply(self._question())
            heard = placed
        if heard.slots():
            changed = heard.onto(self.table) != self.table
            if changed or self.asked is not Asked.CONFIRM or NO.search(said):
                return self._take(heard, "")
        if self.asked is Asked.CONFIRM and is_yes(said):
            return self._call()
        if self.asked in (Asked.CONFIRM, Asked.CHANGE):
            for slot, pattern in CHANGED:
                if pattern.search(said):
                    self._clear(slot)
                    return self._reply(self._question())
            if NO.search(said):
                self.asked = Asked.CONFIRM if self.asked is Asked.CHANGE else Asked.CHANGE
                return self._reply(self._question())
        if chat := small_talk(said):
            return self._reply(f"{chat} {self._question()}")
        if is_yes(said) or NO.search(said):
            return self._reply(self._question())
        return self._say_not_understood(text, said)

    def _place_number(self, said: str, heard: Heard) -> Heard | None:
        """A number without a word about what it counts, as guests or as an hour; None when that has to be asked."""
        number = heard.number
        if number is None or (self.asked is Asked.SLOTS and not CORRECTS.search(said)):
            return heard  # neither an answer to what was asked nor a correction
        time = on_the_day(number, 0, self.table)
        fits_time = time is not None and OPENS <= time <= LAST_TABLE
        numeric = self._given & {Slot.TIME, Slot.PEOPLE}
        if len(numeric) != 1 and number <= SEATS and fits_time:
            return None
        if Slot.TIME in numeric or (len(numeric) != 1 and fits_time):
            return attrs.evolve(heard, time=time, number=None)
        return attrs.evolve(heard, people=number, number=None)

    def _which_number(self, said: str, heard: Heard) -> Heard:
        if re.search(r"\b(?:people|persons|guests|first|us)\b", said):
            return attrs.evolve(heard, people=self._number, number=None)
        if re.search(r"\b(?:oclock|clock|time|hour|second|at|pm|am)\b", said):
            return attrs.evolve(heard, time=on_the_day(self._number, 0, self.table), number=None)
        return heard

    def _take(self, heard: Heard, otherwise: str) -> Reply:
        """Note what was heard, and ask for what is missing."""
        complaint = ""
        if heard.time is not None and not OPENS <= heard.time <= LAST_TABLE:
            complaint = f"Tables are given from {say_time(OPENS)} to {say_time(LAST_TABLE)}."
            heard = attrs.evolve(heard, time=None)
            self._clear(Slot.TIME)
        if heard.people is not None and not 1 <= heard.people <= SEATS:
            complaint = f"A table is for up to {say_people(SEATS)}."
            heard = attrs.evolve(heard, people=None)
            self._clear(Slot.PEOPLE)
        self.table = heard.onto(self.table)
        if not self.table.missing():
            self.asked = Asked.CONFIRM
            return self._reply(f"{complaint} {self._question()}")
        self.asked = Asked.SLOTS
        noted = say_table(heard)
        note = complaint or (f"{noted[0].upper()}{noted[1:]}." if noted else otherwise)
        return self._reply(f"{note} {self._question()}")

    def _call(self) -> Reply:
        assert self.table.time is not None
        hour, minute = divmod(self.table.time, 60)
        self.calling = BOOK_TABLE
        arguments = {
            "day": self.table.day,
            "time": f"{hour:02d}:{minute:02d}",
            "people": self.table.people,
            "name": self.table.name,
        }
        return self._reply(MOMENT, BOOK_TABLE, arguments)

    def _take_error(self, error: str) -> Reply:
        """Say why a booking failed, and ask for what has to be another."""
        told, slot = explain(error)
        if slot is None:
            self.asked = Asked.CONFIRM
            return self._reply("I am sorry, the booking did not go through. Shall I try again?")
        self._clear(slot)
        return self._reply(f"I am sorry. {told} {self._question()}")

    def _say_goodbye(self) -> Reply:
        call = FINISH_SESSION if FINISH_SESSION in self.tools else ""
        self.calling = call
        self._drop()
        return self._reply(GOODBYE_WORDS, call)

    def _cancel(self) -> Reply:
        if self._is_booking:
            self._drop()
            return self._reply("All right, I have dropped the booking. What else can I do for you?")
        if self.booked:
            return self._reply("I am sorry, I cannot cancel a booking, as I am only a demo.")
        return self._reply("All right.")

    def _offer(self) -> str:
        return OFFER if self.can_book else OFFER_WITHOUT_TABLES

    # State

    def _expected(self) -> tuple[Slot, ...]:
        missing = self.table.missing()
        if self.asked is Asked.WHICH_NUMBER:
            return tuple(slot for slot in missing if slot in (Slot.DAY, Slot.NAME))
        if self.asked is not Asked.SLOTS:
            return ()
        return tuple(missing[:2]) if missing[:2] == [Slot.DAY, Slot.TIME] else tuple(missing[:1])

    def _question(self) -> str:
        match self.asked:
            case Asked.SLOTS:
                return QUESTIONS.get(self._expected(), "")
            case Asked.CONFIRM:
                return f"A table {say_table(self.table)}. Is that right?"
            case Asked.CHANGE:
                return "What shall I change?"
            case Asked.WHICH_NUMBER:
                return f"Do you mean {say_people(self._number)}, or {self._number} o'clock?"
            case Asked.OFFER:
                return "Would you like to book a table?"
            case Asked.ELSE:
                return "Can I do anything else for you?"
            case Asked.NOTHING:
                return ""

    def _clear(self, slot: Slot) -> None:
        self.table = self.table.without(slot)
        self.asked = Asked.SLOTS

    def _drop(self) -> None:
        self.table = Table()
        self.asked = Asked.NOTHING
        self._is_booking = False
        self._given = frozenset()

    def _close(self, confirmation: str) -> None:
        self._drop()
        self.calling = ""
        self.booked = confirmation
        self.asked = Asked.ELSE

    def _reply(self, text: str, call: str = "", arguments: dict[str, Any] | None = None) -> Reply:
        self.last = Reply(" ".join(text.split()), call, arguments or {})
        return self.last
