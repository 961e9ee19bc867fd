"""The name in which a table is booked, as callers say it: "my name is Anna", "under Novak", or just "Anna Nováková"."""

import re

from providers.chat.demo_words import NAME_CLOSERS, NAME_ENDS, NAME_OPENERS, NO_NAMES

MAX_WORDS = 3
MAX_CHARACTERS = 40

_STRONG = (
    r"(?:\bmy name(?:['’]s| is)?|\bthe name(?:['’]s| is| of| to)?|\bname(?:['’]s| is)|^\W*name|\bunder|\bin the name of"
    r"|\bcall me|\bi am called)[\s:,]+"
)
_WEAK = r"\b(?:this is|i['’]?m|i am|it['’]?s|it is|that['’]?s|put it|for|make it|change it to|book it)[\s:,]+"
_WORD = r"[^\W\d_][\w'’-]*"


def find_name(text: str, *, asked: bool, bare: bool) -> str:
    """The name in an utterance, or "".

    `asked`: a name was asked for, so that "it's Anna" is one, which otherwise could be anything. `bare`: the utterance may be
    the name and nothing else.
    """
    patterns = [_STRONG, _WEAK] if asked else [_STRONG]
    for pattern in patterns:
        for found in reversed(list(re.finditer(pattern, text, re.IGNORECASE))):
            if name := _take(text[found.end() :]):
                return name
    return _whole(text) if bare else ""


def _take(rest: str) -> str:
    """The words of a name at the beginning of a text."""
    name: list[str] = []
    end = 0
    while found := re.compile(rf"\s*({_WORD})([.,;!?]*)").match(rest, end):
        end = found.end()
        word = found[1]
        if _plain(word) in (NAME_ENDS if name else NO_NAMES):
            break
        name.append(word)
        if len(name) == MAX_WORDS or found[2]:
            break
    return _write(name)


def _whole(text: str) -> str:
    """The utterance as a name, when it has no more words than one and none that cannot be in it."""
    words = re.findall(_WORD, text)
    while words and _plain(words[0]) in NAME_OPENERS:
        words.pop(0)
    while words and _plain(words[-1]) in NAME_CLOSERS:
        words.pop()
    if len(words) > 1 and all(len(word) == 1 for word in words):
        words = ["".join(words)]  # spelled: "J. A. N. A."
    if not 1 <= len(words) <= MAX_WORDS or any(_plain(word) in NO_NAMES for word in words):
        return ""
    return _write(words)


def _plain(word: str) -> str:
    return word.lower().replace("'", "").replace("’", "")


def _write(words: list[str]) -> str:
    """Names get capitals, which recognition may have left out."""
    name = " ".join(word if any(map(str.isupper, word[:1])) and not word.isupper() else word.title() for word in words)
    return name if len(name) <= MAX_CHARACTERS else ""
