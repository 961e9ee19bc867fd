"""A `TurnMachine` at work without a pipeline: what it says is done at once, legs and saves take a set time, and what a client would be
told is written down."""

import heapq
import itertools
from collections.abc import Callable

import attrs

from engine.elements import (
    OnInterruption,
    OutCommand,
    OutputElement,
    OutSpeech,
    OutText,
    RealtimeElement,
    ResponseEnd,
    ResponseStatus,
    SpeechCut,
    SpeechItem,
    Text,
    ToolEvent,
    ToolPhase,
)
from engine.protocol.hearing import Hearing
from engine.protocol.memory import ConversationMemory
from engine.protocol.output import to_output
from engine.protocol.sentences import SentenceAssembler
from engine.protocol.turn import (
    AmendTurn,
    AskAgain,
    CancelLegs,
    CloseTurn,
    CutSpeech,
    Do,
    EndSession,
    InterruptTools,
    ResponseOver,
    Send,
    StartLegs,
    Turn,
    TurnLimits,
)
from engine.protocol.turns import TurnMachine

FRAME_BYTES = 4800
"""100 ms at 24 kHz."""


def counted_ids() -> Callable[[str], str]:
    counters: dict[str, itertools.count[int]] = {}

    def new_id(kind: str) -> str:
        return f"{kind}-{next(counters.setdefault(kind, itertools.count(1)))}"

    return new_id


