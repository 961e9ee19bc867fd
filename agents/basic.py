"""The basic agent: one model that speaks by itself, without a planner (R16)."""

from collections.abc import Sequence
from typing import ClassVar

from agents.definitions import BasicAgent
from agents.device import sensory_text
from agents.equipment import Equipment, Libraries, open_equipment, shared_libraries
from agents.finish import FINISH_SESSION, FinishToolBox
from agents.moment import describe, local_now
from agents.prompts import language_name, render
from agents.stage import display_tool, handover_tool
from agents.tools import CombinedToolBox, FunctionToolBox
from engine.elements import InstructionType, RealtimeInstruction
from engine.interfaces import Agent, Context, RealtimeModel, Role, Steer, SystemPrompt, ToolBox, TurnInteractionManager

TEMPLATE = "basic"
RECONNECT = ".reconnect"
DEFAULT_INSTRUCTIONS = "Be a friendly and helpful partner in conversation."
"""For an agent that nobody has described."""
HISTORY_MESSAGES = 60
"""Lines of the earlier conversation in a reconnect prompt: about ten minutes of talk and 2,000 tokens."""


class BasicAgentInteractionManager(TurnInteractionManager):
    """Prompt, tools and per-turn context of basic agents. Extraction and planning are blank."""

    setups = frozenset({"agent"})
    content_classes: ClassVar[tuple[type, ...]] = (BasicAgent,)

    def __init__(self, libraries: Libraries | None = None) -> None:
        self._libraries = libraries or shared_libraries()

    async def load(self, agents: Sequence[Agent]) -> None:
        await self._libraries.load([agent for agent in agents if isinstance(agent, BasicAgent)])

    async def on_session_start(self, context: Context) -> None:
        """Have the tools ready (R16). Raises ConfigurationError: one cannot be loaded, or two have the same name."""
        own = self._own_tools(context)
        reserved = [specification.name for specification in own.specifications]
        context.agent_state = await open_equipment(
            context, _agent(context), self._libraries, with_skills=False, reserved=reserved
        )

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        agent = _agent(context)
        identity, purpose, guardrails = map(_written, (agent.identity_description, agent.purpose, agent.guardrails))
        described = identity or purpose or guardrails
        template_id = TEMPLATE + RECONNECT if context.is_reconnect else TEMPLATE
        known = render(
            "context", now=describe(local_now(context)), sensory=sensory_text(context), chat_history=_history(context)
        )
        text = render(
            template_id,
            name=agent.name,
            gender=agent.gender,
            identity=identity,
            purpose=purpose,
            guardrails=guardrails,
            legacy="" if described else _written(agent.prompt) or DEFAULT_INSTRUCTIONS,
            language=language_name(agent.locale or context.locale),
            tools=context.properties.has_tool_support,
            knowledge=_equipment(context).knowledge_names,
            can_finish=_can_finish(context, agent),
            finish_tool=FINISH_SESSION,
            context=known,
        )
        return SystemPrompt(text, template_id, known)

    def get_tool_box(self, context: Context) -> ToolBox:
        """The agent's tools, and `finish_session` where the prompt speaks of it.

        Raises:
            ConfigurationError: two tools have the same name.
        """
        return CombinedToolBox([self._own_tools(context), _equipment(context).box])

    def _own_tools(self, context: Context) -> ToolBox:
        agent = _agent(context)
        boxes: list[ToolBox] = [FinishToolBox()] if _can_finish(context, agent) else []
        functions = [display_tool(agent.multimodal)] if agent.multimodal else []
        if agent.handover is not None:
            functions.append(handover_tool(agent.handover, context.shared_agents))
        return CombinedToolBox([*boxes, FunctionToolBox(functions)])

    async def turn_end(self, context: Context, steer: Steer) -> None:
        """Tell the model what time it is and what the sensors say: at each turn, as a session may run past midnight (C48)."""
        text = render("supporting", now=describe(local_now(context)), sensory=sensory_text(context))
        await steer(RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT))


def _agent(context: Context) -> BasicAgent:
    """The manager is chosen by this class (L2), so anything else is a bug."""
    if not isinstance(context.content, BasicAgent):
        raise TypeError(f"a basic agent is needed, not {type(context.content).__name__}")
    return context.content


def _equipment(context: Context) -> Equipment:
    """What `on_session_start` has made ready."""
    if not isinstance(context.agent_state, Equipment):
        raise TypeError("the session of a basic agent was not started")
    return context.agent_state


def _can_finish(context: Context, agent: BasicAgent) -> bool:
    """A turnless model, or one without tools of its own, could not follow the section about the tool."""
    properties = context.properties
    return agent.session_end_support and properties.has_tool_support and not properties.is_turnless


def _written(text: str | None) -> str:
    return (text or "").strip()


def _history(context: Context) -> str:
    """The earlier conversation of a reconnect, oldest first; instructions are no part of it."""
    if not context.is_reconnect:
        return ""
    speakers = {Role.USER: "User", Role.ASSISTANT: "You"}
    lines = [f"{speakers[message.role]}: {message.text}" for message in context.messages if message.role in speakers]
    if len(lines) > HISTORY_MESSAGES:
        lines = ["(earlier lines left out)", *lines[-HISTORY_MESSAGES:]]
    return "\n".join(lines)
