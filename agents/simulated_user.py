"""The test agent: a simulated user, with whom other agents can be tried out (R16).

In its conversation the sides are the other way round: what the engine calls the user is the agent under test, and what the engine
calls the assistant is this simulated user.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar

from agents.chat_models import FindFactory, make_chat_model, settings_of
from agents.definitions import ModelConfiguration, TestAgent
from agents.device import device_tools, sensory_text
from agents.memory.summaries import Summary, previous_summaries, remember_conversation
from agents.memory.tools import memory_tools
from agents.moment import describe, describe_date, local_now
from agents.prompts import language_name, render
from agents.tools import CombinedToolBox, FunctionToolBox, load_tool
from engine import registry
from engine.interfaces import (
    ChatModel,
    Context,
    RealtimeModel,
    Role,
    SystemPrompt,
    ToolBox,
    TurnInteractionManager,
)
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

TEMPLATE = "test"
RECONNECT = ".reconnect"
COMPONENT = "summary"
"""Who asks, in the LLM log, when a conversation is condensed."""
HISTORY_MESSAGES = 60
"""Lines of the earlier conversation in a reconnect prompt."""
SIDES = {Role.USER: "Agent", Role.ASSISTANT: "You"}


class TestAgentInteractionManager(TurnInteractionManager):
    """Prompt, tools and memory of simulated users. Extraction and planning are blank."""

    __test__: ClassVar[bool] = False  # pytest would take the name for a test's

    setups = frozenset({"agent"})
    content_classes: ClassVar[tuple[type, ...]] = (TestAgent,)

    def __init__(self, find: FindFactory = registry.load) -> None:
        self._find = find

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        agent = _agent(context)
        memory = await _memory_section(context, agent)
        if context.configuration.no_system_prompt:
            parts = [_written(agent.prompt), memory]
            return SystemPrompt("\n\n".join(part for part in parts if part))
        template_id = TEMPLATE + RECONNECT if context.is_reconnect else TEMPLATE
        known = render(
            "test.context",
            now=describe(local_now(context)),
            sensory=sensory_text(context),
            chat_history=_history(context),
        )
        text = render(
            template_id,
            name=agent.name,
            gender=agent.gender,
            role=_written(agent.role),
            vision=_written(agent.vision),
            scenario=_written(agent.scenario),
            language=language_name(agent.locale or context.locale),
            tools=context.properties.has_tool_support,
            context=known,
            memory=memory,
        )
        return SystemPrompt(text, template_id, known)

    def get_tool_box(self, context: Context) -> ToolBox:
        """What looks at the device, what remembers when the agent has memory, and the agent's own tools.

        Raises:
            ConfigurationError: a tool cannot be loaded, or two have the same name.
        """
        agent = _agent(context)
        boxes = [device_tools()]
        if agent.has_memory:
            boxes.append(memory_tools())
        boxes.append(FunctionToolBox(load_tool(reference) for reference in agent.tools))
        return CombinedToolBox(boxes)

    async def on_session_disconnect(self, context: Context) -> None:
        """Keep what is to be remembered of this conversation. Raises StoreError."""
        agent = _agent(context)
        if agent.has_memory:
            await remember_conversation(context, SIDES, self._summarizer(context, agent.llm_configuration.summary))

    def _summarizer(self, context: Context, configuration: ModelConfiguration | None) -> ChatModel | None:
        """The chat model that the agent names for it; None: only the facts are kept."""
        if configuration is None:
            return None
        return make_chat_model(settings_of(configuration, {}), context, COMPONENT, self._find)


def _agent(context: Context) -> TestAgent:
    """The manager is chosen by this class (L2), so anything else is a bug."""
    if not isinstance(context.content, TestAgent):
        raise TypeError(f"a test agent is needed, not {type(context.content).__name__}")
    return context.content


def _written(text: str | None) -> str:
    return (text or "").strip()


def _history(context: Context) -> str:
    """The earlier conversation of a reconnect, oldest first."""
    if not context.is_reconnect:
        return ""
    lines = [f"{SIDES[message.role]}: {message.text}" for message in context.messages if message.role in SIDES]
    if len(lines) > HISTORY_MESSAGES:
        lines = ["(earlier lines left out)", *lines[-HISTORY_MESSAGES:]]
    return "\n".join(lines)


async def _memory_section(context: Context, agent: TestAgent) -> str:
    """A memory that cannot be reached is no reason not to talk."""
    if not agent.has_memory:
        return ""
    try:
        summaries: Sequence[Summary] = await previous_summaries(context)
    except StoreError:
        logger.warning("what session %s should remember could not be read", context.session.id)
        return ""
    if not summaries:
        return ""
    shown = [
        {"date": describe_date(each.at), "turns": each.turns, "text": each.text, "lines": each.lines}
        for each in summaries
    ]
    return render("test.memory", summaries=shown)
