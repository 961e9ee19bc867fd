"""Short ids for what a session has been shown, which the planner writes down and which lead back to the source."""

import attrs

MAX_CITATIONS = 500
"""Of a session: a hundred searches. The oldest are forgotten."""


@attrs.frozen
class Source:
    """Where something was read."""

    title: str
    location: str
    """The file, and the page or the headings within: "manual.pdf, page 3", "menu.md, Drinks › Coffee"."""
    url: str = ""
    """Where people can read it; "" when the document does not say."""


@attrs.define(eq=False)
class Citations:
    """The ids of one session: `k1`, `k2` and so on. An id is never given twice, and the same passage keeps its own."""

    limit: int = MAX_CITATIONS
    _sources: dict[str, tuple[str, Source]] = attrs.field(factory=dict[str, tuple[str, Source]], init=False)
    """Keys of passages and their sources, by id, the one that was shown last at the end."""
    _ids: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _given: int = attrs.field(default=0, init=False)

    def cite(self, key: str, source: Source) -> str:
        """The id of a passage, which is being shown."""
        citation = self._ids.get(key)
        if citation is None:
            self._given += 1
            citation = self._ids[key] = f"k{self._given}"
        self._sources.pop(citation, None)
        self._sources[citation] = key, source
        while len(self._sources) > self.limit:
            oldest = next(iter(self._sources))
            del self._ids[self._sources.pop(oldest)[0]]
        return citation

    def source(self, citation: str) -> Source | None:
        """What an id stands for; None when it was never given, or long ago."""
        found = self._sources.get(_bare(citation))
        return found and found[1]

    def key(self, citation: str) -> str | None:
        """The passage that an id stands for."""
        found = self._sources.get(_bare(citation))
        return found and found[0]


def _bare(citation: str) -> str:
    """Models like to write [k3] or K3."""
    return citation.strip().strip("[]()").lower()
