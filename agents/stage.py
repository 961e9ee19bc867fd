"""What an agent shows the user, and whom it hands the user over to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import trio
from pydantic import Field

from agents.definitions import MultimodalElement
from agents.tools import tool
from engine.elements import MultimodalInteraction, MultimodalKind
from engine.interfaces import Context, ToolError, ToolResult
from engine.texts import Sentence, say

MAX_NAME = 100
MAX_REASON = 1000


def handover_tool(ref: str, names: Mapping[str, str]) -> Callable[..., Any]:
    name = names.get(ref, ref)

    async def handover(context: Context, reason: Annotated[str, Field(max_length=MAX_REASON)] = "") -> ToolResult:
        """Hand the user over to the colleague who is there for it, when that is what the user needs or asks for.

        Args:
            reason: What it is about, for the colleague.
        """
        await trio.lowlevel.checkpoint()
        interaction = MultimodalInteraction(MultimodalKind.HANDOVER, ref, {"name": name, "reason": reason})
        return ToolResult(say(Sentence.HANDING_OVER, context.locale, name=name), (interaction,))

    return tool(handover)


def display_tool(elements: Sequence[MultimodalElement]) -> Callable[..., Any]:
    by_name = {element.name: element for element in elements}
    known = "; ".join(f"{e.name}: {e.description}" if e.description else e.name for e in elements)

    async def display(name: str, context: Context) -> ToolResult:
        await trio.lowlevel.checkpoint()
        element = by_name.get(name)
        if element is None:
            raise ToolError(f"There is nothing named {name[:MAX_NAME]} to show. There is: {', '.join(by_name)}.")
        data = {"description": element.description or "", "urls": list(element.urls)}
        interaction = MultimodalInteraction(MultimodalKind.CARD, element.name, data)
        return ToolResult(say(Sentence.SHOWN, context.locale), (interaction,))

    description = f"Show the user a card on the screen, when it helps with what is being said. There is: {known}."
    return tool(description=description)(display)
