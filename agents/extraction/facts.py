"""Facts about the user, kept for later conversations.

They belong to the user and the agent (the scope called APPLICATION): what agents share they share because their project says so
(SPEC R3), and a fact told to one project's agent is no other project's business.
"""

from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, ClassVar

from pydantic import BaseModel, StringConstraints

from agents.extraction.contract import Extractor
from agents.extraction.fact_list import (
    KEY_CHARACTERS,
    TEXT_CHARACTERS,
    Fact,
    from_json,
    merge,
    news,
    normal_key,
    to_json,
)
from agents.extraction.outputs import at_most
from agents.extraction.structured import Output
from agents.prompts import render
from engine.interfaces import Context
from engine.memory import MemoryScope

NAME = "facts"
"""In the user's memory with the agent. Each revision is a whole list."""
MERGED = 8
"""Revisions that are read: so many sessions may have written since one of them read, and nothing is lost."""
MAX_SAID = 5
"""In one turn."""


class SaidFact(Output):
    key: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=KEY_CHARACTERS)]
    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=TEXT_CHARACTERS)]


class Facts(Output):
    facts: Annotated[list[SaidFact], at_most(MAX_SAID)]


class FactsExtractor(Extractor):
    name = NAME
    output: ClassVar[type[BaseModel]] = Facts
    prompt = "extraction.facts"
    needs_memory: ClassVar[bool] = True

    async def known(self, context: Context) -> str:
        facts = await read_facts(context)
        return render("extraction.known", facts=facts) if facts else ""

    async def keep(self, context: Context, found: BaseModel) -> None:
        if isinstance(found, Facts) and found.facts:
            at = context.environment.wall_clock().astimezone(UTC).isoformat(timespec="microseconds")
            await add_facts(context, {fact.key: fact.text for fact in found.facts}, at)


async def read_facts(context: Context) -> tuple[Fact, ...]:
    """What is known about the user, oldest first. Raises StoreError."""
    return tuple(fact for fact in await _merged(context) if fact.text)


async def add_facts(context: Context, said: Mapping[str, str], at: str) -> None:
    """Put facts to those that are known, by their keys. Raises StoreError: nothing was written, or it is not known whether."""
    known = await _merged(context)
    new = news(known, [Fact(at, normal_key(key), text) for key, text in said.items()])
    if new:
        await context.memory.append(MemoryScope.APPLICATION, NAME, to_json(merge(known, new)))


async def _merged(context: Context) -> tuple[Fact, ...]:
    revisions = await context.memory.revisions(MemoryScope.APPLICATION, NAME, limit=MERGED)
    return merge(*(from_json(revision.body) for revision in revisions))
