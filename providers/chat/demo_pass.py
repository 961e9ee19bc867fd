"""What a planner's pass is told, as the demo reads it out of the prompt: the process, the conversation, what is asked for, and what
its own calls have given so far. Nothing here raises."""

import json
import re
from collections.abc import Set as AbstractSet
from datetime import date
from functools import cached_property
from typing import Any, cast

import attrs

from engine.interfaces import ChatMessage, ChatRequest
from providers.chat.demo_lines import plain
from providers.chat.demo_prompts import INSTRUCTION, PROMPT_CHARACTERS, Briefing, first_prompt, quotations, section
from providers.chat.demo_speaker import CHARACTERS, today_in
from providers.chat.demo_steered import REQUEST_HELP, SteeredConversation
from providers.chat.demo_talk import FINISH_SESSION

STEPS = 20
LINES = 120
"""Of the conversation that are read, whispers included."""
LINE_CHARACTERS = 500
"""Of each of them; in a conversation of usual lines a pass takes 3 ms."""
WHISPERED = "(you whispered) "


@attrs.frozen
class Step:
    """One step of the process, as far as the script understands it."""

    title: str
    books: bool = False
    """Is done when a table is booked."""
    looks_up: str = ""
    """What is to be looked up for it."""
    from_minutes: int = 0
    """Is taken only for a table at this time or later, in minutes since midnight."""
    words: str = ""
    """To be asked or said."""
    on_yes: str = ""
    on_no: str = ""
    """What follows from the answer to the question of a step before."""


@attrs.frozen
class Made:
    """A call of this pass and what it gave."""

    name: str
    output: str


@attrs.frozen
class Line:
    who: str
    """User, Agent, or "" for a whisper."""
    text: str


def read_steps(text: str) -> tuple[Step, ...]:
    """The numbered lines of a process, each with the lines below it."""
    pieces = re.split(r"^[ \t]*(\d{1,2})[.)][ \t]+", text, flags=re.MULTILINE)[1 : 2 * STEPS + 1]
    return tuple(_read_step(number, " ".join(said.split())) for number, said in zip(*[iter(pieces)] * 2, strict=True))


def _read_step(number: str, text: str) -> Step:
    title = re.split(r"[.:,;](?: |$)", text, maxsplit=1)[0][:80]
    later = re.search(r"\b([0-9]{1,2}):([0-9]{2}) or later\b", text)
    look_up = re.search(r"\blook up ([^.,:;]{1,200})", text)
    words = on_yes = on_no = ""
    for each in quotations(text):
        if not re.search(r"\bif\b", each.label):
            words = words or each.words
        elif re.search(r"\b(?:not|no)\b", each.label):
            on_no = each.words
        else:
            on_yes = each.words
    return Step(
        title=f"{number}. {title}",
        books="book_table" in text,
        looks_up=look_up[1] if look_up else "",
        from_minutes=int(later[1]) * 60 + int(later[2]) if later else 0,
        words=words,
        on_yes=on_yes,
        on_no=on_no,
    )


@attrs.define(eq=False, slots=False)
class Told:
    """One pass."""

    tools: AbstractSet[str]
    steps: tuple[Step, ...]
    lines: tuple[Line, ...]
    locale: str = "en"
    today: date | None = None
    questions: tuple[str, ...] = ()
    """What the speaker asks."""
    attempts: tuple[tuple[str, dict[str, Any]], ...] = ()
    """The planner's tools that the speaker has tried, with its arguments."""
    end_is_requested: bool = False
    is_first: bool = False
    made: tuple[Made, ...] = ()

    @cached_property
    def talk(self) -> SteeredConversation:
        """The conversation, followed with the speaker's own ears: what is known of the table, and what was asked last."""
        briefing = Briefing(books_tables=True, asks_for_end=True)
        tools = frozenset((REQUEST_HELP, FINISH_SESSION))
        talk = SteeredConversation(tools, self.today, self.locale, briefing=briefing)
        for line in self.lines:
            if line.who == "Agent":
                talk.speak(line.text)
            elif line.who == "User" and not line.text.startswith("#"):
                talk.hear(line.text)
            elif line.text.startswith(INSTRUCTION):
                talk.instruct(line.text.removeprefix(INSTRUCTION))
        return talk

    @cached_property
    def _agent_lines(self) -> list[str]:
        return [plain(line.text) for line in self.lines if line.who == "Agent"]

    def was_said(self, words: str) -> bool:
        """Whether the caller has heard these words, whole."""
        return any(plain(words) in line for line in self._agent_lines)

    def was_said_last(self, words: str) -> bool:
        return bool(self._agent_lines) and plain(words) in self._agent_lines[-1]

    def answer_to(self, words: str) -> str:
        """What the caller said right after these words; "" when nothing yet."""
        asked = False
        for line in self.lines:
            if line.who == "Agent" and plain(words) in plain(line.text):
                asked = True
            elif asked and line.who == "User":
                return line.text
        return ""

    @property
    def whispered(self) -> list[str]:
        return [line.text for line in self.lines if not line.who]


def read_pass(request: ChatRequest) -> Told:
    business = first_prompt(request.messages)
    told = next((each.text[-PROMPT_CHARACTERS:] for each in request.messages if each.role == "user"), "")
    before, _, now = f"\n{told}".rpartition("\n# Now\n")
    now = f"# Now\n{now}"
    return Told(
        tools=frozenset(tool.name for tool in request.tools),
        steps=read_steps(section(business, "## The process")),
        lines=_read_lines(before),
        locale=request.locale,
        today=today_in([now]),
        questions=tuple(_items(section(now, "## The realtime model asks you"))),
        attempts=tuple(filter(None, map(_read_attempt, _items(section(now, "## Tool call hint"))))),
        end_is_requested="\n## End request\n" in now,
        is_first="\n# What you wrote the last time\n" not in before,
        made=made_in(request.messages),
    )


def _read_lines(text: str) -> tuple[Line, ...]:
    conversation = text.partition("\n# The conversation\n")[2]
    lines: list[Line] = []
    for line in conversation.partition("\nWhat the user has just said: ")[0].splitlines()[-LINES:]:
        who, _, said = line.partition(": ")
        if who in ("User", "Agent"):
            lines.append(Line(who, said[:LINE_CHARACTERS]))
        elif line.startswith(WHISPERED):
            lines.append(Line("", line.removeprefix(WHISPERED)[:LINE_CHARACTERS]))
    return tuple(lines)


def _items(text: str) -> list[str]:
    return [line.removeprefix("- ")[:CHARACTERS] for line in text.splitlines() if line.startswith("- ")]


def _read_attempt(text: str) -> tuple[str, dict[str, Any]] | None:
    name, _, written = text.partition(" ")
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return (name, cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else None


def made_in(messages: tuple[ChatMessage, ...]) -> tuple[Made, ...]:
    names = {call.call_id: call.name for each in messages for call in each.tool_calls}
    return tuple(Made(names.get(each.tool_call_id, ""), each.text) for each in messages if each.role == "tool")
