"""Exact formulations in business process steps, written out for the planner (S0: "exact-formulation markers"). Pure.

Who writes the steps of a process marks what has to be said word for word, a legal notice for instance:
`[[exact]]This call is recorded.[[/exact]]`. The planner reads a sentence in its place that says so, and that it has to
pass the words on to the speaking model in the same way, as that one never sees the steps.
"""

import re

_BEGIN = re.compile(r"\[\[exact\]\]", re.IGNORECASE)
_END = re.compile(r"\[\[/exact\]\]", re.IGNORECASE)


def materialize_exact(text: str) -> str:
    """The text with its markers written out. A marker without its other half stays as written; an empty pair goes."""
    before, *parts = _BEGIN.split(text)
    opened = _BEGIN.findall(text)
    pieces = [before]
    for marker, part in zip(opened, parts, strict=True):
        words, *rest = _END.split(part, maxsplit=1)
        pieces += [_demanded(words.strip()), *rest] if rest else [marker, part]
    return "".join(pieces)


def _demanded(words: str) -> str:
    if not words:
        return ""
    return (
        f"(To be said exactly, word for word, neither shortened nor reworded nor translated: “{words}” "
        "Quote these words in `results` and demand that they are said exactly so.)"
    )
