"""What is stored. Times are aware UTC datetimes; ids are opaque strings."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from engine.config import CamelModel


class SessionState(StrEnum):
    OPEN = "OPEN"
    IDLE = "IDLE"
    CLOSED = "CLOSED"
    DISCONNECTED = "DISCONNECTED"


class SessionDocument(CamelModel):
    """A session. Written OPEN before its agent is known, saved again when the check has passed and when it ends (L5, L6)."""

    id: str
    state: SessionState = SessionState.OPEN
    fence: int = Field(default=0, ge=0)
    """Counts the openings. Who opened it last may write; everybody with an older number has been taken over."""
    key: str = ""
    owner: str = ""
    """Who may resume it: a user, else the device or speaker it came from."""
    user_id: str = ""
    user_name: str = ""
    user_email: str = ""
    device_ref: str = ""
    agent: str = ""
    project_ref: str = ""
    locale: str = "en"
    time_zone: str = "UTC"
    test_mode: bool = False
    created_at: datetime
    updated_at: datetime
    turn_count: int = 0
    rating: int | None = None
    rating_text: str = ""
    end_reason: str = ""
    evaluations: list["EvaluationRecord"] = Field(default_factory=list["EvaluationRecord"])
    recordings: list[str] = Field(default_factory=list[str])
    """File names beside the store, one for each run that was recorded (L10)."""
    steering: "SteeringRecord | None" = None
    """How planning has steered it, over all its runs. None: nobody planned, or it was stored before this was counted."""


class EvaluationRecord(CamelModel):
    """One verdict of the end-of-conversation evaluation (L6)."""

    name: str
    score: float | None = Field(default=None, allow_inf_nan=False)
    reasons: list[str] = Field(default_factory=list[str])
    data: dict[str, Any] | None = None


class Staleness(CamelModel):
    """Over the beginnings of responses; None when none began under a plan."""

    mean: float | None = Field(default=None, allow_inf_nan=False)
    max: float | None = Field(default=None, allow_inf_nan=False)


class SteeringRecord(CamelModel):
    """How a session was steered. Its whispers are in the turns; those that are none of the four are pending."""

    instructions: int = 0
    spoken: int = 0
    used: int = 0
    superseded: int = 0
    unused: int = 0
    passes: int = 0
    planned_passes: int = 0
    """Those that have written their plan."""
    cancelled_passes: int = 0
    """Those that the user, or the end, has stopped."""
    responses: int = 0
    """Those that began when there was a plan."""
    plan_staleness_turns: Staleness = Staleness()
    """Utterances of the user since the plan was written; 1 is as fresh as an answer's plan can be."""
    plan_staleness_seconds: Staleness = Staleness()


class TurnInputRecord(CamelModel):
    text: str = ""
    kind: Literal["speech", "text", "action", "none"] = "none"


class TurnOutputRecord(CamelModel):
    """One response's words: `text` what was made, `heard` what of it the user heard (law 5)."""

    text: str
    heard: str
    response_id: str = ""
    status: str = "completed"


class ToolRecord(CamelModel):
    call_id: str
    name: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    result: Any = None
    error: str = ""
    owner: Literal["model", "planner"] = "model"


class InstructionOutcome(StrEnum):
    """What became of an instruction; `engine.protocol.steering` has the rules."""

    PENDING = "pending"
    SPOKEN = "spoken"
    """A response was made to say it."""
    USED = "used"
    """A response began that could know it."""
    SUPERSEDED = "superseded"
    UNUSED = "unused"


class InstructionRecord(CamelModel):
    """What planning whispered in a turn, and which answer it steered: often the next turn's, so that is added later."""

    type: str
    text: str
    id: str = ""
    pass_id: str = ""
    """The planning pass that made it: the turn's id and the number of the pass."""
    injected_ms: int | None = None
    """From the turn's start."""
    outcome: InstructionOutcome | None = None
    """None: it was stored before this was known."""
    response_id: str = ""
    """The response that spoke or used it."""
    spoken_in_turn: str = ""
    """That response's turn."""


