"""What a judge is (SPEC R14, L20).

One is declared by an entry point of the group `souffleur.judges`, which names a class of this contract; nothing else has to change.
"""

import logging
from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from agents.evaluation.agent_facts import AgentFacts
from agents.prompts import render
from engine import registry
from engine.errors import ConfigurationError

logger = logging.getLogger(__name__)


class Judge(ABC):
    """Gives a conversation that is over a score from 0 to 1, with reasons. An object keeps nothing of any conversation."""

    name: ClassVar[str]
    """Of its verdicts, and in the LLM log."""
    prompt: ClassVar[str]
    """The template that says what the score means; it is given the agent's facts as `agent`."""
    setups: ClassVar[frozenset[str]] = frozenset({"agent"})

    def has_a_case(self, agent: AgentFacts) -> bool:
        """Whether there is anything to judge by."""
        return True

    def question(self, agent: AgentFacts) -> str:
        """What is judged, in words."""
        return render(self.prompt, agent=agent)


def find_judges(
    setup: str = "agent",
    *,
    names: Callable[[str], Sequence[str]] = registry.names,
    load: Callable[[str, str], Any] = registry.load,
) -> tuple[Judge, ...]:
    """Those declared for a setup, in the order of their names. One that cannot be loaded is logged and left out."""
    found: list[Judge] = []
    for name in names("judges"):
        try:
            judge: Judge = load("judges", name)()
        except ConfigurationError as exc:
            logger.error("%s", exc)
            continue
        if setup in judge.setups:
            found.append(judge)
    return tuple(found)
