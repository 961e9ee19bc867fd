"""Which whisper steered which answer (SPEC L13): for each instruction the pass that made it, when, and what became of it.

Planning whispers *instructions* (the speaking model has to say something) and *contexts* (it knows something more). What becomes of
one, its outcome, is decided by these rules, and by nothing else:

- A response *begins* with the first sign of it that reaches the engine. It counts as long as it says something and, when the user
  cuts it, as long as any word of it was heard.
- An instruction is `spoken` by the first response that begins after it in its turn; one response speaks one instruction, in order. It
  is `superseded` when that response was cut before a word of it was heard, or the user went on before any began, and `unused` when
  that response said nothing.
- A context is `used` by the first response that begins after the model has got it: the first that could know it, whatever it makes
  of it. Usually that is the answer of the next turn. When that response does not count after all, the context is `pending` again:
  the model still has it. It is `superseded` when, before any response has used it, the planning of a later turn gives a context (that
  plan knew all that this one knew) or the same words come again, and when the user went on before the model had got it.
- What is pending when the session ends, or turns out then to be unheard, is `unused`.

The plan is as *stale* as it is old: at each response's beginning, the number of utterances of the user and of seconds since the pass
that wrote it. An answer that follows a finished pass has a staleness of one utterance; more means that passes were cancelled, failed
or ran out of time. Before the first plan of a run nothing is stale.
"""

from collections import OrderedDict
from enum import StrEnum

import attrs

from engine.elements import InstructionType, RealtimeCommand, RealtimeInstruction, ResponseStatus
from engine.store.documents import InstructionOutcome, Staleness, SteeringRecord

REMEMBERED_RESPONSES = 32
"""As many as `engine.protocol.hearing` knows: an older one cannot turn out to be unheard any more."""
REMEMBERED_PASSES = 32
"""More than one turn's planning makes; the passes of older turns are over."""
MOST_PENDING = 256
"""Whispers that no response has answered: far more than a model can keep in mind. Beyond that the oldest is superseded."""

PLANNING_PASS = "planning-pass"
"""The command by which a planner tells of its passes: `{passId, state}`."""


class PassState(StrEnum):
    BEGAN = "began"
    PLANNED = "planned"
    """It has written its plan, which is in force from now on. A pass that never says so has none."""


@attrs.define(eq=False)
class Whisper:
    """One instruction, and what became of it so far."""

    instruction: RealtimeInstruction
    turn_id: str
    """Whose planning made it."""
    pass_id: str = ""
    injected_ms: int = 0
    """From the start of that turn."""
    outcome: InstructionOutcome = InstructionOutcome.PENDING
    response_id: str = ""
    """The response that speaks or uses it; of an instruction that is superseded or unused, the one that would have spoken it."""
    spoken_in: str = ""
    """That response's turn."""
    is_at_model: bool = False

    @property
    def type(self) -> InstructionType:
        return self.instruction.type

    @property
    def text(self) -> str:
        return self.instruction.text


@attrs.define
class SteeringTotals:
    """The sums of one run of a session."""

    instructions: int = 0
    outcomes: dict[InstructionOutcome, int] = attrs.field(
        factory=lambda: dict.fromkeys(InstructionOutcome, 0)  # what is pending is counted too
    )
    passes: int = 0
    planned_passes: int = 0
    cancelled_passes: int = 0
    responses: int = 0
    """Those that began under a plan; the sums that follow are over them."""
    stale_turns: int = 0
    most_stale_turns: int = 0
    stale_seconds: float = 0.0
    most_stale_seconds: float = 0.0


@attrs.define
class _Pass:
    turn_id: str
    is_open: bool = True


