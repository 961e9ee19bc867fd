"""What the fixture `souffleur` is: stages that are judged, and the story of what went on in them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from engine.testing.speaker import Answers, AnswerStep, ConversingModel
from engine.testing.stage import Stage, open_stage, scripted_environment
from engine.testing.timeline import timeline


@attrs.define(eq=False)
class Kit:
    """Opens stages: `souffleur("Good morning.")` has a model that answers with that, in the time that it takes to say it.

    `answers` is a sentence, several of them and pauses (seconds), or a function that says for each request what to answer; any part of
    `engine.testing.stage.open_stage` may be given by name, a `model` of one's own among them.
    """

    seed: int = 0
    _opened: list[Stage] = attrs.field(factory=list[Stage], init=False)

    @asynccontextmanager
    async def __call__(
        self, answers: Answers | Sequence[AnswerStep] | str = "I see.", **parts: Any
    ) -> AsyncGenerator[Stage]:
        """One connection. Leaving ends it, and raises AssertionError when a promise of the contract was broken."""
        parts.setdefault("model", ConversingModel(answers))
        parts.setdefault("environment", scripted_environment(self.seed))
        async with open_stage(**parts) as stage:
            self._opened.append(stage)
            yield stage

    def story(self) -> str:
        """The seed, how to have it again, and a timeline of each stage."""
        lines = [f"seed {self.seed}; the same again with --souffleur-seed {self.seed}"]
        for stage in self._opened:
            mishaps = stage.client.mishaps.happened
            lines += ["", timeline(stage.client.heard, stage.client.sent, stage.violations, mishaps)]
        return "\n".join(lines)
