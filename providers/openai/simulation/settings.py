"""The settings of a session: what they are at first, and what an update makes of them."""

import copy
from typing import Any

from providers.openai.simulation import rules
from providers.openai.simulation.checks import Json
from providers.openai.simulation.shapes import TRANSCRIPTION_MODELS
from providers.openai.simulation.sound import Format

PCM: Json = {"type": "audio/pcm", "rate": 24000}
SERVER_VAD: Json = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 200,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
SEMANTIC_VAD: Json = {
    "type": "semantic_vad",
    "eagerness": "auto",
    "create_response": True,
    "interrupt_response": True,
}
_VAD = {"server_vad": SERVER_VAD, "semantic_vad": SEMANTIC_VAD}
_FIRST: dict[str, Json] = {
    "transcription": {"model": None, "language": None, "prompt": None},
    "noise_reduction": {"strength": 1.0},
}
"""What a setting has, when it is first switched on, besides what is asked for."""
DEFAULT_INSTRUCTIONS = "You are the simulated voice of a service: friendly, brief and predictable."
REASONING_MODEL = "gpt-realtime-2"
"""Reasoning is for models whose names begin so."""

REALTIME, TRANSCRIPTION = "realtime", "transcription"


def default_session(kind: str, session_id: str, model: str, expires_at: int) -> Json:
    """A session as it is created."""
    audio_input: Json = {
        "format": dict(PCM),
        "transcription": None,
        "noise_reduction": None,
        "turn_detection": dict(SERVER_VAD),
    }
    if kind == TRANSCRIPTION:
        return {
            "type": TRANSCRIPTION,
            "object": "realtime.transcription_session",
            "id": session_id,
            "expires_at": expires_at,
            "audio": {"input": audio_input},
            "include": None,
        }
    return {
        "type": REALTIME,
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "output_modalities": ["audio"],
        "instructions": DEFAULT_INSTRUCTIONS,
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "expires_at": expires_at,
        "audio": {
            "input": audio_input,
            "output": {"format": dict(PCM), "voice": "alloy", "speed": 1.0},
        },
        "include": None,
    }


class Settings:
    """A session's settings now.

    Args:
        kind: `realtime` or `transcription`.
        azure: Names of models are names of deployments, and say nothing.
    """

    def __init__(self, kind: str, session_id: str, model: str, expires_at: int, *, azure: bool) -> None:
        self.kind = kind
        self.session = default_session(kind, session_id, model, expires_at)
        self.input_format = Format.PCM
        self._azure = azure

    # --- what they are

    @property
    def turn_detection(self) -> Json | None:
        found: Json | None = self.session["audio"]["input"]["turn_detection"]
        return found

    @property
    def transcription(self) -> Json | None:
        found: Json | None = self.session["audio"]["input"]["transcription"]
        return found

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.session["include"])

    # --- what an update makes of them

    def update(self, changes: Json, *, spoke: bool, responding: bool) -> None:
        """Take the keys that are present, or none of them.

        Args:
            spoke: The model has said something aloud.
            responding: A response is under way.

        Raises:
            Refused: the changes do not fit together, the model or the state of the session.
        """
        if changes["type"] != self.kind:
            raise rules.not_for_this_session(f"a {changes['type']} session update event", self.kind)
        merged = copy.deepcopy(self.session)
        for key, value in changes.items():
            if key == "audio":
                for side, settings in value.items():
                    now: Json = merged["audio"][side]
                    now |= {name: _merged_setting(name, now[name], change) for name, change in settings.items()}
            elif key == "reasoning":
                merged[key] = {**merged.get(key, {}), **value}
            else:
                merged[key] = copy.deepcopy(value)
        self._check_fixed(merged, spoke=spoke, responding=responding)
        self._check_features(changes, merged)
        self.session = merged
        self.input_format = Format.of(merged["audio"]["input"]["format"])

    def _check_fixed(self, merged: Json, *, spoke: bool, responding: bool) -> None:
        before = self.session
        if self.kind == TRANSCRIPTION:
            return
        if merged["model"] != before["model"]:
            raise rules.model_is_fixed()
        if before["tracing"] is not None and merged["tracing"] != before["tracing"]:
            raise rules.tracing_is_fixed()
        old, new = before["audio"]["output"], merged["audio"]["output"]
        if spoke and new["voice"] != old["voice"]:
            raise rules.voice_is_fixed()
        if responding and new["speed"] != old["speed"]:
            raise rules.speed_is_fixed()

    def _check_features(self, changes: Json, merged: Json) -> None:
        """Names of deployments do not tell what they are, so on Azure nothing is known that could be wrong."""
        if self._azure:
            return
        check_reasoning(changes, str(merged.get("model", "")), "session")
        transcription: Json | None = merged["audio"]["input"]["transcription"]
        if transcription is not None:
            _check_transcription(transcription)
            detects = merged["audio"]["input"]["turn_detection"] is not None
            if self.kind == TRANSCRIPTION and transcription.get("model") == "gpt-realtime-whisper" and detects:
                raise rules.unsupported(
                    "session.audio.input.turn_detection", "with gpt-realtime-whisper in a transcription session"
                )


def check_reasoning(given: Json, model: str, path: str) -> None:
    """Raises `Refused` when something is asked for that only reasoning models have."""
    for key in ("reasoning", "parallel_tool_calls"):
        if key in given and not model.startswith(REASONING_MODEL):
            raise rules.unsupported(f"{path}.{key}", "with this model")


def _merged_setting(key: str, before: Any, change: Any) -> Any:
    """One setting of a side of the audio: null clears it, objects take over what an update leaves out."""
    if key == "format":
        return _whole_format(change)
    if change is None or key in ("voice", "speed"):
        return copy.deepcopy(change)
    if key == "turn_detection" and (before is None or before["type"] != change["type"]):
        before = _VAD[change["type"]]
    return {**(before or _FIRST[key]), **change}


def _whole_format(given: Json) -> Json:
    return {**PCM, **given} if given["type"] == "audio/pcm" else dict(given)


def _check_transcription(settings: Json) -> None:
    path = "session.audio.input.transcription"
    model: Any = settings.get("model")
    if model is None:
        raise rules.missing(f"{path}.model")
    if model not in TRANSCRIPTION_MODELS:
        raise rules.wrong_choice(f"{path}.model", model, TRANSCRIPTION_MODELS)
    if settings.get("delay") is not None and model != "gpt-realtime-whisper":
        raise rules.unsupported(f"{path}.delay", f"with {model}")
    for key in ("keywords", "languages"):
        if settings.get(key) is not None and model not in ("gpt-transcribe", "gpt-live-transcribe"):
            raise rules.unsupported(f"{path}.{key}", f"with {model}")
    if settings.get("prompt") is not None and model == "gpt-realtime-whisper":
        raise rules.unsupported(f"{path}.prompt", f"with {model}")
