"""The planner: reads every turn, never speaks, and steers the speaking model by whispering to it (SPEC R8-R12; S0).

One task reads the planner's stream, another one injects what it says, in order: an instruction that makes the model speak waits for
the end of that response, and the stream must not. Only the reading has a time limit. A pass that runs out of time is silent: the
plan stays as it was, and the next turn plans against the older one. A barge-in cancels all of it, at any await.
"""

import logging
from functools import partial
from typing import cast

import attrs
import trio

from agents.chat_models import REASONING, FindFactory, make_chat_model, settings_of
from agents.relational.asking import PlannerCalls, think
from agents.relational.briefing import CONTEXT_HEADER, INSTRUCTION_HEADER, planning_messages
from agents.relational.plan import Instruction, PlanReading, Skipped
from agents.relational.plan_stream import Prose
from agents.relational.session_end_gate import EndPass
from agents.relational.state import MAX_REQUESTS, RelationalState, state_of
from agents.relational.toolbox import plans_end
from engine import registry
from engine.elements import InstructionType, RealtimeCommand, RealtimeInstruction
from engine.errors import RemoteError
from engine.interfaces import ChatModel, ChatRequest, Context, Emit, PlanningManager, TurnInput
from engine.memory import MemoryScope
from engine.protocol.steering import PassState, name_of_pass, tell_pass
from engine.store.contract import StoreError
from engine.texts import Sentence, say

logger = logging.getLogger(__name__)

COMPONENT = "planner"
PLANNING_SECONDS = 20.0
"""What a pass may think and look up; the turn stays open so long, and a user who speaks meanwhile cancels it."""
PERSIST_SECONDS = 2.0
"""What the store may take for the approval of an end, or for the plan."""
MAX_PASSES = 3
"""Of one turn: a further one when the model has asked something while the pass before was already under way."""
WAITING = 32
"""Pieces of the stream that wait to be injected while the speaking model speaks."""
PLAN = "plan"
"""The per-turn plan, in the session's memory; each turn appends a revision (R4)."""
APPROVAL = "session-end-approval"

Piece = Prose | Instruction | Skipped


class RelationalPlanningManager(PlanningManager):
    def __init__(self, find: FindFactory = registry.load) -> None:
        self._find = find

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        state = state_of(context)
        settings = settings_of(state.agent.llm_configuration.relational_planning, REASONING)
        chat = make_chat_model(settings, context, COMPONENT, self._find)
        for number in range(1, MAX_PASSES + 1):
            await PlanningPass(context, state, turn, emit, chat, number).run()
            if not (state.has_requests or state.end.is_asked(turn.turn_id)):
                return  # else something was asked for in the response that this pass has caused
        logger.warning(
            "turn %s was planned %d times, and there are requests again; they wait", turn.turn_id, MAX_PASSES
        )
        if state.end.is_asked(turn.turn_id):
            await PlanningPass(context, state, turn, emit, None, MAX_PASSES + 1).run()


