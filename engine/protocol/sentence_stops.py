"""Does this stop end the sentence? The judge behind `engine.protocol.sentences`, where the rules stand in words."""

import re
from enum import Enum, auto

import attrs

from engine.protocol.sentence_tables import Abbreviation, Rules, Words

SPACED_STOPS = ".?!…‼⁇⁈⁉．"
FREE_STOPS = "。｡！？︒؟۔।॥။።։"  # their scripts do without the space, and no number or address holds one
BREAKS = "\n\r\v\f\x85\u2028\u2029"
QUOTES = "\"'`’‘”“„«»‹›"  # opening or closing: languages differ, the white space around them tells
CLOSING = ")]}）］｝】〕〉》」』｣"
OPENING = "([{（［｛【〔〈《「『｢¿¡"
EMPHASIS = "*_~"  # Markdown: closing where attached, opening after white space
DASHES = "-‐‑–—―"
EMOJI = (  # ranges, for a pattern; with what joins and tints them
    "\U0001f000-\U0001faff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U000e0020-\U000e007f\ufe0f\u20e3\u200d"
)

_CARRY_ON = ",;:&/+=%|"  # no sentence begins with these
_LEADING = QUOTES + OPENING + EMPHASIS + DASHES
_OPENING_QUOTES = (
    "“‘„«‹"  # where white space does not tell: behind a free stop, and in French, which has it on both sides
)

_STOPS = re.escape(SPACED_STOPS + FREE_STOPS)
_SPACE = rf"[^\S{BREAKS}]"  # white space within a line

CANDIDATE = re.compile(f"[{_STOPS}]+|[{BREAKS}]")
CLOSED = re.compile(rf"[{_STOPS}][\s{re.escape(QUOTES + CLOSING + EMPHASIS)}{EMOJI}]*\Z")
CONTENT = re.compile(r"[^\W_]")

_GAP = re.compile(f"{_SPACE}*")
_EMOJIS = re.compile(f"[{EMOJI}]*")
_OPENERS = re.compile(rf"(?:[{re.escape(_LEADING)}#$€£¥₹]|{_SPACE})*")
_LETTERS = re.compile(r"[^\W\d_]*")
_NUMBER = re.compile(r"\d{1,2}(?:\.\d{1,2})?\.")  # an ordinal or a day: "14."; "14.10.", "9.30."
_SPELLED = re.compile(r"(?:[^\W\d_]\.)+")  # "J.", "U.S."
_BULLET = re.compile(
    rf"[\s{re.escape(_LEADING)}•·●▪#]*(?:\d{{1,3}}|[a-zA-Z])[.)][\W_]*|[\W_]*"
)  # "1.", "(a)"; or no word at all


class NotYet(Exception):
    """The text so far does not settle it."""


class _Next(Enum):
    """What the text behind a stop begins with."""

    SMALL = auto()
    CAPITAL = auto()
    DIGIT = auto()
    OTHER = auto()  # a letter without case, a symbol, the end


def _end(pattern: re.Pattern[str], text: str, index: int) -> int:
    match = pattern.match(text, index)
    return index if match is None else match.end()


