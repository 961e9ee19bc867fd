"""The commands to a client, described; see `engine.transport.messages`."""

from typing import Any, Literal, cast

from pydantic import ConfigDict, Field

from engine.elements import InstructionType, JsonObject, ResponseStatus, ToolOwner
from engine.protocol.steering import PassState
from engine.store.documents import InstructionOutcome, SessionState
from engine.transport.wire_model import Message, shown_as


def example(command: str, **parameters: Any) -> ConfigDict:
    """The example of a command."""
    return shown_as({"type": "command", "name": command, "parameters": parameters})


class Command(Message):
    type: Literal["command"]


class OfTurn(Message):
    turn_id: str


class ReadyParameters(Message):
    protocol: int
    """The version of all this: 1."""
    session_id: str
    agent: str
    """Empty for the realtime setups."""
    user_id: str
    device_ref: str
    """The client's own, or one made up for it: a secret, with which an anonymous client resumes its sessions."""
    provider: str
    sample_rate: int
    """Hz, of the provider's speech: an `outputSampleRate` that equals it saves a conversion."""
    temperature: float
    warnings: list[str]
    """What was asked for and could not be had."""


class ReadyCommand(Command):
    """The session has begun."""

    model_config = example(
        "ready",
        protocol=1,
        sessionId="S1",
        agent="barista",
        userId="anonymous-5f0c",
        deviceRef="device-1",
        provider="Internal",
        sampleRate=24000,
        temperature=0.8,
        warnings=[],
    )

    name: Literal["ready"]
    parameters: ReadyParameters


class ResponseEndParameters(OfTurn):
    response_id: str
    status: ResponseStatus
    """`idle`: the model fell silent before the end."""


class ResponseEndCommand(Command):
    """A response is over, with its calls of tools and what it said after them."""

    model_config = example("response-end", turnId="turn-1", responseId="response-1", status="completed")

    name: Literal["response-end"]
    parameters: ResponseEndParameters


class RealtimeInstructionParameters(OfTurn):
    instruction_id: str
    pass_id: str
    """The planning pass over this turn that made it."""
    instruction_type: InstructionType
    text: str


class RealtimeInstructionCommand(Command):
    """What planning whispers to the speaking model. Withheld by agents that do not show their steering."""

    model_config = example(
        "realtime-instruction",
        turnId="turn-1",
        instructionId="instruction-1",
        passId="turn-1/1",
        instructionType="INSTRUCTION",
        text="Offer the almond milk.",
    )

    name: Literal["realtime-instruction"]
    parameters: RealtimeInstructionParameters


class RealtimeInstructionOutcomeParameters(OfTurn):
    instruction_id: str
    outcome: InstructionOutcome
    response_id: str
    """The response, of this turn, that speaks or uses it; of an instruction that is superseded or unused, the one that would have
    spoken it. Empty when there is none."""


class RealtimeInstructionOutcomeCommand(Command):
    """What became of a whisper, often one of an earlier turn. `spoken`: this response says it; `used`: this response is the first
    that could know it; `superseded`: it came to nothing, as the user went on or newer words took its place; `unused`: the response
    that was asked for said nothing; `pending`: the response that could know it was cut before a word of it was heard, and the next
    one may. What is pending when the session ends is unused. Withheld with the whispers."""

    model_config = example(
        "realtime-instruction-outcome",
        turnId="turn-2",
        instructionId="instruction-1",
        outcome="used",
        responseId="response-2",
    )

    name: Literal["realtime-instruction-outcome"]
    parameters: RealtimeInstructionOutcomeParameters


class ResponseInstructionEndParameters(OfTurn):
    instruction_id: str


class ResponseInstructionEndCommand(Command):
    """The response that an instruction asked for is over."""

    model_config = example("response-instruction-end", turnId="turn-1", instructionId="instruction-1")

    name: Literal["response-instruction-end"]
    parameters: ResponseInstructionEndParameters


class RealtimePlanningParameters(OfTurn):
    text: str


class RealtimePlanningCommand(Command):
    """What planning thinks. Withheld by agents that do not show their steering."""

    model_config = example("realtime-planning", turnId="turn-1", text="They are in a hurry.")

    name: Literal["realtime-planning"]
    parameters: RealtimePlanningParameters


class PlanningPassParameters(OfTurn):
    pass_id: str
    state: PassState


