"""The vocabulary of a conversation.

Three families. *Input elements* come from the client; *realtime elements* come from a model's session and from the engine's
recognition; *output elements* are what a client is told. Realtime elements become output elements in one place,
`engine.protocol.output`, and nowhere else (SPEC E3).

Everything that belongs to a response carries its `response_id`; whatever reaches a client also carries its `turn_id`. What
belongs to a cancelled response or an ended turn is dropped by these ids, however late it comes (DESIGN section 3, law 4).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from engine.errors import ErrorCode, Whose

JsonObject = dict[str, Any]


# --- input elements (E1) ---------------------------------------------------------------------------------------------


@attrs.frozen
class InputAudio:
    """Audio from the client: in the connection's encoding at the door, PCM16 mono at the model's rate behind the input stage."""

    data: bytes


@attrs.frozen
class InputText:
    """A typed, complete utterance."""

    text: str


@attrs.frozen
class Action:
    """`#name` with parameters: `intro` asks for the opening, `rating` rates the session (L4, L21)."""

    name: str
    parameters: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class ControlToken:
    """A token of the connection, never of speech: `ready`, `authorization`, `locales`, `end`, `exit` (L3, L4).

    `value` is what followed the colon, undecoded; `parameters` the same read as form-urlencoded text.
    """

    name: str
    value: str = ""
    parameters: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class Image:
    """A picture the client shows."""

    data: bytes
    media_type: str


@attrs.frozen
class Commit:
    """The end of a push-to-talk utterance."""


@attrs.frozen
class Sensory:
    """What the client's sensors say: any JSON object."""

    data: Mapping[str, Any]


@attrs.frozen
class Playback:
    """How much of a response the user has really heard so far."""

    response_id: str
    played_ms: int


@attrs.frozen
class BadInput:
    """Something that could not be read. It keeps its place in the stream, so that its error does too (Q6)."""

    code: ErrorCode
    message: str


InputElement = InputAudio | InputText | Action | ControlToken | Image | Commit | Sensory | Playback | BadInput


# --- what a model's session is fed -----------------------------------------------------------------------------------


@attrs.frozen
class UserSpeech:
    """An utterance to answer: recognized by the engine (`provider` names the recognizer) or typed (`provider="Client"`).

    The session echoes it as the final `Transcript` that opens its answer (M4).
    """

    text: str
    provider: str


@attrs.frozen
class AnswerAgain:
    """An interim cut the answer to `text` and led to no words: answer it again, without a second user message (L12).

    The session echoes a synthetic copy of the final and continues from what was heard.
    """

    text: str


@attrs.frozen
class Interrupted:
    """The user has begun to speak: cancel what is being generated.

    `response_id` is what was playing, None when nothing was; `heard_text` and `heard_ms` say how much of it the user heard
    (law 5), so that the model's own history can be cut to the same place.
    """

    response_id: str | None = None
    heard_text: str = ""
    heard_ms: int = 0


ModelInput = InputAudio | UserSpeech | AnswerAgain | Interrupted | Action | Image | Commit | Sensory


# --- realtime elements (E2) ------------------------------------------------------------------------------------------


@attrs.frozen
class Transcript:
    """A user speech recognition result. An interim one is the speech-start and barge-in signal; its text may be ".".

    `response_id` on a final names the response that will answer it, when the session knows.
    """

    text: str
    is_interim: bool = False
    is_synthetic: bool = False
    is_asynchronous: bool = False
    provider: str = ""
    response_id: str = ""


@attrs.frozen
class Partial:
    """The words so far of an utterance under way. Display only, never a barge-in."""

    text: str
    provider: str = ""


@attrs.frozen
class Token:
    """A streamed piece of a response's text."""

    text: str
    response_id: str


@attrs.frozen
class Text:
    """One whole sentence of a response.

    `speech_ms` is where in the response's speech it begins, when the session knows; else it begins with the speech that follows.
    """

    text: str
    response_id: str
    speech_ms: float | None = None


@attrs.frozen
class SpeechItem:
    """A chunk of a response's speech: PCM16 mono at `sample_rate` Hz, any length.

    `text` is what begins to be spoken with it, when the session knows: a clause or a sentence. It tells what was heard to the
    word (law 5) and is not shown; sentences are shown as `Text`.
    """

    data: bytes
    sample_rate: int
    response_id: str
    provider: str = ""
    is_last: bool = False
    visemes: tuple[Mapping[str, Any], ...] = ()
    blend_shape_weights: tuple[Mapping[str, Any], ...] = ()
    text: str = ""


class ResponseStatus(StrEnum):
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    IDLE = "idle"


@attrs.frozen
class ResponseEnd:
    """The end of an engine response: a provider response with its continuations after tool results (L11)."""

    response_id: str
    status: ResponseStatus = ResponseStatus.COMPLETED
    is_synthetic: bool = False


class InstructionType(StrEnum):
    INSTRUCTION = "INSTRUCTION"
    COMMENTARY = "COMMENTARY"
    SUPPORTING_CONTEXT = "SUPPORTING_CONTEXT"

    @property
    def is_contextual(self) -> bool:
        """A contextual instruction enriches the model's context; the others make it respond."""
        return self is InstructionType.SUPPORTING_CONTEXT


