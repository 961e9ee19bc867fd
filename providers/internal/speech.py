"""A response's words on their way to being spoken: which piece is said when, and where each sentence begins in the speech.

The first clause is spoken before its sentence is complete, whole sentences follow. A sentence's `Text` is sent when it is
complete and its speech has begun, and tells where in the speech it begins, so that what was heard can be known to the word
(law 5).
"""

import attrs

from engine.elements import Text
from engine.protocol.sentences import ClauseCutter, SentenceAssembler


@attrs.frozen
class Piece:
    """A clause or sentence to synthesize; `sentence` counts the response's sentences from 0."""

    text: str
    sentence: int


@attrs.define(eq=False)
class SpokenResponse:
    """One response: tokens in, pieces to speak and sentences to show out. Sans-I/O."""

    response_id: str
    locale: str
    is_silent: bool
    """On a text-only connection nothing is spoken: sentences are shown as they are complete."""
    text: str = attrs.field(default="", init=False)
    """All words so far."""
    _assembler: SentenceAssembler = attrs.field(init=False)
    _cutter: ClauseCutter = attrs.field(init=False)
    _sentences: list[str] = attrs.field(factory=list[str], init=False)
    _ends: list[int] = attrs.field(factory=list[int], init=False)
    """For each complete sentence, how many visible characters of the response it ends at."""
    _cut_until: int = attrs.field(default=0, init=False)
    """Visible characters in the pieces so far."""
    _starts_ms: list[float] = attrs.field(factory=list[float], init=False)
    """Where the speech of each sentence that has begun to be spoken begins."""
    _shown: int = attrs.field(default=0, init=False)
    _spoken_ms: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._assembler = SentenceAssembler(self.locale)
        self._cutter = ClauseCutter(self.locale)

    def feed(self, token: str) -> list[Piece]:
        self.text += token
        self._complete(self._assembler.feed(token))
        return [] if self.is_silent else self._pieces(self._cutter.feed(token))

    def flush(self) -> list[Piece]:
        """The model has said all it has to say for now."""
        self._complete(self._assembler.flush())
        return [] if self.is_silent else self._pieces(self._cutter.flush())

    def begin(self, piece: Piece) -> None:
        """The speech of a piece begins now."""
        while len(self._starts_ms) <= piece.sentence:
            self._starts_ms.append(self._spoken_ms)

    def speak(self, ms: float) -> None:
        """So much more speech was sent."""
        self._spoken_ms += ms

    def texts(self) -> list[Text]:
        """The sentences that can be shown now, each once."""
        ready = len(self._sentences) if self.is_silent else min(len(self._sentences), len(self._starts_ms))
        shown, self._shown = self._shown, max(self._shown, ready)
        return [
            Text(self._sentences[index], self.response_id, None if self.is_silent else self._starts_ms[index])
            for index in range(shown, ready)
        ]

    def _complete(self, sentences: list[str]) -> None:
        for sentence in sentences:
            self._sentences.append(sentence)
            self._ends.append((self._ends[-1] if self._ends else 0) + _visible(sentence))

    def _pieces(self, texts: list[str]) -> list[Piece]:
        pieces: list[Piece] = []
        for text in texts:
            sentence = sum(1 for end in self._ends if end <= self._cut_until)
            pieces.append(Piece(text, sentence))
            self._cut_until += _visible(text)
        return pieces


def _visible(text: str) -> int:
    """Characters that are not white space: both cutters keep all of them, in order."""
    return sum(not character.isspace() for character in text)
