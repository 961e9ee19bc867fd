"""What the models of a relational agent are told (SPEC R6, R10; S0).

The speaking model gets who it is, what it is for, and the opening plan. It never gets the process, the plan of a turn, a skill's
content or what a tool has given. The planner gets all of that, and not who the speaking model is.
"""

from collections.abc import Sequence

from agents.device import sensory_text
from agents.finish import FINISH_SESSION
from agents.moment import describe, local_now
from agents.prompts import language_name, render
from agents.relational.asking import MadeCall
from agents.relational.exact import materialize_exact
from agents.relational.session_end_gate import EndPass
from agents.relational.state import HelpRequest, RelationalState, ToolCallHint
from agents.relational.toolbox import may_finish, plans_end
from engine.interfaces import (
    ChatMessage,
    Context,
    Message,
    RealtimeModel,
    Role,
    SystemPrompt,
    ToolBox,
    TurnInput,
)
from engine.texts import Sentence, say

INTERNAL = "Internal"
RECONNECT = ".reconnect"
INSTRUCTION_HEADER = "Instruction:"
CONTEXT_HEADER = "Supporting context:"
TRANSCRIPT_MESSAGES = 30
"""Lines of the conversation that the planner reads (S0)."""
HISTORY_MESSAGES = 60
"""Lines of the earlier conversation in the speaking model's prompt, when it goes on."""
LINE_CHARACTERS = 2000
SHOWN_NAMES = 20
"""Names of what is on the user's screen."""


# --- the speaking model -----------------------------------------------------------------------------------------------


def speaker_prompt(context: Context, state: RelationalState, model: RealtimeModel, *, gender: str = "") -> SystemPrompt:
    """The prompt of the realtime model; the internal one has its own variant."""
    agent = state.agent
    template_id = "internal" if model.name == INTERNAL else "realtime"
    if context.is_reconnect:
        template_id += RECONNECT
    known = render(
        "speaker.context",
        now=describe(local_now(context)),
        sensory=sensory_text(context),
        evaluation=state.last_evaluation,
        shared_transcript=state.shared_transcript,
        shared_agent=state.shared_agent,
        chat_history=_history(context) if context.is_reconnect else "",
    )
    text = render(
        template_id,
        name=agent.name,
        gender=agent.gender,
        identity=_written(agent.identity_description),
        purpose=_written(agent.purpose),
        guardrails=_written(agent.guardrails),
        language=_language(context, state),
        tools=bool(agent.multimodal or agent.handover),
        knowledge=state.knowledge_names,
        mcp=state.mcp_names,
        multimodal=[element.name for element in agent.multimodal],
        plan=state.initial_plan.description,
        session_end_mode=_end_mode(context, state),
        finish_tool=FINISH_SESSION,
        user_name=context.principal.name,
        user_gender=state.user_gender,
        biography=state.biography if agent.has_memory else "",
        context=known,
    )
    return SystemPrompt(text, template_id, known)


def _end_mode(context: Context, state: RelationalState) -> str:
    if plans_end(context, state.agent):
        return "planned"
    return "direct" if may_finish(context, state.agent) else "none"


# --- the planner ------------------------------------------------------------------------------------------------------


def planning_messages(
    context: Context,
    state: RelationalState,
    turn: TurnInput,
    ending: EndPass,
    hints: Sequence[ToolCallHint],
    questions: Sequence[HelpRequest],
    made: Sequence[MadeCall] = (),
) -> tuple[ChatMessage, ...]:
    """The request of one pass."""
    agent = state.agent
    end_mode = "requested" if ending.is_requested else "open" if plans_end(context, agent) else "none"
    lines, left_out = _transcript(context)
    business = render(
        "planning.relational",
        purpose=_written(agent.purpose),
        steps=materialize_exact(_written(agent.business_process_steps)),
        impact=agent.business_impact_level,
        guardrails=_written(agent.guardrails),
        tools=_described(state.planner_tools),
        ui_tools=_ui_tools(state),
        has_memory=agent.has_memory,
        shared_agents=list(state.shared_agents.values()),
        skills=state.describe_skills(),
        cites=bool(agent.knowledge),
        language=_language(context, state),
    )
    now = render(
        "planning.relational.turn",
        user_gender=state.user_gender,
        biography=state.biography,
        last_visit=state.last_visit,
        has_memory=agent.has_memory,
        webhook_result=state.webhook_result,
        transcript=lines,
        left_out=left_out,
        utterance=turn.text,
        shown=_shown(state, turn),
        previous_plan=state.plan.description,
        now=describe(local_now(context)),
        sensory=sensory_text(context),
        insights=list(state.insights),
        hints=list(hints),
        help=list(questions),
        made=list(made),
        end_mode=end_mode,
    )
    return ChatMessage("system", business), ChatMessage("user", now)


