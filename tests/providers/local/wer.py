"""How much of what was said was heard: the word error rate, as speech recognition is judged by."""

import re

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)*")


def words(text: str) -> list[str]:
    """Lower case, without punctuation."""
    return _WORD.findall(text.lower().replace("’", "'"))


def word_errors(said: str, heard: str) -> int:
    """Words to insert, remove or replace so that one becomes the other (Levenshtein's distance)."""
    target = words(heard)
    row = list(range(len(target) + 1))
    for index, word in enumerate(words(said), start=1):
        above, row = row, [index]
        for column, other in enumerate(target, start=1):
            row.append(min(row[-1] + 1, above[column] + 1, above[column - 1] + (word != other)))
    return row[-1]


def word_error_rate(pairs: list[tuple[str, str]]) -> float:
    """Over all pairs of what was said and what was heard."""
    return sum(word_errors(said, heard) for said, heard in pairs) / sum(len(words(said)) for said, _ in pairs)
