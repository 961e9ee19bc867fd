"""Every message of the client wire, described (protocol page, section 2).

`engine.protocol.wire` encodes and decodes by hand, as most of what it handles is audio. These models say what it takes and what it
gives: `/asyncapi.json` and the schema of an NDJSON line are made from them, and tests hold the wire to them, frame by frame.

What a client sends may have more fields than these; they are ignored. What it gets may grow fields too, so nothing here is
closed: the tests close it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import Discriminator, Field, RootModel, Tag
from pydantic.json_schema import SkipJsonSchema

from engine.config import Encoding
from engine.elements import MultimodalKind, SpeakingState
from engine.errors import ErrorCode, Whose
from engine.protocol.wire import ID_CHARACTERS, MEDIA_TYPE, NAME, PARAMETERS, TOKEN_CHARACTERS
from engine.transport.commands import (
    COMMAND_NAMES,
    COMMANDS,
    ExitCommand,
    OtherCommand,
    PlanningPassCommand,
    ReadyCommand,
    RealtimeDelegationCommand,
    RealtimeInstructionCommand,
    RealtimeInstructionOutcomeCommand,
    RealtimePlanningCommand,
    ResponseEndCommand,
    ResponseInstructionEndCommand,
    SessionEndCommand,
    SessionShouldEndCommand,
    ToolErrorCommand,
    ToolStartCommand,
    ToolSuccessCommand,
)
from engine.transport.wire_model import Message, shown_as, without_default

Base64 = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]

ERRORS: Mapping[ErrorCode, str] = {
    ErrorCode.BAD_JSON: "a text frame or line was not one JSON object",
    ErrorCode.UNKNOWN_TYPE: "`type` is none of the messages",
    ErrorCode.BAD_ELEMENT: "a field is missing or has not the form it should",
    ErrorCode.TOO_LARGE: "a frame, body or text is over its limit",
    ErrorCode.NO_SESSION: "something was sent between two sessions; it was dropped",
    ErrorCode.UNKNOWN_ACTION: "there is no action of this name",
    ErrorCode.UNAUTHORIZED: "the credentials do not hold",
    ErrorCode.FORBIDDEN: "the credentials hold and do not allow this; or the session is another's",
    ErrorCode.NOT_FOUND: "there is no such agent or realtime configuration",
    ErrorCode.SETUP_NOT_ALLOWED: "this deployment does not offer the setup",
    ErrorCode.QUOTA: "the subscription's minutes are used up",
    ErrorCode.TOO_BUSY: "the server is full or stopping, or more was sent than can be worked off",
    ErrorCode.SLOW_CLIENT: "the client takes too little of what it is sent",
    ErrorCode.TAKEN_OVER: "the session was opened again by another connection",
    ErrorCode.SESSION_LIMIT: "the conversation or the turn has reached its longest",
    ErrorCode.PROVIDER_UNAVAILABLE: "the model's provider does not answer, or its connection failed",
    ErrorCode.PROVIDER_AUTH: "the provider refused the server's own credentials",
    ErrorCode.PROVIDER_QUOTA: "the provider's quota or rate limit is reached",
    ErrorCode.MODEL_NOT_FOUND: "the provider or its model does not exist here",
    ErrorCode.RECOGNITION_FAILED: "speech could not be recognized",
    ErrorCode.CHAT_FAILED: "the language model gave no answer",
    ErrorCode.SYNTHESIS_FAILED: "the answer could not be spoken",
    ErrorCode.INTERNAL: "a fault of the server; its log says more",
}
"""What each code means."""


# --- from the client -------------------------------------------------------------------------------------------------


class AudioInput(Message):
    """Audio, in the connection's input encoding and rate. A binary frame holds the same without JSON."""

    model_config = shown_as({"type": "audio", "data": "AAABAAIAAwA="})

    type: Literal["audio"]
    data: Base64
    """Any length; an odd byte is kept for the next one."""


class TextInput(Message):
    """A typed, complete utterance. Whatever it looks like, it is never a token."""

    model_config = shown_as({"type": "text", "text": "two coffees please"})

    type: Literal["text"]
    text: str


class TokenInput(Message):
    """A control token, or an action in its short form. What follows the colon is form-urlencoded.

    `#ready:key=…&sessionId=…` begins a session and ends the one before it. `#exit` ends the session, `#end` the connection too.
    `#authorization:…` takes the value of an Authorization header and replaces the credentials. `#locales:…` takes language tags
    with commas between, best first. Any other name is an action.
    """

    model_config = shown_as(
        {"type": "token", "text": "#ready:key=agent:barista&sessionId=S1"},
        {"type": "token", "text": "#locales:cs,en-GB"},
        {"type": "token", "text": "#rating:value=5&text=lovely"},
        {"type": "token", "text": "#exit"},
    )

    type: Literal["token"]
    text: str = Field(pattern=rf"^#{NAME.pattern}(:[\s\S]*)?$", max_length=TOKEN_CHARACTERS)


