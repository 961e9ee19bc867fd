"""Tokens of one response window in, whole sentences out (SPEC M5, M6).

**Text in = text out.** White space (`str.isspace`) taken away, what came out since the last `drop`, followed by
`pending`, is what went in since then: nothing lost, doubled or moved. A sentence keeps the white space inside it as it
was and has none around it.

**The tokens' cuts do not matter.** A stop is judged on the text alone, as soon as the text behind it settles the
matter; a judge that would have to guess says `NotYet`. So "14." + " října" and one character a token give the same
sentences, each with the first token that makes it certain. Only the places of `flush` (a window's end, a turnless
release) and `drop` matter.

How a stop is judged (`engine.protocol.sentence_stops`):

1. A line break ends a sentence, but the number or bullet of a list alone is none.
2. Closing quotes and brackets, and emoji on the same line, belong to the sentence before; what counts is what follows
   them.
3. 。？！ ؟ । and their like end a sentence anywhere, the other stops only before white space or emoji: so no number,
   version, time or address is ever cut. ("Sure!Let me" is: a "!" or "?" between a plain word and a capital.)
4. "?" and "!" end, unless a closing quote or bracket stands between them and a small letter (`"Really?" she said`).
   "..." and "…" end, unless a small letter or a digit follows.
5. With "." it depends on the word before (number, initial, abbreviation: `engine.protocol.sentence_tables`) and on what
   follows. After a plain word a small letter means that the sentence goes on, unless it began with one itself: its
   writer uses no capitals.

In doubt a sentence goes on: two sentences spoken as one cost a moment, half a sentence spoken as a whole sounds wrong.
"""

import re
import unicodedata

import attrs

from engine.protocol.sentence_stops import (
    BREAKS,
    CANDIDATE,
    CLOSED,
    CLOSING,
    CONTENT,
    DASHES,
    EMPHASIS,
    QUOTES,
    NotYet,
    StopJudge,
)
from engine.protocol.sentence_tables import Rules, rules_for

MAX_SENTENCE = 600
"""Characters held back at most: about 40 s of speech (15 characters a second). A longer stretch without a stop is code,
a table or a runaway model, and neither memory nor the listener should wait for its end. It is cut at white space, if it
can be behind a comma."""

FIRST_CLAUSE_MIN = 20
"""Characters of an early first clause at least: 1.3 s of speech, which leave that long for making the next piece."""

FIRST_CLAUSE_MAX = 80
"""Characters after which the space between any two words will do: a beginning of more than 5 s should not be waited
for."""

_MAX_GRAPHEME = 32
"""Characters a hard cut moves back at most to keep marks and joined emoji with what they belong to; real ones have
about ten."""

_BEHIND = re.escape(QUOTES + CLOSING + EMPHASIS)
_COMMA = rf"[,;:،؛][{_BEHIND}]*(?=\s)|[、，；：][{re.escape(CLOSING)}”’]*"  # "1,000", "10:30", addresses: no space
_LAST_COMMA = re.compile(rf".*(?:{_COMMA})", re.DOTALL)
_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_PAUSE = re.compile(rf"{_COMMA}|\s[{re.escape(DASHES)}]+(?=\s)|[–—](?=[^\W\d_])")
_WORD_AHEAD = re.compile(r"(?<=[^\W\d_])\s+(?=([^\W\d_]+)\s)")
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])\s+(?=[^\W\d_])")
_BEFORE_PHRASE = re.compile(r"(?<=[^\W\d_]{4})\s+(?=[^\W\d_]{1,3}\s)")  # "the building | at the corner"
_JOINING = "\u200d\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"  # zero-width joiner, skin tones


@attrs.define
class SentenceAssembler:
    """Groups the tokens of one response window into sentences.

    `locale` ("en", "cs-CZ", …) settles doubtful abbreviations; an unknown one is no error. One object serves one window
    after the other: `flush` and `drop` make it fresh. It holds at most `MAX_SENTENCE` characters, so a token costs the
    same however long the stream is.
    """

    locale: str = "en"
    _rules: Rules = attrs.field(init=False, repr=False)
    _held: str = attrs.field(init=False, default="")  # never begins with white space
    _judged: int = attrs.field(init=False, default=0)  # no stop before this index ends the sentence
    _is_continued: bool = attrs.field(init=False, default=False)  # the held text begins inside a sentence

    def __attrs_post_init__(self) -> None:
        self._rules = rules_for(self.locale)

    @property
    def pending(self) -> str:
        """The text held back so far."""
        return self._held

    @property
    def closes(self) -> bool:
        """Whether the held text ends with a closing token, which starts the 300 ms of turnless release (M6).

        White space, closing quotes and brackets, emphasis and emoji behind the stop are ignored.
        """
        return CLOSED.search(self._held) is not None

    def feed(self, token: str) -> list[str]:
        """The sentences that this token completes: mostly none, with a long token several."""
        sentences: list[str] = []
        taken = 0
        while taken < len(token):
            # Portions that just pass the bound, so that a forced cut falls on the same place however the text is cut.
            portion = token[taken : taken + MAX_SENTENCE + 1 - len(self._held)]
            taken += len(portion)
            self._held = self._held + portion if self._held else portion.lstrip()
            sentences += self._completed(at_end=False)
            if len(self._held) > MAX_SENTENCE:
                sentences.append(self._take(_forced_cut(self._held), inside=True))
        return sentences

    def flush(self) -> list[str]:
        """The end of the window: what is held back, as its last sentence or sentences."""
        sentences = self._completed(at_end=True)
        if self._held:
            sentences.append(self._held.rstrip())
        self.drop()
        return sentences

    def drop(self) -> None:
        """Forget what is held back: barge-in."""
        self._held = ""
        self._judged = 0
        self._is_continued = False

    def first_clause(self, min_chars: int = FIRST_CLAUSE_MIN, max_chars: int = FIRST_CLAUSE_MAX) -> str | None:
        """Take a clause of at least `min_chars` from the front of the held text; None while there is no good place.

        The first good place wins: behind a comma, semicolon, colon or dash; from midway between the two numbers on,
        before a conjunction. Once more than `max_chars` are held without one: the last space before a phrase (a long
        word, then a short one), or between any two words within them, else the next one. Never inside a number, an
        address or a list of numbers, nor behind an abbreviation: each place has white space (or is a mark of a script
        that needs none) and a word on at least one side. `ClauseCutter` is the ready-made use.
        """
        cut = _clause_cut(self._held, min_chars, max_chars, self._rules.conjunctions)
        return None if cut is None else self._take(cut, inside=True)

    def _take(self, cut: int, *, inside: bool) -> str:
        piece, rest = self._held[:cut].rstrip(), self._held[cut:].lstrip()
        self._judged = max(0, self._judged - len(self._held) + len(rest))
        self._held = rest
        self._is_continued = inside
        return piece

    def _completed(self, *, at_end: bool) -> list[str]:
        sentences: list[str] = []
        while stop := CANDIDATE.search(self._held, self._judged):
            judge = StopJudge(self._held, at_end, self._is_continued, self._rules)
            try:
                cut = judge.break_cut(stop) if stop[0] in BREAKS else judge.stop_cut(stop)
            except NotYet:
                self._judged = stop.start()
                return sentences
            if cut is None:
                self._judged = stop.end()
            else:
                sentences.append(self._take(cut, inside=False))
        self._judged = len(self._held)
        return sentences


