"""What tools give, as the demo reads it: a booking that was made or failed, and passages of documents. Nothing here raises."""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

import attrs

from providers.chat.demo_lines import plain
from providers.chat.demo_slots import Slot
from providers.chat.demo_words import words

STEM = 5
"""Letters by which words are compared: "allergens" and "allergen" are the same."""
SENTENCE_CHARACTERS = 300
"""Of a sentence that is taken from a document; a longer one is not said on the phone."""
PASSAGES = 10
COMMON = words(
    "the and for are you your that this with have has had can could would will what which when where who how much many any some"
    " there here does please not from our its was were about into them they"
)
"""Words that are in every sentence, and tell nothing about it."""

_NO_QUOTES = str.maketrans("", "", '"“”„')
"""A sentence will be quoted itself."""
_FAULTS = (
    (Slot.PEOPLE, r"\bpeople\b"),
    (Slot.NAME, r"\bname\b"),
    (Slot.DAY, r"\bday\b|\bdays ahead\b"),
    (Slot.TIME, r"\btimes?\b|\btables\b|\bpassed\b"),
)


def parse_result(output: str) -> dict[str, Any]:
    """A tool's result; a text as its `message`."""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return {"message": output} if output.strip() else {}
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {"message": value} if isinstance(value, str) else {}


def error_of(result: dict[str, Any]) -> str:
    """What has failed; "" when nothing has."""
    error = result.get("error")
    return error if isinstance(error, str) else ""


def items_of(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list in a result."""
    value = result.get(name)
    items = cast("Sequence[Any]", value) if isinstance(value, list) else ()
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def confirmation_of(result: dict[str, Any]) -> str:
    names = ("confirmation", "message", "text", "result")
    return next((value for name in names if isinstance(value := result.get(name), str)), "Your table is booked.")


def explain(error: str) -> tuple[str, Slot | None]:
    """Why a booking has failed, as it can be said to the caller, and what to ask for anew; None when that cannot be told. The tool
    speaks to a language model: what it tells that one to do is left out."""
    sentences = cast("list[str]", re.findall(r"[^.!?]+(?:[.!?](?=\d)[^.!?]+)*[.!?]*", error))
    told = [one.strip() for one in sentences if not re.search(r"\bthe user\b|^\s*(?:Give|Ask|Offer|Tell)\b", one)]
    said = plain(" ".join(told))
    return " ".join(told), next((slot for slot, pattern in _FAULTS if re.search(pattern, said)), None)


# --- passages ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Found:
    """A sentence of a document, and the mark to cite it by, such as "k3"; the mark may be ""."""

    sentence: str
    mark: str


def stems(text: str) -> frozenset[str]:
    """What of a text tells it from others."""
    return frozenset(word.rstrip("s")[:STEM] for word in plain(text).split() if len(word) > 2 and word not in COMMON)


def pick(output: str, query: str) -> Found | None:
    """The sentence that has most of a query's words, in what `search_knowledge` gave; None when nothing fits."""
    result = parse_result(output)
    if "note" in result or error_of(result):
        return None
    wanted = stems(query)
    best, most = None, 0
    for passage in items_of(result, "results")[:PASSAGES]:
        text, mark = passage.get("text"), passage.get("id")
        for sentence in _sentences(text) if isinstance(text, str) else ():
            if (score := len(stems(sentence) & wanted)) > most:
                best, most = Found(sentence, mark if isinstance(mark, str) else ""), score
    return best


def _sentences(text: str) -> list[str]:
    flat = " ".join(text.translate(_NO_QUOTES).split())
    return [one for one in re.split(r"(?<=[.!?]) +", flat) if 0 < len(one) <= SENTENCE_CHARACTERS]
