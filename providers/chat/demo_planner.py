"""The planner's part: reads a turn, calls what is needed, and writes thoughts and JSON objects as the prompt asks for them.

It goes by the steps of the process, as far as it understands them (`demo_pass.Step`): it has a table booked, has a question asked
when its step has come, looks something up before the caller has answered, and lets nobody go with a table half booked. Each request
is answered from its messages alone; nothing here raises.
"""

import json
import re
from typing import Any

import attrs

from engine.interfaces import ChatRequest
from providers.chat.demo_lines import BOOK, DONE, NO, QUESTIONS, is_yes, plain
from providers.chat.demo_pass import Step, Told, read_pass
from providers.chat.demo_prompts import quote
from providers.chat.demo_results import confirmation_of, error_of, explain, parse_result, pick
from providers.chat.demo_slots import Table, hear
from providers.chat.demo_talk import BOOK_TABLE, Reply
from providers.chat.demo_words import WEEK, WEEKDAYS

SEARCH = "search_knowledge"
REMEMBER = "remember"
SCRIPTED = "I am a scripted planner, as no language model is installed; I go by the numbered steps and a few words."
AGAIN = "I am sorry, the booking did not go through. Shall I try again?"
UNKNOWN = "I am sorry, I could not find that out. Nothing is written about it here."
BEFORE_THE_END = "Before we hang up: shall I still book the table?"
WELCOME = "Welcome back"
NAME = r"\bname (?:of|is) ([^\W\d_][^\d_,.;:\"“”\n]{0,39})"
"""Somebody's name, in a confirmation or in a note."""


def plan_turn(request: ChatRequest) -> Reply:
    return _Page(read_pass(request)).write()


