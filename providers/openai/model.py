"""The OpenAI Realtime provider (SPEC P1)."""

from collections.abc import Callable
from typing import ClassVar

from engine import registry
from engine.config import RealtimeProperties
from engine.errors import ConfigurationError
from engine.interfaces import (
    ChatModel,
    Context,
    PartFactory,
    RealtimeModel,
    RealtimeSession,
    SystemPrompt,
    ToolBox,
)
from engine.llm_log import logged
from engine.outside import chat_at
from providers.link import open_link
from providers.openai.connection import OpenLink, link_at
from providers.openai.properties import OpenAIProperties
from providers.openai.session import OpenAISession
from providers.openai.summary import COMPONENT
from providers.openai.targets import OneTarget, openai_target, targets_at

FindFactory = Callable[[str, str], PartFactory]
"""The factory of a group's component by its name; raises ConfigurationError when it is not installed."""


class OpenAIRealtimeModel(RealtimeModel):
    name: ClassVar[str] = "OpenAI"
    properties_class: ClassVar[type[RealtimeProperties]] = OpenAIProperties
    passes_boundary: ClassVar[bool] = True

    def __init__(self, link: OpenLink = open_link, find: FindFactory = registry.load) -> None:
        self._link = link
        self._find = find

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> RealtimeSession:
        properties = context.properties
        if not isinstance(properties, OpenAIProperties):
            raise ConfigurationError(f"The OpenAI provider cannot use the properties of {properties.provider}.")
        targets = targets_at(context.boundary, OneTarget(openai_target(properties, context.boundary)))
        chat = chat_for(properties, context, self._find)
        link = link_at(context.boundary, self.name, self._link)
        return OpenAISession(context, properties, system_prompt, tool_box, targets, link, chat)


def chat_for(properties: OpenAIProperties, context: Context, find: FindFactory) -> ChatModel | None:
    """What sums up a long conversation; None when none is configured.

    Raises:
        ConfigurationError: it is not installed, or not configured properly.
    """
    if not properties.chat:
        return None

    def make() -> ChatModel:
        chat: ChatModel = find("chat_models", str(properties.chat.get("provider", "OpenAI")))(properties.chat)
        return chat

    return logged(chat_at(context.boundary, COMPONENT, make), context, COMPONENT)