@attrs.define(eq=False)
class SteeringLedger:
    """The whispers of one run of a session. Times are seconds of its clock."""

    totals: SteeringTotals = attrs.field(factory=SteeringTotals, init=False)
    changed: list[Whisper] = attrs.field(factory=list[Whisper], init=False)
    """Whose outcome has changed since `take_changes`, each once."""
    is_over: bool = attrs.field(default=False, init=False)
    _pending: list[Whisper] = attrs.field(factory=list[Whisper], init=False)
    """In the order in which they were injected."""
    _answered: OrderedDict[str, list[Whisper]] = attrs.field(factory=OrderedDict[str, list[Whisper]], init=False)
    """By response: what it speaks and uses."""
    _passes: OrderedDict[str, _Pass] = attrs.field(factory=OrderedDict[str, _Pass], init=False)
    _context_turn: str = attrs.field(default="", init=False)
    """The last turn whose planning has given a context."""
    _user_turns: int = attrs.field(default=0, init=False)
    _planned: tuple[int, float] | None = attrs.field(default=None, init=False)
    """When the plan in force was written: after how many utterances of the user, and at what time."""

    # --- whispers

    def injected(self, instruction: RealtimeInstruction, turn_id: str, injected_ms: int = 0) -> Whisper:
        """An instruction is on its way to the model. One that names no pass is of its turn's first."""
        pass_id = instruction.pass_id or name_of_pass(turn_id)
        self.pass_began(pass_id, turn_id)
        whisper = Whisper(instruction, turn_id, pass_id, injected_ms)
        self.totals.instructions += 1
        self.totals.outcomes[InstructionOutcome.PENDING] += 1
        if whisper.type.is_contextual:
            self._context_turn = turn_id
            for other in list(self._pending):
                if other.type.is_contextual and (other.turn_id != turn_id or other.text == whisper.text):
                    self._settle(other, InstructionOutcome.SUPERSEDED)
        self._pending.append(whisper)
        if self.is_over:
            self._settle(whisper, InstructionOutcome.UNUSED)
        elif len(self._pending) > MOST_PENDING:
            self._settle(self._pending[0], InstructionOutcome.SUPERSEDED)
        return whisper

    def arrived(self, whisper: Whisper) -> None:
        """The model has got it."""
        whisper.is_at_model = True

    # --- what is said

    def response_began(self, response_id: str, turn_id: str, now: float) -> None:
        """The first sign of a response; said again it means nothing."""
        if response_id in self._answered:
            return
        if self._planned is not None:
            after, at = self._planned
            self._note_staleness(self._user_turns - after, now - at)
        self._answer(response_id, turn_id)

    def response_cut(self, response_id: str, *, heard: bool) -> None:
        """The user cut in, while it was made or while it was played. `heard`: a word of it was heard."""
        if not heard:
            self._take_back(response_id, InstructionOutcome.SUPERSEDED)

    def response_over(self, response_id: str, turn_id: str, status: ResponseStatus, *, said: bool) -> None:
        """Nothing more of it is made; one that never began has answered what waited for it, with nothing. `said`: it had words or
        sound."""
        if response_id not in self._answered:
            self._answer(response_id, turn_id)
        if not said:
            is_cut = status is ResponseStatus.CANCELLED
            self._take_back(response_id, InstructionOutcome.SUPERSEDED if is_cut else InstructionOutcome.UNUSED)

    def barge_in(self, turn_id: str) -> None:
        """The user speaks into a turn: what it still had to say is not said, and what was on its way does not arrive."""
        for whisper in list(self._pending):
            if whisper.turn_id == turn_id and not (whisper.type.is_contextual and whisper.is_at_model):
                self._settle(whisper, InstructionOutcome.SUPERSEDED)

    def user_spoke(self) -> None:
        """The user has said something, in words."""
        self._user_turns += 1

    # --- the passes

    def note(self, command: RealtimeCommand, turn_id: str, now: float) -> None:
        """What a planner tells of its passes; any other command is none of the ledger's business."""
        match command:
            case RealtimeCommand("planning-pass", {"passId": str(pass_id), "state": PassState.BEGAN}):
                self.pass_began(pass_id, turn_id)
            case RealtimeCommand("planning-pass", {"passId": str(pass_id), "state": PassState.PLANNED}):
                self.planned(pass_id, turn_id, now)
            case _:
                pass

    def pass_began(self, pass_id: str, turn_id: str) -> None:
        """A pass over a turn; said again it means nothing."""
        if pass_id in self._passes:
            return
        self._passes[pass_id] = _Pass(turn_id)
        self.totals.passes += 1
        while len(self._passes) > REMEMBERED_PASSES:
            self._passes.popitem(last=False)

    def planned(self, pass_id: str, turn_id: str, now: float) -> None:
        """A pass has written its plan."""
        self.pass_began(pass_id, turn_id)
        if self._passes[pass_id].is_open:
            self._passes[pass_id].is_open = False
            self.totals.planned_passes += 1
        self._planned = (self._user_turns, now)

    def planning_over(self, turn_id: str, *, cancelled: bool) -> None:
        """The planning of a turn has ended. A pass that has written no plan by now never will."""
        for each in self._passes.values():
            if each.is_open and each.turn_id == turn_id:
                each.is_open = False
                self.totals.cancelled_passes += cancelled

    # --- the end

    def session_over(self) -> None:
        """Nobody speaks any more. What is cut from now on was cut by the end."""
        self.is_over = True
        for whisper in list(self._pending):
            self._settle(whisper, InstructionOutcome.UNUSED)
        for each in self._passes.values():
            self.totals.cancelled_passes += each.is_open
            each.is_open = False

    def take_changes(self) -> list[Whisper]:
        changed, self.changed = self.changed, []
        return changed

    # --- within

    def _answer(self, response_id: str, turn_id: str) -> None:
        """A response takes what waits for one: the turn's oldest instruction, and every context that the model has."""
        told = [whisper for whisper in self._pending if whisper.type.is_contextual and whisper.is_at_model]
        asked = [whisper for whisper in self._pending if not whisper.type.is_contextual and whisper.turn_id == turn_id]
        self._answered[response_id] = told + asked[:1]
        for whisper in self._answered[response_id]:
            whisper.response_id, whisper.spoken_in = response_id, turn_id
            is_used = whisper.type.is_contextual
            self._settle(whisper, InstructionOutcome.USED if is_used else InstructionOutcome.SPOKEN)
        while len(self._answered) > REMEMBERED_RESPONSES:
            self._answered.popitem(last=False)

    def _take_back(self, response_id: str, outcome: InstructionOutcome) -> None:
        """A response does not count."""
        whispers = self._answered.get(response_id)
        if whispers is None:
            return
        self._answered[response_id] = []
        if self.is_over:
            outcome = InstructionOutcome.UNUSED
        waiting: list[Whisper] = []
        for whisper in whispers:
            if not whisper.type.is_contextual:
                self._set(whisper, outcome)
                continue
            whisper.response_id = whisper.spoken_in = ""
            if self.is_over:
                self._set(whisper, InstructionOutcome.UNUSED)
            elif self._is_replaced(whisper):
                self._set(whisper, InstructionOutcome.SUPERSEDED)
            else:
                self._set(whisper, InstructionOutcome.PENDING)
                waiting.append(whisper)
        self._pending[:0] = waiting

    def _is_replaced(self, context: Whisper) -> bool:
        return context.turn_id != self._context_turn or any(
            other.type.is_contextual and other.text == context.text for other in self._pending
        )

    def _settle(self, whisper: Whisper, outcome: InstructionOutcome) -> None:
        self._pending.remove(whisper)
        self._set(whisper, outcome)

    def _set(self, whisper: Whisper, outcome: InstructionOutcome) -> None:
        self.totals.outcomes[whisper.outcome] -= 1
        self.totals.outcomes[outcome] += 1
        whisper.outcome = outcome
        if whisper not in self.changed:
            self.changed.append(whisper)

    def _note_staleness(self, turns: int, seconds: float) -> None:
        totals = self.totals
        totals.responses += 1
        totals.stale_turns += turns
        totals.most_stale_turns = max(totals.most_stale_turns, turns)
        totals.stale_seconds += seconds
        totals.most_stale_seconds = max(totals.most_stale_seconds, seconds)