class ActionInput(Message):
    """`intro` asks for the opening; `rating` rates the conversation with a `value` of 1 to 5 and, if you like, a `text`."""

    model_config = shown_as(
        {"type": "action", "name": "intro"},
        {"type": "action", "name": "rating", "parameters": {"value": 5, "text": "lovely"}},
    )

    type: Literal["action"]
    name: str = Field(pattern=f"^{NAME.pattern}$")
    parameters: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=PARAMETERS)
    """What is no string is taken as its JSON text."""


class CommitInput(Message):
    """The end of a push-to-talk utterance, which is answered at once. An empty one is ignored."""

    model_config = shown_as({"type": "commit"})

    type: Literal["commit"]


class ImageInput(Message):
    """A picture the client shows."""

    model_config = shown_as({"type": "image", "mediaType": "image/jpeg", "data": "/9j/4AAQSkZJRg=="})

    type: Literal["image"]
    media_type: str = Field(pattern=f"^{MEDIA_TYPE.pattern}$")
    data: Base64 = Field(min_length=1)


class SensoryInput(Message):
    """What the client's sensors say. The newest one counts."""

    model_config = shown_as({"type": "sensory", "data": {"place": "at the counter", "noiseDb": 61}})

    type: Literal["sensory"]
    data: dict[str, Any]


class PlaybackInput(Message):
    """What the user has really heard so far of a response."""

    model_config = shown_as({"type": "playback", "responseId": "response-1", "playedMs": 1240})

    type: Literal["playback"]
    response_id: str = Field(min_length=1, max_length=ID_CHARACTERS)
    played_ms: float = Field(ge=0)


INPUTS: tuple[type[Message], ...] = (
    AudioInput,
    TextInput,
    TokenInput,
    ActionInput,
    CommitInput,
    ImageInput,
    SensoryInput,
    PlaybackInput,
)

AnyInput = Annotated[
    AudioInput | TextInput | TokenInput | ActionInput | CommitInput | ImageInput | SensoryInput | PlaybackInput,
    Discriminator("type"),
]


class InputMessage(RootModel[AnyInput]):
    """One message of a client."""


class InputMessages(RootModel[list[InputMessage]]):
    """Messages of a client, in order."""


# --- to the client ----------------------------------------------------------------------------------------------------------


class TranscriptOutput(Message):
    """What the user said. An interim one is the sign that they have begun to speak, whatever its text is: stop your player.

    Order of a barge-in: `speech-end` (cancelled) when a binary run is open; the interim with the new turn's id; `response-end`
    (cancelled); what is left of the old turn's `tool-…` commands; its `exit`; then the new turn.
    """

    model_config = shown_as(
        {
            "type": "transcript",
            "text": "two coffees please",
            "isInterim": False,
            "isSynthetic": False,
            "isAsynchronous": False,
            "provider": "Local",
            "turnId": "turn-1",
        }
    )

    type: Literal["transcript"]
    text: str
    is_interim: bool
    is_synthetic: bool
    """Made up by the engine: the user did not say it in these words, or not now."""
    is_asynchronous: bool
    """It comes late, and changes nothing."""
    provider: str
    turn_id: str


class PartialOutput(Message):
    """The words so far of an utterance under way, in place of the previous ones (`partials=true`). Never a barge-in."""

    model_config = shown_as({"type": "partial", "text": "two cof", "turnId": "turn-1"})

    type: Literal["partial"]
    text: str
    turn_id: str


class OfResponse(Message):
    turn_id: str
    response_id: str


class TokenOutput(OfResponse):
    """A piece of the answer's text, as the model makes it (`tokens=true`)."""

    model_config = shown_as(
        {"type": "token", "text": "Two cof", "turnId": "turn-1", "responseId": "response-1"},
    )

    type: Literal["token"]
    text: str


class TextOutput(OfResponse):
    """One sentence of the answer."""

    model_config = shown_as(
        {"type": "text", "text": "Two coffees, coming up.", "turnId": "turn-1", "responseId": "response-1"}
    )

    type: Literal["text"]
    text: str


class SpeechOutput(OfResponse):
    """At most 100 ms of the answer's speech (`wire=json`)."""

    model_config = shown_as(
        {
            "type": "speech",
            "data": "AAABAAIAAwA=",
            "encoding": "pcm16",
            "sampleRate": 24000,
            "isLast": False,
            "turnId": "turn-1",
            "responseId": "response-1",
        }
    )

    type: Literal["speech"]
    data: Base64
    """Whole samples; may be empty on the last one."""
    encoding: Encoding
    sample_rate: int
    is_last: bool
    """True once for a response that was completed, never for one that was cancelled."""
    visemes: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """The provider's own; absent when it has none."""
    blend_shape_weights: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    """The provider's own; absent when it has none."""


class SpeechStartOutput(OfResponse):
    """Binary frames of speech follow (`wire=binary`)."""

    model_config = shown_as(
        {
            "type": "speech-start",
            "encoding": "pcm16",
            "sampleRate": 24000,
            "turnId": "turn-1",
            "responseId": "response-1",
        }
    )

    type: Literal["speech-start"]
    encoding: Encoding
    sample_rate: int