@attrs.define
class ClauseCutter:
    """For speech: the first clause of a response early, then whole sentences.

    A synthesizer that waits for a whole first sentence lets the user wait for all of it; one that is given single words
    sounds like it. So the first piece of a window ends at the first good place for a pause
    (`SentenceAssembler.first_clause`) or with its sentence, whichever comes first. The rest of that sentence and all
    that follow come whole: by then there is speech to cover the waiting. Both laws of this module hold: text in = text
    out, and the same pieces however the text is cut.

    Scripts that write a word in one or two characters (Chinese, Japanese) want about a third of the default lengths.
    """

    locale: str = "en"
    min_chars: int = FIRST_CLAUSE_MIN
    max_chars: int = FIRST_CLAUSE_MAX
    _assembler: SentenceAssembler = attrs.field(init=False, repr=False)
    _has_begun: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._assembler = SentenceAssembler(self.locale)

    @property
    def pending(self) -> str:
        """The text held back so far."""
        return self._assembler.pending

    def feed(self, token: str) -> list[str]:
        """The pieces that can be spoken with this token."""
        pieces: list[str] = []
        taken = 0
        while not self._has_begun and taken < len(token):
            # One character at a time, so that a long token is cut where short ones would have been.
            pieces = self._assembler.feed(token[taken])
            taken += 1
            if not pieces and (clause := self._assembler.first_clause(self.min_chars, self.max_chars)):
                pieces = [clause]
            self._has_begun = bool(pieces)
        return pieces + self._assembler.feed(token[taken:])

    def flush(self) -> list[str]:
        """The end of the window: what is held back. The next window begins with an early clause again."""
        self._has_begun = False
        return self._assembler.flush()

    def drop(self) -> None:
        """Forget what is held back: barge-in."""
        self._has_begun = False
        self._assembler.drop()


def _clause_cut(held: str, min_chars: int, max_chars: int, conjunctions: frozenset[str]) -> int | None:
    cuts: list[int] = []
    for pause in _PAUSE.finditer(held):
        if pause.end() >= min_chars and _is_between_words(held, pause):
            cuts.append(pause.end())
            break
    for word in _WORD_AHEAD.finditer(held, (min_chars + max_chars) // 2):
        if word[1].lower() in conjunctions:
            cuts.append(word.start())
            break
    if len(held) > max_chars and min(cuts, default=len(held)) > max_chars:
        phrases = [phrase.start() for phrase in _BEFORE_PHRASE.finditer(held, min_chars, max_chars + 1)]
        spaces = [space.start() for space in _BETWEEN_WORDS.finditer(held, min_chars)]
        cuts += phrases[-1:] or [cut for cut in spaces if cut <= max_chars][-1:] or spaces[:1]
    return min(cuts, default=None)


def _is_between_words(held: str, pause: re.Match[str]) -> bool:
    before, behind = held[: pause.start()].rstrip(), held[pause.end() :].lstrip()
    if not behind or not CONTENT.search(before):
        return False
    if pause[0] in "–—":  # without white space: "open—but", not in an address
        return before.rpartition(" ")[2].isalpha()
    return not (before[-1].isdecimal() and behind[0].isdecimal())  # not "1, 2" or "5 – 6"


def _forced_cut(held: str) -> int:
    """Where to cut a text of `MAX_SENTENCE` + 1 characters or more without an end: 0 < index <= `MAX_SENTENCE` + 1."""
    head = held[: MAX_SENTENCE + 1]
    comma, space = _LAST_COMMA.match(head), _LAST_SPACE.match(head)
    if comma and comma.end() > MAX_SENTENCE // 2:
        return comma.end()
    if space:
        return space.end()
    cut = MAX_SENTENCE
    while cut > MAX_SENTENCE - _MAX_GRAPHEME and _is_joined(head, cut):
        cut -= 1
    return cut


def _is_joined(text: str, index: int) -> bool:
    """Whether the characters on both sides of the index are seen as one."""
    return text[index - 1] == "\u200d" or text[index] in _JOINING or unicodedata.category(text[index]).startswith("M")
