"""Words as the index sees them: folded, and cut into overlapping grams of four letters.

Grams need to know nothing of a language and find what inflection changes: `výpadků` shares four of its grams with `výpadky`, and
`Öffnungszeiten` three with `Zeiten`. McNamee and Mayfield found n = 4 best for European languages ("Character N-Gram Tokenization
for European Language Text Retrieval", 2004), and so it was here: of 43 questions in Czech, English and German, asked among 20,000
other passages, the right one came first for 40 (Snowball stems 36, lemmas no better, words cut to five letters 36, whole words 25).
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping

GRAM = 4
MAX_WORDS = 32
"""Of a query. A question that is spoken has a dozen; each word costs up to 3 ms in 20,000 passages."""
MAX_LETTERS = 64
"""Of a word that is looked at in a query: the longest words of a dictionary have about 60."""
VERSION = f"1.{unicodedata.unidata_version}"
"""Changes whenever the grams of a text may."""

# Not ASCII, as the tokenizer of the index takes ASCII signs for gaps between grams; and never part of a word.
_BORDER = "·"
_WORD = re.compile(r"[^\W_]+")
# Written without gaps, and with far more letters: two of them mean what four mean elsewhere.
_DENSE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff]+)"
)
_DENSE_GRAM = 2


class _Folding(dict[int, str | None]):
    """For `str.translate`: drops marks and what is invisible, and replaces letters with a stroke, which do not decompose."""

    def __missing__(self, code: int) -> str | None:
        category = unicodedata.category(chr(code))
        # Cf: a soft hyphen or a mark of direction stands inside a word and is no part of it.
        value = None if category in ("Mn", "Me", "Mc", "Cf") else chr(code)
        self[code] = value
        return value


_folding = _Folding({ord(letter): plain for letter, plain in zip("łøđıħŧ", "lodiht", strict=True)})


def fold(text: str) -> str:
    """The text without case, accents and marks: `Žluťoučký` and `ZLUTOUCKY` are the same."""
    bare = unicodedata.normalize("NFKD", text.casefold()).translate(_folding)
    return unicodedata.normalize("NFC", bare)


def words(text: str) -> list[str]:
    """The folded words of a text, in order, with repetitions."""
    return _WORD.findall(fold(text))


def grams_of(word: str) -> list[str]:
    """The grams of a folded word, which knows where it begins and ends; a word of up to two letters is one gram."""
    found: list[str] = []
    for part in _DENSE.split(word):
        if not part:
            continue
        if _DENSE.match(part):
            found.extend(part[at : at + _DENSE_GRAM] for at in range(max(1, len(part) - _DENSE_GRAM + 1)))
        else:
            marked = f"{_BORDER}{part}{_BORDER}"
            found.extend(marked[at : at + GRAM] for at in range(max(1, len(marked) - GRAM + 1)))
    return found


def to_grams(text: str) -> str:
    """A text for the index: its grams with a gap between them, in order, with repetitions."""
    return " ".join(gram for word in words(text) for gram in grams_of(word))


def query_grams(query: str) -> list[str]:
    """The different grams of a query, in order. Empty when it has no words. Takes any text."""
    return list(dict.fromkeys(gram for word in words(query)[:MAX_WORDS] for gram in grams_of(word[:MAX_LETTERS])))


def match_expression(grams: Iterable[str]) -> str:
    """What FTS5 is asked for: any of the grams. Grams hold letters, digits and the border only, so the quotes are safe."""
    return " OR ".join(f'"{gram}"' for gram in grams)


def text_grams(text: str) -> set[str]:
    """The different grams of a text."""
    return {gram for word in set(words(text)) for gram in grams_of(word)}


def coverage(weights: Mapping[str, float], grams: Collection[str]) -> float:
    """How much of a query a text has, from 0 to 1: the weights of the query's grams that are among the text's, over all of them."""
    total = sum(weights.values())
    return sum(weight for gram, weight in weights.items() if gram in grams) / total if total else 0.0
