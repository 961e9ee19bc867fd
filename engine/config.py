"""Settings and configurations: every timeout, size and limit of the engine is a named field here, with its unit and reason."""

from typing import Annotated, Any, Literal

import attrs
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, SettingsConfigDict

Encoding = Literal["pcm16", "mulaw"]
Wire = Literal["json", "binary"]
Gender = Literal["female", "male", "neutral"]

Positive = Annotated[float, Field(gt=0)]


class CamelModel(BaseModel):
    """A document whose field names are camelCase outside and snake_case inside; unknown fields are an error."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class RealtimeProperties(CamelModel):
    """What every provider's properties have (SPEC M2); a provider's own class adds its settings.

    `stt_provider` is the switch between the two modes of recognition: "None" leaves it to the provider, any other name routes
    audio through the engine's own recognizer of that name (M3).
    """

    provider: str
    stt_provider: str = "None"
    sample_rate: int = Field(default=24000, ge=8000, le=48000)
    """Hz, of the speech the model makes and of the audio it is given."""
    temperature: float = Field(default=0.8, ge=0, le=2)
    gender: Gender | None = None
    stt: dict[str, Any] = Field(default_factory=dict)
    """The engine's recognizer's own settings: model, baseUrl, apiKey, …"""
    turn_detection: dict[str, Any] = Field(default_factory=dict)
    """When an utterance ends: silenceMs, minSpeechMs, …"""

    @property
    def recognition(self) -> dict[str, Any]:
        """What the engine's recognizer is made from."""
        return {**self.stt, "provider": self.stt_provider, "turnDetection": self.turn_detection}

    @property
    def is_turnless(self) -> bool:
        """True for a model that speaks continuously and has no response that ends."""
        return False

    @property
    def has_tool_support(self) -> bool:
        """False for a model that calls no tool of its own."""
        return True

    @property
    def waits_for_planning(self) -> bool:
        """True for a model that asks for the session's end and waits until planning approves it (S0)."""
        return False


@attrs.frozen
class PipelineConfiguration:
    """One connection's wishes, normalized from query parameters and `X-` headers (SPEC L1; table on the protocol page)."""

    key: str = ""
    session_id: str = ""
    device_ref: str = ""
    speaker_ref: str = ""
    locales: tuple[str, ...] = ("en",)
    time_zone: str = "UTC"
    input_encoding: Encoding = "pcm16"
    output_encoding: Encoding = "pcm16"
    input_sample_rate: int = 16000
    output_sample_rate: int = 24000
    wire: Wire = "json"
    text_only: bool = False
    tokens: bool = False
    partials: bool = False
    test_mode: bool = False
    no_system_prompt: bool = False
    realtime_configuration_id: str = ""
    warnings: tuple[str, ...] = ()
    """What did not parse and fell back to a default; told to the client in `ready`."""

    @property
    def locale(self) -> str:
        return self.locales[0] if self.locales else "en"


