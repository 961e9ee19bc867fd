"""The part of a simulated user: somebody who books a table and asks what the scenario has in quotation marks.

The table is taken from the scenario as the barista takes it from a caller; what it leaves open is chosen here. Each request is
answered from its messages alone; nothing here raises.
"""

import re

import attrs

from engine.interfaces import ChatRequest
from providers.chat.demo_lines import QUESTIONS, plain, say_day, say_people, say_table, say_time
from providers.chat.demo_prompts import first_prompt, quoted, section
from providers.chat.demo_slots import Slot, Table, hear
from providers.chat.demo_speaker import CHARACTERS, MESSAGES, OPENING, today_in
from providers.chat.demo_talk import Reply

HELLO = "Hello, I am a scripted guest."
GOODBYE = "Thank you, that is all. Goodbye."
WAITING = "All right, I am waiting."
THANKS = "Good to know, thank you."
YES = "Yes, that is right."
OTHERWISE = Table("tomorrow", 19 * 60, 2, "Anna")
"""What the scenario does not say."""
MAX_LINES = 20
"""After which the guest hangs up, whatever was said."""


@attrs.frozen
class _Guest:
    wish: Table
    questions: tuple[str, ...]
    said: tuple[str, ...]
    """So far, plain."""
    heard: tuple[str, ...]

    def answer(self) -> str:
        if not self.said:
            wanted = attrs.evolve(self.wish, name="")
            return f"{HELLO} I would like to book a table {say_table(wanted)}."
        last = self.heard[-1] if self.heard else ""
        question = re.split(r"(?<=[.!?]) +", last.rstrip())[-1] if last.rstrip().endswith("?") else ""
        is_over = len(self.said) >= MAX_LINES or plain(GOODBYE) in self.said
        if is_over and (not question or self.said.count(plain(GOODBYE)) > 1):
            return "Goodbye."
        if question:
            return self._answer_question(plain(question))
        if last.rstrip().lower().endswith("moment, please.") and self.said[-1] != plain(WAITING):
            return WAITING
        return self._go_on()

    def _answer_question(self, said: str) -> str:
        wish = self.wish
        for slots, asked in QUESTIONS.items():
            if plain(asked) in said:
                given = ", ".join(map(self._give, slots))
                return f"{given[0].upper()}{given[1:]}."
        if "is that right" in said:
            return YES
        if re.search(r"\bwould you like\b|\banything else\b|\bwhat\b", said):
            if not self._is_booked:
                return f"I would like a table {say_table(attrs.evolve(wish, name=''))}."
            return self._go_on()
        if "shall i" in said:
            return "Yes, please."
        return "Yes, we are." if re.search(r"\bare you\b", said) else "Yes, please."

    def _give(self, slot: Slot) -> str:
        match slot:
            case Slot.DAY:
                return say_day(self.wish.day)
            case Slot.TIME:
                return f"at {say_time(self.wish.time or 0)}"
            case Slot.PEOPLE:
                return f"for {say_people(self.wish.people or 0)}"
            case Slot.NAME:
                return f"in the name of {self.wish.name}"

    def _go_on(self) -> str:
        """Ask what is left to be asked, be thankful once, and go."""
        left = [question for question in self.questions if plain(question) not in " ".join(self.said)]
        if left and (self._is_booked or len(self.said) > MAX_LINES // 2):
            return f"Thank you. {left[0]}"
        return GOODBYE if plain(THANKS) in self.said else THANKS

    @property
    def _is_booked(self) -> bool:
        return any("confirmation number" in plain(text) for text in self.heard)


def call_in(request: ChatRequest) -> Reply:
    prompt = first_prompt(request.messages)
    messages = request.messages[-MESSAGES:]
    heard = [each.text[:CHARACTERS] for each in messages if each.role == "user" and not each.text.startswith(OPENING)]
    said = tuple(plain(each.text) for each in messages if each.role == "assistant" and each.text.strip())
    today = today_in(each.text for each in request.messages if each.role == "system")
    scenario = section(prompt, "# Your scenario")
    guest = _Guest(hear(scenario, (), None, today).onto(OTHERWISE), tuple(quoted(scenario)), said, tuple(heard))
    return Reply(" ".join(guest.answer().split()))
