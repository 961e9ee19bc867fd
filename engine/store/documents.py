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
    key: str = ""
    owner: str = ""
    """Who may resume it: a user, else the device or speaker it came from."""
    user_id: str = ""
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


class InstructionRecord(CamelModel):
    type: str
    text: str


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