def initial_messages(context: Context, state: RelationalState) -> tuple[ChatMessage, ...]:
    """The request for the opening plan."""
    agent = state.agent
    text = render(
        "planning.initial",
        purpose=_written(agent.purpose),
        steps=materialize_exact(_written(agent.business_process_steps)),
        impact=agent.business_impact_level,
        guardrails=_written(agent.guardrails),
        user_name=context.principal.name,
        user_gender=state.user_gender,
        biography=state.biography,
        last_visit=state.last_visit,
        has_memory=agent.has_memory,
        webhook_result=state.webhook_result,
        last_summary=state.last_summary,
        last_evaluation=state.last_evaluation,
        shared_transcript=state.shared_transcript,
        shared_agent=state.shared_agent,
        tools=_described(state.opening_tools),
        skills=state.describe_skills(),
        now=describe(local_now(context)),
        language=_language(context, state),
    )
    return ChatMessage("system", text), ChatMessage("user", "Write the opening plan.")


def _transcript(context: Context) -> tuple[list[str], bool]:
    """The last lines, with what was whispered between them, and whether earlier ones were left out."""
    names = {Role.USER: "User", Role.ASSISTANT: "Agent"}
    reaction = say(Sentence.SHORT_REACTION, context.locale)  # the same behind each turn
    lines: list[str] = []
    spoken = 0
    messages = list(context.messages)
    while messages and spoken < TRANSCRIPT_MESSAGES:
        message = messages.pop()
        if message.role in names:
            spoken += 1
            lines.append(f"{names[message.role]}: {_line(message)}")
        elif message.text.startswith((INSTRUCTION_HEADER, CONTEXT_HEADER)) and not message.text.endswith(reaction):
            lines.append(f"(you whispered) {_line(message)}")
    return lines[::-1], any(message.role in names for message in messages)


def _history(context: Context) -> str:
    names = {Role.USER: "User", Role.ASSISTANT: "You"}
    lines = [f"{names[message.role]}: {_line(message)}" for message in context.messages if message.role in names]
    if len(lines) > HISTORY_MESSAGES:
        lines = ["(earlier lines left out)", *lines[-HISTORY_MESSAGES:]]
    return "\n".join(lines)


def _line(message: Message) -> str:
    text = " ".join(message.text.split())
    return text if len(text) <= LINE_CHARACTERS else f"{text[:LINE_CHARACTERS]}…"


def _described(box: ToolBox) -> list[str]:
    return [f"`{each.name}`: {' '.join(each.description.split())}" for each in box.specifications]


def _ui_tools(state: RelationalState) -> list[str]:
    tools = [f"show the card {element.name}" for element in state.agent.multimodal]
    if state.agent.handover is not None:
        tools.append(f"hand the user over to {state.shared_agents.get(state.agent.handover, state.agent.handover)}")
    return tools


def _shown(state: RelationalState, turn: TurnInput) -> list[str]:
    """Everything that was shown so far: it accumulates (L11)."""
    for interaction in turn.multimodal:
        state.shown[interaction.name] = None
    return list(state.shown)[-SHOWN_NAMES:]


def _language(context: Context, state: RelationalState) -> str:
    return language_name(state.agent.locale or context.locale)


def _written(text: str | None) -> str:
    return (text or "").strip()
