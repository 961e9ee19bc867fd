"""Asking a planner's chat model, with the tools it may call. What it says is handed on while it says it."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

from engine.calling import call_tool, error_text, output_text, specification_of
from engine.elements import JsonObject, OnInterruption, ToolEvent, ToolOwner, ToolPhase
from engine.interfaces import (
    ChatFinished,
    ChatMessage,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
    Context,
    Emit,
    ToolBox,
    ToolCall,
    ToolError,
    ToolResult,
)
from engine.protocol.tool_arguments import parse_arguments
from engine.store.documents import LogKind

logger = logging.getLogger(__name__)

MAX_ROUNDS = 6
"""Requests for one pass, with what tools gave in between; in the last one there are no tools, so that it comes to an end."""
MAX_CALLS = 8
"""Calls of one request that are made; more at once is no plan."""
MAX_OUTPUT = 20_000
"""Characters of a tool's result that go into the next request."""
MAX_TOLD = 2000
"""Characters of a result that is told to the next pass, when this one was stopped."""
CUT = "… (cut)"


@attrs.frozen
class MadeCall:
    """What a call gave, cut to what a prompt may hold of it."""

    name: str
    arguments: str
    output: str


@attrs.define(eq=False)
class PlannerCalls:
    """The planner's tool handler: one per pass (L14). Every call is told to have started, and to have ended however it did."""

    box: ToolBox
    context: Context
    turn_id: str
    emit: Emit | None = None
    """None: nobody is told, as before the conversation (S0, "Initial Planning")."""
    made: list[MadeCall] = attrs.field(factory=list[MadeCall], init=False)
    """Those that have given something."""

    async def run(self, calls: Sequence[ChatToolCall]) -> list[str]:
        """Make the calls at the same time, begun in their order. Returns what the model reads of each, in their order."""
        outputs = [error_text("Too many calls at once; this one was not made.") for _ in calls]

        async def run_one(  # noqa: ASYNC128 - the status is passed on
            index: int, call: ChatToolCall, *, task_status: trio.TaskStatus[None]
        ) -> None:
            outputs[index] = await self._run(call, task_status)

        async with trio.open_nursery() as nursery:
            for index, call in enumerate(calls[:MAX_CALLS]):
                await nursery.start(run_one, index, call, name=f"planner tool {call.name}")
        return outputs

    async def _run(self, call: ChatToolCall, task_status: trio.TaskStatus[None]) -> str:
        """It has started when that was told, just before it is made."""
        call_id, began_at = self.context.environment.new_id("call"), trio.current_time()
        arguments: JsonObject = {}
        fault: ToolError | None = None
        try:
            arguments = parse_arguments(call.arguments)
        except ToolError as exc:
            fault = exc
        is_told = False
        ended: JsonObject = {"error": "The user interrupted this call."}
        try:
            await self._tell(ToolPhase.START, call_id, call.name, parameters=arguments)
            is_told = True
            task_status.started()
            if fault is not None:
                raise fault
            result = await self._call(call.name, arguments)
            output = output_text(call.name, result.output)
            ended = {"result": result.output}
            self.made.append(MadeCall(call.name, call.arguments[:MAX_TOLD], output[:MAX_TOLD]))
            await trio.lowlevel.checkpoint_if_cancelled()
            if self.emit is not None:
                for interaction in result.interactions:
                    await self.emit(interaction)
            return output if len(output) <= MAX_OUTPUT else output[:MAX_OUTPUT] + CUT
        except ToolError as exc:
            ended = {"error": str(exc)}
            return error_text(str(exc))
        finally:
            content = {"name": call.name, "arguments": call.arguments, **ended}
            seconds = trio.current_time() - began_at
            self.context.log.record(LogKind.TOOL, content, component="planner", turn_id=self.turn_id, seconds=seconds)
            if is_told:
                with trio.CancelScope(shield=True):  # nothing in it waits for anybody
                    phase = ToolPhase.ERROR if "error" in ended else ToolPhase.SUCCESS
                    await self._tell(phase, call_id, call.name, **ended)

    async def _call(self, name: str, arguments: JsonObject) -> ToolResult:
        """One that may not be stopped finishes, and the next turn waits for it; what it gave is the next pass's to know."""
        specification = specification_of(self.box, name)
        seconds = (specification.timeout_seconds if specification else None) or self.context.settings.tool_seconds
        may_be_stopped = specification is None or specification.on_interruption is OnInterruption.CANCEL
        with trio.CancelScope() as scope:  # nobody cancels it, so it is always left with a result
            scope.shield = not may_be_stopped
            return await call_tool(self.box, name, arguments, self.context, seconds)
        raise AssertionError("the scope was cancelled")

    async def _tell(self, phase: ToolPhase, call_id: str, name: str, **fields: Any) -> None:
        if self.emit is not None:
            policy = OnInterruption.CANCEL
            await self.emit(ToolEvent(phase, call_id, name, ToolOwner.PLANNER, on_interruption=policy, **fields))


async def think(
    chat: ChatModel, request: ChatRequest, calls: PlannerCalls, take: Callable[[str], Awaitable[None]]
) -> None:
    """Ask until the model calls no tool any more; `take` gets its words as they come.

    Raises:
        RealtimeException: the chat model failed.
    """
    messages = list(request.messages)
    for round_number in range(1, MAX_ROUNDS + 1):
        tools = tuple(calls.box.specifications) if round_number < MAX_ROUNDS else ()
        words: list[str] = []
        wanted: list[ChatToolCall] = []
        async with chat.open_stream(attrs.evolve(request, messages=tuple(messages), tools=tools)) as deltas:
            async for delta in deltas:
                match delta:
                    case ChatText(text):
                        words.append(text)
                        await take(text)
                    case ChatToolCall():
                        wanted.append(delta)
                    case ChatFinished(complete):
                        if not complete:
                            logger.warning("a planner's output was cut by its model")
                    case _:
                        pass
        if not wanted:
            return
        outputs = await calls.run(wanted)
        made = tuple(ToolCall(call.call_id, call.name, call.arguments, "") for call in wanted)
        messages.append(ChatMessage("assistant", "".join(words), tool_calls=made))
        messages += [
            ChatMessage("tool", output, tool_call_id=call.call_id) for call, output in zip(made, outputs, strict=True)
        ]
