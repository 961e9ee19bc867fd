"""What the speaking model may call (SPEC R7, R8): what it needs to act at once. Everything heavier is the planner's.

A model that tries one of the planner's tools all the same is told that results will come, and the planner is told of the attempt:
it makes the call itself and whispers the outcome, one planning round later. `request_help` is the open way to the same end.
"""

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import trio
from pydantic import Field

from agents.definitions import RelationalAgent
from agents.finish import FINISH_SESSION, SPECIFICATION, FinishToolBox
from agents.relational.state import MAX_QUESTION, RelationalState
from agents.stage import display_tool, handover_tool
from agents.tools import CombinedToolBox, FunctionToolBox, tool
from engine.calling import specification_of
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolResult, ToolSpecification, UnknownToolError
from engine.texts import Sentence, say

RESULTS_SOON = "Tool {name} will return results in a few seconds."
"""The exact sentence of S0."""
MAX_NAME = 100


def speaker_tools(context: Context, state: RelationalState) -> ToolBox:
    """The tool box of the speaking model.

    Raises:
        ConfigurationError: two tools have the same name.
    """
    agent = state.agent
    boxes: list[ToolBox] = []
    if may_finish(context, agent):
        boxes.append(PlannedFinishToolBox(state) if plans_end(context, agent) else FinishToolBox())
    functions: list[Callable[..., Any]] = [_request_help(state)]
    if agent.handover is not None:
        functions.append(handover_tool(agent.handover, state.shared_agents))
    if agent.multimodal:
        functions.append(display_tool(agent.multimodal))
    boxes.append(FunctionToolBox(functions))
    return RelationalToolBox(CombinedToolBox(boxes), state)


def may_finish(context: Context, agent: RelationalAgent) -> bool:
    """Whether the model has `finish_session`: not without tools of its own or without turns, nor when the agent never ends."""
    properties = context.properties
    return agent.session_end_support and properties.has_tool_support and not properties.is_turnless


def plans_end(context: Context, agent: RelationalAgent) -> bool:
    """Whether the end needs planning's approval. Derived, never a setting (S0)."""
    return may_finish(context, agent) and context.properties.waits_for_planning


class PlannedFinishToolBox(ToolBox):
    """`finish_session` where planning decides: the call only asks."""

    def __init__(self, state: RelationalState) -> None:
        self._gate = state.end

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return (SPECIFICATION,)

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if name != FINISH_SESSION:
            raise UnknownToolError(f"Tool {name} does not exist.")
        if self._gate.ask(context.turn_id):
            return ToolResult(say(Sentence.END_APPROVED, context.locale), ends_session=True)
        return ToolResult(say(Sentence.END_REQUESTED, context.locale), requests_end=True)


class RelationalToolBox(ToolBox):
    """Passes specifications on unchanged; knows what to say of a tool that is the planner's."""

    def __init__(self, box: ToolBox, state: RelationalState) -> None:
        self._box = box
        self._state = state

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self._box.specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        try:
            return await self._box.call(name, arguments, context)
        except UnknownToolError:
            parameters = json.dumps(arguments, ensure_ascii=False, default=str)
            self._state.note_attempt(name[:MAX_NAME], parameters, context.turn_id)
            if specification_of(self._state.planner_tools, name) is None:
                raise
            return ToolResult(RESULTS_SOON.format(name=name))


def _request_help(state: RelationalState) -> Callable[..., Any]:
    async def request_help(
        question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)], context: Context
    ) -> str:
        """Ask for what you do not know: a fact, a number, an exact wording, a threshold, a lookup, the outcome of something done
        elsewhere. The answer comes a little later by itself. Never guess instead, and use no other tool for it.

        Args:
            question: One concrete question that can be understood without this conversation.
        """
        await trio.lowlevel.checkpoint()
        state.ask_for_help(question, context.turn_id)
        return say(Sentence.HELP_ASKED, context.locale)

    return tool(request_help)
