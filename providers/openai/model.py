"""The OpenAI Realtime provider (SPEC P1)."""

from typing import ClassVar

from engine.config import RealtimeProperties
from engine.errors import ConfigurationError
from engine.interfaces import Context, RealtimeModel, RealtimeSession, SystemPrompt, ToolBox
from providers.link import open_link
from providers.openai.connection import OpenLink
from providers.openai.properties import OpenAIProperties
from providers.openai.session import OpenAISession
from providers.openai.targets import OneTarget, openai_target


class OpenAIRealtimeModel(RealtimeModel):
    name: ClassVar[str] = "OpenAI"
    properties_class: ClassVar[type[RealtimeProperties]] = OpenAIProperties

    def __init__(self, link: OpenLink = open_link) -> None:
        self._link = link

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> RealtimeSession:
        properties = context.properties
        if not isinstance(properties, OpenAIProperties):
            raise ConfigurationError(f"The OpenAI provider cannot use the properties of {properties.provider}.")
        targets = OneTarget(openai_target(properties))
        return OpenAISession(context, properties, system_prompt, tool_box, targets, self._link)
