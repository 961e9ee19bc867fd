"""Content cut into passages: what is found, shown and cited.

A passage never crosses a heading or a page. Paragraphs under one heading share a passage while they fit; a longer one is cut
between sentences, else between words. Only there two passages overlap, by the last sentence or words, as what follows may lean
on it.
"""

import re
from collections.abc import Iterable, Iterator

import attrs

from agents.knowledge.content import Block, Content

MAX_CHARACTERS = 900
"""About 200 tokens: one thing with what surrounds it. Five of them are as much as a planner should read for one question."""
MAX_OVERLAP = 180
"""A long sentence."""

# After the sign, and its quotes and brackets; the ideographic ones need no gap.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”“»)\]]*\s+|(?<=[。！？])|\n+")
_LETTER = re.compile(r"[^\W_]")


@attrs.frozen
class Passage:
    text: str
    headings: tuple[str, ...] = ()
    page: int | None = None
    overlap: int = 0
    """Characters at the beginning that repeat the passage before."""


def cut(content: Content) -> list[Passage]:
    """The passages of a document in its order, each of at most `MAX_CHARACTERS`. What has neither letter nor digit is left out."""
    passages: list[Passage] = []
    waiting: list[Block] = []
    size = 0

    def flush() -> None:
        nonlocal size
        size = 0
        if waiting:
            first = waiting[0]
            passages.append(Passage("\n\n".join(block.text for block in waiting), first.headings, first.page))
            waiting.clear()

    for block in content.blocks:
        if not _LETTER.search(block.text):
            continue
        fits = size + len(block.text) <= MAX_CHARACTERS
        if waiting and not (fits and (waiting[0].headings, waiting[0].page) == (block.headings, block.page)):
            flush()
        if len(block.text) <= MAX_CHARACTERS:
            waiting.append(block)
            size += len(block.text) + 2
        else:
            pieces = _rows(block) if block.is_lined else _sentences(block.text)
            passages.extend(Passage(text, block.headings, block.page, overlap) for text, overlap in pieces)
    flush()
    return passages


def _rows(block: Block) -> Iterator[tuple[str, int]]:
    """Runs of whole rows, each under the table's head; a row that is too long by itself is cut like prose."""
    head = f"{block.repeats}\n" if block.repeats and len(block.repeats) < MAX_CHARACTERS // 3 else ""
    room = MAX_CHARACTERS - len(head)
    run = ""
    is_first = True

    def piece(text: str) -> tuple[str, int]:
        return (text, 0) if is_first or not head else (head + text, len(head))

    for row in block.text.split("\n"):
        if run and len(run) + 1 + len(row) > room:
            yield piece(run)
            run, is_first = "", False
        if len(row) > room:
            for text, _ in _sentences(row, room):
                yield piece(text)
                is_first = False
        else:
            run = f"{run}\n{row}" if run else row
    if run:
        yield piece(run)


def _sentences(text: str, limit: int = MAX_CHARACTERS) -> Iterator[tuple[str, int]]:
    """Runs of whole sentences, and how much of each repeats the one before."""
    run, last, overlap = "", "", 0
    for sentence in _short(_split(text), limit - MAX_OVERLAP - 1):
        if run and len(run) + len(sentence) > limit:
            yield run.rstrip(), overlap
            kept = last if len(last) <= MAX_OVERLAP else _tail(last)
            run, overlap = kept, len(kept)
        run += sentence
        last = sentence
    if run.strip():
        yield run.rstrip(), overlap


def _split(text: str) -> Iterator[str]:
    """Sentences, each with the gap behind it, so that together they are the text again."""
    at = 0
    for found in _SENTENCE_END.finditer(text):
        if found.end() > at:
            yield text[at : found.end()]
            at = found.end()
    if at < len(text):
        yield text[at:]


def _short(sentences: Iterable[str], limit: int) -> Iterator[str]:
    """The same, with those that are too long cut between words, or anywhere when there is no gap."""
    for sentence in sentences:
        at = 0
        while len(sentence) - at > limit:
            gap = sentence.rfind(" ", at + limit // 2, at + limit)
            end = at + limit if gap < 0 else gap + 1
            yield sentence[at:end]
            at = end
        yield sentence[at:]


def _tail(sentence: str) -> str:
    """The last words of a sentence that is too long to be repeated; none when it has no gaps there."""
    gap = sentence.find(" ", len(sentence) - MAX_OVERLAP)
    return sentence[gap + 1 :] if 0 <= gap < len(sentence) - 1 else ""
