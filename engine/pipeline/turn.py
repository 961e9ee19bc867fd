"""The turns of a session at work: what the machine says is done here (SPEC L11-L15).

One task receives the model's elements and steps the `TurnMachine`; each turn's back-end work (extraction and planning) runs in
a cancel scope of its own, which is what a barge-in cancels. Every step is synchronous: nothing here waits for the client, the
model or the store, so a barge-in is acted on the moment it is known (DESIGN section 3, laws 2 and 3).
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta

import attrs
import trio

from engine.boundary import Note
from engine.config import Settings
from engine.elements import (
    AnswerAgain,
    Interrupted,
    OutCommand,
    OutError,
    OutSpeech,
    Partial,
    RealtimeCommand,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Text,
    Token,
    ToolEvent,
    ToolPhase,
    Transcript,
)
from engine.errors import ErrorCode, Whose
from engine.interfaces import (
    Context,
    Emit,
    PlanningElement,
    RealtimeSession,
    SessionInput,
    TextGuard,
    ToolCall,
    TurnInput,
    TurnInteractionManager,
)
from engine.observation import Happening, Outcome, Span, SpanKind
from engine.outside import note_told
from engine.pipeline.driver import ConversationDriver, FromModel, model_has_ended
from engine.pipeline.line import ClientLine
from engine.pipeline.ordered_writer import TurnWriter
from engine.pipeline.tools import ToolRunner
from engine.protocol.memory import ConversationMemory
from engine.protocol.output import to_output
from engine.protocol.speech import SpeechShaper
from engine.protocol.steering import PLANNING_PASS, SteeringTotals, name_of_pass
from engine.protocol.turn import (
    AmendTurn,
    AskAgain,
    CancelLegs,
    CloseTurn,
    CutSpeech,
    Do,
    EndSession,
    InterruptTools,
    Legs,
    ResponseOver,
    ResponseRecord,
    Send,
    StartLegs,
    Turn,
)
from engine.protocol.turn_record import turn_document
from engine.protocol.turns import TurnMachine
from engine.protocol.usage import ActivityMeter
from engine.store.documents import LogKind, TurnDocument

logger = logging.getLogger(__name__)

TURN_END_QUEUE = 8
"""turn_end hooks waiting; they are quick, and one that is not is cut by its time limit."""
STEERED_TURNS = 32
"""Turns with whispers that are remembered: what became of a whisper is known a turn or two later."""
STEERING = frozenset({"realtime-planning", PLANNING_PASS})
"""Commands of planning that are withheld with its whispers."""
PLANNING = "planning"


@attrs.define(eq=False)
class _Waiter:
    """An instruction that waits for the model's next response to end."""

    active_before: str
    """The response that was under way when the instruction was given: its end is not the one."""
    over: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class TurnPipeline(ConversationDriver):
    """Drives one session's turns; see `ConversationDriver`."""

    context: Context
    settings: Settings
    manager: TurnInteractionManager
    session: RealtimeSession
    machine: TurnMachine
    memory: ConversationMemory
    line: ClientLine
    writer: TurnWriter
    model_inputs: trio.MemorySendChannel[SessionInput]
    meter: ActivityMeter
    shows_steering: bool = True
    tools: ToolRunner | None = attrs.field(default=None, init=False)
    """Set when the session's nursery is open."""
    end_reason: str = attrs.field(default="", init=False)
    """Why the session has to end; empty while it goes on."""
    turn_count: int = 0
    _speech: SpeechShaper = attrs.field(init=False)
    _working: trio.Nursery | None = attrs.field(default=None, init=False)
    _closing: trio.Nursery | None = attrs.field(default=None, init=False)
    """Of what may finish when the work is over. Both None once the session is ending: `abandon` closes what is open."""
    _quiet: trio.CancelScope | None = attrs.field(default=None, init=False)
    _legs: dict[str, trio.CancelScope] = attrs.field(factory=dict[str, trio.CancelScope], init=False)
    _waiters: list[_Waiter] = attrs.field(factory=list[_Waiter], init=False)
    _indexes: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    _steered: OrderedDict[str, Turn] = attrs.field(factory=OrderedDict[str, Turn], init=False)
    """The last turns with whispers, by id."""
    _outdated: set[str] = attrs.field(factory=set[str], init=False)
    """Those that are stored without what became of their whispers; they are written with the next turn that is."""
    _begun: set[str] = attrs.field(factory=set[str], init=False)
    """Turns whose beginning the observer was told, and not their end."""
    _shed: str = attrs.field(default="", init=False)
    _goodbye: str | None = attrs.field(default=None, init=False)
    _goodbye_latest: float | None = attrs.field(default=None, init=False)
    _turn_ends: trio.MemorySendChannel[Turn] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        configuration = self.context.configuration
        self._speech = SpeechShaper(configuration.output_sample_rate, self.settings.speech_frame_ms)
        self.context.turn_id = self.machine.front.id

    # --- the task

    async def run(self, elements: trio.MemoryReceiveChannel[FromModel]) -> None:
        """Work through the model's elements until the session has to end or nothing is open any more. Then planning stops at
        once; a save or a turn_end hook under way may finish."""
        turn_ends, turns_ended = trio.open_memory_channel[Turn](TURN_END_QUEUE)
        async with trio.open_nursery() as closing:
            closing.start_soon(self._run_turn_ends, turns_ended, name="turn ends")
            async with trio.open_nursery() as working:
                self._working, self._closing, self._turn_ends = working, closing, turn_ends
                try:
                    with turn_ends:
                        await self._work(elements)
                finally:
                    self._working = self._closing = None
                working.cancel_scope.cancel(reason="the session ends")
            closing.cancel_scope.deadline = trio.current_time() + self.settings.turn_end_seconds

    async def _work(self, elements: trio.MemoryReceiveChannel[FromModel]) -> None:
        """An idle response ends by the deadline of the scope around the wait (M7).

        One scope serves many elements, as making one costs as much as handling an element. So its deadline is brought forward
        when it has to be and otherwise left behind: when it comes it may turn out that nothing is due yet.
        """
        while not self.is_finished:
            with trio.CancelScope() as self._quiet:
                self._schedule()
                await self._take_elements(elements)
            self._quiet = None
            if not self.is_finished:
                self._apply(self.machine.tick(trio.current_time()))

    async def _take_elements(self, elements: trio.MemoryReceiveChannel[FromModel]) -> None:
        try:
            while True:
                self.receive_from_model(await elements.receive())
        except trio.EndOfChannel:
            if not self.is_finished:
                raise model_has_ended(self.context) from None

    def _schedule(self) -> None:
        """Write the next deadline onto the scope of the wait, or end the wait when there is nothing to wait for."""
        if self._quiet is None:
            return
        if self.is_finished:
            self._quiet.cancel(reason="the session's output is complete")
            return
        deadlines = (self.machine.deadline, self._goodbye_over())
        for deadline in deadlines:
            if deadline is not None and deadline < self._quiet.deadline:
                self._quiet.deadline = deadline

    @property
    def is_finished(self) -> bool:
        """Whether the output is complete: the session has to end, or its input has and nothing is open or owed."""
        if self.end_reason:
            return True
        if self.machine.is_over:
            over = self._goodbye_over()
            is_heard = over is not None and over <= trio.current_time() and not self.machine.turn.is_closing
            if is_heard or self.machine.input_has_ended:
                self.end_reason = "the agent ended the session"
                return True
            return False
        return self.machine.is_done

    def _goodbye_over(self) -> float | None:
        """When the goodbye will have been heard: by report or by its length, and 5 s after its length at the latest."""
        if not self.machine.is_over:
            return None
        now = trio.current_time()
        if self._goodbye is None or self._goodbye_latest is None:
            return now
        return min(self.line.hearing.plays_until(self._goodbye, now), self._goodbye_latest)

    # --- what the session's other tasks call

    def receive_from_model(self, element: FromModel) -> None:
        """An element of the model's session. Its own interim also tells it what was heard of what it cut."""
        if isinstance(element, ToolCall):
            self.start_tool(element)
            return
        if isinstance(element, Transcript) and element.is_interim:
            interruption = self._interrupt(self.machine.receive, element)
            if interruption.response_id is not None:
                self._to_model(interruption)
            return
        self.receive(element)

    def receive(self, element: RealtimeElement) -> None:
        now = trio.current_time()
        self.meter.activity(now)
        if self.context.guard is None:
            self._apply(self.machine.receive(element, now))
            return
        for passed in self._guarded(element, self.context.guard):
            self._apply(self.machine.receive(passed, now))

    def _guarded(self, element: RealtimeElement, guard: TextGuard) -> list[RealtimeElement]:
        """What may be shown of the model's words by now; the guard is told what it has to know (R15)."""
        match element:
            case Transcript(text, is_interim=False):
                guard.see(text)
            case ToolEvent(phase=ToolPhase.SUCCESS, result=result):
                guard.see(json.dumps(result, ensure_ascii=False, default=str))
            case _ if self.session.guards_text:
                pass
            case Token(text, response_id):
                text = guard.feed(response_id, text)
                return [attrs.evolve(element, text=text)] if text else []
            case Text(text, response_id):
                text = guard.feed(response_id, text) + guard.finish(response_id)
                return [attrs.evolve(element, text=text)] if text else []
            case ResponseEnd(response_id):
                rest = guard.finish(response_id)
                return [Token(rest, response_id), element] if rest else [element]
            case _:
                pass
        return [element]

    def interrupt(self, interim: Transcript) -> Interrupted:
        """The user begins to speak or has typed. Acts at once; returns what the model has to be told (law 5)."""
        return self._interrupt(self.machine.interrupt, interim)

    def _interrupt(self, take: Callable[[Transcript, float], list[Do]], interim: Transcript) -> Interrupted:
        now = trio.current_time()
        self.meter.activity(now)
        hearing = self.line.hearing
        playing = hearing.playing(now)
        cut = self._apply(take(interim, now))
        if not cut:
            return Interrupted()
        self.context.observer.happened(Happening.BARGE_IN, self.context.session.id)
        heard = playing if playing in cut else cut[-1]  # of the others nothing was heard yet
        heard_text, heard_ms = hearing.heard_text(heard, now), round(hearing.heard_ms(heard, now))
        return Interrupted(self.machine.name_at_model(heard), heard_text, heard_ms)

    def expect_answer(self, text: str, provider: str) -> None:
        self.machine.expect_answer(text, provider, trio.current_time())

    def input_ended(self) -> None:
        self._apply(self.machine.input_ended(trio.current_time()))

    def recognition_over(self, *, by_engine: bool) -> None:
        self._apply(self.machine.recognition_over(trio.current_time(), by_engine=by_engine))

    def playback(self, response_id: str, played_ms: int) -> None:
        """The client says how much of a response it has played."""
        self.line.hearing.playback(response_id, played_ms, trio.current_time())
        self._schedule()

    def is_dead(self, response_id: str) -> bool:
        return self.machine.is_dead(response_id)

    def end(self, reason: str) -> None:
        """End the session now, whatever is open."""
        self.end_reason = self.end_reason or reason
        self._schedule()

    @property
    def steering(self) -> SteeringTotals:
        return self.machine.steering.totals

    @property
    def user_active_at(self) -> float:
        """The user's last sign: a word, a sound, a typed line."""
        return self.machine.user_active_at

    def speaks_until(self, now: float) -> float:
        spoken_until = self.line.hearing.spoken_until(now)
        owed_until = now + 1.0 if self.machine.owes_speech else self.machine.model_active_at
        return owed_until if spoken_until is None else max(spoken_until, owed_until)

    async def steer(self, instruction: RealtimeInstruction) -> None:
        """Inject an instruction that belongs to the session rather than to a planning pass; the client is not shown it."""
        turn = self.machine.turn
        self._log_instruction(instruction, turn.id, "turn_end")
        self.memory.put_instruction(instruction.text, turn.id)
        if not instruction.type.is_contextual:
            self._apply(self.machine.speech_asked(turn, trio.current_time()))
        note_told(self.context, instruction)
        await self.session.instruct(instruction)

    # --- doing what the machine says

    def _apply(self, todo: list[Do]) -> list[str]:
        """Do it, in order. Returns the responses that were cut."""
        cut: list[str] = []
        for do in todo:
            match do:
                case Send(element, turn_id):
                    self._emit(element, turn_id)
                case CutSpeech(response_id, turn_id):
                    cut.append(response_id)
                    self._speech.drop(response_id)
                    self.line.cut_response(response_id, turn_id)
                case InterruptTools():
                    if self.tools is not None:
                        self.tools.interrupt()
                case StartLegs(turn):
                    self.memory.put_turn(turn)
                    if self._working is not None:
                        # The scope is there before the task has begun: a barge-in may come in the same step.
                        scope = self._legs[turn.id] = trio.CancelScope()
                        self._working.start_soon(self._run_legs, turn, scope, name=f"{turn.id} legs")
                case CancelLegs(turn, reason):
                    if turn.id in self._legs:
                        cancelled = {"scope": "legs", "reason": reason, "turn_id": turn.id}
                        self.context.boundary.note(Note.CANCELLED, cancelled)
                        self._legs[turn.id].cancel(reason=reason)
                case ResponseOver(record, turn):
                    self._response_over(record, turn)
                case CloseTurn(turn):
                    if self._closing is not None:
                        self._closing.start_soon(self._close, turn, name=f"{turn.id} close")
                case AmendTurn(turn):
                    self._amend(turn)
                case AskAgain(text):
                    self._to_model(AnswerAgain(text))
                case EndSession(goodbye):
                    self._end_after(goodbye)
        if self.machine.steering.changed:
            self._note_outcomes()
        turn = self.machine.front
        self.context.turn_id = turn.id
        if turn.started_at is not None and turn.id not in self._begun:
            self._begun.add(turn.id)
            self.context.observer.began(self._span(turn), turn.started_at)
        self._schedule()
        return cut

    def _note_outcomes(self) -> None:
        """What became of whispers, for the client and for the store. The turn named is the one it happened in: that of the whisper
        may be over. When the session ends, `session-end` says enough."""
        steering = self.machine.steering
        for whisper in steering.take_changes():
            self._outdated.add(whisper.turn_id)
            if self.shows_steering and not steering.is_over:
                turn_id = self.machine.turn.id
                parameters = {
                    "turnId": turn_id,
                    "instructionId": whisper.instruction.id,
                    "outcome": whisper.outcome.value,
                    "responseId": whisper.response_id,
                }
                self.line.put_output(OutCommand("realtime-instruction-outcome", parameters, turn_id))

    def _restate(self) -> None:
        """Write the turns again of whose whispers more is known by now than when they were stored."""
        for turn_id in sorted(
            self._outdated & self._indexes.keys() & self._steered.keys(), key=self._indexes.__getitem__
        ):
            self.writer.put(self._document(self._steered[turn_id]))
        self._outdated.clear()

    def _span(self, turn: Turn) -> Span:
        return Span(SpanKind.TURN, turn.id, "turn", self.context.session.id, turn.id)

    def _to_model(self, item: SessionInput) -> None:
        try:
            self.model_inputs.send_nowait(item)
        except trio.WouldBlock:
            if self._working is not None:
                self._working.start_soon(self._send_to_model, item, name="to the model")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.debug("the model has gone; %s was not sent", type(item).__name__)

    async def _send_to_model(self, item: SessionInput) -> None:
        try:
            await self.model_inputs.send(item)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            logger.debug("the model has gone; %s was not sent", type(item).__name__)

    def _end_after(self, goodbye: str | None) -> None:
        now = trio.current_time()
        self._goodbye = goodbye
        if goodbye is not None:
            length_over = self.line.hearing.plays_until(goodbye, now)
            self._goodbye_latest = length_over + self.settings.goodbye_extra_seconds
        else:
            self._goodbye_latest = None

    # --- to the client

    def _emit(self, element: RealtimeElement, turn_id: str) -> None:
        configuration = self.context.configuration
        match element:
            case SpeechItem():
                if not configuration.text_only:
                    self._emit_speech(element, turn_id)
            case Token() if not configuration.tokens:
                pass
            case Partial() if not configuration.partials:
                pass
            case RealtimeInstruction() if not self.shows_steering:
                pass
            case RealtimeCommand(name=name) if name in STEERING and not self.shows_steering:
                pass
            case ResponseEnd():
                self._emit_end(element, turn_id)
            case _:
                self.line.put_output(to_output(element, turn_id))

    def _emit_speech(self, item: SpeechItem, turn_id: str) -> None:
        visemes, weights, text = item.visemes, item.blend_shape_weights, item.text
        for frame in self._speech.feed(item.data, item.sample_rate, item.response_id):
            self._put_speech(
                OutSpeech(
                    frame,
                    self.context.configuration.output_sample_rate,
                    turn_id,
                    item.response_id,
                    visemes=visemes,
                    blend_shape_weights=weights,
                    text=text,
                )
            )
            visemes, weights, text = (), (), ""
        if text:  # there is no sound in it, or none yet
            self.line.hearing.speech_queued(item.response_id, 0.0, text)

    def _emit_end(self, end: ResponseEnd, turn_id: str) -> None:
        """The last of a completed response's speech is marked as such; any other response's run is closed as cut."""
        if end.status is ResponseStatus.IDLE:
            seconds = self.settings.idle_response_end_seconds
            logger.warning("response %s was silent for %g s and was ended", end.response_id, seconds)
            self.context.observer.happened(Happening.IDLE_RESPONSE_END, self.context.session.id)
        if self.line.hearing.has_speech(end.response_id):
            rate = self.context.configuration.output_sample_rate
            if end.status is ResponseStatus.COMPLETED:
                tail = self._speech.finish(end.response_id) or [b""]
                for frame in tail[:-1]:
                    self._put_speech(OutSpeech(frame, rate, turn_id, end.response_id))
                self._put_speech(OutSpeech(tail[-1], rate, turn_id, end.response_id, is_last=True))
            elif end.status is not ResponseStatus.CANCELLED:
                for frame in self._speech.finish(end.response_id):
                    self._put_speech(OutSpeech(frame, rate, turn_id, end.response_id))
                self.line.close_run(end.response_id, turn_id)
        if end.status is not ResponseStatus.CANCELLED:
            self.line.hearing.complete(end.response_id)
        self.line.put_output(to_output(end, turn_id))

    def _put_speech(self, speech: OutSpeech) -> None:
        if not self.line.put_output(speech) and self._shed != speech.response_id:
            self._shed = speech.response_id
            logger.warning("session %s: unsent speech over the limit was shed", self.context.session.id)
            self.context.observer.happened(Happening.SPEECH_SHED, self.context.session.id)
            message = "Part of this answer's speech was left out: the connection takes it too slowly."
            self.line.put_output(OutError(ErrorCode.SLOW_CLIENT, message, recoverable=True, whose=Whose.CLIENT))

    # --- the turn's back-end work

    async def _run_legs(self, turn: Turn, scope: trio.CancelScope) -> None:
        """Extraction and planning, side by side; a barge-in cancels this scope."""
        turn_input = TurnInput(
            turn.id,
            turn.user_text,
            tuple(record.heard_text for record in turn.responses if record.text.strip()),
            tuple(turn.multimodal),
        )
        emit = self._emitter(turn)
        with scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            async with trio.open_nursery() as legs:
                legs.start_soon(
                    self._fenced, "extraction", self.manager.process, turn_input, emit, name=f"{turn.id} extraction"
                )
                planning = self.manager.planning_manager
                legs.start_soon(self._fenced, PLANNING, planning.process, turn_input, emit, name=f"{turn.id} planning")
        del self._legs[turn.id]
        self._apply(self.machine.legs_over(turn, trio.current_time()))

    async def _fenced(
        self,
        name: str,
        leg: Callable[[Context, TurnInput, Emit], Awaitable[None]],
        turn: TurnInput,
        emit: Emit,
    ) -> None:
        span = Span(SpanKind.LEG, f"{turn.turn_id} {name}", name, self.context.session.id, turn.turn_id)
        self.context.observer.began(span, trio.current_time())
        outcome = Outcome.CANCELLED
        try:
            await leg(self.context, turn, emit)
            outcome = Outcome.OK
        except Exception:
            outcome = Outcome.FAILED
            logger.exception("%s of turn %s failed; the conversation goes on", name, turn.turn_id)
        finally:
            if name == PLANNING:
                self.machine.steering.planning_over(turn.turn_id, cancelled=outcome is Outcome.CANCELLED)
            self.context.observer.ended(span, trio.current_time(), outcome)

    def _emitter(self, turn: Turn) -> Emit:
        async def emit(element: PlanningElement) -> None:
            await trio.lowlevel.checkpoint()  # a leg that was cancelled in the meantime injects nothing
            if not isinstance(element, RealtimeInstruction):
                if isinstance(element, RealtimeCommand):
                    self.machine.steering.note(element, turn.id, trio.current_time())
                self.receive(element)
                return
            instruction = self._named(element, turn)
            waiter = _Waiter(turn.response.response_id if turn.response else "")
            if not instruction.type.is_contextual:
                self._waiters.append(waiter)
            try:
                self._log_instruction(instruction, turn.id, "planner")
                self.memory.put_instruction(instruction.text, turn.id)
                todo = self.machine.instructed(instruction, turn, trio.current_time())
                whisper = turn.instructions[-1]
                self._remember(turn)
                self._apply(todo)
                note_told(self.context, instruction)
                await self.session.instruct(instruction)
                self.machine.steering.arrived(whisper)
                if not instruction.type.is_contextual:
                    await waiter.over.wait()
                    await trio.lowlevel.checkpoint_if_cancelled()  # a barge-in ended it, and this leg too
                    self.receive(RealtimeCommand("response-instruction-end", {"instructionId": instruction.id}))
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

        return emit

    def _named(self, instruction: RealtimeInstruction, turn: Turn) -> RealtimeInstruction:
        """With the ids by which it is known from here on."""
        return attrs.evolve(
            instruction,
            turn_id=turn.id,
            id=instruction.id or self.context.environment.new_id("instruction"),
            pass_id=instruction.pass_id or name_of_pass(turn.id),
        )

    def _remember(self, turn: Turn) -> None:
        self._steered[turn.id] = turn
        while len(self._steered) > STEERED_TURNS:
            self._steered.popitem(last=False)

    def _log_instruction(self, instruction: RealtimeInstruction, turn_id: str, component: str) -> None:
        content = {"type": instruction.type.value, "text": instruction.text}
        self.context.log.record(LogKind.INSTRUCTION, content, component=component, turn_id=turn_id)

    def _response_over(self, record: ResponseRecord, turn: Turn) -> None:
        for waiter in self._waiters:
            if record.response_id != waiter.active_before and not waiter.over.is_set():
                waiter.over.set()
                break  # one response answers one instruction
        if turn.legs is not Legs.NONE:
            self.memory.put_turn(turn)  # also what comes when planning is over, and a tool keeps the turn open

    # --- the turn's end

    async def _close(self, turn: Turn) -> None:
        """Save, acknowledge with `exit`, let the next turn begin (L15)."""
        self.memory.put_turn(turn)
        self._restate()
        document = self._document(turn)
        saved = await self.writer.save(document, self.settings.exit_save_seconds)
        self._exit(turn, document, saved=saved)
        self._apply(self.machine.turn_closed(turn, trio.current_time()))
        if self._turn_ends is not None:
            try:
                self._turn_ends.send_nowait(turn)
            except trio.WouldBlock:
                logger.warning("turn_end of %s was left out: earlier ones have not finished", turn.id)
            except trio.ClosedResourceError:
                logger.debug("the session ends; turn_end of %s was left out", turn.id)

    def _exit(self, turn: Turn, document: TurnDocument, *, saved: bool) -> None:
        session = self.context.session
        parameters = {"turnId": turn.id, "sessionId": session.id, "userId": session.user_id, "saved": saved}
        self.line.put_output(OutCommand("exit", parameters, turn.id))
        observer, now = self.context.observer, trio.current_time()
        observer.turn_ended(session, document)
        self._begun.discard(turn.id)
        observer.ended(self._span(turn), now, Outcome.CANCELLED if turn.was_interrupted else Outcome.OK)
        if not saved:
            observer.happened(Happening.TURN_UNSAVED, session.id)

    def _amend(self, turn: Turn) -> None:
        self.memory.put_turn(turn)
        if turn.id in self._indexes:
            self.writer.put(self._document(turn))

    def _document(self, turn: Turn) -> TurnDocument:
        if turn.id not in self._indexes:
            self._indexes[turn.id] = self.turn_count
            self.turn_count += 1
        age = trio.current_time() - (turn.started_at or 0.0)
        return turn_document(
            turn,
            session_id=self.context.session.id,
            index=self._indexes[turn.id],
            started_at=self.context.environment.wall_clock() - timedelta(seconds=age),
        )

    async def _run_turn_ends(self, turns: trio.MemoryReceiveChannel[Turn]) -> None:
        """The turn_end hooks, one after the other, beside the conversation."""
        with turns:
            async for turn in turns:
                with trio.move_on_after(self.settings.turn_end_seconds) as limit:
                    try:
                        await self.manager.turn_end(self.context, self.steer)
                    except Exception:
                        logger.exception("turn_end of %s failed; the conversation goes on", turn.id)
                if limit.cancelled_caught:
                    logger.warning("turn_end of %s took too long and was stopped", turn.id)

    # --- the session's end

    async def abandon(self, status: ResponseStatus, *, client_is_gone: bool) -> None:
        if self.tools is not None:
            self.tools.stop()
        while True:
            self._apply(self.machine.abort(status, trio.current_time(), client_is_gone=client_is_gone))
            self._restate()
            turn = self.machine.turn
            if not turn.is_closing:
                break
            self.memory.put_turn(turn)
            document = self._document(turn)
            saved = await self.writer.save_now(document, self.settings.exit_save_seconds)
            self._exit(turn, document, saved=saved)
            self._apply(self.machine.turn_closed(turn, trio.current_time()))  # what waited behind it comes up

    def report(self, error: RealtimeError) -> None:
        """Tell the client of an error that belongs to no turn."""
        self.line.put_output(OutError(error.code, error.message, error.recoverable, error.whose))
