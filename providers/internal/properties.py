"""Properties of the Internal provider: the parts it is composed of, each with its own settings."""

from typing import Any

from pydantic import Field

from engine.config import RealtimeProperties


class InternalProperties(RealtimeProperties):
    """`sttProvider` names the engine's recognizer and defaults to a real one: the session itself only sees words (P8)."""

    provider: str = "Internal"
    stt_provider: str = "Local"
    tts_provider: str = "Local"
    tts: dict[str, Any] = Field(default_factory=dict)
    """The synthesizer's own settings: voice, model, baseUrl, apiKey, …"""
    chat: dict[str, Any] = Field(default_factory=lambda: {"provider": "Demo"})
    """The chat model: its provider's name and its own settings."""

    @property
    def synthesis(self) -> dict[str, Any]:
        """What the synthesizer is made from."""
        return {**self.tts, "provider": self.tts_provider}

    @property
    def waits_for_planning(self) -> bool:
        return True