class TimingLog(CamelModel):
    """Milliseconds from the turn's start (L15)."""

    last_interim: int | None = None
    final_transcript: int | None = None
    first_text: int | None = None
    last_text: int | None = None
    first_audio: int | None = None
    last_audio: int | None = None


class TurnDocument(CamelModel):
    """A turn as it is stored and shown (protocol page, section 3)."""

    id: str
    session_id: str
    index: int
    started_at: datetime
    input: TurnInputRecord = TurnInputRecord()
    output: list[TurnOutputRecord] = Field(default_factory=list[TurnOutputRecord])
    interrupted: bool = False
    tools: list[ToolRecord] = Field(default_factory=list[ToolRecord])
    instructions: list[InstructionRecord] = Field(default_factory=list[InstructionRecord])
    multimodal: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    timing: TimingLog = TimingLog()


class UsageDocument(CamelModel):
    """One record per session run (L16). Tokens are totals; `cached_tokens` are part of `input_tokens`."""

    id: str
    session_id: str
    provider: str
    project_ref: str = ""
    agent: str = ""
    test_mode: bool = False
    active_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    turns: int = 0
    created_at: datetime


class MessageDocument(CamelModel):
    """One line of a conversation without turns, or of a chat (L17)."""

    id: str
    session_id: str
    position: int = Field(ge=0)
    role: Literal["user", "assistant"]
    text: str
    created_at: datetime


class LogKind(StrEnum):
    PROMPT = "prompt"
    INSTRUCTION = "instruction"
    TOOL = "tool"
    CHAT = "chat"


class LogEntry(CamelModel):
    """One entry of a session's LLM log (L22): what a model was told, and what it cost."""

    id: str
    session_id: str
    position: int = Field(ge=0)
    """Grows within a session, over its runs; the order of the log."""
    at: datetime
    kind: LogKind
    component: str = ""
    """Who asked: "speaker", "planner", an extractor's or a judge's name."""
    model: str = ""
    turn_id: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    duration_ms: int | None = None
    content: dict[str, Any] | None = None
    """What was said: the prompt's or instruction's text, the call with its result, the messages and the answer. None: redacted."""


class ResourceKind(StrEnum):
    """What the management API keeps."""

    PROJECT = "projects"
    AGENT = "agents"
    TEMPLATE = "templates"
    TEMPLATE_REVISION = "template-revisions"
    REALTIME_CONFIGURATION = "realtime-configurations"
    USER = "users"
    API_KEY = "api-keys"
    DEVICE = "devices"


class Resource(CamelModel):
    """A managed document. `version` counts its writes, from 1; it is the ETag."""

    kind: ResourceKind
    id: str
    version: int = Field(default=0, ge=0)
    body: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class MemoryDocument(CamelModel):
    """One revision of something that is remembered: a user's facts, a session's plan, a summary. Revisions count from 1."""

    id: str
    scope: str
    """Whose it is, such as "user:anna" or "session:s1"."""
    name: str
    """What it is, such as "facts" or "plan"."""
    revision: int = Field(default=0, ge=0)
    body: dict[str, Any]
    session_id: str = ""
    created_at: datetime


class Lease(CamelModel):
    """The right to work at something, for one holder at a time and until a time (case C50)."""

    name: str
    token: str
    """The holder's own, made up anew for each try."""
    fence: int
    """Grows with each new holder: what is written under a lease carries it."""
    expires_at: datetime


class Delivery(CamelModel):
    """A webhook call that is owed. It is kept until it was taken or given up, whichever process does it."""

    id: str
    session_id: str
    url: str
    secret: str = ""
    """A reference (`env:NAME`, `file:PATH`), never the secret."""
    body: str
    """JSON text, as it is signed."""
    attempts: int = 0
    due_at: datetime
    expires_at: datetime
    """When it is given up."""
    done: bool = False
    outcome: str = ""
    """How it ended, in words for an operator."""
