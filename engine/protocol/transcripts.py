"""Transcript normalization for the engine's own recognition (SPEC M4): one interim before the final of an utterance.

Recognizers differ: some repeat their interims, some send none before a final, some send finals without words. What leaves here
is regular. (A provider's own transcripts are made regular by the turns, which see them together with its answers.)
"""

import attrs

from engine.elements import Transcript

INTERIM_TEXT = "."


@attrs.define(eq=False)
class TranscriptNormalizer:
    """`lapse` seconds after its last sign an interim that led to no words is forgotten, so that the next one counts again."""

    lapse: float = 2.0
    _open: bool = attrs.field(default=False, init=False)
    _last_sign: float = attrs.field(default=0.0, init=False)

    def sign(self, now: float) -> None:
        """The utterance under way goes on: a partial, or the user is still heard speaking."""
        self._last_sign = now

    def receive(self, transcript: Transcript, now: float) -> list[Transcript]:
        """The transcripts to pass on: none, the interim, or the final with the interim it lacked."""
        if transcript.is_interim:
            repeats = self._open and now - self._last_sign < self.lapse
            self._open = True
            self._last_sign = now
            return [] if repeats else [transcript]
        was_open, self._open = self._open, False
        if not transcript.text.strip():
            return []
        interim = Transcript(INTERIM_TEXT, is_interim=True, is_synthetic=True, provider=transcript.provider)
        return [transcript] if was_open else [interim, transcript]
