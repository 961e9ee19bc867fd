"""Markdown and plain text as blocks.

Only what matters to search is read: headings, fences, tables, paragraphs. What is inside a paragraph stays as it was written.
"""

import re
from typing import Any, cast

import attrs

from agents.knowledge.content import (
    DESCRIPTION_CHARACTERS,
    HEADING_CHARACTERS,
    TITLE_CHARACTERS,
    Block,
    Content,
    one_line,
)
from agents.located import DocumentError, read_located

MAX_FRONT_MATTER = 16_384
"""Characters: a dozen fields have a hundredth of it."""

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_DELIMITERS = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_LIST_OR_QUOTE = re.compile(r" {0,3}([-*+>]|\d{1,9}[.)])")
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def read_markdown(text: str) -> Content:
    """The blocks of cleaned text, with title, description and URL from its front matter, or else its first heading."""
    fields, body = split_front_matter(text)
    reader = _Reader()
    for line in _COMMENT.sub("", body).split("\n"):
        reader.take(line)
    reader.finish()
    return _described(fields, reader.title, reader.blocks)


def read_plain(text: str) -> Content:
    """The paragraphs of cleaned text. It may have front matter as well."""
    fields, body = split_front_matter(text)
    paragraphs = [paragraph.strip("\n") for paragraph in re.split(r"\n[ \t]*\n", body)]
    return _described(fields, "", [Block(paragraph) for paragraph in paragraphs if paragraph.strip()])


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The fields between `---` lines at the very beginning, and what follows. What is not YAML is taken for text."""
    found = _FRONT_MATTER.match(text[:MAX_FRONT_MATTER])
    if found is None:
        return {}, text
    try:
        data = read_located(found[1].encode()).data
    except DocumentError:
        return {}, text
    return (cast("dict[str, Any]", data), text[found.end() :]) if isinstance(data, dict) else ({}, text)


def _described(fields: dict[str, Any], heading: str, blocks: list[Block]) -> Content:
    def field(name: str, limit: int) -> str:
        value = fields.get(name)
        return one_line(value, limit) if isinstance(value, str) else ""

    url = field("url", 2000)
    return Content(
        field("title", TITLE_CHARACTERS) or one_line(heading, TITLE_CHARACTERS),
        field("description", DESCRIPTION_CHARACTERS),
        url if re.fullmatch(r"https?://\S+", url) else "",
        tuple(blocks),
    )


@attrs.define(eq=False)
class _Reader:
    """Takes lines, gives blocks."""

    blocks: list[Block] = attrs.field(factory=list[Block])
    title: str = ""
    _headings: list[tuple[int, str]] = attrs.field(factory=list[tuple[int, str]])
    """Those that are open, with their levels."""
    _lines: list[str] = attrs.field(factory=list[str])
    """Of the paragraph under way."""
    _fence: str = ""
    """What closes the listing under way."""
    _table: bool = False

    def take(self, line: str) -> None:
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
                self._end(is_lined=True)
        elif not line.strip():
            self.finish()
        elif (fence := _FENCE.fullmatch(line)) and not (fence[1][0] == "`" and "`" in fence[2]):
            self.finish()
            self._fence = fence[1]
            self._lines.append(line)
        elif atx := _ATX.fullmatch(line):
            self.finish()
            self._head(len(atx[1]), atx[2] or "")
        elif self._table:
            self._row(line)
        elif len(self._lines) == 1 and "|" in self._lines[0] and "-" in line and _DELIMITERS.fullmatch(line):
            self._lines.append(line)
            self._table = True
        elif self._lines and (setext := _SETEXT.fullmatch(line)) and not _LIST_OR_QUOTE.match(self._lines[0]):
            heading = " ".join(each.strip() for each in self._lines)
            self._lines.clear()
            self._head(1 if setext[1][0] == "=" else 2, heading)
        else:
            self._lines.append(line)

    def _row(self, line: str) -> None:
        if "|" in line:
            self._lines.append(line)
        else:
            self.finish()
            self._lines.append(line)

    def finish(self) -> None:
        """The block under way ends."""
        if self._table:
            self._end(is_lined=True, repeats="\n".join(self._lines[:2]))
        else:
            self._end(is_lined=bool(self._fence))
        self._table, self._fence = False, ""

    def _end(self, *, is_lined: bool, repeats: str = "") -> None:
        text = "\n".join(self._lines).strip("\n")
        self._lines.clear()
        if text.strip():
            headings = tuple(heading for _, heading in self._headings)
            self.blocks.append(Block(text, headings, is_lined=is_lined, repeats=repeats))

    def _head(self, level: int, text: str) -> None:
        heading = one_line(text, HEADING_CHARACTERS)
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        if heading:
            self.title = self.title or heading
            self._headings.append((level, heading))
