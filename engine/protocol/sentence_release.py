"""When a turnless model's sentences are released (SPEC M6).

Such a model has no response that ends, so the sentence assembly, which looks ahead to tell a sentence's end from the dot in
"14. října", would hold the last sentence back until the model speaks again. It is released when its closing token has been
followed by 300 ms without another one. Only a closing token starts the wait: a pause in the middle of a sentence releases
nothing. No text is ever dropped.
"""

import attrs

from engine.protocol.sentences import SentenceAssembler


@attrs.define(eq=False)
class SentenceRelease:
    """`seconds` of quiet release a closed sentence. Times are seconds of the session's clock."""

    assembler: SentenceAssembler
    seconds: float = 0.3
    deadline: float | None = attrs.field(default=None, init=False)
    """When `tick` releases what is held; None while nothing waits."""

    def feed(self, token: str, now: float) -> list[str]:
        """The sentences that this token completes."""
        sentences = self.assembler.feed(token)
        self.deadline = now + self.seconds if self.assembler.closes else None
        return sentences

    def tick(self, now: float) -> list[str]:
        """The sentence whose wait is over, if it is."""
        if self.deadline is None or now < self.deadline:
            return []
        return self.flush()

    def flush(self) -> list[str]:
        """The end: what is held back."""
        self.deadline = None
        return self.assembler.flush()
