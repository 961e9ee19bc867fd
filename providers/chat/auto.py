"""The chat part `Auto`: whichever chat model the environment offers, else the scripted one that needs nothing.

    chat: {provider: Auto}

- `SOUFFLEUR_CHAT_BASE_URL` set: that OpenAI-compatible endpoint, with `SOUFFLEUR_CHAT_MODEL` (required) and `SOUFFLEUR_CHAT_KEY`
  (left out for an endpoint without keys). It goes before OpenAI, whose key is never sent to it.
- else `OPENAI_API_KEY` set: OpenAI, with `SOUFFLEUR_CHAT_MODEL` or a default.
- for planning (`reasoning: true`), `SOUFFLEUR_PLANNING_MODEL` goes before `SOUFFLEUR_CHAT_MODEL` in both, and the default is a
  model that reasons.
- else `Demo`.

A variable that is set to nothing is not set. The choice is made when the model is made, so once per session.
"""

import os
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from engine import registry
from engine.config import CamelModel
from engine.errors import ConfigurationError
from engine.interfaces import ChatModel

DEFAULT_MODEL = "gpt-4.1-mini"
"""Calls tools well and answers without reasoning first: somebody is waiting for the first word."""
DEFAULT_REASONING_MODEL = "gpt-5-mini"
"""Reasons, and is done within seconds: the next turn waits for it."""


class AutoConfiguration(CamelModel):
    """What is the same for every model it may choose; where and with which key is the environment's to say."""

    provider: str = "Auto"
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    reasoning: bool = False
    """For one that thinks before it answers and never speaks: a planner (R1)."""


def choose(environment: Mapping[str, str], *, reasoning: bool = False) -> dict[str, Any]:
    """The chat part that the environment asks for.

    Raises:
        ConfigurationError: an endpoint without its model.
    """
    base_url, model = environment.get("SOUFFLEUR_CHAT_BASE_URL", ""), environment.get("SOUFFLEUR_CHAT_MODEL", "")
    default = DEFAULT_MODEL
    if reasoning:
        model, default = environment.get("SOUFFLEUR_PLANNING_MODEL", "") or model, DEFAULT_REASONING_MODEL
    if base_url:
        if not model:
            raise ConfigurationError(
                "SOUFFLEUR_CHAT_BASE_URL is set: set SOUFFLEUR_CHAT_MODEL to one of its models as well"
            )
        key = "env:SOUFFLEUR_CHAT_KEY" if environment.get("SOUFFLEUR_CHAT_KEY") else "none"
        return {"provider": "OpenAI", "baseUrl": base_url, "model": model, "apiKey": key}
    if environment.get("OPENAI_API_KEY"):
        return {"provider": "OpenAI", "model": model or default, "apiKey": "env:OPENAI_API_KEY"}
    return {"provider": "Demo"}


def make_chat_model(configuration: Mapping[str, Any]) -> ChatModel:
    """The part from its configuration and the environment.

    Raises:
        ConfigurationError: a field is wrong, or what was chosen is not configured properly.
    """
    try:
        settings = AutoConfiguration.model_validate(dict(configuration))
    except ValidationError as exc:
        faults = "; ".join(f"chat.{'.'.join(map(str, error['loc']))}: {error['msg'].lower()}" for error in exc.errors())
        raise ConfigurationError(f"the part 'chat' is not configured properly: {faults}") from exc
    part = choose(os.environ, reasoning=settings.reasoning)
    if part["provider"] == "OpenAI":
        part |= settings.model_dump(by_alias=True, exclude_none=True, exclude={"provider", "reasoning"})
    made: ChatModel = registry.load("chat_models", part["provider"])(part)
    return made
