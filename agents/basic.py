"""The basic agent: one model that speaks by itself, without a planner (R16)."""

from typing import ClassVar

from agents.definitions import BasicAgent
from agents.device import sensory_text
from agents.finish import FINISH_SESSION, FinishToolBox
from agents.moment import describe, local_now
from agents.prompts import language_name, render
from agents.tools import CombinedToolBox, FunctionToolBox, load_tool
from engine.elements import InstructionType, RealtimeInstruction
from engine.interfaces import Context, RealtimeModel, Role, Steer, SystemPrompt, ToolBox, TurnInteractionManager

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
            tools=bool(agent.tools),
            can_finish=_can_finish(context, agent),
            finish_tool=FINISH_SESSION,
            context=known,
        )
        return SystemPrompt(text, template_id, known)

    def get_tool_box(self, context: Context) -> ToolBox:
        """The agent's own tools, and `finish_session` where the prompt speaks of it.

        Raises:
            ConfigurationError: a tool cannot be loaded, or two have the same name.
        """
        agent = _agent(context)
        boxes: list[ToolBox] = [FinishToolBox()] if _can_finish(context, agent) else []
        boxes.append(FunctionToolBox(load_tool(reference) for reference in agent.tools))
        return CombinedToolBox(boxes)

    async def turn_end(self, context: Context, steer: Steer) -> None:
        """Tell the model what time it is and what the sensors say: at each turn, as a session may run past midnight (C48)."""
        text = render("supporting", now=describe(local_now(context)), sensory=sensory_text(context))
        await steer(RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT))


def _agent(context: Context) -> BasicAgent:
    """The manager is chosen by this class (L2), so anything else is a bug."""
    if not isinstance(context.content, BasicAgent):
        raise TypeError(f"a basic agent is needed, not {type(context.content).__name__}")
    return context.content


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
