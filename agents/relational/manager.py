"""The relational agent: one model speaks, a second one whispers to it (S0)."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import trio

from agents.aggregation.conclusion import conclude_session
from agents.chat_models import QUICK, FindFactory, make_chat_model
from agents.definitions import RelationalAgent
from agents.device import sensory_text
from agents.equipment import Libraries, open_equipment, shared_libraries
from agents.evaluation.agent_facts import facts_of
from agents.evaluation.contract import find_judges
from agents.evaluation.insights import evaluate_turn
from agents.evaluation.verdicts import judge_session
from agents.extraction.contract import find_extractors
from agents.extraction.turns import extract_turn
from agents.moment import describe, local_now
from agents.prompts import render
from agents.relational.briefing import speaker_prompt
from agents.relational.guard import SpeakerGuard
from agents.relational.initial_plan import make_initial_plan
from agents.relational.plan import RelationalPlan
from agents.relational.planner import PLAN, RelationalPlanningManager
from agents.relational.start import find_out
from agents.relational.state import RelationalState, state_of
from agents.relational.toolbox import speaker_tools
from engine import registry
from engine.elements import InstructionType, OutEvaluation, RealtimeInstruction
from engine.interfaces import (
    Agent,
    ChatModel,
    Context,
    Emit,
    RealtimeModel,
    Steer,
    SystemPrompt,
    ToolBox,
    TurnInput,
    TurnInteractionManager,
)
from engine.memory import MemoryScope
from engine.observation import Happening
from engine.store.contract import StoreError
from engine.timing import timed

logger = logging.getLogger(__name__)

READER = "reader"
"""Who asks, in the LLM log, when a conversation is read rather than planned."""


class RelationalAgentInteractionManager(TurnInteractionManager):
    setups = frozenset({"agent"})
    content_classes: ClassVar[tuple[type, ...]] = (RelationalAgent,)

    def __init__(self, find: FindFactory = registry.load, libraries: Libraries | None = None) -> None:
        self._find = find
        self._libraries = libraries or shared_libraries()
        self.planning_manager = RelationalPlanningManager(find)

    async def load(self, agents: Sequence[Agent]) -> None:
        await self._libraries.load([agent for agent in agents if isinstance(agent, RelationalAgent)])

    # --- the start

    async def on_session_start(self, context: Context) -> None:
        """What has to be known before the first word, then the opening plan (R5). The caller hears nothing meanwhile, so each part
        is timed and nothing of it keeps the session from starting but a fault in the agent's own tools.

        Raises:
            ConfigurationError: a tool cannot be loaded, or two have the same name.
        """
        agent = _agent(context)
        count = partial(context.observer.happened, Happening.LINK_REMOVED, context.session.id)
        state = RelationalState(agent, SpeakerGuard(agent.locale or context.locale, count), context.shared_agents)
        state.reader = self._reader(context)
        state.extractors = find_extractors(has_memory=agent.has_memory)
        context.agent_state = state
        context.guard = state.guard
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_plan, context, state, name="the plan of this session")
            await trio.lowlevel.checkpoint()  # it asks the store before the others do, in every run
            nursery.start_soon(find_out, context, state, name="finding out")
            equipment = await open_equipment(context, agent, self._libraries, with_skills=True)
        state.planner_tools, state.opening_tools = equipment.box, equipment.without_web
        state.knowledge_names, state.mcp_names = equipment.knowledge_names, equipment.mcp_names
        state.describe_skills, state.cite = equipment.describe_skills, equipment.cite
        with timed(context, "the opening plan"):
            state.initial_plan = await make_initial_plan(context, state, self._find)

    async def _read_plan(self, context: Context, state: RelationalState) -> None:
        """A session that goes on has a plan."""
        if not context.session.turn_count:
            await trio.lowlevel.checkpoint()
            return
        try:
            document = await context.memory.get(MemoryScope.SESSION, PLAN)
        except StoreError as exc:
            logger.warning("the plan of session %s could not be read: %s", context.session.id, exc)
        else:
            state.plan = RelationalPlan() if document is None else RelationalPlan.from_json(document.body)

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        return speaker_prompt(context, state_of(context), model)

    def get_tool_box(self, context: Context) -> ToolBox:
        return speaker_tools(context, state_of(context))

    # --- each turn

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        state = state_of(context)
        await extract_turn(context, turn, state.reader, state.extractors)

    async def turn_end(self, context: Context, steer: Steer) -> None:
        """Tell the model the time and what the sensors say, then see how the conversation goes (R13)."""
        text = render("supporting", now=describe(local_now(context)), sensory=sensory_text(context))
        await steer(RealtimeInstruction(text, InstructionType.SUPPORTING_CONTEXT))
        state = state_of(context)
        insights = await evaluate_turn(context, state.reader, tuple(context.messages))
        state.insights = [insight.text for insight in insights]

    # --- the end

    async def evaluate(self, context: Context, emit: Callable[[OutEvaluation], None]) -> None:
        await self._judge(context, emit)

    async def on_session_disconnect(self, context: Context) -> None:
        """Forget the links; the judges, unless they have judged already; extraction and what is made of it (R14). Each of them logs
        its failures, and keeps to the time that there is."""
        if not isinstance(context.agent_state, RelationalState):
            return  # the start did not come so far
        state = state_of(context)
        async with trio.open_nursery() as legs:
            if not state.is_judged:
                legs.start_soon(self._judge, context, _nobody_hears, name="judges")
                await trio.lowlevel.checkpoint()  # what they ask comes before what the other leg asks, in every run
            if state.agent.has_memory:
                legs.start_soon(conclude_session, context, state.reader, state.extractors, name="conclusion")
        state.guard.forget()

    async def _judge(self, context: Context, emit: Callable[[OutEvaluation], None]) -> None:
        state = state_of(context)
        state.is_judged = True
        await judge_session(context, state.reader, facts_of(context.content), emit, find_judges())

    # --- common

    def _reader(self, context: Context) -> ChatModel | None:
        """What reads the conversation beside it; None where there is only the scripted model, which reads nothing."""
        chat = make_chat_model(dict(QUICK), context, READER, self._find)
        return None if chat is None or chat.is_scripted else chat


def _agent(context: Context) -> RelationalAgent:
    """The manager is chosen by this class (L2), so anything else is a bug."""
    if not isinstance(context.content, RelationalAgent):
        raise TypeError(f"a relational agent is needed, not {type(context.content).__name__}")
    return context.content


def _nobody_hears(evaluation: OutEvaluation) -> None:
    """The verdict is kept; the client has gone."""
