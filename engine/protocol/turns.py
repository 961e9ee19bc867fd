"""How a conversation is cut into turns, and what a barge-in does (SPEC L11, L12, L15, M4, M5, M7).

`TurnMachine` takes realtime elements and the time, and returns what to do. It awaits nothing and knows no clock.

The laws it keeps:

- One window is one turn. A turn's back-end work starts when both its final transcript and a ResponseEnd have been seen; the
  next turn begins when that work is done or was cancelled and the turn is saved.
- Every response ends exactly once, however it ends. What comes late of an ended response is dropped by its id. The one
  exception is speech after an idle end (the model was slow, not dead): it is carried on under a response id of its own.
- An interim transcript is a barge-in. It leaves at once with the new turn's id; then the cancelled response's end, the
  remaining tool events and the exit of the old turn; everything of the new turn waits behind that exit.
- An interim that leads to no words opens no stored turn; the answer it cut is asked for again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TypeVar

import attrs

from engine.elements import (
    EmotionalState,
    MultimodalInteraction,
    OnInterruption,
    Partial,
    RealtimeCommand,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechItem,
    Text,
    Token,
    ToolEvent,
    ToolOwner,
    ToolPhase,
    Transcript,
)
from engine.protocol.hearing import Hearing
from engine.protocol.sentences import SentenceAssembler
from engine.protocol.steering import SteeringLedger
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
    TurnLimits,
)

V = TypeVar("V")

RECENT_RESPONSES = 16
"""Responses of closed turns that may still be playing; a barge-in corrects what is stored of them."""
MAX_WAITING = 20_000
"""Elements held for the next turn. A turn closes within seconds, so a model that fills this is broken: its speech is shed."""

INTERIM_SENTINEL = "."
SESSION_SHOULD_END = "sessionShouldEnd"


@attrs.frozen
class _Owed:
    """An input on its way to the model."""

    text: str
    provider: str


@attrs.frozen
class _EngineInterim(Transcript):
    """One that the model has not made."""


@attrs.frozen
class _Echo(Transcript):
    """The echo of an input."""


@attrs.frozen
class _Overtaken(Transcript):
    """The echo of an input that an interruption had overtaken: its words count, its answer will not come."""


@attrs.define(eq=False)
class TurnMachine:
    """The turns of one session. Every method takes the time and returns what to do, in order."""

    new_id: Callable[[str], str]
    hearing: Hearing
    limits: TurnLimits = attrs.field(factory=TurnLimits)
    assembler: SentenceAssembler | None = attrs.field(factory=SentenceAssembler)
    """None when the session makes its own sentences."""
    steering: SteeringLedger = attrs.field(factory=SteeringLedger)
    """Told what becomes of instructions; it decides nothing here."""

    turn: Turn = attrs.field(init=False)
    """The oldest turn that is not closed."""
    _next: Turn | None = attrs.field(default=None, init=False)
    _waiting: deque[RealtimeElement] = attrs.field(factory=deque[RealtimeElement], init=False)
    _ended: OrderedDict[str, ResponseStatus] = attrs.field(factory=OrderedDict[str, ResponseStatus], init=False)
    _carried_on: OrderedDict[str, str] = attrs.field(factory=OrderedDict[str, str], init=False)
    _recent: OrderedDict[str, Turn] = attrs.field(factory=OrderedDict[str, Turn], init=False)
    _calls: dict[str, Turn] = attrs.field(factory=dict[str, Turn], init=False)
    """The running calls the client was told of, by id, each with the turn it began in."""
    _sentence_from: float = attrs.field(default=0.0, init=False)
    """Where in the response's speech the sentence being assembled begins: where its first token came."""
    _model_at: float = attrs.field(default=0.0, init=False)
    _user_at: float = attrs.field(default=0.0, init=False)
    _speaking_since: float | None = attrs.field(default=None, init=False)
    _cut_text: str | None = attrs.field(default=None, init=False)
    _asked_again: str | None = attrs.field(default=None, init=False)
    _owed: list[_Owed] = attrs.field(factory=list[_Owed], init=False)
    """Inputs on their way to the model whose echo has not come."""
    _superseded: set[str] = attrs.field(factory=set[str], init=False)
    """Those that an interim has overtaken: their echo may still come, their answer will not."""
    _goodbye_in: Turn | None = attrs.field(default=None, init=False)
    _input_ended: bool = attrs.field(default=False, init=False)
    _recognition_over: bool = attrs.field(default=False, init=False)
    _heard_by_engine: bool = attrs.field(default=False, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _do: list[Do] = attrs.field(factory=list[Do], init=False)

    def __attrs_post_init__(self) -> None:
        self.turn = self._new_turn()

    def _new_turn(self) -> Turn:
        return Turn(self.new_id("turn"))

    # --- what happens

    def interrupt(self, interim: Transcript, now: float) -> list[Do]:
        """The user begins to speak, as the engine knows by itself: by its own recognition, or because something was typed. So the
        words will come as an echo, before their answer; what the model says without it is of an answer that was cut."""
        return self.receive(_EngineInterim(**attrs.asdict(interim, recurse=False)), now)

    def receive(self, element: RealtimeElement, now: float) -> list[Do]:
        """An element from the model, the recognition or a tool."""
        if not self._is_over:
            self._receive(element, now)
        elif isinstance(element, ToolEvent) and element.call_id in self._calls:
            self._take_tool(element, now)  # the end stands; how a call went that is running is told all the same
        elif isinstance(element, Transcript) and element.is_interim and self.turn.is_fresh:
            self._begin(self.turn, now)  # the end stands; the user is not made to hear the rest of the goodbye
            self._open_utterance(element, self.turn, now)
            self._end_session(None)
        return self._settle(now)

    def expect_answer(self, text: str, provider: str, now: float) -> None:
        """An input that asks for speech is on its way to the model, which will echo it as `text` of that `provider` ("": of any):
        an answer is owed."""
        self._owed.append(_Owed(text, provider))
        self._superseded.discard(text)
        self._model_at = max(self._model_at, now)

    def instructed(self, instruction: RealtimeInstruction, turn: Turn, now: float) -> list[Do]:
        """An instruction is about to be injected; one that asks for speech opens the response window (M7)."""
        injected_ms = 0 if turn.started_at is None else round((now - turn.started_at) * 1000)
        turn.instructions.append(self.steering.injected(instruction, turn.id, injected_ms))
        self._send(instruction, turn)
        return self._settle(now) if instruction.type.is_contextual else self.speech_asked(turn, now)

    def speech_asked(self, turn: Turn, now: float) -> list[Do]:
        """The model is being asked to speak: the response window opens."""
        if turn is self.turn and not turn.is_closing and not turn.is_cut:
            self._begin(turn, now)
            turn.window_open = True
            self._model_at = now
        return self._settle(now)

    def legs_over(self, turn: Turn, now: float) -> list[Do]:
        """The back-end work of a turn has ended, by itself or cancelled."""
        turn.legs = Legs.OVER
        return self._settle(now)

    def turn_closed(self, turn: Turn, now: float) -> list[Do]:
        """The turn is saved (or given up on) and its exit is sent."""
        for record in turn.responses:
            _remember(self._recent, record.response_id, turn, RECENT_RESPONSES)
        self.turn = self._next or self._new_turn()
        self._next = None
        if self._goodbye_in is turn:
            self._end_session(None if turn.is_cut or not turn.responses else turn.responses[-1].response_id)
        self._drain(now)
        return self._settle(now)

    def input_ended(self, now: float) -> list[Do]:
        """The client's input has ended: what is open may finish, nothing new begins (L7)."""
        self._input_ended = True
        return self._settle(now)

    def recognition_over(self, now: float, *, by_engine: bool) -> list[Do]:
        """No words will follow. `by_engine`: the engine's own recognition has flushed its last utterance, so that an interim
        which has none yet never will; a model that recognizes by itself may still bring them."""
        self._recognition_over = True
        self._heard_by_engine = by_engine
        return self._settle(now)

    def abort(self, status: ResponseStatus, now: float, *, client_is_gone: bool = False) -> list[Do]:
        """The session is over, whatever is open: end the open response, settle for what was heard, close what is worth it.

        `client_is_gone`: nothing plays any more, so that what the client had not played by now was not heard.
        """
        turn = self.turn
        self.steering.session_over()
        if turn.window_open and not turn.is_closing:
            if status is ResponseStatus.CANCELLED:
                self._end_cut_response(self._cut_response(turn, now), turn)
            else:
                record = self._open_response(turn, turn.expected_response)
                self._end_response(record, status, turn, is_synthetic=True)
                turn.window_open = False
        if client_is_gone:
            self._cut_playing(turn, now)
        if turn.legs is Legs.RUNNING:
            self._do.append(CancelLegs(turn, "the session has ended"))
        turn.open_calls.clear()
        if turn.is_worth_storing and not turn.is_closing:
            turn.is_closing = True
            self._do.append(CloseTurn(turn))
        do, self._do = self._do, []
        return do

    def tick(self, now: float) -> list[Do]:
        """The deadline has come."""
        if self._is_over:
            return self._settle(now)
        turn = self.turn
        idle = self._idle_at()
        if idle is not None and now >= idle:
            self._end_idle_response(now)
        if turn.final_deadline is not None and now >= turn.final_deadline:
            turn.final_deadline = None
        lapse = self._lapse_at()
        if lapse is not None and now >= lapse:
            self._lapse(now)
        return self._settle(now)

    @property
    def deadline(self) -> float | None:
        """When `tick` has to be called if nothing happens before."""
        if self._is_over:
            return None
        times = (self._idle_at(), self._lapse_at(), None if self.turn.is_closing else self.turn.final_deadline)
        return min((time for time in times if time is not None), default=None)

    @property
    def front(self) -> Turn:
        """The turn that what happens now belongs to."""
        return self._next or self.turn

    @property
    def user_active_at(self) -> float:
        """The user's last sign."""
        return self._user_at

    @property
    def model_active_at(self) -> float:
        """When the model said something last, or was asked to."""
        return self._model_at

    @property
    def owes_speech(self) -> bool:
        """An answer is owed or under way, or the user is speaking."""
        return bool(self._owed or self.turn.window_open or self.front.waits_for_words)

    @property
    def input_has_ended(self) -> bool:
        """The client has left, or wants to."""
        return self._input_ended

    @property
    def is_over(self) -> bool:
        """The agent has ended the session."""
        return self._is_over

    @property
    def is_done(self) -> bool:
        """The input has ended and nothing is open or owed: the output may end."""
        turn = self.turn
        return (
            self._input_ended
            and self._recognition_over
            and not (
                self._waiting
                or self._next
                or self._owed
                or (self.front.waits_for_words and not self._heard_by_engine)
                or turn.window_open
                or turn.is_closing
                or turn.open_calls
                or turn.legs is Legs.RUNNING
                or turn.is_worth_storing
            )
        )

    def is_dead(self, response_id: str) -> bool:
        """Whether a response has ended: nothing may be started in its name. One that ended idle may go on."""
        status = self._ended.get(self._carried_on.get(response_id, response_id))
        return status is not None and status is not ResponseStatus.IDLE

    def name_at_model(self, response_id: str) -> str:
        """The id under which the model knows a response: another one when it was carried on after an idle end."""
        return next((own for own, shown in self._carried_on.items() if shown == response_id), response_id)

    # --- elements

    def _receive(self, element: RealtimeElement, now: float) -> None:
        """Take an element now, or hold it for the next turn."""
        element = self._renamed(element)
        turn = self.turn
        match element:
            case Transcript(is_interim=True):
                self._receive_interim(element, now)
                return
            case Transcript():
                if not element.text.strip():
                    self._take_no_words()
                    return
                element = self._noted_echo(element)
                if isinstance(element, _Overtaken) and element.is_synthetic:
                    self._bury(element.response_id)  # an action, or a question asked again: no words of the user
                    return
            case EmotionalState(state=state):
                self._note_speaking(state, now)
            case Partial():
                self._user_at = now
            case _:
                pass
        if turn.is_cut or turn.is_closing:
            self._receive_while_closing(element, now)
        elif self._waiting and not self._belongs_to_current(element):
            self._hold(element)
        else:
            self._take(element, now)

    def _take_no_words(self) -> None:
        """A blank final is nothing. But once the answer is over it says that no words will come, so the turn need not wait."""
        turn = self.turn
        if turn.final is None and turn.responses and not turn.window_open:
            turn.final_deadline = None

    def _noted_echo(self, final: Transcript) -> Transcript:
        """A final pays what was owed for it. Echoes come in the order of the inputs; a provider may change their words. One of
        neither the words nor the provider owed was spoken before, and is overtaken by what is on its way."""
        echoes = [place for place, owed in enumerate(self._owed) if owed.text == final.text]
        if not echoes:
            echoes = [place for place, owed in enumerate(self._owed) if owed.provider in ("", final.provider)]
        if final.text in self._superseded or (self._owed and not echoes):
            return _Overtaken(**attrs.asdict(final, recurse=False))
        self._superseded.clear()
        if not echoes:
            return final
        del self._owed[: echoes[0] + 1]
        return _Echo(**attrs.asdict(final, recurse=False))

    def _receive_interim(self, interim: Transcript, now: float) -> None:
        """A barge-in is acted on at once, unless the client has been told of one already and waits for the old turn's exit."""
        self._superseded.update(owed.text for owed in self._owed)  # an interruption drops what waited at the model
        self._owed.clear()
        if self._next is not None:
            self._waiting = self._without_answers(self._waiting)
            self._hold(interim)
            return
        self._waiting = self._cut_waiting(self._waiting, interim, now)

    def _cut_waiting(self, waiting: deque[RealtimeElement], interim: Transcript, now: float) -> deque[RealtimeElement]:
        """Take an interim that came behind what waits; returns what still does. An utterance that waits comes first, and the
        interim cuts its answer; an answer to none is cut as a whole, before anything of it was shown."""
        said_before = next((element for element in waiting if isinstance(element, Transcript)), None)
        if said_before is not None:
            self._barge_in(self._synthetic_interim(said_before), now)
            return deque([*waiting, interim])
        kept = self._without_answers(waiting)
        self._take_interim(interim, now)
        return kept

    def _without_answers(self, waiting: deque[RealtimeElement]) -> deque[RealtimeElement]:
        """What waits without the answers in it: an interruption came before anything of them was shown."""
        kept: deque[RealtimeElement] = deque()
        for element in waiting:
            match element:
                case Token(response_id=dead) | Text(response_id=dead) | SpeechItem(response_id=dead):
                    self._bury(dead)
                case ResponseEnd(response_id=dead):
                    self._bury(dead)
                case ToolEvent(phase=ToolPhase.START, owner=ToolOwner.MODEL, response_id=dead):
                    self._bury(dead)
                    self._do.append(InterruptTools(self.turn.id))
                case _:
                    kept.append(element)
        return kept

    def _bury(self, response_id: str) -> None:
        """An interruption came before anything of a response was shown: nothing of it ever is."""
        if response_id and response_id not in self._ended:
            _remember(self._ended, response_id, ResponseStatus.CANCELLED, self.limits.remembered_responses)

    def _receive_while_closing(self, element: RealtimeElement, now: float) -> None:
        match element:
            case RealtimeError():
                self._send(element, self.turn)
            case RealtimeCommand() if self._is_of_cut_answer(element):
                pass
            case ToolEvent() if self._settles_open_call(element):
                self._take_tool(element, now)
            case Transcript() if self._is_final_of_cut_turn(element):
                self._take_final(element, now)
            case Transcript() if self._next is None:
                self._barge_in(self._synthetic_interim(element), now)
                self._hold(element)
            case _:
                self._hold(element)

    def _is_of_cut_answer(self, command: RealtimeCommand) -> bool:
        """Whether a command ends the session with an answer that was cut: that end is not to come. One without a response's name
        is taken for the cut turn's; the next turn's answer may say so while an earlier turn is still being saved."""
        if command.name != SESSION_SHOULD_END:
            return False
        return command.response_id in self._ended if command.response_id else self.turn.is_cut

    def _is_final_of_cut_turn(self, final: Transcript) -> bool:
        """The provider's own transcript of what was answered, and cut, before it came (cases C09, C10); no echo."""
        return self.turn.is_cut and self.turn.final_deadline is not None and not isinstance(final, _Echo)

    def _belongs_to_current(self, element: RealtimeElement) -> bool:
        turn = self.turn
        match element:
            case Token() | Text() | SpeechItem() | ResponseEnd() | ToolEvent():
                current = turn.response.response_id if turn.response else turn.expected_response
                answers = element.response_id == current if current else turn.window_open
                return answers or element.response_id in self._ended or self._settles_open_call(element)
            case Transcript(is_interim=True) | RealtimeError() | EmotionalState():
                return True
            case _:
                return False

    def _settles_open_call(self, element: RealtimeElement) -> bool:
        return isinstance(element, ToolEvent) and element.call_id in self.turn.open_calls

    def _hold(self, element: RealtimeElement) -> None:
        late = isinstance(element, Token | Text | SpeechItem | ResponseEnd) and element.response_id in self._ended
        if late or (len(self._waiting) >= MAX_WAITING and isinstance(element, SpeechItem | Token | Partial)):
            return
        self._waiting.append(element)

    def _drain(self, now: float) -> None:
        """Take what waited for this turn, in order. What has to wait on is passed by what belongs to the open response."""
        passed: deque[RealtimeElement] = deque()
        while self._waiting and not (self.turn.is_cut or self.turn.is_closing or self._is_over):
            element = self._waiting.popleft()
            if passed and isinstance(element, Transcript) and element.is_interim:
                passed = self._cut_waiting(passed, element, now)
            elif not self._belongs_to_current(element) if passed else self._has_to_wait(element):
                passed.append(element)
            else:
                self._take(element, now)
                if passed and not self._has_to_wait(passed[0]):
                    self._waiting.extendleft(reversed(passed))
                    passed.clear()
        self._waiting.extendleft(reversed(passed))

    def _has_to_wait(self, element: RealtimeElement) -> bool:
        """A second final waits for the end of the window, another response's words for the end of the open one."""
        turn = self.turn
        match element:
            case Transcript(is_interim=False):
                return turn.final is not None and turn.window_open
            case Token() | Text() | SpeechItem() | ResponseEnd():
                open_ = turn.response
                is_other = open_ is not None and element.response_id != open_.response_id
                return is_other and element.response_id not in self._ended
            case _:
                return False

    def _take(self, element: RealtimeElement, now: float) -> None:
        match element:
            case Transcript(is_interim=True):
                self._take_interim(element, now)
            case Transcript():
                self._take_final(element, now)
            case Token() | Text() | SpeechItem():
                self._take_content(element, now)
            case ResponseEnd():
                self._take_response_end(element, now)
            case ToolEvent():
                self._take_tool(element, now)
            case Partial() | EmotionalState():
                self._send(element, self.turn)
            case RealtimeCommand(name=name):
                if element.response_id in self._ended:
                    return
                self._model_at = now
                if name == SESSION_SHOULD_END:
                    self._goodbye_in = self.turn
                self._send(element, self.turn)
            case MultimodalInteraction():
                self._model_at = now
                self.turn.multimodal.append(element)
                self._send(element, self.turn)
            case _:
                self._model_at = now
                self._send(element, self.turn)

    def _note_speaking(self, state: SpeakingState | None, now: float) -> None:
        if state is SpeakingState.USER_SPEAKING:
            self._speaking_since = self._user_at = now
        elif state is SpeakingState.USER_NOT_SPEAKING:
            self._speaking_since = None
            self._user_at = now

    # --- the user's side

    def _take_interim(self, interim: Transcript, now: float) -> None:
        turn = self.turn
        if turn.is_fresh:
            self._begin(turn, now)
            self._open_utterance(interim, turn, now)
        elif turn.has_interim and turn.final is None and not turn.responses:
            self._user_at = now  # the same utterance goes on: a turn has one interim
            turn.words_come_first = isinstance(interim, _EngineInterim)
            if turn.is_lapsed:
                turn.is_lapsed = False
                self._cut_text, self._asked_again = self._asked_again, None
            turn.timing.last_interim = now
        else:
            self._barge_in(interim, now)

    def _open_utterance(self, interim: Transcript, turn: Turn, now: float) -> None:
        self._cut_text = self._asked_again = None
        self._cut_playing(turn, now)
        turn.has_interim = True
        turn.words_come_first = isinstance(interim, _EngineInterim)
        turn.timing.last_interim = now
        self._user_at = now
        self._send(interim, turn)

    def _take_settled_calls(self, now: float) -> None:
        """A call of the turn may have settled already, held as the turn was behind the one before: nobody must wait for it."""
        waiting, self._waiting = self._waiting, deque()
        for element in waiting:
            if isinstance(element, ToolEvent) and self._settles_open_call(element):
                self._take_tool(element, now)
            else:
                self._waiting.append(element)

    def _barge_in(self, interim: Transcript, now: float) -> None:
        """The user speaks into the turn: whatever it was doing ends here."""
        turn = self.turn
        self._next = self._new_turn()
        self._begin(self._next, now)
        if turn.window_open and not turn.is_closing:
            record = self._cut_response(turn, now)
            self._open_utterance(interim, self._next, now)
            self._end_cut_response(record, turn)
            self._cut_text = turn.user_text or self._cut_text
        else:
            self._open_utterance(interim, self._next, now)
        if turn.is_closing:
            return
        turn.is_cut = True
        self.steering.barge_in(turn.id)
        if turn.legs is Legs.RUNNING:
            self._do.append(CancelLegs(turn, "barge-in"))
        if turn.open_calls:
            for call_id, policy in list(turn.open_calls.items()):
                if policy is OnInterruption.CONTINUE:
                    del turn.open_calls[call_id]
            self._do.append(InterruptTools(turn.id))
            self._take_settled_calls(now)
        if turn.final is None and turn.has_interim:
            turn.final_deadline = now + self.limits.interim_lapse

    def _cut_response(self, turn: Turn, now: float) -> ResponseRecord:
        """Cut the response of the open window, with the words that are no whole sentence yet."""
        turn.was_interrupted = True
        record = self._open_response(turn, turn.expected_response)
        if self.assembler is not None:
            begun = self.assembler.pending.strip()
            if begun:
                self.hearing.sentence_queued(record.response_id, begun, self._sentence_from)
                record.sentences.append(begun)
            self.assembler.drop()
        self._cut(record, turn, now)
        return record

    def _end_cut_response(self, record: ResponseRecord, turn: Turn) -> None:
        self._end_response(record, ResponseStatus.CANCELLED, turn, is_synthetic=True)
        self._bury(turn.expected_response)
        turn.expected_response = ""
        turn.window_open = False

    def _cut_playing(self, new: Turn, now: float) -> None:
        """The user cuts in on speech that the model has finished and the client is still playing."""
        while (response_id := self.hearing.playing(now)) is not None:
            for turn in (self.turn, self._recent.get(response_id)):
                record = next((r for r in turn.responses if r.response_id == response_id), None) if turn else None
                if turn is not None and record is not None:
                    self._cut_text = turn.user_text or None
                    self._cut(record, turn, now)
                    turn.was_interrupted = True
                    if turn is not self.turn or turn.is_closing:
                        self._do.append(AmendTurn(turn))
                    break
            else:
                self.hearing.cut(response_id, now)
                self._do.append(CutSpeech(response_id, new.id))

    def _cut(self, record: ResponseRecord, turn: Turn, now: float) -> None:
        self.hearing.cut(record.response_id, now)
        record.heard = self.hearing.heard_text(record.response_id, now)
        if len(record.heard) > len(record.text):  # a clause was heard whose sentence was never complete
            record.sentences = [record.heard]
        is_heard = bool(record.heard.strip()) or (
            not record.text and self.hearing.heard_ms(record.response_id, now) > 0
        )
        self.steering.response_cut(record.response_id, heard=is_heard)
        self._do.append(CutSpeech(record.response_id, turn.id))

    def _take_final(self, final: Transcript, now: float) -> None:
        turn = self.turn
        if turn.final is not None and turn.window_open:
            self._waiting.append(final)  # a second final inside a window waits and opens the next turn
            return
        if turn.final is not None or (turn.responses and not turn.has_interim):
            self._barge_in(self._synthetic_interim(final), now)
            self._waiting.appendleft(final)  # what waits came after it
            return
        if not turn.has_interim:
            self._begin(turn, now)
            self._open_utterance(self._synthetic_interim(final), turn, now)
        self._speaking_since = None
        self._cut_text = None
        turn.final = final
        turn.final_deadline = None
        turn.is_lapsed = False
        turn.is_asked_again = final.is_synthetic and self._asked_again == final.text
        self._asked_again = None
        if not final.is_synthetic:
            self.steering.user_spoke()
        turn.timing.final_transcript = now
        self._send(final, turn)
        if turn.is_cut:
            return
        if turn.responses and not turn.window_open:
            self._start_legs(turn)
        else:
            turn.window_open = True
            turn.expected_response = "" if final.response_id in self._ended else final.response_id
            self._model_at = now
            if isinstance(final, _Overtaken):
                self._barge_in(self._synthetic_interim(final), now)

    def _synthetic_interim(self, final: Transcript) -> Transcript:
        return Transcript(INTERIM_SENTINEL, is_interim=True, is_synthetic=True, provider=final.provider)

    def _lapse_at(self) -> float | None:
        if not self.front.waits_for_words or self._owed:
            return None
        if self._speaking_since is not None:
            return self._speaking_since + self.limits.utterance_limit
        return self._user_at + self.limits.interim_lapse

    def _lapse(self, now: float) -> None:
        """No words came of it: it was a cough, or the user thought better of it."""
        self._speaking_since = None
        if self.front is not self.turn:
            self._user_at = now  # the old turn is still closing: ask when it has
            return
        self.turn.is_lapsed = True
        if self._cut_text is not None and not self._input_ended:
            self._asked_again = self._cut_text
            self._owed.append(_Owed(self._cut_text, ""))
            self._superseded.discard(self._cut_text)
            self._do.append(AskAgain(self._cut_text))
        self._cut_text = None

    # --- the model's side

    def _renamed(self, element: RealtimeElement) -> RealtimeElement:
        """What a model says after its response ended idle is carried on under a new response id."""
        if not isinstance(element, Token | Text | SpeechItem | ResponseEnd | ToolEvent):
            return element
        status = self._ended.get(element.response_id)
        renamed = self._carried_on.get(element.response_id)
        goes_on = not isinstance(element, ResponseEnd | ToolEvent) or (
            isinstance(element, ToolEvent) and element.phase is ToolPhase.START
        )
        if renamed is None and status is ResponseStatus.IDLE and goes_on:
            renamed = self.new_id("response")
            _remember(self._carried_on, element.response_id, renamed, self.limits.remembered_responses)
        return element if renamed is None else attrs.evolve(element, response_id=renamed)

    def _take_content(self, element: Token | Text | SpeechItem, now: float) -> None:
        if element.response_id in self._ended:
            return
        turn = self.turn
        if turn.response is not None and turn.response.response_id != element.response_id:
            self._hold(element)
            return
        if turn.expects_echo:
            self._bury(element.response_id)
            return
        self._begin(turn, now)
        record = self._open_response(turn, element.response_id)
        self.steering.response_began(record.response_id, turn.id, now)
        turn.window_open = True
        self._model_at = now
        match element:
            case SpeechItem():
                record.has_sound = True
                if turn.timing.first_audio is None:
                    turn.timing.first_audio = now
                turn.timing.last_audio = now
                self._send(element, turn)
            case Token():
                self._note_text(turn, now)
                self._send(element, turn)
                if self.assembler is not None:
                    if not self.assembler.pending:
                        self._sentence_from = self.hearing.queued_ms(record.response_id)
                    self._say(self.assembler.feed(element.text), record, turn)
            case _:
                self._note_text(turn, now)
                record.sentences.append(element.text)
                self._send(element, turn)

    def _note_text(self, turn: Turn, now: float) -> None:
        if turn.timing.first_text is None:
            turn.timing.first_text = now
        turn.timing.last_text = now

    def _say(self, sentences: list[str], record: ResponseRecord, turn: Turn) -> None:
        for sentence in sentences:
            record.sentences.append(sentence)
            self._send(Text(sentence, record.response_id, self._sentence_from), turn)
            self._sentence_from = self.hearing.queued_ms(record.response_id)

    def _take_response_end(self, end: ResponseEnd, now: float) -> None:
        if end.response_id in self._ended:
            return
        turn = self.turn
        if turn.response is not None:
            if turn.response.response_id != end.response_id:
                self._hold(end)
                return
        elif not self._ends_window(end, turn):
            _remember(self._ended, end.response_id, end.status, self.limits.remembered_responses)
            return
        self._model_at = now
        record = self._open_response(turn, end.response_id)
        if end.status is ResponseStatus.CANCELLED:  # the provider has cut it by itself
            self._cut_response(turn, now)
        self._end_response(record, end.status, turn, is_synthetic=end.is_synthetic)
        self._after_response(turn, now)

    def _ends_window(self, end: ResponseEnd, turn: Turn) -> bool:
        """Whether the end of a response that said nothing is that of the open window. The end of an unnamed cancelled one is
        taken for that of an earlier window, which an interruption has closed."""
        if not turn.window_open:
            return False
        if turn.expected_response:
            return turn.expected_response == end.response_id
        return end.status is not ResponseStatus.CANCELLED

    def _end_idle_response(self, now: float) -> None:
        turn = self.turn
        while turn.window_open:  # one that was named and never begun, behind the one that fell silent, ends too
            record = self._open_response(turn, turn.expected_response)
            if turn.is_parting and self._goodbye_in is None:
                self._goodbye_in = turn
                self._send(RealtimeCommand(SESSION_SHOULD_END, response_id=record.response_id), turn)
            self._end_response(record, ResponseStatus.IDLE, turn, is_synthetic=True)
        self._after_response(turn, now)

    def _open_response(self, turn: Turn, response_id: str) -> ResponseRecord:
        if turn.response is None:
            turn.response = ResponseRecord(response_id or self.new_id("response"))
            turn.responses.append(turn.response)
        return turn.response

    def _end_response(self, record: ResponseRecord, status: ResponseStatus, turn: Turn, *, is_synthetic: bool) -> None:
        if self.assembler is not None:
            self._say(self.assembler.flush(), record, turn)
        record.status = status
        said = bool(record.text.strip()) or record.has_sound
        self.steering.response_over(record.response_id, turn.id, status, said=said)
        _remember(self._ended, record.response_id, status, self.limits.remembered_responses)
        self._send(ResponseEnd(record.response_id, status, is_synthetic=is_synthetic), turn)
        turn.response = None
        if turn.expected_response in ("", record.response_id):
            turn.window_open = False
            turn.expected_response = ""
        self._do.append(ResponseOver(record, turn))

    def _after_response(self, turn: Turn, now: float) -> None:
        if turn.window_open:
            return
        if turn.final is not None:
            if turn.legs is Legs.NONE:
                self._start_legs(turn)
        elif turn.has_interim:
            turn.final_deadline = now + self.limits.idle_response_end

    def _idle_at(self) -> float | None:
        """When silence ends the open response; a running tool is no silence (case C06)."""
        turn = self.turn
        if not turn.window_open or turn.is_cut or turn.is_closing:
            return None
        if any(event.owner is ToolOwner.MODEL for event in self._running(turn)):
            return None
        return self._model_at + self.limits.idle_response_end

    def _running(self, turn: Turn) -> list[ToolEvent]:
        return [turn.tools[call_id] for call_id in turn.open_calls if call_id in turn.tools]

    def _start_legs(self, turn: Turn) -> None:
        turn.legs = Legs.RUNNING
        self._do.append(StartLegs(turn))

    def _take_tool(self, event: ToolEvent, now: float) -> None:
        turn = self.turn
        self._model_at = now
        if event.phase is ToolPhase.START:
            if event.owner is ToolOwner.MODEL:
                if turn.expects_echo:
                    self._bury(event.response_id)
                    self._do.append(InterruptTools(turn.id))
                if event.response_id in self._ended:
                    return  # the runner settles it; a call of a dead response was never shown
                self._begin(turn, now)
                record = self._open_response(turn, event.response_id)
                self.steering.response_began(record.response_id, turn.id, now)
                turn.window_open = True
            turn.open_calls[event.call_id] = event.on_interruption
            turn.parameters[event.call_id] = event
            self._calls[event.call_id] = turn
        else:
            turn.open_calls.pop(event.call_id, None)
            began_in = self._calls.pop(event.call_id, None)
            if began_in is None:
                return  # the client was never told of it
            if began_in is not turn:  # it went on after its turn had ended, and is recorded there
                began_in.tools[event.call_id] = event
                self._do.append(AmendTurn(began_in))
                self._send(event, turn)
                return
        turn.tools[event.call_id] = event
        self._send(event, turn)

    # --- common

    def _begin(self, turn: Turn, now: float) -> None:
        if turn.started_at is None:
            turn.started_at = now

    def _send(self, element: RealtimeElement, turn: Turn) -> None:
        self._do.append(Send(element, turn.id))

    def _end_session(self, goodbye: str | None) -> None:
        self._is_over = True
        self._waiting.clear()
        self._do.append(EndSession(goodbye))

    def _settle(self, now: float) -> list[Do]:
        """Close the turn when nothing of it is open any more."""
        turn = self.turn
        if not turn.is_closing and self._may_close(turn, now):
            turn.is_closing = True
            self._do.append(CloseTurn(turn))
        if self._waiting and not (turn.is_closing or turn.is_cut or self._has_to_wait(self._waiting[0])):
            self._drain(now)
            return self._settle(now)
        do, self._do = self._do, []
        return do

    def _may_close(self, turn: Turn, now: float) -> bool:
        if turn.open_calls or turn.legs is Legs.RUNNING:
            return False
        final_may_come = turn.final_deadline is not None and now < turn.final_deadline and not self._input_ended
        if turn.is_cut:
            return not final_may_come
        if turn.window_open or final_may_come:
            return False
        if turn.legs is Legs.OVER:
            return True
        return bool(turn.responses) and turn.final is None


def _remember(memory: "OrderedDict[str, V]", key: str, value: V, limit: int) -> None:
    memory[key] = value
    while len(memory) > limit:
        memory.popitem(last=False)