@attrs.define(eq=False)
class _Page:
    """What is written in one request."""

    told: Told
    _written: list[str] = attrs.field(factory=list[str], init=False)
    _gap: str = attrs.field(default="process", init=False)

    def write(self) -> Reply:
        told = self.told
        if told.made and told.made[-1].name == REMEMBER:
            return self._end()
        if not told.made:
            if told.is_first:
                self._think(SCRIPTED)
            if call := self._call():
                return self._reply(*call)
        if told.questions or told.attempts:
            self._answer_request()
        elif told.end_is_requested:
            if self._decide_end():
                return self._end()
        elif unheard := self._unheard():
            self._think("They were interrupted before they heard that the table is booked.")
            self._add(supportingContext=f"They have not heard it yet, so tell them: {quote(unheard)}")
            return self._end()  # one thing at a time
        self._lead()
        if told.made and (note := self._note()):
            return self._reply(REMEMBER, {"note": note})
        return self._end()

    # What is called

    def _call(self) -> tuple[str, dict[str, Any]] | None:
        told = self.told
        for question in told.questions[-1:]:
            table = self._table_in(question)
            if table is not None and BOOK_TABLE in told.tools and not table.missing() and table.time is not None:
                self._think("All that a table needs is there, so I book it.")
                hour, minute = divmod(table.time, 60)
                time = f"{hour:02d}:{minute:02d}"
                return BOOK_TABLE, {"day": table.day, "time": time, "people": table.people, "name": table.name}
            if table is None and SEARCH in told.tools:
                self._think("The speaker cannot know that; I look into the documents.")
                return SEARCH, {"query": question}
        for name, arguments in told.attempts[-1:]:
            if name in told.tools and not told.questions:
                self._think(f"The speaker has tried {name}, which is mine; I call it.")
                return name, arguments
        step = self._open_step()
        if step is not None and step.looks_up and SEARCH in told.tools and not self._has_request:
            self._think(f"I look up {step.looks_up}, before they have answered.")
            return SEARCH, {"query": self._query(step)}
        return None

    @property
    def _has_request(self) -> bool:
        return bool(self.told.questions or self.told.attempts or self.told.end_is_requested)

    def _table_in(self, question: str) -> Table | None:
        """The table that is asked for; None when it is about something else."""
        heard = hear(question, (), None, self.told.today)
        is_booking = BOOK.search(plain(question)) is not None and len(heard.slots()) >= 2
        return heard.onto(Table()) if is_booking else None

    def _query(self, step: Step) -> str:
        """What is to be looked up, for the day of the table."""
        said = plain(self._booked).split()
        day = next((word for word in said if word in WEEKDAYS), "")
        if not day and self.told.today is not None:
            day = WEEK[self.told.today.weekday()]
        return f"{step.looks_up} {day.capitalize()}".strip()

    # What is answered

    @property
    def _booked(self) -> str:
        """The confirmation of the last table; "" when there is none."""
        for made in self.told.made:
            result = parse_result(made.output)
            if made.name == BOOK_TABLE and not error_of(result):
                return confirmation_of(result)
        return self.told.talk.booked

    def _answer_request(self) -> None:
        made = self.told.made[0] if self.told.made else None
        if made is None:
            self._ask_for_more()
        elif made.name == SEARCH:
            self._tell_found(made.output)
        else:
            self._tell_done(made.name, made.output)

    def _ask_for_more(self) -> None:
        """Nothing could be called: something is missing, or there is no tool for it."""
        table = self._table_in(self.told.questions[-1]) if self.told.questions else None
        missing = tuple(table.missing()) if table is not None else ()
        if missing:
            question = QUESTIONS.get(missing) or QUESTIONS[missing[:1]]
            self._think("Something is missing for a table.")
            self._add(results=f"Ask for what is missing: {quote(question)}")
        else:
            self._gap = "knowledge"
            self._think("I have nothing to find that out with.")
            self._add(results=f"Say: {quote(UNKNOWN)}")

    def _tell_found(self, output: str) -> None:
        asked = self.told.questions[-1:] or [str(arguments.get("query")) for _, arguments in self.told.attempts[-1:]]
        found = pick(output, " ".join(asked))
        if found is None:
            self._gap = "knowledge"
            self._think("Nothing in the documents fits.")
            self._add(results=f"Say: {quote(UNKNOWN)}")
        else:
            mark = f" [{found.mark}]" if found.mark else ""
            self._think("It is written there.")
            self._add(results=f"Say, and where it is from: {quote(found.sentence)}{mark}")

    def _tell_done(self, name: str, output: str) -> None:
        result = parse_result(output)
        if error := error_of(result):
            reason, slot = explain(error)
            words = f"I am sorry. {reason} {QUESTIONS[slot,]}" if slot is not None else AGAIN
            self._think("It has failed, and the caller has to choose something else.")
            self._add(results=f"That could not be done. Say: {quote(words)}")
        else:
            self._think("It is done, and can be said now.")
            begin = f"{DONE} " if name == BOOK_TABLE else ""
            self._add(results=f"Say: {quote(f'{begin}{confirmation_of(result)}')}")

    def _decide_end(self) -> bool:
        """Whether they may go."""
        talk = self.told.talk
        if talk.is_booking and not any(BEFORE_THE_END in text for text in self.told.whispered):
            self._think("They want to go, but a table was begun and is not booked: I have that asked first.")
            self._add(results=f"Ask first: {quote(f'{BEFORE_THE_END} {talk.open_question}')}")
            return False
        name = name_in(self._booked)
        words = f"Thank you for calling{f', {name}' if name else ''}. "
        words += "We look forward to seeing you. Goodbye!" if self._booked else "Goodbye!"
        self._think("Nothing is left open, so they may go.")
        self._add(results=f"Say goodbye: {quote(words)}", endSession=True)
        return True

    def _unheard(self) -> str:
        """A confirmation that was to be said, and was cut; "" when all were heard."""
        if self.told.made or not (booked := self.told.talk.booked):
            return ""
        number = re.search(r"confirmation number \d+", booked)
        return "" if number is None or self.told.was_said(number[0]) else booked.removeprefix(DONE).strip()

    def _note(self) -> str:
        """Whom to remember after a booking."""
        name = name_in(self._booked) if self.told.made[-1].name == BOOK_TABLE else ""
        is_known = self.told.was_said(f"{WELCOME}, {name}")
        return f"The guest's name is {name}." if name and not is_known and REMEMBER in self.told.tools else ""

    # How it goes on

    def _open_step(self) -> Step | None:
        """The first one that is not done, of those that apply."""
        question = ""
        for step in self.told.steps:
            if step.books:
                if not self._booked:
                    return step
            elif step.words:
                if not self._applies(step):
                    question = ""
                elif not self.told.was_said(step.words):
                    return step
                else:
                    question = step.words
            elif (step.on_yes or step.on_no) and question and self._is_open(step, question):
                return step
        return None

    def _applies(self, step: Step) -> bool:
        at = re.search(r"\bat ([0-9]{2}):([0-9]{2})\b", self._booked)
        return at is None or int(at[1]) * 60 + int(at[2]) >= step.from_minutes

    def _is_open(self, step: Step, question: str) -> bool:
        if any(self.told.was_said(words) for words in (step.on_yes, step.on_no) if words):
            return False
        return self.told.was_said_last(question) or bool(self._late_answer(step, question))

    def _late_answer(self, step: Step, question: str) -> str:
        """What is to be said to an answer that came before anything was whispered for it."""
        said = plain(self.told.answer_to(question))
        return step.on_yes if is_yes(said) else step.on_no if NO.search(said) else ""

    def _lead(self) -> None:
        """Whisper what the open step needs."""
        step = self._open_step()
        if step is None:
            self._think("Every step is done; they may go when they like.")
        elif step.books:
            open_question = self.told.talk.open_question if self.told.talk.is_booking else ""
            self._think(f"The table is being taken: {open_question}" if open_question else "No table is wanted yet.")
        elif step.words:
            verb = "ask" if step.words.endswith("?") else "say"
            self._think(f"Next comes step {step.title}.")
            self._add(supportingContext=f"Next, where the answer has room for it, {verb}: {quote(step.words)}")
        else:
            self._prepare(step)

    def _prepare(self, step: Step) -> None:
        """Whisper what to answer, before they have answered if it can be."""
        question = next((each.words for each in reversed(self._before(step)) if each.words), "")
        if not self.told.was_said_last(question):
            words = self._late_answer(step, question)
            self._think("They have answered already.")
            self._add(supportingContext=f"They have answered it. Tell them: {quote(words)}")
            return
        found = pick(self.told.made[0].output, self._query(step)) if self.told.made and not self._has_request else None
        parts = [f"They were asked: {quote(question)}"]
        if step.on_yes:
            mark = f" [{found.mark}]" if found is not None and found.mark else ""
            known = f" {quote(found.sentence)}{mark} And offer:" if found is not None else ""
            parts.append(f"If they say yes, tell them:{known} {quote(step.on_yes)}")
        if step.on_no:
            parts.append(f"If they say no, tell them: {quote(step.on_no)}")
        self._think("Whatever they answer, the speaker shall know how to go on.")
        self._add(supportingContext=" ".join(parts))

    def _before(self, step: Step) -> tuple[Step, ...]:
        return self.told.steps[: self.told.steps.index(step)]

    # Writing

    def _think(self, text: str) -> None:
        self._written.append(text)

    def _add(self, **fields: Any) -> None:
        self._written.append(json.dumps(fields, ensure_ascii=False))

    def _reply(self, call: str = "", arguments: dict[str, Any] | None = None) -> Reply:
        return Reply("".join(f"{line}\n" for line in self._written), call, arguments or {})

    def _end(self) -> Reply:
        """With the state, which is written last of all."""
        step = self._open_step()
        focus = "letting them go" if self.told.end_is_requested else "what they want next"
        if step is not None:
            focus = (self.told.talk.open_question if step.books else step.words) or step.title
        state = {"currentModule": step.title if step else "done", "workingFocus": focus, "gapType": self._gap}
        self._add(state=state)
        return self._reply()


def name_in(text: str) -> str:
    found = re.search(NAME, text, re.IGNORECASE)
    return found[1].strip() if found else ""
