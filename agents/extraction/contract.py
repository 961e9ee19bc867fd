"""What an extractor is (SPEC L11, L20).

One is declared by an entry point of the group `souffleur.extractors`, which names a class of this contract; nothing else has to
change. What it finds is aggregated by its shape alone, see `agents.aggregation.session_data`.
"""

import logging
from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from agents.prompts import render
from engine import registry
from engine.errors import ConfigurationError
from engine.interfaces import Context

logger = logging.getLogger(__name__)

SETUPS = frozenset({"agent"})


class Extractor(ABC):
    """Reads one kind of thing out of each turn. An object serves every session: it keeps nothing of any."""

    name: ClassVar[str]
    """Of its section in the answer and in the records."""
    output: ClassVar[type[BaseModel]]
    """The shape of its section. Numbers, flags, labels and lists of weighted names are aggregated."""
    prompt: ClassVar[str]
    """The template that says what is wanted."""
    setups: ClassVar[frozenset[str]] = SETUPS
    needs_memory: ClassVar[bool] = False
    """Only for agents that have memory."""

    def instructions(self) -> str:
        """What is wanted, in words; the same for every turn, so that a model's cache may hold it."""
        return render(self.prompt)

    async def known(self, context: Context) -> str:
        """What the model has to know of earlier turns and conversations; "" for nothing. May raise StoreError."""
        return ""

    async def keep(self, context: Context, found: BaseModel) -> None:
        """Do more with what was found than put it in the turn's record. May raise StoreError."""


def find_extractors(
    setup: str = "agent",
    *,
    has_memory: bool,
    names: Callable[[str], Sequence[str]] = registry.names,
    load: Callable[[str, str], Any] = registry.load,
) -> tuple[Extractor, ...]:
    """Those declared for a setup, in the order of their names. One that cannot be loaded is logged and left out."""
    found: list[Extractor] = []
    for name in names("extractors"):
        try:
            extractor: Extractor = load("extractors", name)()
        except ConfigurationError as exc:
            logger.error("%s", exc)
            continue
        if setup in extractor.setups and (has_memory or not extractor.needs_memory):
            found.append(extractor)
    return tuple(found)