@attrs.frozen
class StopJudge:
    """Where, if at all, the held text is cut for a stop in it.

    `break_cut` and `stop_cut` take a match of `CANDIDATE` and answer with the index behind the sentence, or None if it
    goes on. They raise `NotYet` when that depends on text still to come; `at_end` says that there is none to come. So
    an answer never changes when more text arrives. `is_continued`: the held text begins inside a sentence.
    """

    held: str
    at_end: bool
    is_continued: bool
    rules: Rules

    def break_cut(self, stop: re.Match[str]) -> int | None:
        return None if _BULLET.fullmatch(self.held, 0, stop.start()) else stop.start()

    def stop_cut(self, stop: re.Match[str]) -> int | None:
        run = stop[0]
        is_free = any(character in FREE_STOPS for character in run)
        is_strong = run.strip(".…．") != ""
        edge, is_closed, has_emoji = self._closing(stop.end(), is_free)
        begin = self._behind(_GAP, edge)
        following = self._at(begin)
        if not following or CANDIDATE.match(following):
            return None  # the end, or one more stop or line break, which is judged next
        is_apart = begin > edge or is_free or has_emoji
        if not is_apart and not (is_strong and not is_closed and self._is_glued(stop.start(), following)):
            return None
        if _BULLET.fullmatch(self.held, 0, stop.end()):
            return None
        if is_strong and not is_closed:
            return edge
        if begin == edge and following in "とっ":  # 「はい。」と言った: what was said is part of the sentence
            return None
        kind, word = self._next(begin)
        if is_closed and kind is _Next.SMALL:  # "Really?" she said
            return None
        if is_strong:
            ends = True
        elif len(run) > 1 or run == "…":
            ends = kind not in {_Next.SMALL, _Next.DIGIT}
        else:
            ends = self._dot_ends(stop.start(), kind, word)
        return edge if ends else None

    # --- reading ahead -----------------------------------------------------------------------------------------------

    def _at(self, index: int) -> str:
        """The character there, "" behind the end."""
        if index < len(self.held):
            return self.held[index]
        if self.at_end:
            return ""
        raise NotYet

    def _behind(self, pattern: re.Pattern[str], index: int) -> int:
        """The index behind what the pattern matches there, once it is certain that no more of it follows."""
        end = _end(pattern, self.held, index)
        self._at(end)
        return end

    def _closing(self, index: int, is_free: bool) -> tuple[int, bool, bool]:
        """The index behind all that belongs to the stop that ends at `index`; has it closing marks; has it emoji."""
        is_closed = has_emoji = False
        while True:
            begin = self._behind(_GAP, index)
            if (end := self._behind(_EMOJIS, begin)) > begin:
                index, has_emoji = end, True
            elif self._is_closing(begin, begin > index, is_free):
                index, is_closed = begin + 1, True
            else:
                return index, is_closed, has_emoji

    def _is_closing(self, index: int, is_apart: bool, is_free: bool) -> bool:
        mark = self._at(index)
        if mark == "" or mark not in QUOTES + CLOSING + EMPHASIS:
            return False
        if mark in CLOSING:
            return True
        if is_apart:  # « Ça va ? » dit-il. But not: Hello. "Yes" …
            return mark in QUOTES and mark not in _OPENING_QUOTES and not self._at(index + 1).strip()
        if is_free and mark == '"':  # 他说。"好。": only the count tells
            return self.held.count('"', 0, index) % 2 == 1
        return not (is_free and mark in _OPENING_QUOTES)

    def _is_glued(self, index: int, following: str) -> bool:
        """Whether a sentence begins right behind a stop, as in answers joined without a space: "Sure!Let me"."""
        word = self.held[:index].rpartition(" ")[2].lstrip(_LEADING)  # letters only, so no address
        return word.isalpha() and following.isalpha() and not following.islower()

    def _next(self, index: int) -> tuple[_Next, int]:
        """What the text begins with there, opening marks left out, and at which index."""
        word = self._behind(_OPENERS, index)
        first = self._at(word)
        if first.isdecimal():
            return _Next.DIGIT, word
        if first.isupper() or first.istitle():
            return _Next.CAPITAL, word
        if first.islower():
            return (_Next.CAPITAL if self._at(word + 1).isupper() else _Next.SMALL), word  # "iPhone"
        return (_Next.SMALL if first and first in _CARRY_ON else _Next.OTHER), word

    def _is_one_of(self, words: Words, index: int) -> bool:
        """Whether the word that begins there is one of these."""
        end = _end(_LETTERS, self.held, index)
        word = self.held[index:end].lower()
        if end == len(self.held) and not self.at_end:
            if word in words.beginnings:
                raise NotYet
            return False
        is_initial = len(word) == 1 and self._at(end) == "."
        return word in words.whole and not is_initial

    # --- the full stop -----------------------------------------------------------------------------------------------

    def _dot_ends(self, index: int, kind: _Next, following: int) -> bool:
        """Whether the single full stop at `index` ends the sentence; text of this kind begins at `following`."""
        *before, name = self.held[:index].rsplit(maxsplit=5)
        name = name.lstrip(_LEADING) + "."
        while before and _SPELLED.fullmatch(name) and _SPELLED.fullmatch(before[-1].lstrip(_LEADING)):
            name = before.pop().lstrip(_LEADING) + name  # "s. r. o." is "s.r.o."
        previous = before[-1] if before else ""

        if _NUMBER.fullmatch(name):
            return self._number_ends(index, name, previous, kind, following)
        match self._abbreviation(name, previous, is_first=_BULLET.fullmatch(" ".join(before)) is not None):
            case Abbreviation.LEAD:
                return False
            case Abbreviation.EITHER | Abbreviation.LAST if kind in {_Next.SMALL, _Next.DIGIT}:
                return False
            case Abbreviation.EITHER if kind is _Next.CAPITAL:
                return self._is_one_of(self.rules.starters, following)
            case Abbreviation.LAST if kind is _Next.CAPITAL:
                return not self._is_one_of(self.rules.after_time, following)
            case Abbreviation.NUMBERED if kind is _Next.DIGIT:
                return False
            case _:
                return kind is not _Next.SMALL or self._is_without_capitals()

    def _number_ends(self, index: int, name: str, previous: str, kind: _Next, following: int) -> bool:
        if kind in {_Next.SMALL, _Next.DIGIT}:  # "14. října", "14. 10."
            return False
        if kind is _Next.OTHER:
            return True
        day = name[:-1]
        is_listed = (
            day.isdecimal() and f" {int(day) - 1}. " in f" {self.held[:index]}"
        )  # "1. Tea 2. Coffee" in one line
        if is_listed or previous.endswith(":") or self._is_one_of(self.rules.after_ordinal, following):
            return False
        if previous.lower() in self.rules.before_ordinal:
            return self._is_one_of(self.rules.starters, following)
        return True

    def _abbreviation(self, name: str, previous: str, *, is_first: bool) -> Abbreviation | None:
        abbreviations = self.rules.abbreviations
        known = abbreviations.get(name) or (abbreviations.get(name.lower()) if is_first else None)
        if known or not _SPELLED.fullmatch(name) or name[0].lower() == name[0].upper():
            return known
        if len(name) == 2 and (
            name[0] in self.rules.letters
            or previous.lower() in self.rules.labels
            or (name[0].islower() and previous[-1:].isdecimal())  # a unit: "5 m."
        ):
            return None
        return Abbreviation.EITHER

    def _is_without_capitals(self) -> bool:
        """Whether the sentence began with a small letter, so that its writer can be taken to use no capitals."""
        begin = CONTENT.search(self.held)
        return not self.is_continued and begin is not None and self._next(begin.start())[0] is _Next.SMALL