class PlanningPassCommand(Command):
    """A planning pass over the turn has begun, or has written its plan (`planned`). One that never says so was cut short. Withheld
    with the whispers."""

    model_config = example("planning-pass", turnId="turn-1", passId="turn-1/1", state="planned")

    name: Literal["planning-pass"]
    parameters: PlanningPassParameters


class RealtimeDelegationParameters(OfTurn):
    id: str
    text: str
    offset_ms: int


class RealtimeDelegationCommand(Command):
    """A model without turns asks for help with what the user said."""

    model_config = example(
        "realtime-delegation", turnId="turn-1", id="delegation-1", text="where is my order", offsetMs=5200
    )

    name: Literal["realtime-delegation"]
    parameters: RealtimeDelegationParameters


class ToolParameters(OfTurn):
    call_id: str
    name: str
    owner: ToolOwner


class ToolStartParameters(ToolParameters):
    parameters: dict[str, Any]


class ToolStartCommand(Command):
    """A tool is called. One `tool-success` or one `tool-error` with the same `callId` follows."""

    model_config = example(
        "tool-start", turnId="turn-1", callId="call-1", name="find_order", owner="model", parameters={"number": 7}
    )

    name: Literal["tool-start"]
    parameters: ToolStartParameters


class ToolSuccessParameters(ToolParameters):
    result: Any
    """Any JSON."""


class ToolSuccessCommand(Command):
    """A call of a tool has given its result."""

    model_config = example(
        "tool-success", turnId="turn-1", callId="call-1", name="find_order", owner="model", result={"isReady": True}
    )

    name: Literal["tool-success"]
    parameters: ToolSuccessParameters


class ToolErrorParameters(ToolParameters):
    error: str


class ToolErrorCommand(Command):
    """A call of a tool has failed or was interrupted; the conversation goes on."""

    model_config = example(
        "tool-error", turnId="turn-1", callId="call-1", name="find_order", owner="model", error="There is no order 7."
    )

    name: Literal["tool-error"]
    parameters: ToolErrorParameters


class SessionShouldEndCommand(Command):
    """The agent says goodbye with this response; the session ends when that has been heard."""

    model_config = example("sessionShouldEnd", turnId="turn-1")

    name: Literal["sessionShouldEnd"]
    parameters: OfTurn


class ExitParameters(OfTurn):
    session_id: str
    user_id: str
    saved: bool
    """False: the store has not taken the turn within 2 s. It is tried again, in order."""


class ExitCommand(Command):
    """The turn is over. With `saved` it is durable too: nothing of it can be lost any more."""

    model_config = example("exit", turnId="turn-1", sessionId="S1", userId="anonymous-5f0c", saved=True)

    name: Literal["exit"]
    parameters: ExitParameters


class SessionEndParameters(Message):
    session_id: str
    """Empty for one that could not be begun and was given no id."""
    state: SessionState
    reason: str


class SessionEndCommand(Command):
    """The session's last message."""

    model_config = example("session-end", sessionId="S1", state="CLOSED", reason="the client ended the session")

    name: Literal["session-end"]
    parameters: SessionEndParameters


COMMANDS: tuple[type[Command], ...] = (
    ReadyCommand,
    ResponseEndCommand,
    RealtimeInstructionCommand,
    RealtimeInstructionOutcomeCommand,
    ResponseInstructionEndCommand,
    RealtimePlanningCommand,
    PlanningPassCommand,
    RealtimeDelegationCommand,
    ToolStartCommand,
    ToolSuccessCommand,
    ToolErrorCommand,
    SessionShouldEndCommand,
    ExitCommand,
    SessionEndCommand,
)


def literal_of(model: type[Message], field: str) -> str:
    """The one value that a field of a model can have."""
    (value,) = cast("tuple[str, ...]", getattr(model.model_fields[field].annotation, "__args__", ()))
    return value


COMMAND_NAMES = frozenset(literal_of(command, "name") for command in COMMANDS)


def _not_the_engines(schema: JsonObject) -> None:
    schema["not"] = {"enum": sorted(COMMAND_NAMES)}


class OtherCommand(Command):
    """A command of the agent's own kind; the engine's are all told here."""

    model_config = example("smoke", turnId="turn-1")

    name: str = Field(json_schema_extra=_not_the_engines)
    parameters: dict[str, Any]
