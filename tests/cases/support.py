"""What the cases share: a tool box made of plain async functions."""

from collections.abc import Awaitable, Callable, Sequence

import attrs

from engine.elements import JsonObject, OnInterruption
from engine.interfaces import Context, ToolBox, ToolResult, ToolSpecification, UnknownToolError

Tool = Callable[[JsonObject], Awaitable[object]]


@attrs.define(eq=False)
class Tools(ToolBox):
    """Each tool takes the arguments and returns its output. `calls` tells which ran."""

    tools: dict[str, Tool]
    timeout_seconds: float | None = None
    on_interruption: OnInterruption = OnInterruption.CANCEL
    calls: list[tuple[str, JsonObject]] = attrs.field(factory=list[tuple[str, JsonObject]], init=False)

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [
            ToolSpecification(name, f"The tool {name}.", {"type": "object"}, self.timeout_seconds, self.on_interruption)
            for name in self.tools
        ]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if name not in self.tools:
            raise UnknownToolError(f"Tool {name} does not exist.")
        self.calls.append((name, arguments))
        return ToolResult(await self.tools[name](arguments))
