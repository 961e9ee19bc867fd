"""What the engine itself says, in the user's language: one file per language.

A language is added by a file named by its code, such as `fr.yaml`, with a text for each `Sentence`. What a file lacks, and a
language without a file, is said in English.
"""

import functools
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import yaml

ENGLISH = "en"


class Sentence(StrEnum):
    """The names in the files."""

    # troubles, told to the user
    SESSION_LIMIT = "session-limit"
    PROVIDER_AUTH = "provider-auth"
    PROVIDER_QUOTA = "provider-quota"
    MODEL_NOT_FOUND = "model-not-found"
    PROVIDER_UNAVAILABLE = "provider-unavailable"
    CONNECTION_LOST = "connection-lost"
    PROVIDER_FAULT = "provider-fault"
    NO_TRANSCRIPTION = "no-transcription"
    ENDLESS_TOOLS = "endless-tools"
    TOO_MUCH_WAITS = "too-much-waits"

    # the end of a session that planning approves, told to the speaking model
    END_REQUESTED = "end-requested"
    END_APPROVED = "end-approved"
    END_SUPERSEDED = "end-superseded"
    GOODBYE_CUT = "goodbye-cut"
    END_FALLBACK = "end-fallback"

    # a relational agent's speaking model, told by its tools and by its planner
    HELP_ASKED = "help-asked"
    HANDING_OVER = "handing-over"
    SHOWN = "shown"
    SHORT_REACTION = "short-reaction"


def say(sentence: Sentence, locale: str, **values: str) -> str:
    """A sentence in the language of a locale such as "cs", "cs-CZ" or "cs_CZ", with its `{name}`s filled in."""
    language = locale.replace("_", "-").partition("-")[0].lower()
    text = _texts(language).get(sentence) or _texts(ENGLISH)[sentence]
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@functools.cache
def languages() -> frozenset[str]:
    """The codes of those that there are."""
    return frozenset(path.stem for path in Path(__file__).parent.glob("*.yaml"))


@functools.cache
def _texts(language: str) -> Mapping[str, str]:
    if language not in languages():
        return {}
    text = (Path(__file__).parent / f"{language}.yaml").read_text(encoding="utf-8")
    return {str(name): " ".join(str(value).split()) for name, value in yaml.safe_load(text).items()}
