"""A tool call's arguments as a model writes them (case C13)."""

from typing import Any, cast

import orjson

from engine.elements import JsonObject
from engine.interfaces import ToolError

MAX_ARGUMENTS = 65_536
"""Characters; more is no call but a runaway model."""
MAX_DEPTH = 100
"""Levels of a value that is sent and stored; JSON writers stop at about 250."""


def parse_arguments(text: str) -> JsonObject:
    """The arguments as an object. Nothing and `null` mean no arguments.

    Raises:
        ToolError: in words the model can act on.
    """
    if len(text) > MAX_ARGUMENTS:
        raise ToolError(f"The arguments are longer than {MAX_ARGUMENTS} characters.")
    if not text.strip():
        return {}
    try:
        value: Any = orjson.loads(text)  # strict: no NaN, no infinity however written, no half of a character
    except ValueError as exc:
        raise ToolError("The arguments are not valid JSON. Call the tool again with one complete JSON object.") from exc
    if value is None:
        return {}
    if is_too_deep(value):
        raise ToolError("The arguments are nested too deeply.")
    if not isinstance(value, dict):
        raise ToolError("The arguments must be one JSON object with a value for each parameter. Call the tool again.")
    return {str(key): item for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType] - json gives str keys


def is_too_deep(value: object, levels: int = MAX_DEPTH) -> bool:
    """Whether a value's lists and objects are nested in more than so many levels."""
    if isinstance(value, dict):
        inner = list(cast("dict[object, object]", value).values())
    elif isinstance(value, list | tuple):
        inner = list(cast("list[object]", value))
    else:
        return False
    return levels == 0 or any(is_too_deep(item, levels - 1) for item in inner)
