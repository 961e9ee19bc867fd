"""What a caller says about a table: the day, the time, how many, and the name. Pure functions over what recognition gives.

Recognized speech has numbers as words or digits, punctuation or none, and words that sound alike: "for" for four, "ate" for
eight. Of several values for the same slot the last one counts, as people correct themselves: "at seven, no, at eight". Anything
may come in; nothing here raises.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
from enum import StrEnum

import attrs

from providers.chat.demo_names import find_name
from providers.chat.demo_words import (
    AT,
    CHILDREN,
    COMPANIONS,
    DAY_NAMES,
    FILLERS,
    HALF_DAYS,
    MONTHS,
    NTH,
    NUMBERS,
    PARTS_OF_DAY,
    PEOPLE,
    SOUND_ALIKE,
    TENS,
)


class Slot(StrEnum):
    DAY = "day"
    TIME = "time"
    PEOPLE = "people"
    NAME = "name"


@attrs.frozen
class Table:
    """What is known of the table that is wanted."""

    day: str = ""
    """In the words of the booking tool: "tomorrow", "Friday", or a date such as "2026-06-03"."""
    time: int | None = None
    """Minutes since midnight."""
    people: int | None = None
    name: str = ""

    def missing(self) -> list[Slot]:
        """In the order in which they are asked for."""
        values = {Slot.DAY: self.day, Slot.TIME: self.time, Slot.PEOPLE: self.people, Slot.NAME: self.name}
        return [slot for slot, value in values.items() if value in ("", None)]

    def without(self, slot: Slot) -> "Table":
        match slot:
            case Slot.DAY:
                return attrs.evolve(self, day="")
            case Slot.TIME:
                return attrs.evolve(self, time=None)
            case Slot.PEOPLE:
                return attrs.evolve(self, people=None)
            case Slot.NAME:
                return attrs.evolve(self, name="")


@attrs.frozen
class Heard:
    """The slots of one utterance; what was not said has its empty value."""

    day: str = ""
    time: int | None = None
    people: int | None = None
    name: str = ""
    number: int | None = None
    """A number that may be anything."""

    def slots(self) -> set[Slot]:
        said = {Slot.DAY: self.day, Slot.TIME: self.time, Slot.PEOPLE: self.people, Slot.NAME: self.name}
        return {slot for slot, value in said.items() if value not in ("", None)}

    def onto(self, table: Table) -> Table:
        return Table(
            self.day or table.day,
            table.time if self.time is None else self.time,
            table.people if self.people is None else self.people,
            self.name or table.name,
        )


# --- words -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Word:
    text: str
    number: int | None = None
    nth: int | None = None
    clock: tuple[int, int] | None = None
    """Hour and minute, when written as one: "7:30"."""


def read_words(text: str) -> list[Word]:
    """The words of an utterance, lower case and without punctuation, numbers recognized."""
    text = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    text = re.sub(r"\bo ?'? ?clock\b", " oclock ", text)
    text = re.sub(r"(?<![^\W\d_])([ap])\.? ?m\b\.?", r" \1m ", text)
    text = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1th", text)
    text = re.sub(r"\b(\d{1,2})[.h](\d\d)\b", r"\1:\2", text)
    found = re.findall(r"\d{1,2}:\d\d(?!\d)|\d+th\b|\d+|[^\W\d_]+", text.replace("'", ""))
    return list(_resolve(_join(_word(piece) for piece in found)))


def _word(text: str) -> Word:
    if ":" in text:
        hour, minute = map(int, text.split(":"))
        return Word(text, clock=(hour, minute) if hour <= 24 and minute < 60 else None)
    if text.endswith("th") and text[:-2].isdecimal():
        return Word(text, nth=int(text[:-2]) if len(text) <= 4 else None)
    if text.isdecimal():
        return Word(text, number=int(text) if len(text) <= 4 else None)
    return Word(text, number=NUMBERS.get(text), nth=NTH.get(text))


def _join(words: Iterable[Word]) -> list[Word]:
    """Numbers of two words in one: "twenty five", "twenty first", "oh five"."""
    joined: list[Word] = []
    for word in words:
        last = joined[-1] if joined else Word("")
        if last.text in TENS and word.text in NUMBERS and 1 <= NUMBERS[word.text] <= 9:
            joined[-1] = Word(f"{last.text} {word.text}", number=TENS[last.text] + NUMBERS[word.text])
        elif last.text in TENS and word.nth is not None and word.nth <= 9 and word.text in NTH:
            joined[-1] = Word(f"{last.text} {word.text}", nth=TENS[last.text] + word.nth)
        elif last.text in ("oh", "o") and word.number is not None and word.number <= 9:
            joined[-1] = Word(f"0{word.number}", number=word.number)
        else:
            joined.append(word)
    return joined


def _resolve(words: Sequence[Word]) -> Iterable[Word]:
    """Words that sound like a number are one where no other word can stand."""
    said = [word for word in words if word.text not in FILLERS or word.text in SOUND_ALIKE]
    for index, word in enumerate(words):
        value = SOUND_ALIKE.get(word.text)
        if value is None:
            yield word
            continue
        before = words[index - 1].text if index else ""
        after = words[index + 1] if index + 1 < len(words) else Word("")
        alone = len(said) == 1 and index == len(words) - 1
        counted = after.text in PEOPLE or after.text in ("oclock", "am", "pm")
        placed = before in ("for", "of", "at", "past", "around", "about") and word.text != before
        doubled = before == word.text == "for"
        ate = word.text == "ate" and (after.text in TENS or before in ("make", "it", "its"))
        yield Word(word.text, number=value) if alone or counted or placed or doubled or ate else word


# --- slots -----------------------------------------------------------------------------------------------------------


def hear(text: str, expected: Iterable[Slot] = (), table: Table | None = None, today: date | None = None) -> Heard:
    """The slots in an utterance.

    `expected` are the slots that were asked for: a number, or a name without any introduction, is taken for those. `table` is
    what is known already: "nine" after a morning time is in the morning.
    """
    asked = set(expected)
    known = table or Table()
    words = _without_denied(read_words(text))
    taken: set[int] = set()
    day = _find_day(words, taken, today, asked=Slot.DAY in asked)
    time = _find_time(words, taken, known, asked)
    people = _find_people(words, taken, asked)
    free = [word.number for index, word in enumerate(words) if index not in taken and word.number is not None]
    number = free[-1] if free else None
    if number is not None and Slot.TIME in asked and time is None and Slot.PEOPLE not in asked:
        time = _find_bare_time(words, taken, known)
        number = number if time is None else None
    elif number is not None and Slot.PEOPLE in asked and people is None:
        people, number = number, None
    nothing_else = time is None and people is None and not day
    name = find_name(text, asked=Slot.NAME in asked, bare=Slot.NAME in asked and nothing_else)
    return Heard(day, time, people, name, number)


def _without_denied(words: Sequence[Word]) -> list[Word]:
    """ "Not seven, eight": what comes right after a "not" is not meant."""
    kept: list[Word] = []
    for index, word in enumerate(words):
        denied = index > 0 and words[index - 1].text == "not"
        if not (denied and (word.number is not None or word.text in DAY_NAMES or word.text in ("today", "tomorrow"))):
            kept.append(word)
    return kept


def _text(words: Sequence[Word], index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""


def _find_day(words: Sequence[Word], taken: set[int], today: date | None, *, asked: bool) -> str:
    day = ""
    for index, word in enumerate(words):
        before, after = _text(words, index - 1), _text(words, index + 1)
        if word.text in ("tomorrow", "tomorow") or (word.text == "morrow" and before == "to"):
            start = [_text(words, index - back) for back in (2, 1)]
            day = "the day after tomorrow" if start == ["day", "after"] else "tomorrow"
        elif word.text in ("today", "tonight") or (before == "this" and word.text in PARTS_OF_DAY):
            day = "today"
        elif word.text in DAY_NAMES:
            name = DAY_NAMES[word.text].capitalize()
            day = f"next {name}" if before == "next" else name
        elif word.text in MONTHS:
            if (found := _date_around(words, index)) is not None:
                number, place = found
                taken.add(place)
                day = _write_date(MONTHS[word.text], number, today)
        elif word.nth is not None and 1 <= word.nth <= 31 and after not in MONTHS and after != "of":
            if asked or before == "on" or (before == "the" and _text(words, index - 2) == "on"):
                day = _write_nth(word.nth, today)
        elif before == "in" and word.number is not None and word.number <= 60 and after in ("day", "days"):
            taken.add(index)
            day = (today + timedelta(days=word.number)).isoformat() if today else f"in {word.number} days"
    return day


def _date_around(words: Sequence[Word], month: int) -> tuple[int, int] | None:
    """The day of a month that is named at this place, and where it is said: "June 3", "the 3rd of June"."""
    places = [
        month + 2 if _text(words, month + 1) == "the" else month + 1,
        month - 2 if _text(words, month - 1) == "of" else month - 1,
    ]
    near = [place for place in places if 0 <= place < len(words)]
    for place in near:  # "June third" is a date for sure
        nth = words[place].nth
        if nth is not None and 1 <= nth <= 31:
            return nth, place
    for place in near:  # "June 7 pm" is a time
        number = words[place].number
        if number is not None and 1 <= number <= 31 and _text(words, place + 1) not in ("am", "pm", "oclock", *PEOPLE):
            return number, place
    return None


def _write_date(month: int, number: int, today: date | None) -> str:
    """The next such date after today, else its name."""
    if today is not None:
        for year in range(today.year, today.year + 9):  # the 29th of February may be eight years away
            try:
                found = date(year, month, number)
            except ValueError:
                continue
            if found >= today:
                return found.isoformat()
    name = next(name for name, value in MONTHS.items() if value == month)
    return f"{name.capitalize()} {number}"


def _write_nth(number: int, today: date | None) -> str:
    if today is not None:
        for ahead in range(62):
            if (found := today + timedelta(days=ahead)).day == number:
                return found.isoformat()
    return f"the {number}th"


# --- times -----------------------------------------------------------------------------------------------------------

OPENS, LAST_TABLE = 8 * 60, 20 * 60 + 30
"""When tables are given, minutes since midnight: an hour without its half of the day is one of these."""


def _find_time(words: Sequence[Word], taken: set[int], known: Table, asked: set[Slot]) -> int | None:
    """The last time that is said as one, with the places of its words taken."""
    half = _find_half(words)
    # "About five" is an hour, unless guests are being counted.
    signs = {"at"} if Slot.PEOPLE in asked and Slot.TIME not in asked else AT
    found: int | None = None
    index = 0
    while index < len(words):
        clock = _clock_at(words, index, signs, asked=Slot.TIME in asked)
        if clock is None or index in taken:
            index += 1
            continue
        hour, minute, length = clock
        end = index + length
        own = _text(words, end) if _text(words, end) in ("am", "pm") else half
        time = on_the_day(hour, minute, known, own)
        if time is not None:
            found = time
            taken.update(range(index, end))
        index = end
    return found


def _find_half(words: Sequence[Word]) -> str:
    """The half of the day that is said; the "am" of "I am" is none."""
    halves = (
        HALF_DAYS[word.text]
        for index, word in enumerate(words)
        if word.text in HALF_DAYS and not (word.text == "am" and _text(words, index - 1) == "i")
    )
    return next(halves, "")


def _find_bare_time(words: Sequence[Word], taken: set[int], known: Table) -> int | None:
    """The last free number as an hour."""
    half = _find_half(words)
    for index in range(len(words) - 1, -1, -1):
        number = words[index].number
        if index in taken or number is None or _text(words, index + 1) in PEOPLE:
            continue
        hour, minute = divmod(number, 100) if number > 24 else (number, 0)
        time = on_the_day(hour, minute, known, half) if minute < 60 else None
        if time is not None:
            taken.add(index)
        return time
    return None


def _clock_at(
    words: Sequence[Word], index: int, signs: AbstractSet[str], *, asked: bool
) -> tuple[int, int, int] | None:
    """A time that begins here: hour, minute, and how many words it takes. A number behind one of `signs` is an hour."""
    word = words[index]
    if word.clock is not None:
        return (*word.clock, 1)
    if word.text in ("noon", "midday"):
        return 12, 0, 1
    if (found := _clock_from_parts(words, index)) is not None:
        return found
    hour = word.number
    if hour is None:
        return None
    before, after = _text(words, index - 1), _text(words, index + 1)
    if hour > 24:
        written = asked or after in ("am", "pm") or before in signs
        return (hour // 100, hour % 100, 1) if written and hour >= 100 and hour % 100 < 60 else None
    minute = words[index + 1].number if index + 1 < len(words) else None
    if minute is not None and minute < 60 and _text(words, index + 2) not in PEOPLE:
        round_minute = minute % 5 == 0 and minute >= 10 and (asked or before in signs)
        if minute in (15, 30, 45) or after.startswith("0") or round_minute:
            return hour, minute, 2
    if before == "of":
        return None  # "a party of six tonight"
    if after in ("am", "pm", "oclock", "sharp", "ish", "tonight"):
        return hour, 0, 2 if after == "oclock" else 1
    if after in ("in", "this") and any(_text(words, index + ahead) in HALF_DAYS for ahead in (2, 3)):
        return hour, 0, 1
    if after in ("tomorrow", "today") and _text(words, index + 2) in HALF_DAYS:
        return hour, 0, 1
    return (hour, 0, 1) if before in signs and after not in PEOPLE and after not in CHILDREN else None


def _clock_from_parts(words: Sequence[Word], index: int) -> tuple[int, int, int] | None:
    """ "Half past seven", "half seven", "quarter to eight", "ten minutes past six"."""
    minutes = {"half": 30, "quarter": 15}.get(words[index].text, words[index].number)
    if minutes not in (5, 10, 15, 20, 25, 30):
        return None
    place = index + 1 + (_text(words, index + 1) in ("minutes", "minute"))
    sign = {"past": 1, "after": 1, "to": -1, "till": -1, "before": -1}.get(_text(words, place), 0)
    if sign:
        place += 1
    elif words[index].text == "half":
        sign = 1
    hour = words[place].number if sign and place < len(words) else None
    if hour is None or not 0 < hour <= 24:
        return None
    total = hour * 60 + sign * minutes + (12 * 60 if hour == 1 and sign < 0 else 0)
    return total // 60, total % 60, place - index + 1


def on_the_day(hour: int, minute: int, known: Table, half: str = "") -> int | None:
    """Minutes since midnight; an hour that may be in the morning or the evening is one at which tables are given."""
    if hour > 24 or (hour == 24 and minute):
        return None
    if hour in (0, 24) or hour > 12:
        return hour % 24 * 60 + minute
    morning, evening = hour % 12 * 60 + minute, (hour % 12 + 12) * 60 + minute
    if half:
        return morning if half == "am" else evening
    if known.time is not None and known.time < 12 * 60 and morning >= OPENS and hour != 12:
        return morning
    return evening if evening <= LAST_TABLE or morning < OPENS else morning


# --- people ----------------------------------------------------------------------------------------------------------


def _find_people(words: Sequence[Word], taken: set[int], asked: set[Slot]) -> int | None:
    # "For seven" answers the question for a time as well as that for the guests.
    signs = ("of",) if Slot.TIME in asked and Slot.PEOPLE not in asked else ("for", "of")
    people: int | None = None
    for index, word in enumerate(words):
        if word.number is None or index in taken:
            continue
        before, after = _text(words, index - 1), _text(words, index + 1)
        more = (_text(words, index - 2), before)
        if after in CHILDREN and before == "and" and people is not None:
            people += word.number
        elif (
            after in PEOPLE
            or after in CHILDREN
            or (after == "of" and _text(words, index + 2) in ("us", "them", "you", "people", "guests"))
            or before in signs
            or more in (("we", "are"), ("there", "are"), ("we", "re"), ("will", "be"), ("party", "is"))
            or before == "were"
        ):
            people = word.number
        else:
            continue
        taken.add(index)
    if people is not None:
        return people
    said = {word.text for word in words}
    if {"both", "us"} <= said or ({"me", "i", "myself"} & said and COMPANIONS & said):
        return 2
    alone = (
        {"alone", "myself"} & said
        or ("me" in said and {"just", "only"} & said)
        or (Slot.PEOPLE in asked and said == {"me"})
    )
    return 1 if alone else None
