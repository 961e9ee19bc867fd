"""Running the tools of a session's model: each call settles exactly once (DESIGN section 3, law 6; SPEC L14).

A call runs in a task of the session's nursery, never in the model's, so that a barge-in can stop the model without losing the
call. How it ended is told to the client as an event, and to the model as an input of its session.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import attrs
import trio

from engine.boundary import Note
from engine.calling import call_tool, error_text, output_text, specification_of
from engine.elements import (
    JsonObject,
    MultimodalInteraction,
    OnInterruption,
    ToolEvent,
    ToolOwner,
    ToolPhase,
)
from engine.interfaces import (
    Context,
    SessionInput,
    ToolBox,
    ToolCall,
    ToolError,
    ToolResult,
    ToolSettled,
)
from engine.observation import Outcome, Span, SpanKind
from engine.protocol.tool_arguments import parse_arguments
from engine.store.documents import LogKind

logger = logging.getLogger(__name__)

REMEMBERED_CALLS = 1024
"""Call ids kept, so that a call that is delivered twice runs once."""


@attrs.define(eq=False)
class _Running:
    call: ToolCall
    policy: OnInterruption
    scope: trio.CancelScope
    span: Span
    began_at: float
    is_settled: bool = False
    is_late: bool = False


@attrs.define(eq=False)
class ToolRunner:
    """The calls of one session's model."""

    box: ToolBox
    context: Context
    nursery: trio.Nursery
    results: trio.MemorySendChannel[SessionInput]
    tell: Callable[[ToolEvent | MultimodalInteraction], None]
    """Gives an element to the turns."""
    is_dead: Callable[[str], bool]
    """Whether a response has ended: a call in its name comes too late."""
    default_timeout: float
    """Seconds, for tools that declare none."""
    _running: dict[str, _Running] = attrs.field(factory=dict[str, _Running], init=False)
    _seen: OrderedDict[str, None] = attrs.field(factory=OrderedDict[str, None], init=False)

    def start(self, call: ToolCall) -> None:
        """Start a call and return at once; see `engine.interfaces.StartTool`."""
        if call.call_id in self._seen:
            logger.warning("the model repeated the tool call %s, which runs once", call.call_id)
            return
        self._seen[call.call_id] = None
        if len(self._seen) > REMEMBERED_CALLS:
            self._seen.popitem(last=False)
        if self.is_dead(call.response_id):
            self._deliver(_settled(call, error_text("The user interrupted."), is_error=True, interrupted=True))
            return
        specification = specification_of(self.box, call.name)
        policy = specification.on_interruption if specification else OnInterruption.CANCEL
        context, now = self.context, trio.current_time()
        span = Span(SpanKind.TOOL, call.call_id, call.name, context.session.id, context.turn_id)
        running = _Running(call, policy, trio.CancelScope(), span, now)
        self._running[call.call_id] = running
        context.observer.began(span, now)
        arguments: JsonObject = {}
        fault = ""
        try:
            arguments = parse_arguments(call.arguments)
        except ToolError as exc:
            fault = str(exc)
        self._tell(running, ToolPhase.START, parameters=arguments)
        if fault:
            self._fail(running, fault)
            return
        seconds = (specification.timeout_seconds if specification else None) or self.default_timeout
        self.nursery.start_soon(self._run, running, arguments, seconds, name=f"tool {call.name}")

    def interrupt(self) -> None:
        """A barge-in: stop the calls that are to be cancelled, mark those that go on."""
        for running in list(self._running.values()):
            if running.policy is OnInterruption.CANCEL:
                self._fail(running, "The user interrupted this call.", interrupted=True)
                self._cancel(running, "barge-in")
            elif running.policy is OnInterruption.CONTINUE:
                running.is_late = True

    def stop(self) -> None:
        """The session is ending: settle what still runs."""
        for running in list(self._running.values()):
            self._fail(running, "The session ended before this call did.", interrupted=True)
            self._cancel(running, "session end")

    def _cancel(self, running: _Running, reason: str) -> None:
        cancelled = {"scope": f"tool {running.call.name}", "reason": reason, "turn_id": running.span.turn_id}
        self.context.boundary.note(Note.CANCELLED, cancelled)
        running.scope.cancel(reason=reason)

    async def _run(self, running: _Running, arguments: JsonObject, seconds: float) -> None:
        call = running.call
        with running.scope:
            await trio.lowlevel.checkpoint_if_cancelled()  # a call that was stopped before it began does nothing
            try:
                result = await call_tool(self.box, call.name, arguments, self.context, seconds)
                self._succeed(running, result, output_text(call.name, result.output))
            except ToolError as exc:
                self._fail(running, str(exc))
        self._fail(running, "The call was stopped.")  # nothing happens when it has settled

    def _succeed(self, running: _Running, result: ToolResult, output: str) -> None:
        if not self._settle(running):
            return
        for interaction in result.interactions:
            self.tell(interaction)
        self._tell(running, ToolPhase.SUCCESS, result=result.output)
        self._log(running, Outcome.OK, {"result": result.output})
        self._deliver(_settled(running.call, output, late=running.is_late, result=result))

    def _fail(self, running: _Running, error: str, *, interrupted: bool = False) -> None:
        if not self._settle(running):
            return
        self._tell(running, ToolPhase.ERROR, error=error)
        self._log(running, Outcome.CANCELLED if interrupted else Outcome.FAILED, {"error": error})
        settled = _settled(
            running.call, error_text(error), is_error=True, interrupted=interrupted, late=running.is_late
        )
        self._deliver(settled)

    def _log(self, running: _Running, outcome: Outcome, result: JsonObject) -> None:
        """Tell the observer, and write the call with its result into the LLM log (L22)."""
        call, now = running.call, trio.current_time()
        self.context.observer.ended(running.span, now, outcome)
        content = {"name": call.name, "arguments": call.arguments, **result}
        seconds = now - running.began_at
        turn_id = running.span.turn_id
        self.context.log.record(LogKind.TOOL, content, component="speaker", turn_id=turn_id, seconds=seconds)

    def _settle(self, running: _Running) -> bool:
        """False when the call has settled already."""
        if running.is_settled:
            return False
        running.is_settled = True
        self._running.pop(running.call.call_id, None)
        return True

    def _tell(self, running: _Running, phase: ToolPhase, **fields: Any) -> None:
        call = running.call
        self.tell(
            ToolEvent(
                phase,
                call.call_id,
                call.name,
                ToolOwner.MODEL,
                call.response_id,
                on_interruption=running.policy,
                **fields,
            )
        )

    def _deliver(self, settled: ToolSettled) -> None:
        try:
            self.results.send_nowait(settled)
        except trio.WouldBlock:
            self.nursery.start_soon(self._send, settled, name=f"result of {settled.name}")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.debug("the model has gone before the result of %s", settled.name)

    async def _send(self, settled: ToolSettled) -> None:
        try:
            await self.results.send(settled)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.debug("the model has gone before the result of %s", settled.name)


def _settled(
    call: ToolCall,
    output: str,
    *,
    is_error: bool = False,
    interrupted: bool = False,
    late: bool = False,
    result: ToolResult | None = None,
) -> ToolSettled:
    return ToolSettled(
        call.call_id,
        call.name,
        call.response_id,
        output,
        is_error=is_error,
        interrupted=interrupted,
        late=late,
        ends_session=result is not None and result.ends_session,
        requests_end=result is not None and result.requests_end,
    )
