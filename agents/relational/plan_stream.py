"""A planner's streamed output, split into prose and JSON objects while it arrives (SPEC R11; cases C18, C19).

**Nothing is lost.** What comes out, put together, is what went in, but for layout: white space between pieces, the marks
of code fences, and the brackets and commas of an array around objects.

**The deltas' cuts do not matter.** Every decision is taken on the text alone, so any split gives the same items.

**Only JSON is an object.** A `{` is read on as long as it can be the beginning of one: an object with at least one
property. At the first character that no JSON allows, it was prose, and what stood inside it is looked at afresh: a
stray brace or quote hides nothing behind it. One liberty is taken: texts may have raw line breaks, as models write them.
"""

import json
import re
from enum import Enum, auto
from typing import Any, cast

import attrs

from engine.elements import JsonObject

MAX_OBJECT = 32_768
"""Characters of one object; an instruction is a few sentences. What exceeds it is prose."""
MAX_DEPTH = 16
"""Levels of one object; planners use two or three. It bounds the work as well: nothing is read more often than that."""
MAX_SCALAR = 64
"""Characters of a number; Python refuses to read integers of thousands of digits."""
MAX_PROSE = 500
"""Characters of one piece of prose; a longer sentence is cut between words."""
MIN_SENTENCE = 40
"""Characters from which on a sentence's end ends a piece: no command for "1." or "Fine." alone."""


@attrs.frozen
class Prose:
    """What the planner thinks aloud: a line, one or a few sentences, or what stood before an object; never blank."""

    text: str


@attrs.frozen
class PlanObject:
    """A JSON object, and how it was written."""

    value: JsonObject
    source: str


PlanItem = Prose | PlanObject

_MARK = re.compile(r"[{\s。！？]")
_STOPS = (".", "!", "?", "…")
_CLOSERS = "\"'”’»)]*_"
_LAYOUT = re.compile(r"[\s\[\],]*|\s*`{3,}[\w+-]*\s*")

_TEXT_MARK = re.compile(r'["\\]')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_LENGTH = len("\\u0000")
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SCALAR_END = re.compile(r"[^-+.0-9A-Za-z]")


@attrs.define(eq=False)
class PlanStream:
    """Feed it deltas, then `finish` it. Each call gives the items that it completes, in order.

    An object comes with its last brace. Prose comes by the line and by the sentence, and at the latest when the next
    object begins.
    """

    _text: str = attrs.field(init=False, default="")  # what has not been given out
    _begin: int = attrs.field(init=False, default=0)  # where the piece of prose begins; 0 between the calls
    _at: int = attrs.field(init=False, default=0)  # prose is read up to here, and here an object may begin
    _reader: "_ObjectReader | None" = attrs.field(init=False, default=None)

    def feed(self, delta: str) -> list[PlanItem]:
        self._text += delta
        return self._read(at_end=False)

    def finish(self) -> list[PlanItem]:
        """The end of the stream, whole or cut off: an object without its end is prose. Afterwards it is as new."""
        return self._read(at_end=True)

    def _read(self, *, at_end: bool) -> list[PlanItem]:
        items: list[PlanItem] = []
        while self._read_object(self._reader, items, at_end=at_end) if self._reader else self._read_prose(items):
            pass
        if at_end:
            self._end_piece(len(self._text), items)
        self._text = self._text[self._begin :]
        self._at -= self._begin
        self._begin = 0
        return items

    def _read_prose(self, items: list[PlanItem]) -> bool:
        """Up to the next mark. False when the text is at its end."""
        limit = self._begin + MAX_PROSE
        mark = _MARK.search(self._text, self._at, limit)
        if mark is None:
            self._at = min(len(self._text), limit)
            if self._at == limit:
                space = self._text.rfind(" ", self._begin, limit)
                self._end_piece(space + 1 if space > self._begin else limit, items)
                return True
            return False
        if mark[0] == "{":
            self._at = mark.start()
            self._reader = _ObjectReader()
            return True
        self._at = mark.end()
        if mark[0] == "\n":
            is_end = not self._text[self._begin : mark.start()].isspace() and mark.start() > self._begin
        elif mark.end() - self._begin < MIN_SENTENCE:
            is_end = False
        else:
            is_end = not mark[0].isspace() or (self._text[self._begin : mark.start()].rstrip(_CLOSERS).endswith(_STOPS))
        if is_end:
            self._end_piece(mark.end(), items)
        return True

    def _read_object(self, reader: "_ObjectReader", items: list[PlanItem], *, at_end: bool) -> bool:
        """False when the object goes on behind the text."""
        limit = self._at + MAX_OBJECT
        is_object = reader.read(self._text, self._at, min(len(self._text), limit))
        if reader.has_begun:
            self._end_piece(self._at, items)
        if is_object:
            end = self._at + reader.length
            source = self._text[self._at : end]
            items.append(PlanObject(_load(source), source))
            self._begin = self._at = end
        elif is_object is False or at_end or len(self._text) >= limit:
            self._at += 1
        else:
            return False
        self._reader = None
        return True

    def _end_piece(self, end: int, items: list[PlanItem]) -> None:
        piece = self._text[self._begin : end]
        if not _LAYOUT.fullmatch(piece):
            items.append(Prose(piece))
        self._begin = end
        self._at = max(self._at, end)


