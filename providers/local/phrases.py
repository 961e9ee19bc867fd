"""Text and phonemes in pieces that the synthesizer can take. Sans-I/O.

A piece is what is said with one intonation: a sentence, or a part of a long one. The shorter the first, the sooner it is heard.
"""

import re
from typing import Final

SENTENCE_LENGTH: Final = 40
"""Characters; shorter sentences are said together with the next one: "Yes. It is." has one breath."""
PIECE_LENGTH: Final = 200
"""Characters after which a sentence is divided at its commas, and if need be between words: about 12 s of speech."""
TOKEN_LIMIT: Final = 508
"""Kokoro takes 510 tokens (its positions and its styles end there), and each piece is wrapped in two."""

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
_PAUSE: Final = re.compile(r"(?<=[,;:])\s+")


def pieces(text: str) -> list[str]:
    """The text, normalized, in pieces of at most `PIECE_LENGTH` characters (a longer word stays whole); no word is lost."""
    found: list[str] = []
    for sentence in _SENTENCE_END.split(text.strip()):
        for part in _divide(sentence):
            if not part:
                continue
            if (
                found
                and len(found[-1]) < SENTENCE_LENGTH
                and len(found[-1]) + len(part) < PIECE_LENGTH
                and len(found) > 1
            ):
                found[-1] += " " + part
            else:
                found.append(part)
    return found


def _divide(sentence: str) -> list[str]:
    if len(sentence) <= PIECE_LENGTH:
        return [sentence]
    parts: list[str] = []
    for clause in _PAUSE.split(sentence):
        for word in [clause] if len(clause) <= PIECE_LENGTH else clause.split():
            if parts and len(parts[-1]) + 1 + len(word) <= PIECE_LENGTH:
                parts[-1] += " " + word
            else:
                parts.append(word)
    return parts


def phoneme_pieces(phonemes: str) -> list[str]:
    """Phonemes, one character each, in pieces of at most `TOKEN_LIMIT`, divided between words where there are any."""
    found: list[str] = []
    rest = phonemes.strip()
    while len(rest) > TOKEN_LIMIT:
        cut = rest.rfind(" ", 0, TOKEN_LIMIT + 1)
        cut = cut if cut > 0 else TOKEN_LIMIT
        found.append(rest[:cut].strip())
        rest = rest[cut:].strip()
    return [*found, rest] if rest else found
