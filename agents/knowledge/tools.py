"""What the planner can do with knowledge: search it, and read on where it found something (SPEC R12)."""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import attrs

from agents.knowledge.citations import Citations, Source
from agents.knowledge.index import StoredPassage
from agents.knowledge.library import Knowledge, KnowledgeError
from agents.tools import FunctionToolBox
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolError, ToolResult, ToolSpecification

RESULTS = 5
READ_CHARACTERS = 4000
"""What is read at a time, some 1,000 tokens."""
SOURCES_TOLD = 20
"""When a source is asked for that there is not."""
_NOTHING = "Nothing in the knowledge fits. Try other words for it once, or take it for not known."
_ALIKE = "Nothing in the knowledge fits well; these only have a word in common with the query. Try other words once."
_FORGOTTEN = "There is no {}; use an id from the results of search_knowledge."
_CHANGED = "The document has changed since; search again."

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class KnowledgeToolBox(ToolBox):
    """The tools of one session. Without any entries it has none."""

    knowledge: Knowledge
    citations: Citations = attrs.field(factory=Citations)
    """What was shown, by the ids in the results."""
    _box: FunctionToolBox = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        tools: list[Callable[..., Any]] = [self.search_knowledge, self.read_knowledge] if self.knowledge.entries else []
        self._box = FunctionToolBox(tools)

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self._box.specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        return await self._box.call(name, arguments, context)

    async def search_knowledge(self, query: str, source: str | None = None) -> dict[str, Any]:
        """Search the documents this agent knows. Gives the passages that fit best, each with an id such as k3; write [k3] behind what
        you take from it. They are found by their words, so that one may not answer the question: read before you rely on it.

        Args:
            query: The words that the answer would have, in the language of the documents; several words for the same help.
            source: The title of one document, to search only there.
        """
        try:
            found = await self.knowledge.search(query, source or "", RESULTS)
            if found is None:
                titles = [document.title for document in await self.knowledge.documents()]
                return {"results": [], "note": "There is no such source.", "sources": titles[:SOURCES_TOLD]}
        except KnowledgeError as exc:
            raise _unavailable(exc) from exc
        results = [self._shown(passage, passage.text) for passage in found.passages]
        if results and found.fit:
            return {"results": results}
        return {"results": results, "note": _ALIKE if results else _NOTHING}

    async def read_knowledge(self, passage_id: str) -> dict[str, Any]:
        """Read the passage of a search result with what stands before and after it in its document.

        Args:
            passage_id: The id of a result, such as k3; or that in read_on, to go on from there.
        """
        key = self.citations.key(passage_id)
        if key is None:
            raise ToolError(_FORGOTTEN.format(f"passage {passage_id[:20]}"))
        try:
            excerpt = await self.knowledge.read(key, READ_CHARACTERS)
        except KnowledgeError as exc:
            raise _unavailable(exc) from exc
        if excerpt is None:
            raise ToolError(_CHANGED)
        shown = self._shown(excerpt.passage, _joined(excerpt.passages))
        if excerpt.following is not None:
            shown["read_on"] = self._cite(excerpt.following)
        return shown

    def _shown(self, passage: StoredPassage, text: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": self._cite(passage), "source": passage.document.title}
        if passage.headings:
            shown["heading"] = " › ".join(passage.headings)
        if passage.page is not None:
            shown["page"] = passage.page
        if passage.document.url:
            shown["url"] = passage.document.url
        return {**shown, "text": text}

    def _cite(self, passage: StoredPassage) -> str:
        return self.citations.cite(passage.key, source_of(passage))


def source_of(passage: StoredPassage) -> Source:
    """Where a passage stands."""
    within = " › ".join(passage.headings) if passage.page is None else f"page {passage.page}"
    location = f"{passage.document.path}, {within}" if within else passage.document.path
    return Source(passage.document.title, location, passage.document.url)


def _joined(passages: Sequence[StoredPassage]) -> str:
    """The text of neighbours, under their headings and without what they repeat."""
    text = f"{_place(passages[0])}{passages[0].text}"
    for before, passage in pairwise(passages):
        place = _place(passage)
        if place != _place(before):
            text += f"\n\n{place}{passage.text}"
        else:
            text += ("\n" if passage.overlap else "\n\n") + passage.text[passage.overlap :].lstrip("\n")
    return text


def _place(passage: StoredPassage) -> str:
    if passage.page is not None:
        return f"[page {passage.page}]\n"
    return f"[{' › '.join(passage.headings)}]\n" if passage.headings else ""


def _unavailable(error: KnowledgeError) -> ToolError:
    logger.warning("knowledge: %s: %s", error, error.__cause__)
    return ToolError("The knowledge cannot be reached now.")
