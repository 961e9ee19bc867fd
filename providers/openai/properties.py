"""Settings of the OpenAI Realtime provider (protocol page, section 5)."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from engine.config import CamelModel, RealtimeProperties

OPENAI_URL = "wss://api.openai.com/v1/realtime"
OPENAI_KEY = "env:OPENAI_API_KEY"
SAMPLE_RATE = 24000
"""Hz. The API takes and gives PCM at no other rate."""
LIVE_MODELS = "gpt-live"
"""How the models' names begin that speak the other protocol."""


class TurnDetection(CamelModel):
    """When the provider takes an utterance for ended. What is left out is the provider's own default."""

    type: Literal["server_vad", "semantic_vad", "none"] = "server_vad"
    """none: push-to-talk; the client's `commit` ends an utterance."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    prefix_padding_ms: int | None = Field(default=None, ge=0, le=5000)
    silence_ms: int | None = Field(default=None, ge=0, le=10_000)
    min_speech_ms: int | None = Field(default=None, ge=0)
    """Of the engine's own recognition; this provider has nothing like it."""
    eagerness: Literal["low", "medium", "high", "auto"] | None = None

    def wire(self) -> dict[str, Any] | None:
        if self.type == "none":
            return None
        detection: dict[str, Any] = {"type": self.type, "create_response": True, "interrupt_response": True}
        fields = (
            {"eagerness": self.eagerness}
            if self.type == "semantic_vad"
            else {
                "threshold": self.threshold,
                "prefix_padding_ms": self.prefix_padding_ms,
                "silence_duration_ms": self.silence_ms,
            }
        )
        return detection | {name: value for name, value in fields.items() if value is not None}


class OpenAIProperties(RealtimeProperties):
    """`sttProvider` "None" leaves recognition and turn detection to the provider; any other name sends it words only (M3)."""

    provider: str = "OpenAI"
    model: str = "gpt-realtime"
    voice: str = "marin"
    base_url: str = Field(default=OPENAI_URL, pattern=r"^wss?://[^\s#@]+$")
    api_key: str = ""
    """A reference: `env:NAME`, `file:PATH` or `none`. May be left out for OpenAI itself, then `env:OPENAI_API_KEY`."""
    sample_rate: int = Field(default=SAMPLE_RATE, ge=SAMPLE_RATE, le=SAMPLE_RATE)
    temperature: float = Field(default=0.8, ge=0, le=2)
    """Told in `ready`; the API has no such field any more."""
    transcription_model: str = "gpt-4o-mini-transcribe"
    noise_reduction: Literal["near_field", "far_field"] | None = None
    speed: float | None = Field(default=None, ge=0.25, le=1.5)
    max_output_tokens: int | None = Field(default=None, ge=1, le=4096)
    chat: dict[str, Any] = Field(default_factory=dict)
    """A chat model (its provider's name and its own settings) that sums up the beginning of a conversation when its connection is
    renewed, before the provider ends it. Without one the last 30 messages are all that is told."""
    reconnect_attempts: int = Field(default=2, ge=0, le=10)
    """Tries to get a connection back that was lost in the middle of a conversation, within `RECONNECT_SECONDS` in all."""

    @field_validator("model")
    @classmethod
    def _is_no_live_model(cls, model: str) -> str:
        if model.startswith(LIVE_MODELS):
            raise ValueError("must be a model of the Realtime API; those of GPT-Live are of provider OpenAILive")
        return model

    @model_validator(mode="after")
    def _has_a_key(self) -> "OpenAIProperties":
        if not self.api_key and self.base_url != OPENAI_URL:
            raise ValueError("apiKey is needed for an address of your own (none for an endpoint without keys)")
        return self

    @property
    def key_reference(self) -> str:
        return self.api_key or OPENAI_KEY

    @property
    def detection(self) -> TurnDetection:
        return TurnDetection.model_validate(self.turn_detection)

    @property
    def waits_for_planning(self) -> bool:
        return True

    @property
    def hears(self) -> bool:
        """Whether the provider gets the audio and recognizes by itself."""
        return self.stt_provider == "None"
