"""The opening plan, made once per session before its first word (SPEC R5; S0, "Initial Planning").

The whole session waits for it, so it has a deadline of its own, and the deadline chooses the fallback: the previous session's plan
for an agent with memory, else the plan that the operator has written.
"""

import logging

import trio

from agents.chat_models import REASONING, FindFactory, make_chat_model, settings_of
from agents.relational.asking import PlannerCalls, think
from agents.relational.briefing import initial_messages
from agents.relational.citations import substitute_mentions
from agents.relational.plan import RelationalPlan, read_initial_plan
from agents.relational.state import RelationalState
from engine import registry
from engine.errors import RemoteError
from engine.interfaces import ChatModel, ChatRequest, Context
from engine.memory import MemoryScope
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

COMPONENT = "initial-planner"
OPENING_SECONDS = 8.0
"""What the opening plan may take: the caller hears nothing meanwhile."""
STORE_SECONDS = 2.0
INITIAL_PLAN = "initial-plan"
"""In the user's memory with the agent, over all their sessions (R4)."""


async def make_initial_plan(
    context: Context, state: RelationalState, find: FindFactory = registry.load
) -> RelationalPlan:
    """The plan that the session opens with. Never raises, and takes `OPENING_SECONDS` and twice `STORE_SECONDS` at most."""
    if context.session.turn_count > 1:
        return await _stored(context) or RelationalPlan()
    settings = settings_of(state.agent.llm_configuration.initial_planning, REASONING)
    chat = make_chat_model(settings, context, COMPONENT, find)
    plan = await _generate(context, state, chat) if chat is not None else None
    if plan is None:
        return await _fall_back(context, state)
    with trio.move_on_after(STORE_SECONDS) as limit:
        try:
            await context.memory.append(MemoryScope.APPLICATION, INITIAL_PLAN, plan.to_json())
        except StoreError as exc:
            logger.warning("the opening plan could not be stored: %s", exc)
    if limit.cancelled_caught:
        logger.warning("the opening plan could not be stored in %g s", STORE_SECONDS)
    return plan


async def _generate(context: Context, state: RelationalState, chat: ChatModel) -> RelationalPlan | None:
    words: list[str] = []

    async def take(text: str) -> None:
        await trio.lowlevel.checkpoint()
        words.append(text)

    is_failed = False
    with trio.move_on_after(OPENING_SECONDS) as limit:
        try:
            calls = PlannerCalls(state.opening_tools, context, turn_id="")
            await think(chat, ChatRequest(initial_messages(context, state), locale=context.locale), calls, take)
        except* RemoteError as group:
            logger.warning("the opening plan could not be made (%d failures)", len(group.exceptions))
            is_failed = True
        except* Exception as group:
            logger.error("the opening plan could not be made (%s)", type(group.exceptions[0]).__name__)
            logger.debug("the opening plan could not be made", exc_info=group)
            is_failed = True
    if limit.cancelled_caught:
        logger.warning("the opening plan took over %g s; the session begins without", OPENING_SECONDS)
    if is_failed or limit.cancelled_caught:
        return None
    plan = read_initial_plan("".join(words))
    if plan is None:
        logger.warning("the planner wrote no opening plan")
    return plan


async def _fall_back(context: Context, state: RelationalState) -> RelationalPlan:
    """The previous session's plan, when there is one and the agent remembers; else what the operator wrote."""
    if state.agent.has_memory:
        previous = await _stored(context)
        if previous is not None and previous.description.strip():
            return previous
    return RelationalPlan(substitute_mentions(state.agent.initial_plan or "", context.shared_agents))


async def _stored(context: Context) -> RelationalPlan | None:
    with trio.move_on_after(STORE_SECONDS):
        try:
            document = await context.memory.get(MemoryScope.APPLICATION, INITIAL_PLAN)
        except StoreError as exc:
            logger.warning("the opening plan of the last session could not be read: %s", exc)
            return None
        return None if document is None else RelationalPlan.from_json(document.body)
    logger.warning("the opening plan of the last session could not be read in %g s", STORE_SECONDS)
    return None