class SpeechEndOutput(OfResponse):
    """The binary frames of this speech are over (`wire=binary`)."""

    model_config = shown_as({"type": "speech-end", "cancelled": False, "turnId": "turn-1", "responseId": "response-1"})

    type: Literal["speech-end"]
    cancelled: bool
    """True: it was cut, so what has not been played yet should not be."""


class MultimodalOutput(Message):
    """Something to look at, or a handover to another agent."""

    model_config = shown_as(
        {"type": "multimodal", "kind": "card", "name": "menu", "data": {"title": "Today"}, "turnId": "turn-1"}
    )

    type: Literal["multimodal"]
    kind: MultimodalKind
    name: str
    data: dict[str, Any]
    turn_id: str


class EmotionOutput(Message):
    """Whether the user is speaking, and what can be read from how."""

    model_config = shown_as(
        {"type": "emotion", "state": "userSpeaking", "scores": {"joy": 0.7}, "turnId": "turn-1"},
        {"type": "emotion", "state": None, "scores": {"joy": 0.7}, "turnId": "turn-1"},
    )

    type: Literal["emotion"]
    state: SpeakingState | None
    """Null when only scores are told."""
    scores: dict[str, float]
    turn_id: str


class EvaluationOutput(Message):
    """One verdict on the conversation, after its end."""

    model_config = shown_as(
        {"type": "evaluation", "name": "politeness", "score": 0.9, "reasons": ["It said please."]},
        {"type": "evaluation", "name": "order", "reasons": [], "data": {"coffees": 2}},
    )

    type: Literal["evaluation"]
    name: str
    score: float | SkipJsonSchema[None] = Field(default=None, json_schema_extra=without_default)
    """Absent for a verdict without one."""
    reasons: list[str]
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Absent for a verdict without any."""


class ErrorOutput(Message):
    """Something went wrong. A recoverable one changes nothing else; any other ends the session."""

    model_config = shown_as(
        {
            "type": "error",
            "code": "unknown_action",
            "message": "There is no action #dance; it was not passed on.",
            "recoverable": True,
            "whose": "client",
        }
    )

    type: Literal["error"]
    code: ErrorCode = Field(description="; ".join(f"`{code}`: {meaning}" for code, meaning in ERRORS.items()) + ".")
    message: str
    """A sentence that the user may be shown."""
    recoverable: bool
    whose: Whose
    """Whose fault it is."""


OUTPUTS: tuple[type[Message], ...] = (
    TranscriptOutput,
    PartialOutput,
    TokenOutput,
    TextOutput,
    SpeechOutput,
    SpeechStartOutput,
    SpeechEndOutput,
    MultimodalOutput,
    EmotionOutput,
    EvaluationOutput,
    ErrorOutput,
    *COMMANDS,
    OtherCommand,
)


def _kind(message: object) -> str | None:
    """Which of the union a message is: its type, and for a command its name."""
    if not isinstance(message, Mapping):
        return None
    fields = cast("Mapping[str, object]", message)
    kind = fields.get("type")
    if kind != "command":
        return kind if isinstance(kind, str) else None
    name = fields.get("name")
    return f"command {name}" if name in COMMAND_NAMES else "command"


AnyOutput = Annotated[
    Annotated[TranscriptOutput, Tag("transcript")]
    | Annotated[PartialOutput, Tag("partial")]
    | Annotated[TokenOutput, Tag("token")]
    | Annotated[TextOutput, Tag("text")]
    | Annotated[SpeechOutput, Tag("speech")]
    | Annotated[SpeechStartOutput, Tag("speech-start")]
    | Annotated[SpeechEndOutput, Tag("speech-end")]
    | Annotated[MultimodalOutput, Tag("multimodal")]
    | Annotated[EmotionOutput, Tag("emotion")]
    | Annotated[EvaluationOutput, Tag("evaluation")]
    | Annotated[ErrorOutput, Tag("error")]
    | Annotated[ReadyCommand, Tag("command ready")]
    | Annotated[ResponseEndCommand, Tag("command response-end")]
    | Annotated[RealtimeInstructionCommand, Tag("command realtime-instruction")]
    | Annotated[RealtimeInstructionOutcomeCommand, Tag("command realtime-instruction-outcome")]
    | Annotated[ResponseInstructionEndCommand, Tag("command response-instruction-end")]
    | Annotated[RealtimePlanningCommand, Tag("command realtime-planning")]
    | Annotated[PlanningPassCommand, Tag("command planning-pass")]
    | Annotated[RealtimeDelegationCommand, Tag("command realtime-delegation")]
    | Annotated[ToolStartCommand, Tag("command tool-start")]
    | Annotated[ToolSuccessCommand, Tag("command tool-success")]
    | Annotated[ToolErrorCommand, Tag("command tool-error")]
    | Annotated[SessionShouldEndCommand, Tag("command sessionShouldEnd")]
    | Annotated[ExitCommand, Tag("command exit")]
    | Annotated[SessionEndCommand, Tag("command session-end")]
    | Annotated[OtherCommand, Tag("command")],
    Discriminator(_kind),
]


class OutputMessage(RootModel[AnyOutput]):
    """One message to a client."""
