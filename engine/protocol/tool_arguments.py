"""A tool call's arguments as a model writes them (case C13)."""

import json
from typing import Any, NoReturn

from engine.elements import JsonObject
from engine.interfaces import ToolError

MAX_ARGUMENTS = 65_536
"""Characters; more is no call but a runaway model."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


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
        value: Any = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise ToolError("The arguments are not valid JSON. Call the tool again with one complete JSON object.") from exc
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolError("The arguments must be one JSON object with a value for each parameter. Call the tool again.")
    return {str(key): item for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType] - json gives str keys