@attrs.define(eq=False)
class PlanningPass:
    """One pass over one turn."""

    context: Context
    state: RelationalState
    turn: TurnInput
    emit: Emit
    chat: ChatModel | None
    """None: nobody thinks; a session's end that was asked for is approved all the same."""
    number: int = 1
    _reading: PlanReading = attrs.field(factory=PlanReading, init=False)
    _calls: PlannerCalls | None = attrs.field(default=None, init=False)
    _ending: EndPass = attrs.field(init=False)
    _is_read: bool = attrs.field(default=False, init=False)
    """The planner has said all it had to say, in time."""

    @property
    def id(self) -> str:
        return name_of_pass(self.turn.turn_id, self.number)

    async def run(self) -> None:
        self._ending = self.state.end.begin(self.turn.turn_id)
        try:
            if self.chat is not None:
                await self.emit(tell_pass(self.id, PassState.BEGAN))
                await self._plan(self.chat)
            if self._ending.needs_fallback:
                await self._say_goodbye()
            elif self._is_read and not self._ending.is_ending:
                await self._whisper(f"{CONTEXT_HEADER} {say(Sentence.SHORT_REACTION, self.context.locale)}")
            if self._is_read:
                await self._keep_plan()
                self._calls = None
        finally:
            self._ending.close()
            if self._calls is not None:  # stopped, or failed: what the tools have done is done all the same
                self.state.made_calls = self._calls.made[-MAX_REQUESTS:]

    async def _plan(self, chat: ChatModel) -> None:
        send, pieces = trio.open_memory_channel[Piece](WAITING)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._inject_all, pieces, name="injecting")
            with send:
                await self._read(chat, send)

    async def _read(self, chat: ChatModel, pieces: trio.MemorySendChannel[Piece]) -> None:
        """What fails here costs the rest of the planner's words; those that came are still injected."""
        with trio.move_on_after(PLANNING_SECONDS) as limit:
            try:
                await self._think(chat, pieces)
            except* RemoteError as group:
                logger.warning("planning of turn %s failed: %s", self.turn.turn_id, _first_message(group))
            except* Exception as group:
                kinds = {type(each).__name__ for each in _leaves(group)}
                logger.error("planning of turn %s failed (%s)", self.turn.turn_id, ", ".join(sorted(kinds)))
                logger.debug("planning failed", exc_info=group)
        if limit.cancelled_caught:
            logger.warning("planning of turn %s took over %g s and was stopped", self.turn.turn_id, PLANNING_SECONDS)

    async def _think(self, chat: ChatModel, pieces: trio.MemorySendChannel[Piece]) -> None:
        hints, questions = self.state.take_hints(), self.state.take_help()
        made = self.state.take_made_calls()
        messages = planning_messages(self.context, self.state, self.turn, self._ending, hints, questions, made)
        self._calls = calls = PlannerCalls(self.state.planner_tools, self.context, self.turn.turn_id, self.emit)
        request = ChatRequest(messages, locale=self.context.locale)
        await think(chat, request, calls, partial(self._take, pieces))
        for piece in self._reading.finish():
            await pieces.send(piece)
        self._is_read = True

    async def _take(self, pieces: trio.MemorySendChannel[Piece], text: str) -> None:
        for piece in self._reading.feed(text):
            await pieces.send(piece)

    async def _inject_all(self, pieces: trio.MemoryReceiveChannel[Piece]) -> None:
        with pieces:
            async for piece in pieces:
                match piece:
                    case Prose(text):
                        await self.emit(RealtimeCommand("realtime-planning", {"text": text}))
                    case Skipped(reason):
                        logger.warning("something in the plan of turn %s was skipped: %s", self.turn.turn_id, reason)
                    case Instruction(type_, text, ends_session):
                        if self._ending.is_ending:
                            continue  # the goodbye is the last thing that is said
                        ends_session = ends_session and plans_end(self.context, self.state.agent)
                        if type_ is InstructionType.SUPPORTING_CONTEXT:
                            await self._whisper(f"{CONTEXT_HEADER} {text}")
                        elif not ends_session or await self._persist_approval():
                            await self._instruct(text, ends_session=ends_session)

    # --- what reaches the speaking model

    async def _whisper(self, text: str) -> None:
        await self._inject(self._checked(text), InstructionType.SUPPORTING_CONTEXT)

    async def _instruct(self, text: str, *, ends_session: bool) -> None:
        """Have the model say something, and wait until it is said. Cancelled when the user speaks into it."""
        self._ending.answer(ends_session=ends_session)
        checked = self._checked(f"{INSTRUCTION_HEADER} {text}")
        await self._inject(checked, InstructionType.INSTRUCTION, ends_session=ends_session)

    async def _inject(self, text: str, type_: InstructionType, *, ends_session: bool = False) -> None:
        instruction_id = self.context.environment.new_id("instruction")
        await self.emit(RealtimeInstruction(text, type_, instruction_id, ends_session=ends_session, pass_id=self.id))

    async def _say_goodbye(self) -> None:
        """The pass has answered nothing, and the model waits: the engine's own goodbye, whether it can be persisted or not."""
        await self._persist_approval()
        await self._instruct(say(Sentence.END_FALLBACK, self.context.locale), ends_session=True)

    def _checked(self, text: str) -> str:
        """The text as the model reads it: with its sources, and its links known to the guard (R11)."""
        text = self.state.cite(text)
        self.state.guard.see(text)
        return text

    # --- what is kept

    async def _persist_approval(self) -> bool:
        return await self._persist(APPROVAL, {"turnId": self.turn.turn_id})

    async def _keep_plan(self) -> None:
        """Last of all, and only of a pass that has come to its end."""
        await self.emit(tell_pass(self.id, PassState.PLANNED))
        self.state.plan = self._reading.plan()  # no await between: a plan is in force when it was told, and only then
        await self._persist(PLAN, {**self.state.plan.to_json(), "turnId": self.turn.turn_id})

    async def _persist(self, name: str, body: dict[str, object]) -> bool:
        with trio.move_on_after(PERSIST_SECONDS):
            try:
                await self.context.memory.append(MemoryScope.SESSION, name, body)
            except StoreError as exc:
                logger.warning("%s of turn %s could not be stored: %s", name, self.turn.turn_id, exc)
                return False
            return True
        logger.warning("%s of turn %s could not be stored in %g s", name, self.turn.turn_id, PERSIST_SECONDS)
        return False


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for each in group.exceptions for leaf in _leaves(each)]


def _first_message(group: BaseExceptionGroup[RemoteError]) -> str:
    first = _leaves(group)[0]
    return first.message if isinstance(first, RemoteError) else ""
