"""Types of what extractors find."""

from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, StringConstraints

NAME_CHARACTERS = 60


def _lowered(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


Label = BeforeValidator(_lowered)
"""Of a word out of a given set, however it is written."""
Share = Annotated[float, Field(ge=0, le=1)]
Valence = Annotated[float, Field(ge=-1, le=1)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=NAME_CHARACTERS)]


def at_most(limit: int) -> BeforeValidator:
    """Of a list, the first items; of a text, the first characters."""

    def cut(value: object) -> object:
        return cast("str | list[object]", value)[:limit] if isinstance(value, str | list) else value

    return BeforeValidator(cut)