def name_of_pass(turn_id: str, number: int = 1) -> str:
    """How passes are named; `number` counts those over one turn, from 1, the one of planners that name none."""
    return f"{turn_id}/{number}"


def tell_pass(pass_id: str, state: PassState) -> RealtimeCommand:
    """What a planner emits when a pass begins, and just before its plan comes into force."""
    return RealtimeCommand(PLANNING_PASS, {"passId": pass_id, "state": state.value})


# --- as it is stored


def steering_record(run: SteeringTotals, before: SteeringRecord | None = None) -> SteeringRecord | None:
    """The sums of a session: of this run, and of those before it. None when nobody has ever planned."""
    if before is None and not (run.instructions or run.passes):
        return None
    earlier = before or SteeringRecord()
    responses = earlier.responses + run.responses
    return SteeringRecord(
        instructions=earlier.instructions + run.instructions,
        spoken=earlier.spoken + run.outcomes[InstructionOutcome.SPOKEN],
        used=earlier.used + run.outcomes[InstructionOutcome.USED],
        superseded=earlier.superseded + run.outcomes[InstructionOutcome.SUPERSEDED],
        unused=earlier.unused + run.outcomes[InstructionOutcome.UNUSED],
        passes=earlier.passes + run.passes,
        planned_passes=earlier.planned_passes + run.planned_passes,
        cancelled_passes=earlier.cancelled_passes + run.cancelled_passes,
        responses=responses,
        plan_staleness_turns=_staleness(
            earlier.plan_staleness_turns, earlier.responses, run.stale_turns, run.most_stale_turns, responses
        ),
        plan_staleness_seconds=_staleness(
            earlier.plan_staleness_seconds, earlier.responses, run.stale_seconds, run.most_stale_seconds, responses
        ),
    )


def _staleness(before: Staleness, responses_before: int, total: float, most: float, responses: int) -> Staleness:
    if not responses:
        return Staleness()
    total += (before.mean or 0.0) * responses_before
    return Staleness(mean=round(total / responses, 3), max=round(max(before.max or 0.0, most), 3))
