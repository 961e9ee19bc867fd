"""Tools that are outside a session: what they are, and each call, passes its boundary, so that it can be kept and given again.

Tools that only touch the session's own state, its memory or its store are none of these: they run again.
"""

from collections.abc import Sequence
from functools import partial

import attrs

from agents.tools import FunctionToolBox, load_tool
from engine.boundary import Boundary, Outside
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolError, ToolResult, ToolSpecification, UnknownToolError
from engine.protocol.tool_arguments import is_too_deep


class ToolFailure(Exception):
    """At the boundary, whatever a tool raises that is no ToolError; the name of its class. It is the cause."""


@attrs.frozen
class OutsideToolBox(ToolBox):
    """Tools that are outside, as they were known when the box was made."""

    _specifications: Sequence[ToolSpecification]
    _box: ToolBox | None
    """None: there is nothing outside."""

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self._specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if not any(specification.name == name for specification in self._specifications):
            raise UnknownToolError(f"Tool {name} does not exist.")
        return await call_outside(self._box, name, arguments, context)


def own_tools(references: Sequence[str], boundary: Boundary) -> ToolBox:
    """The tools that a project has written for an agent. Where nothing is outside, their modules need not exist.

    Raises:
        ConfigurationError: one cannot be loaded, or two have the same name.
    """
    if not references:
        return FunctionToolBox([])
    found: list[ToolBox] = []

    def look() -> Sequence[ToolSpecification]:
        found.append(FunctionToolBox(load_tool(reference) for reference in references))
        return found[0].specifications

    specifications = boundary.know(Outside.TOOL, "own tools", look)
    return OutsideToolBox(specifications, found[0] if found else None)


async def call_outside(box: ToolBox | None, name: str, arguments: JsonObject, context: Context) -> ToolResult:
    """Call a tool of a box, which is there unless there is nothing outside.

    Raises:
        ToolError: the call failed; as the tool said it, in a class that everybody knows.
        Exception: whatever else the tool raises.
    """
    try:
        return await context.boundary.ask(Outside.TOOL, name, partial(_call, box, name, arguments, context), arguments)
    except ToolFailure as exc:
        if exc.__cause__ is None:
            raise
        raise exc.__cause__ from None


async def _call(box: ToolBox | None, name: str, arguments: JsonObject, context: Context) -> ToolResult:
    assert box is not None, "there is nothing outside"
    try:
        result = await box.call(name, arguments, context)
        if is_too_deep(result.output):
            raise ToolError(f"Tool {name} returned a result that cannot be read.")
        return result
    except ToolError as exc:
        # A project may have classes of its own for what its tools say, which nobody has who has no more than the capsule.
        kind = UnknownToolError if isinstance(exc, UnknownToolError) else ToolError
        if type(exc) is kind and exc.args == (str(exc),):
            raise
        raise kind(str(exc)) from exc
    except Exception as exc:  # as above, and of any class
        raise ToolFailure(type(exc).__name__) from exc
