"""What a planner's output means (SPEC R4, R11; DESIGN section 8).

`results` makes the speaking model say something, `supportingContext` enriches its context; an object may have both, used
in this order. The state object (`{"state": {"currentModule", "workingFocus", "gapType"}}`, or these three without the
wrapping) says where in the business process the conversation is; the last one wins. Other properties mean nothing, and
`null` is a property that is not there.
"""

from typing import cast

import attrs

from agents.relational.plan_stream import PlanItem, PlanObject, PlanStream, Prose
from engine.elements import InstructionType, JsonObject

MAX_DESCRIPTION = 32_768
"""Characters of a plan's description, which is read back into the next prompt; of a longer one the middle is left out."""
MAX_STATE = 500
"""Characters of each of the three texts of the state."""
CUT = "\n…\n"
"""Stands for what was left out."""

_STATE = ("currentModule", "workingFocus", "gapType")


@attrs.frozen
class Instruction:
    """Steering for the speaking model, as the planner wrote it; never blank. Only one that makes it speak ends a session."""

    type: InstructionType
    text: str
    ends_session: bool = False


@attrs.frozen
class State:
    """Where the conversation is; `gap_type` is meant to be knowledge, process or mindset, and kept as the planner says it."""

    current_module: str = ""
    working_focus: str = ""
    gap_type: str = ""


@attrs.frozen
class Skipped:
    """Something of an object could not be used. The reason names the property and holds nothing of what was said."""

    reason: str


def interpret(value: JsonObject) -> list[Instruction | State | Skipped]:
    """What one object of the output means: nothing when it has none of the properties."""
    meaning: list[Instruction | State | Skipped] = []
    results = _text(value, "results", meaning)
    context = _text(value, "supportingContext", meaning)
    ends_session = _flag(value, "endSession", meaning)
    if results.strip():
        meaning.append(Instruction(InstructionType.INSTRUCTION, results, ends_session))
    elif ends_session:
        meaning.append(Skipped("endSession without results"))
    if context.strip():
        meaning.append(Instruction(InstructionType.SUPPORTING_CONTEXT, context))
    state = value.get("state")
    if isinstance(state, dict):
        meaning.append(_state(cast("JsonObject", state), meaning))
    elif state is not None:
        meaning.append(Skipped("state is no object"))
    elif any(name in value for name in _STATE):
        meaning.append(_state(value, meaning))
    return meaning


def _state(value: JsonObject, meaning: list[Instruction | State | Skipped]) -> State:
    return State(*(_text(value, name, meaning)[:MAX_STATE] for name in _STATE))


def _text(value: JsonObject, name: str, meaning: list[Instruction | State | Skipped]) -> str:
    text = value.get(name)
    if isinstance(text, str):
        return text
    if text is not None:
        meaning.append(Skipped(f"{name} is no text"))
    return ""


def _flag(value: JsonObject, name: str, meaning: list[Instruction | State | Skipped]) -> bool:
    flag = value.get(name)
    if flag is not None and not isinstance(flag, bool):
        meaning.append(Skipped(f"{name} is neither true nor false"))
    return flag is True


def _described(text: str) -> str:
    if len(text) <= MAX_DESCRIPTION:
        return text
    half = (MAX_DESCRIPTION - len(CUT)) // 2
    return text[:half] + CUT + text[-half:]


def _stated(text: str) -> str:
    return text[:MAX_STATE]


@attrs.frozen
class RelationalPlan:
    """The planner's own state: its whole output of a turn, and where in the process the conversation is."""

    description: str = attrs.field(default="", converter=_described)
    current_module: str = attrs.field(default="", converter=_stated)
    working_focus: str = attrs.field(default="", converter=_stated)
    gap_type: str = attrs.field(default="", converter=_stated)

    def to_json(self) -> JsonObject:
        return {
            "description": self.description,
            "currentModule": self.current_module,
            "workingFocus": self.working_focus,
            "gapType": self.gap_type,
        }

    @staticmethod
    def from_json(value: object) -> "RelationalPlan":
        """The stored plan; what is missing or of another type is empty, so that an old document never stops a session."""
        if not isinstance(value, dict):
            return RelationalPlan()
        stored = cast("JsonObject", value)
        return RelationalPlan(*(_text(stored, name, []) for name in ("description", *_STATE)))


@attrs.define(eq=False)
class PlanReading:
    """One pass of the planner: feed it the deltas of its output, act on what comes out, and take the plan at the end.

    The cuts of the deltas do not matter.
    """

    _stream: PlanStream = attrs.field(init=False, factory=PlanStream)
    _output: list[str] = attrs.field(init=False, factory=list[str])
    _length: int = attrs.field(init=False, default=0)
    _state: State = attrs.field(init=False, factory=State)

    def feed(self, delta: str) -> list[Prose | Instruction | Skipped]:
        self._output.append(delta)
        self._length += len(delta)
        if self._length > 2 * MAX_DESCRIPTION:  # the middle goes, so what stays is the same whenever this is done
            self._output = [_described("".join(self._output))]
            self._length = len(self._output[0])
        return self._meaning(self._stream.feed(delta))

    def finish(self) -> list[Prose | Instruction | Skipped]:
        """The end of the output, whole or cut off."""
        return self._meaning(self._stream.finish())

    def plan(self) -> RelationalPlan:
        """The plan of the output so far. Without a state object its three texts are empty."""
        return RelationalPlan("".join(self._output), *attrs.astuple(self._state))

    def _meaning(self, items: list[PlanItem]) -> list[Prose | Instruction | Skipped]:
        meaning: list[Prose | Instruction | Skipped] = []
        for item in items:
            for part in interpret(item.value) if isinstance(item, PlanObject) else [item]:
                if isinstance(part, State):
                    self._state = part
                else:
                    meaning.append(part)
        return meaning


def read_initial_plan(output: str) -> RelationalPlan | None:
    """The opening plan of a finished output: its `results`, several as paragraphs. None when it has none: a failure."""
    reading = PlanReading()
    meaning = reading.feed(output) + reading.finish()
    results = [
        part.text for part in meaning if isinstance(part, Instruction) and part.type is InstructionType.INSTRUCTION
    ]
    return attrs.evolve(reading.plan(), description="\n\n".join(results)) if results else None
