"""`finish_session`: the speaking model ends the conversation itself. For agents without a planner (S0, basic agents)."""

from collections.abc import Sequence

from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolResult, ToolSpecification, UnknownToolError

FINISH_SESSION = "finish_session"

SPECIFICATION = ToolSpecification(
    FINISH_SESSION,
    "Ends the conversation. Say goodbye first, in the same answer, then call this. Call it only when the user wants to stop or "
    "everything is done; never because the user is silent, hesitates or says no to one question.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)

RESULT = (
    "The conversation ends now. If you have said goodbye, say nothing more; if not, say it now in one short sentence."
)


class FinishToolBox(ToolBox):
    """Has one tool. It takes whatever arguments come: nothing about a goodbye is worth a second try."""

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return (SPECIFICATION,)

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if name != FINISH_SESSION:
            raise UnknownToolError(f"Tool {name} does not exist.")
        return ToolResult(output=RESULT, ends_session=True)
