"""Transcript normalization for the engine's own recognition (SPEC M4): one interim before the final of an utterance.

Recognizers differ: some send no interim before a final, some send finals without words. What leaves here is regular. (Repeated
interims are one to the turns, which see them together with typed words and with the model's answers.)
"""

import attrs

from engine.elements import Transcript

INTERIM_TEXT = "."


@attrs.define(eq=False)
class TranscriptNormalizer:
    _open: bool = attrs.field(default=False, init=False)

    def receive(self, transcript: Transcript) -> list[Transcript]:
        """The transcripts to pass on: none, the interim, or the final with the interim it lacked."""
        if transcript.is_interim:
            self._open = True
            return [transcript]
        was_open, self._open = self._open, False
        if not transcript.text.strip():
            return []
        interim = Transcript(INTERIM_TEXT, is_interim=True, is_synthetic=True, provider=transcript.provider)
        return [transcript] if was_open else [interim, transcript]
