"""Calling a tool: whatever it does, what comes is its result or a sentence that the model may be told."""

import json
import logging
from typing import Any

import trio

from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolError, ToolResult, ToolSpecification
from engine.protocol.tool_arguments import is_too_deep

logger = logging.getLogger(__name__)


def specification_of(box: ToolBox, name: str) -> ToolSpecification | None:
    return next((specification for specification in box.specifications if specification.name == name), None)


async def call_tool(box: ToolBox, name: str, arguments: JsonObject, context: Context, seconds: float) -> ToolResult:
    """Call a tool within `seconds`.

    Raises:
        ToolError: it failed, in whatever way. The text goes to the model and holds no details that the tool did not choose.
    """
    with trio.move_on_after(seconds):
        try:
            return await box.call(name, arguments, context)
        except ToolError:
            raise
        except Exception as exc:  # its text may quote what was said
            logger.error("tool %s failed: %s", name, type(exc).__name__)
            logger.debug("tool %s failed", name, exc_info=exc)
            raise ToolError(f"Tool {name} failed.") from exc
    raise ToolError(f"Tool {name} did not answer in {seconds:g} seconds.")


def output_text(name: str, output: Any) -> str:
    """What the model reads of a result: a text as it is, anything else as JSON.

    Raises:
        ToolError: it is not JSON, or none that could be sent and stored.
    """
    try:
        if is_too_deep(output):
            raise ValueError("nested too deeply")
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as exc:
        logger.error("tool %s returned what is not JSON", name)
        raise ToolError(f"Tool {name} returned a result that cannot be read.") from exc
    return text


def error_text(error: str) -> str:
    return json.dumps({"error": error}, ensure_ascii=False)
