"""The chat models that an agent's own tasks ask: its planners, what condenses and judges (SPEC R1)."""

import logging
from collections.abc import Callable
from typing import Any

from agents.definitions import ModelConfiguration
from engine import registry
from engine.errors import ConfigurationError
from engine.interfaces import ChatModel, Context, PartFactory
from engine.llm_log import logged
from engine.outside import chat_at

logger = logging.getLogger(__name__)

FindFactory = Callable[[str, str], PartFactory]
"""The factory of a group's component by its name; raises ConfigurationError when it is not installed."""

REASONING: dict[str, Any] = {"provider": "Auto", "reasoning": True}
"""What plans unless the agent says otherwise: a reasoning model, where the environment offers one (R1)."""
QUICK: dict[str, Any] = {"provider": "Auto"}
"""What reads a conversation that goes on beside it: extraction and evaluation."""


def settings_of(configuration: ModelConfiguration | None, default: dict[str, Any]) -> dict[str, Any]:
    """What a chat model is made from."""
    return dict(default) if configuration is None else configuration.model_dump(by_alias=True, exclude_none=True)


def make_chat_model(
    settings: dict[str, Any], context: Context, component: str, find: FindFactory = registry.load
) -> ChatModel | None:
    """A chat model, whose invocations are in the session's LLM log as that component's. None when it cannot be had: what it was
    for is left out, and the conversation goes on."""

    def make() -> ChatModel:
        chat: ChatModel = find("chat_models", str(settings["provider"]))(settings)
        return chat

    try:
        chat = chat_at(context.boundary, component, make)
    except ConfigurationError as exc:
        logger.error("the chat model for %s cannot be used: %s", component, exc)
        return None
    return logged(chat, context, component)
