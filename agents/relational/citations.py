"""References in texts, written out: a planner's citations and a project's mentions (SPEC R5, R11). Pure.

A search of the knowledge gives each passage an id, and the planner puts it behind what it takes from there: `[k3]`, several
as `[k3, k7]`. In the instruction each becomes the source's title with its address as a Markdown link, so that the speaking
model can name it and the link guard, which learns from instructions, lets the link pass. Brackets in a title would break
the link: they become parentheses. Any other bracket, "[1]" too, is text.

A mention, `@[Name](ref)`, is how an editor of agents refers to something of the project.
"""

import re
from collections.abc import Callable, Mapping

import attrs

from agents.knowledge.citations import Source

_ID = "k[0-9]{1,9}"
_CITATION = re.compile(rf"( ?)\[({_ID}(?:\s?[,;]\s?{_ID})*)\](?!\()", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s?[,;]\s?")
_MENTION = re.compile(r"@\[([^\[\]\n]{1,200})\]\(([^()\s]{1,200})\)")
_BRACKETS = str.maketrans("[]\n", "() ")


@attrs.frozen
class Cited:
    """A text with its citations written out, the ids of the sources it cites, and how many it cites that do not exist."""

    text: str
    source_ids: tuple[str, ...] = ()
    unknown: int = 0


def materialize_citations(text: str, find_source: Callable[[str], Source | None]) -> Cited:
    """The text with "[k3]" as "([Title](url))", or "(Title)" without an address.

    Several passages of one source are named once. A citation of nothing is taken out, with the space before it: the
    speaking model must not name what does not exist.
    """
    cited: dict[str, None] = {}
    unknown = 0

    def written_out(found: re.Match[str]) -> str:
        nonlocal unknown
        names: dict[str, None] = {}
        for source_id in _SEPARATOR.split(found[2].lower()):
            if source := find_source(source_id):
                cited[source_id] = None
                names[_named(source)] = None
            else:
                unknown += 1
        return f"{found[1]}({', '.join(names)})" if names else ""

    written = _CITATION.sub(written_out, text)
    return Cited(written, tuple(cited), unknown)


def _named(source: Source) -> str:
    title = source.title.translate(_BRACKETS).strip()
    if not source.url:
        return title or source.location.translate(_BRACKETS)
    target = f"<{source.url}>" if re.search(r"[\s()]", source.url) else source.url
    return f"[{title or source.url}]({target})"


def substitute_mentions(text: str, names: Mapping[str, str]) -> str:
    """The text with "@[Name](ref)" as the name that the project has for the ref; the written one when it has none."""
    return _MENTION.sub(lambda found: names.get(found[2]) or found[1], text)