@attrs.define(eq=False)
class Bench:
    """`now` moves with `advance`, which ticks the machine at its deadlines and finishes legs and saves when they are due."""

    legs_seconds: float = 0.5
    save_seconds: float = 0.1
    sentences: bool = True
    now: float = 0.0
    hearing: Hearing = attrs.field(factory=Hearing)
    machine: TurnMachine = attrs.field(init=False)
    memory: ConversationMemory = attrs.field(factory=lambda: ConversationMemory(1000))
    heard: list[tuple[float, OutputElement]] = attrs.field(factory=list[tuple[float, OutputElement]])
    done: list[Do] = attrs.field(factory=list[Do])
    closed: list[Turn] = attrs.field(factory=list[Turn])
    amended: list[Turn] = attrs.field(factory=list[Turn])
    asked_again: list[str] = attrs.field(factory=list[str])
    ended: list[str | None] = attrs.field(factory=list["str | None"])
    calls: dict[str, ToolEvent] = attrs.field(factory=dict[str, ToolEvent])
    ticks: int = 0
    _due: list[tuple[float, int, str, Turn]] = attrs.field(factory=list[tuple[float, int, str, Turn]])
    _order: "itertools.count[int]" = attrs.field(factory=itertools.count)
    _running: set[str] = attrs.field(factory=set[str])

    def __attrs_post_init__(self) -> None:
        assembler = SentenceAssembler() if self.sentences else None
        self.machine = TurnMachine(counted_ids(), self.hearing, TurnLimits(), assembler)

    # what happens

    def receive(self, *elements: RealtimeElement) -> list[Do]:
        done: list[Do] = []
        for element in elements:
            done += self.do(self.machine.receive(element, self.now))
        return done

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            deadline = self.machine.deadline
            next_due = self._due[0][0] if self._due else None
            times = [time for time in (deadline, next_due) if time is not None]
            if not times or min(times) > end:
                break
            if deadline is not None and deadline == min(times):
                self.now = max(self.now, deadline)
                self.ticks += 1
                self.do(self.machine.tick(self.now))
                after = self.machine.deadline
                assert after is None or after > self.now, "the deadline has passed and stands: the session would spin"
            else:
                time, _, what, turn = heapq.heappop(self._due)
                self.now = max(self.now, time)
                self._finish(what, turn)
        self.now = end

    def _finish(self, what: str, turn: Turn) -> None:
        if what == "legs":
            if turn.id in self._running:
                self._running.remove(turn.id)
                self.do(self.machine.legs_over(turn, self.now))
        else:
            self._exit(turn)
            self.do(self.machine.turn_closed(turn, self.now))

    def _exit(self, turn: Turn) -> None:
        self.memory.put_turn(turn)
        self.closed.append(turn)
        self.heard.append((self.now, OutCommand("exit", {"turnId": turn.id}, turn.id)))

    def abort(self, status: ResponseStatus, *, client_is_gone: bool = False) -> None:
        """The session ends: nothing that runs is waited for."""
        self._due.clear()
        for _ in range(10_000):
            self.do(self.machine.abort(status, self.now, client_is_gone=client_is_gone))
            self._due.clear()
            turn = self.machine.turn
            if not turn.is_closing:
                break
            self._exit(turn)
            self.do(self.machine.turn_closed(turn, self.now))
        else:
            raise AssertionError("the session does not come to its end")
        self.heard.append((self.now, OutCommand("session-end", {})))

    def call(self, call_id: str, response_id: str, policy: OnInterruption = OnInterruption.CANCEL) -> None:
        """A tool call as the runner tells of it: none in the name of a response that has ended."""
        if not self.machine.is_dead(response_id):
            start = ToolEvent(ToolPhase.START, call_id, "lookup", response_id=response_id, on_interruption=policy)
            self.calls[call_id] = start
            self.receive(start)

    def settle(self, call_id: str, *, error: str = "") -> None:
        start = self.calls.pop(call_id)
        phase = ToolPhase.ERROR if error else ToolPhase.SUCCESS
        self.receive(attrs.evolve(start, phase=phase, error=error))

    # what the machine says

    def do(self, todo: list[Do]) -> list[Do]:
        self.done += todo
        for do in todo:
            match do:
                case Send(element, turn_id):
                    self._tell(element, turn_id)
                case CutSpeech(response_id, turn_id):
                    self.heard.append((self.now, SpeechCut(turn_id, response_id)))
                case StartLegs(turn):
                    self.memory.put_turn(turn)
                    self._running.add(turn.id)
                    self._push(self.legs_seconds, "legs", turn)
                case CancelLegs(turn):
                    self._push(0, "legs", turn)
                case CloseTurn(turn):
                    self._push(self.save_seconds, "close", turn)
                case AmendTurn(turn):
                    self.memory.put_turn(turn)
                    self.amended.append(turn)
                case AskAgain(text):
                    self.asked_again.append(text)
                case EndSession(goodbye):
                    self.ended.append(goodbye)
                case InterruptTools():
                    for call in list(self.calls.values()):
                        if call.on_interruption is OnInterruption.CANCEL:
                            self.settle(call.call_id, error="interrupted")
                case ResponseOver():
                    pass
        return todo

    def _push(self, seconds: float, what: str, turn: Turn) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), what, turn))

    def _tell(self, element: RealtimeElement, turn_id: str) -> None:
        match element:
            case SpeechItem():
                ms = len(element.data) / 2 * 1000 / element.sample_rate
                self.hearing.speech_queued(element.response_id, ms, element.text)
                self.hearing.speech_sent(element.response_id, ms, self.now)
                for at in range(0, len(element.data), FRAME_BYTES):
                    frame = element.data[at : at + FRAME_BYTES]
                    self.heard.append((self.now, OutSpeech(frame, element.sample_rate, turn_id, element.response_id)))
                return
            case ResponseEnd() if self.hearing.has_speech(element.response_id):
                if element.status is ResponseStatus.COMPLETED:
                    mark = OutSpeech(b"", 24000, turn_id, element.response_id, is_last=True)
                    self.heard.append((self.now, mark))
                elif element.status is not ResponseStatus.CANCELLED:
                    self.heard.append((self.now, SpeechCut(turn_id, element.response_id)))
            case _:
                pass
        if isinstance(element, Text):
            self.hearing.sentence_queued(element.response_id, element.text, element.speech_ms)
            self.hearing.sentence_sent(element.response_id)
        self.heard.append((self.now, to_output(element, turn_id)))

    # what came of it

    def texts(self) -> list[str]:
        return [element.text for _, element in self.heard if isinstance(element, OutText)]

    def exits(self) -> list[str]:
        return [turn.id for turn in self.closed]