class Settings(BaseSettings):
    """The engine's numbers. Each is also `SOUFFLEUR_NAME` in the environment."""

    model_config = SettingsConfigDict(env_prefix="SOUFFLEUR_", extra="ignore", frozen=True)

    # Turns
    idle_response_end_seconds: Positive = 20.0
    """Silence of the model inside a response window that ends the response (M7)."""
    interim_lapse_seconds: Positive = 2.0
    """An interim without words for this long: the answer it cut is asked for again (L12)."""
    utterance_limit_seconds: Positive = 35.0
    """The longest a user can be taken to be speaking: recognizers cut utterances at 30 s, the rest is their delay."""
    sentence_release_seconds: Positive = 0.3
    """Turnless models: quiet after a closing token that releases the sentence (M6)."""
    exit_save_seconds: Positive = 2.0
    """The longest `exit` waits for the turn's write; then it says `saved: false` (L15)."""
    turn_end_seconds: Positive = 10.0
    """Bound of the turn_end hook."""
    superseded_response_memory: int = Field(default=256, ge=16)
    """How many ended responses a session remembers by id, to drop what comes late."""

    # Session
    session_end_timeout_seconds: Positive = 20.0
    """From the end of the client's input to the forced end of the output (L7)."""
    connect_seconds: Positive = 10.0
    """The longest a provider may take to acknowledge its configuration (M9, case C29)."""
    session_start_seconds: Positive = 30.0
    """Bound of on_session_start and of the system prompt: the client waits through both."""
    cleanup_seconds: Positive = 10.0
    """Bound of everything that happens after a session has ended: saving, usage, the disconnect hook (law 8)."""
    release_seconds: Positive = 3.0
    """Bound of leaving what a session held open, such as connections to servers of tools, after all of that."""
    tool_seconds: Positive = 30.0
    """A tool's time limit when it declares none."""
    activity_gap_seconds: Positive = 30.0
    """The most one gap counts towards the active duration (M11)."""
    max_session_minutes: Positive = 60.0
    """The longest a conversation lasts when its agent says nothing else (L23)."""
    goodbye_extra_seconds: Positive = 5.0
    """How long after the length of the goodbye the server waits for proof that it was heard."""

    # Lifecycle
    evaluation_seconds: Positive = 20.0
    """Bound of the end-of-conversation evaluation; a client that waits for its results waits so long (L6)."""
    chat_event_seconds: Positive = 30.0
    """Bound of the work on a chat event; whoever sent it waits so long (L18)."""
    takeover_wait_seconds: Positive = 1.0
    """How long a connection that takes a session over waits for the older one of the same process to save its open turn."""
    fence_watch_seconds: Positive = 1.0
    """Time between looks whether another process has taken a session over."""
    revocation_watch_seconds: Positive = 10.0
    """Time between looks whether the credentials of running sessions still hold: a third of the 30 s they may last."""
    webhook_private_addresses: bool = False
    """Whether webhooks may call addresses of private networks and of this computer."""
    configuration_cache_seconds: Positive = 900.0
    """How long a realtime configuration is remembered before it is read again (P10)."""

    # Sizes
    element_channel: int = Field(default=64, ge=1)
    """Elements between the model and the turns. The turns never wait for the client, so this only evens out bursts."""
    model_input_channel: int = Field(default=16, ge=1)
    """Inputs between the client's side and the model."""
    inbox_bytes: int = Field(default=8 << 20, ge=1 << 16)
    """Audio and images received and not yet taken: over four minutes of 16 kHz speech."""
    inbox_elements: int = Field(default=512, ge=8)
    """Elements received and not yet taken; neighbouring audio is joined, so this counts what is not audio."""
    inbox_wait_seconds: Positive = 10.0
    """The longest the reader waits for room in the inbox before the client is closed as flooding."""
    outbox_speech_seconds: Positive = 120.0
    """Unsent speech held for a client; more of the same response is shed and reported (law 3)."""
    outbox_elements: int = Field(default=10_000, ge=100)
    """Unsent elements other than speech; a client so far behind is closed."""
    slow_client_seconds: Positive = 10.0
    """A socket that accepts nothing for this long while something waits is closed (1008)."""
    max_frame_bytes: int = Field(default=1 << 20, ge=1 << 12)
    """The largest frame a client may send (1009); 1 MiB is 30 s of 16 kHz speech (case C44)."""
    speech_frame_ms: int = Field(default=100, ge=10)
    """The most audio in one frame to the client."""
    history_messages: int = Field(default=400, ge=10)
    """Messages a conversation keeps in memory; older ones stay in the store."""
    text_characters: int = Field(default=16_000, ge=100)
    """The longest typed utterance."""

    # Server
    ping_seconds: Positive = 20.0
    """Time between pings, and the time a silent peer then has (L23)."""
    max_sessions: int = Field(default=200, ge=1)
    """Sessions a process admits; more get 503 or 1013."""
    max_lateness_seconds: Positive = 0.1
    """How late the loop may serve those inside before nobody else is let in: five frames of audio, about what players hold back."""
    http_turn_seconds: Positive = 120.0
    """The longest a turn over HTTP may take, from its call to its end; proxies commonly give up on a request not much later."""
    http_body_seconds: Positive = 30.0
    """The longest a client may take to send the body of a call to a pipeline: 1 MiB at 280 kbit/s."""
    drain_seconds: Positive = 15.0
    """How long conversations may go on when the server is asked to stop. What follows takes 14 s at most (the clean-up, and two
    waits for the client), and both fit into the 30 s that orchestrators commonly give."""
    allowed_hosts: tuple[str, ...] = ()
    """Names this server is reached by besides its own addresses: those of a proxy in front of it."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may talk to it, such as https://example.com; its own pages always may."""
    allowed_setup_names: tuple[str, ...] = ()
    """Setups this deployment accepts; empty accepts all that are known (L2)."""

    # Observability (T5)
    contract_sample_rate: float = Field(default=0.01, ge=0, le=1)
    """The share of sessions whose output is held against the published contract while it is sent; 0: none. At 1 µs an element and
    0.3 µs a frame of speech all of them could be: it is a share so that a fault of the contract itself cannot flood a log."""
    tracing: bool = False
    """Send traces to where OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_ENDPOINT and others); needs the extra `otel`."""

    # Identity (L8)
    admin_key: SecretStr = SecretStr("")
    """The admin key itself; empty: the one in the key file."""
    jwt_secret: str = Field(default="", repr=False)
    """Where the secret is that tokens are signed with (HS256): `env:NAME` or `file:PATH`. Empty: no such tokens are taken."""
    jwt_keys: str = ""
    """The public keys (a JWKS) of who signs tokens with RS256 or ES256: a file, or an https URL. Empty: no such tokens are taken."""
    jwt_audience: str = ""
    """What a token's `aud` has to name. Leave it empty only where every token of the issuer is meant for this server."""
    jwt_issuer: str = ""
    """What a token's `iss` has to be."""
    jwt_leeway_seconds: float = Field(default=30.0, ge=0, le=600)
    """How far the clocks of the issuer and of this server may be apart."""
    jwt_role_claim: str = ""
    """The claim that carries roles (`member`, `owner`, `admin`; one or a list). Empty: tokens make members."""
    jwt_single_use: bool = False
    """Every token holds once; it then needs a `jti`."""


def properties_from(document: dict[str, Any], classes: dict[str, type[RealtimeProperties]]) -> RealtimeProperties:
    """The provider's own properties from a stored or written document.

    Raises:
        ValueError: the provider is unknown, or a field does not fit (pydantic's ValidationError is a ValueError).
    """
    provider = document.get("provider")
    if not isinstance(provider, str) or provider not in classes:
        known = ", ".join(sorted(classes)) or "none"
        raise ValueError(f"unknown provider {provider!r}; installed providers: {known}")
    return classes[provider].model_validate(document)