@attrs.frozen
class RealtimeInstruction:
    """Steering text for the model, whispered by planning or by per-turn context.

    `id` names it from the planner to the response that speaks it; `turn_id` the turn whose planning made it, so that one
    from a cancelled turn is dropped however late it comes; "" for one that belongs to the session. `pass_id` names the planning
    pass over that turn; "" for the first, of planners that do not name theirs.
    """

    text: str
    type: InstructionType
    id: str = ""
    turn_id: str = ""
    ends_session: bool = False
    pass_id: str = ""


@attrs.frozen
class RealtimeDelegation:
    """A turnless model asks for help with what the user said."""

    id: str
    text: str
    offset_ms: int = 0


@attrs.frozen
class RealtimeCommand:
    """An out-of-band event with a name and parameters, mapped one to one onto a client command (E4).

    `response_id` names the response it belongs to, when it does: a command of a cancelled one is dropped with it.
    """

    name: str
    parameters: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    response_id: str = ""


@attrs.frozen
class RealtimeError:
    """A user-presentable error that does not end the stream."""

    code: ErrorCode
    message: str
    recoverable: bool = True
    whose: Whose = Whose.PROVIDER


class MultimodalKind(StrEnum):
    CARD = "card"
    HANDOVER = "handover"


@attrs.frozen
class MultimodalInteraction:
    """A card or a handover that a tool call produced."""

    kind: MultimodalKind
    name: str
    data: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


class SpeakingState(StrEnum):
    USER_SPEAKING = "userSpeaking"
    USER_NOT_SPEAKING = "userNotSpeaking"


@attrs.frozen
class EmotionalState:
    """Prosody and emotion scores, and whether the user is speaking."""

    state: SpeakingState | None = None
    scores: Mapping[str, float] = attrs.field(factory=dict[str, float])


class ToolPhase(StrEnum):
    START = "tool-start"
    SUCCESS = "tool-success"
    ERROR = "tool-error"


class ToolOwner(StrEnum):
    MODEL = "model"
    PLANNER = "planner"


class OnInterruption(StrEnum):
    """What a barge-in does to a running call (law 6).

    `cancel` stops it and settles it as interrupted. `continue` lets it run on: the turn does not wait, the result reaches the
    model when it comes. `shield` finishes it first: the interrupted turn ends when the call has settled.
    """

    CANCEL = "cancel"
    CONTINUE = "continue"
    SHIELD = "shield"


@attrs.frozen
class ToolEvent:
    """One step of a tool call's life: a start, then exactly one success or error (law 6)."""

    phase: ToolPhase
    call_id: str
    name: str
    owner: ToolOwner = ToolOwner.MODEL
    response_id: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    result: Any = None
    error: str = ""
    on_interruption: OnInterruption = OnInterruption.CANCEL


RealtimeElement = (
    Transcript
    | Partial
    | Token
    | Text
    | SpeechItem
    | ResponseEnd
    | RealtimeInstruction
    | RealtimeDelegation
    | RealtimeCommand
    | RealtimeError
    | MultimodalInteraction
    | EmotionalState
    | ToolEvent
)


# --- output elements -------------------------------------------------------------------------------------------------


@attrs.frozen
class OutTranscript:
    text: str
    is_interim: bool
    is_synthetic: bool
    is_asynchronous: bool
    provider: str
    turn_id: str


@attrs.frozen
class OutPartial:
    text: str
    turn_id: str


@attrs.frozen
class OutToken:
    text: str
    turn_id: str
    response_id: str


@attrs.frozen
class OutText:
    """One sentence; `speech_ms` as in `Text`."""

    text: str
    turn_id: str
    response_id: str
    speech_ms: float | None = None


@attrs.frozen
class OutSpeech:
    """PCM16 mono at the connection's output rate, whole samples, at most 100 ms; the door encodes it.

    `is_last` comes once per completed response, never on a cancelled one; it may come with no data. `text` is as in
    `SpeechItem`, for the engine's own use.
    """

    data: bytes
    sample_rate: int
    turn_id: str
    response_id: str
    is_last: bool = False
    visemes: tuple[Mapping[str, Any], ...] = ()
    blend_shape_weights: tuple[Mapping[str, Any], ...] = ()
    text: str = ""


@attrs.frozen
class SpeechCut:
    """The speech of a response was cut here: `speech-end` (cancelled) when a binary run is open, nothing on the JSON wire."""

    turn_id: str
    response_id: str


@attrs.frozen
class OutCommand:
    """`turn_id` says which turn it belongs to ("" for the session's own); the parameters are what the client sees."""

    name: str
    parameters: Mapping[str, Any]
    turn_id: str = ""


@attrs.frozen
class OutMultimodal:
    kind: MultimodalKind
    name: str
    data: Mapping[str, Any]
    turn_id: str


@attrs.frozen
class OutEmotion:
    state: SpeakingState | None
    scores: Mapping[str, float]
    turn_id: str


@attrs.frozen
class OutEvaluation:
    name: str
    score: float | None = None
    reasons: tuple[str, ...] = ()
    data: Mapping[str, Any] | None = None


@attrs.frozen
class OutError:
    code: ErrorCode
    message: str
    recoverable: bool
    whose: Whose


OutputElement = (
    OutTranscript
    | OutPartial
    | OutToken
    | OutText
    | OutSpeech
    | SpeechCut
    | OutCommand
    | OutMultimodal
    | OutEmotion
    | OutEvaluation
    | OutError
)
