"""A response's words on their way to being spoken: which piece is said when, and where each sentence begins in the speech.

The first clause is spoken before its sentence is complete; then comes the rest of that sentence, then whole sentences. A
sentence's `Text` is sent when it is complete and its speech has begun, and tells where in the speech it begins, so that what was
heard can be known to the word (law 5).
"""

import attrs

from engine.elements import Text
from engine.protocol.sentences import ClauseCutter, SentenceAssembler
from providers.internal.words import behind, count_visible


@attrs.frozen
class Piece:
    """A clause or sentence to synthesize; `sentence` counts the response's sentences from 0."""

    text: str
    sentence: int


@attrs.define(eq=False)
class SpokenResponse:
    """One response: tokens in, pieces to speak and sentences to show out. Sans-I/O.

    A window is what the model says in one go: the words up to its tool calls, or to its end. Each begins with an early clause.
    """

    response_id: str
    locale: str
    is_silent: bool
    """On a text-only connection nothing is spoken: sentences are shown as they are complete."""
    text: str = attrs.field(default="", init=False)
    """All words so far."""
    _assembler: SentenceAssembler = attrs.field(init=False)
    _cutter: ClauseCutter = attrs.field(init=False)
    """Finds the first piece of a window, and no other: with all of them it would judge some stops differently."""
    _has_begun: bool = attrs.field(default=False, init=False)
    """Whether this window's first piece was found."""
    _ahead: int = attrs.field(default=0, init=False)
    """Visible characters of the first piece that belong to a sentence which is not complete."""
    _sentences: list[str] = attrs.field(factory=list[str], init=False)
    _starts_ms: list[float] = attrs.field(factory=list[float], init=False)
    """Where the speech of each sentence that has begun to be spoken begins."""
    _shown: int = attrs.field(default=0, init=False)
    _spoken_ms: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._assembler = SentenceAssembler(self.locale)
        self._cutter = ClauseCutter(self.locale)

    def feed(self, token: str) -> list[Piece]:
        """The pieces that can be spoken with this token."""
        self.text += token
        return [*self._first_piece(token), *self._completed(self._assembler.feed(token))]

    def flush(self) -> list[Piece]:
        """The end of a window: the rest of it."""
        pieces = self._completed(self._assembler.flush())
        self._cutter.drop()
        self._has_begun = False
        return pieces

    def begin(self, piece: Piece) -> None:
        """The speech of a piece begins now."""
        if piece.sentence == len(self._starts_ms):
            self._starts_ms.append(self._spoken_ms)

    def speak(self, ms: float) -> None:
        """So much more speech was sent."""
        self._spoken_ms += ms

    def next_text(self) -> Text | None:
        """The next sentence that can be shown now; each comes once."""
        index = self._shown
        if index >= len(self._sentences) or (index >= len(self._starts_ms) and not self.is_silent):
            return None
        self._shown += 1
        return Text(self._sentences[index], self.response_id, None if self.is_silent else self._starts_ms[index])

    def _first_piece(self, token: str) -> list[Piece]:
        if self.is_silent or self._has_begun:
            return []
        first = self._cutter.feed(token)[:1]
        if not first:
            return []
        self._has_begun = True
        self._ahead = count_visible(first[0])
        return [Piece(first[0], len(self._sentences))]

    def _completed(self, sentences: list[str]) -> list[Piece]:
        pieces: list[Piece] = []
        for sentence in sentences:
            rest = behind(sentence, self._ahead)
            self._ahead = 0
            if rest and not self.is_silent:
                pieces.append(Piece(rest, len(self._sentences)))
            self._sentences.append(sentence)
        return pieces
