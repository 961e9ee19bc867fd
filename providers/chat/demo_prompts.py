"""What the demo reads out of prompts: who is asked, the sections, and the sentences in quotation marks. Nothing here raises.

The prompts are those of relational agents and of simulated users; their beginnings and headings are what this goes by.
"""

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import cast

import attrs

from engine.interfaces import ChatMessage

PROMPT_CHARACTERS = 100_000
"""Of a prompt that are read."""


class Part(Enum):
    """Whom the demo plays."""

    SPEAKER = auto()
    PLANNER = auto()
    OPENING = auto()
    """The planner before the first word."""
    CALLER = auto()
    """A simulated user."""


_BEGINNINGS = (
    ("You plan a spoken conversation that somebody else holds.", Part.PLANNER),
    ("You plan a spoken conversation that is about to begin.", Part.OPENING),
    ("You play a person,", Part.CALLER),
)


def first_prompt(messages: Iterable[ChatMessage]) -> str:
    return next((each.text[:PROMPT_CHARACTERS] for each in messages if each.role == "system"), "")


def part_of(prompt: str) -> Part:
    return next((part for beginning, part in _BEGINNINGS if prompt.startswith(beginning)), Part.SPEAKER)


def section(text: str, heading: str) -> str:
    """What stands under a heading such as "## The process", up to the next heading of any depth; "" when there is none."""
    _, found, rest = f"\n{text}".partition(f"\n{heading}\n")
    return re.split(r"\n#{1,6} ", rest, maxsplit=1)[0].strip() if found else ""


# --- quotations -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Quotation:
    """Words in quotation marks, with what is said of them before and where they are from."""

    label: str
    """Lower case: what stands between the quotation before and this one."""
    words: str
    source: str = ""
    """The title of a citation right behind it: "(The menu)" or "([The menu](https://…))"."""


_QUOTATION = re.compile(r"[\"“„](?=\S)([^\"“”„]{2,600})(?<=\S)[\"”“]")
_NO_MARKS = str.maketrans(dict.fromkeys('"“”„', "'"))
_SOURCE = re.compile(r" ?\((?:\[([^\[\]]{1,200})\]\([^()\s]{1,500}\)|([^()\[\]]{1,200}))\)")


def quotations(text: str) -> list[Quotation]:
    found: list[Quotation] = []
    end = 0
    for match in _QUOTATION.finditer(text):
        label, end = text[end : match.start()].lower(), match.end()
        source = _SOURCE.match(text, end)
        if source is not None:
            end = source.end()
        title = (source[1] or source[2]) if source is not None else ""
        found.append(Quotation(label, " ".join(match[1].split()), title.split("](")[0].strip()))
    return found


def quote(words: str) -> str:
    """In quotation marks, which the words themselves lose."""
    return f'"{" ".join(words.translate(_NO_MARKS).split())}"'


def quoted(text: str) -> list[str]:
    return [each.words for each in quotations(text)]


# --- what a speaker with a planner is told ----------------------------------------------------------------------------


@attrs.frozen
class Briefing:
    """The prompt of a speaking model that has a planner."""

    welcome: str = ""
    """What the opening plan wants to be said first, word for word."""
    books_tables: bool = False
    """Tables can be booked: not by itself, but they can."""
    asks_for_end: bool = False
    """`finish_session` only asks; the goodbye comes as an instruction."""
    card: str = ""
    """The menu, when it can be shown."""


def read_briefing(prompt: str) -> Briefing:
    opening = section(prompt, "# How it begins")
    there_is = section(prompt, "# What there is").partition("`display`:")[2]
    cards = cast("list[str]", re.findall(r"^- (.+)$", there_is, re.MULTILINE))
    return Briefing(
        welcome=next(iter(quoted(opening)), ""),
        books_tables=re.search(r"\btables?\b", section(prompt, "# What you are here for"), re.IGNORECASE) is not None,
        asks_for_end="It only asks for the end" in section(prompt, "# How it ends"),
        card=next((card for card in cards if "menu" in card.lower()), ""),
    )


# --- whispers ---------------------------------------------------------------------------------------------------------

CONTEXT = "Supporting context:"
INSTRUCTION = "Instruction:"

_NEXT = re.compile(r"\b(?:ask|say|tell|mention|offer)\b")
_SAID_YES = re.compile(r"\byes\b")
_SAID_NO = re.compile(r"\bno\b")
_WAS_ASKED = re.compile(r"\b(?:was|were|been|being) asked\b")


@attrs.frozen
class Whisper:
    """One supporting context, as far as it has words to be said."""

    next: tuple[Quotation, ...] = ()
    """To be said where there is room."""
    question: str = ""
    """What the caller is being asked."""
    on_yes: tuple[Quotation, ...] = ()
    on_no: tuple[Quotation, ...] = ()
    """What to answer then."""


def read_whisper(text: str) -> Whisper:
    question = ""
    to_say: dict[str, list[Quotation]] = {"next": [], "yes": [], "no": []}
    when = "next"
    for each in quotations(text):
        if _WAS_ASKED.search(each.label):
            question = each.words
        else:
            if _SAID_YES.search(each.label):
                when = "yes"
            elif _SAID_NO.search(each.label):
                when = "no"
            elif each.label.strip(" .,;") and not _NEXT.search(each.label):
                continue  # something else is quoted
            to_say[when].append(each)
    return Whisper(tuple(to_say["next"]), question, tuple(to_say["yes"]), tuple(to_say["no"]))


def whispers(messages: Iterable[ChatMessage]) -> list[Whisper]:
    """Those that are still told, oldest first."""
    texts = (each.text for each in messages if each.role == "system" and each.text.startswith(CONTEXT))
    return [read_whisper(text.removeprefix(CONTEXT)[:PROMPT_CHARACTERS]) for text in texts]
