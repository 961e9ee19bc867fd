"""The Internal provider: recognition by the engine, any streaming chat model, and speech synthesis, composed (SPEC P8)."""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from engine import registry
from engine.config import RealtimeProperties
from engine.errors import ConfigurationError
from engine.interfaces import (
    Context,
    Part,
    PartFactory,
    RealtimeModel,
    Synthesizer,
    SystemPrompt,
    ToolBox,
)
from engine.llm_log import logged
from engine.outside import chat_at, synthesizer_at
from providers.internal.properties import InternalProperties
from providers.internal.session import InternalSession

COMPONENT = "speaker"
"""Whose calls of the chat model these are, in the session's LLM log."""
KEPT_PARTS = 64
"""Parts kept for sessions of the same configuration: a part holds connections or engines, and no session's state."""

FindFactory = Callable[[str, str], PartFactory]
"""The factory of a group's component by its name; raises ConfigurationError when it is not installed."""


class InternalRealtimeModel(RealtimeModel):
    name: ClassVar[str] = "Internal"
    properties_class: ClassVar[type[RealtimeProperties]] = InternalProperties
    passes_boundary: ClassVar[bool] = True

    def __init__(self, find: FindFactory = registry.load) -> None:
        self._find = find
        self._parts: OrderedDict[str, Any] = OrderedDict()

    def process(
        self, context: Context, system_prompt: SystemPrompt, tool_box: ToolBox, can_delegate: bool = False
    ) -> InternalSession:
        properties = context.properties
        if not isinstance(properties, InternalProperties):
            raise ConfigurationError(f"The Internal provider cannot use the properties of {properties.provider}.")
        make_chat = partial(self._part, "chat_models", properties.chat)
        chat = logged(chat_at(context.boundary, COMPONENT, make_chat), context, COMPONENT)
        synthesizer: Synthesizer | None = None
        if not context.configuration.text_only:
            name = str(properties.synthesis.get("provider", ""))
            make_synthesizer = partial(self._part, "synthesizers", properties.synthesis)
            synthesizer = synthesizer_at(context.boundary, name, make_synthesizer)
        return InternalSession(context, properties, system_prompt, tool_box, chat, synthesizer)

    def parts(self, properties: RealtimeProperties) -> Sequence[Part]:
        if not isinstance(properties, InternalProperties):
            return ()
        return self._part("chat_models", properties.chat), self._part("synthesizers", properties.synthesis)

    def _part(self, group: str, configuration: dict[str, Any]) -> Any:
        """The part of that configuration, made once.

        Raises:
            ConfigurationError: it is not installed or not configured; says what to do.
        """
        key = json.dumps([group, configuration], sort_keys=True, default=str)
        if key not in self._parts:
            provider = configuration.get("provider")
            if not isinstance(provider, str):
                raise ConfigurationError(f"The configuration of {group.replace('_', ' ')} names no provider.")
            self._parts[key] = self._find(group, provider)(configuration)
            if len(self._parts) > KEPT_PARTS:
                self._parts.popitem(last=False)
        self._parts.move_to_end(key)
        return self._parts[key]
