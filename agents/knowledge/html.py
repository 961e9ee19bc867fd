"""HTML as blocks: the text that a reader sees, under its headings.

Imported when the first HTML document is read: the parser takes 8 ms and 2 MB."""

import re
from collections.abc import Callable
from html.parser import HTMLParser

from agents.knowledge.content import (
    DESCRIPTION_CHARACTERS,
    HEADING_CHARACTERS,
    TITLE_CHARACTERS,
    Block,
    Content,
    UnreadableError,
    one_line,
)

PIECE = 16_384
"""Characters between two looks at whether anybody still waits, and half of the longest tag: the parser looks through one that never ends
again and again, so that 300,000 characters of them would take it minutes."""

# Longer than any tag, at times, and never seen.
_LONG = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)|(?<=[\"'=(])data:[^\"'\s>)]*", re.DOTALL | re.IGNORECASE
)
_UNSEEN = frozenset(
    {"script", "style", "template", "noscript", "svg", "math", "nav", "iframe", "object", "select", "textarea"}
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BREAKS = frozenset(
    {
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "html",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "thead",
        "ul",
        *_HEADINGS,
    }
)
_KEPT_TOGETHER = frozenset({"ul", "ol", "dl", "table"})
"""What is inside one of these is one block."""


def read_html(text: str, check: Callable[[], None]) -> Content:
    """The blocks of cleaned text, with title, description, canonical URL. Broken markup is read as browsers do, more or less.

    `check` is called now and then, and may raise.

    Raises:
        UnreadableError: a tag does not end.
    """
    reader = _Reader()
    text = _LONG.sub("", text)
    for at in range(0, len(text), PIECE):
        check()
        reader.feed(text[at : at + PIECE])
        if len(reader.rawdata) > 2 * PIECE:
            raise UnreadableError("is damaged HTML: a tag does not end")
    reader.close()
    reader.end_block()
    first = reader.blocks[0].headings if reader.blocks else ()
    title = one_line(reader.title, TITLE_CHARACTERS) or (first[0] if first else "")
    return Content(title, one_line(reader.description, DESCRIPTION_CHARACTERS), reader.url, tuple(reader.blocks))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = self.description = self.url = ""
        self.blocks: list[Block] = []
        self._headings: list[tuple[int, str]] = []
        self._text: list[str] = []
        self._unseen: list[str] = []
        """Open elements whose text nobody sees, and what is inside of the same name."""
        self._together = 0
        self._rows = False
        self._preformatted = 0
        self._heading = 0
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._unseen:
            if tag == self._unseen[0]:
                self._unseen.append(tag)
            return
        values = {name: value or "" for name, value in attrs}
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag == "title":
            self._in_title = not self.title
        elif tag == "meta" and values.get("name", "").lower() == "description":
            self.description = self.description or values.get("content", "")
        elif tag == "link" and "canonical" in values.get("rel", "").lower().split():
            url = values.get("href", "").strip()
            self.url = url if re.fullmatch(r"https?://\S+", url) else self.url
        elif tag == "br":
            self._text.append("\n")
        elif tag in ("li", "dt", "tr"):
            self._text.append("\n- " if tag == "li" else "\n")
        elif tag in ("td", "th", "dd") and self._together:
            self._text.append(" | " if tag != "dd" else ": ")
        elif tag in _BREAKS:
            self._break()
            self._preformatted += tag == "pre"
            self._heading = _HEADINGS.get(tag, 0)
            self._rows = self._rows or tag == "table"
            self._together += tag in _KEPT_TOGETHER

    def handle_endtag(self, tag: str) -> None:
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
            return
        if tag == "title":
            self._in_title = False
        elif tag in _HEADINGS and self._heading:
            self._head()
        elif tag in _BREAKS:
            self._together = max(0, self._together - (tag in _KEPT_TOGETHER))
            self._break()
            self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._unseen:
            self._text.append(data if self._preformatted else re.sub(r"\s+", " ", data))

    def _break(self) -> None:
        if self._heading:
            self._head()
        elif self._together:
            self._text.append(" ")
        else:
            self.end_block()

    def _head(self) -> None:
        heading, level = one_line("".join(self._text), HEADING_CHARACTERS), self._heading
        self._text.clear()
        self._heading = 0
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        if heading:
            self._headings.append((level, heading))

    def end_block(self) -> None:
        lines = "".join(self._text).split("\n")
        self._text.clear()
        if not self._preformatted:
            lines = [
                line
                for each in lines
                if (line := re.sub(r"[ \t]+", " ", each).strip().removeprefix("| ")).strip("-|: ")
            ]
        text = "\n".join(lines).strip("\n")
        if text.strip():
            headings = tuple(heading for _, heading in self._headings)
            self.blocks.append(Block(text, headings, is_lined=self._rows or bool(self._preformatted)))
        self._rows = False