class _Expects(Enum):
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    VALUE = auto()
    VALUE_OR_END = auto()
    COMMA_OR_END = auto()


@attrs.define(eq=False)
class _ObjectReader:
    """Reads on from a `{` as far as it is the beginning of a JSON object with a property."""

    length: int = attrs.field(init=False, default=1)  # characters read, the brace included
    has_begun: bool = attrs.field(init=False, default=False)  # its first key has
    _closers: list[str] = attrs.field(init=False, factory=lambda: ["}"])
    _expects: _Expects = attrs.field(init=False, default=_Expects.KEY)
    _is_in_text: bool = attrs.field(init=False, default=False)  # `_expects` then says what follows it

    def read(self, text: str, start: int, end: int) -> bool | None:
        """Whether text[start:end] begins with an object (then `length` is its own); None when it goes on behind it."""
        at = start + self.length
        while self._closers and at < end:
            read_to = self._read_text(text, at, end) if self._is_in_text else self._read_token(text, at, end)
            if read_to is None:
                return False
            if read_to == at:
                break  # a token goes on behind the end
            at = read_to
        self.length = at - start
        return None if self._closers else True

    def _read_text(self, text: str, at: int, end: int) -> int | None:
        mark = _TEXT_MARK.search(text, at, end)
        if mark is None:
            return end
        if mark[0] == '"':
            self._is_in_text = False
            return mark.end()
        if escape := _ESCAPE.match(text, mark.start(), end):
            return escape.end()
        return mark.start() if end - mark.start() < _ESCAPE_LENGTH else None

    def _read_token(self, text: str, at: int, end: int) -> int | None:
        char = text[at]
        if char in " \t\n\r":
            return at + 1
        match self._expects:
            case _Expects.KEY | _Expects.KEY_OR_END if char == '"':
                self.has_begun = self._is_in_text = True
                self._expects = _Expects.COLON
            case _Expects.COLON if char == ":":
                self._expects = _Expects.VALUE
            case _Expects.COMMA_OR_END if char == ",":
                self._expects = _Expects.KEY if self._closers[-1] == "}" else _Expects.VALUE
            case _Expects.KEY_OR_END | _Expects.VALUE_OR_END | _Expects.COMMA_OR_END if char == self._closers[-1]:
                self._closers.pop()
                self._expects = _Expects.COMMA_OR_END
            case _Expects.VALUE | _Expects.VALUE_OR_END:
                return self._begin_value(text, at, end)
            case _:
                return None
        return at + 1

    def _begin_value(self, text: str, at: int, end: int) -> int | None:
        match text[at]:
            case '"':
                self._is_in_text = True
                self._expects = _Expects.COMMA_OR_END
                return at + 1
            case "{" | "[" if len(self._closers) == MAX_DEPTH:
                return None
            case "{":
                self._closers.append("}")
                self._expects = _Expects.KEY_OR_END
                return at + 1
            case "[":
                self._closers.append("]")
                self._expects = _Expects.VALUE_OR_END
                return at + 1
            case _:
                after = _SCALAR_END.search(text, at, end)
                if (after.start() if after else end) - at > MAX_SCALAR:
                    return None
                if after is None:
                    return at
                self._expects = _Expects.COMMA_OR_END
                return after.start() if _SCALAR.fullmatch(text, at, after.start()) else None


def _load(source: str) -> JsonObject:
    value: Any = json.loads(source, strict=False)
    if "\\u" in source:  # escapes may spell half of a surrogate pair, which no encoding has
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return cast("JsonObject", value)
