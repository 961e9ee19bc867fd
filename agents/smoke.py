"""Smoke test of a realtime configuration: a minimal prompt and no tools (setup `realtime`, R16)."""

import trio

from agents.prompts import language_name, render
from engine.elements import RealtimeCommand
from engine.interfaces import Context, Emit, RealtimeModel, SystemPrompt, TurnInput, TurnInteractionManager

TEMPLATE = "smoke"
COMMAND = "smoke"
DELAY_SECONDS = 1.0
"""Of the command. Long enough that a barge-in can come before it, short enough to wait for."""


class BasicInteractionManager(TurnInteractionManager):
    """Emits one delayed command per turn.

    The source asks for the command and leaves its name, delay and leg open. It comes from the extraction leg, as planning stays
    blank: so a client sees in the command that a turn's back-end work runs after its response, and in its absence that a
    barge-in cancels that work. Its name is `smoke`, and its one parameter is the turn's id.
    """

    setups = frozenset({"realtime"})

    async def get_system_prompt(self, context: Context, model: RealtimeModel) -> SystemPrompt:
        return SystemPrompt(render(TEMPLATE, language=language_name(context.locale)), TEMPLATE)

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await trio.sleep(DELAY_SECONDS)
        await emit(RealtimeCommand(COMMAND, {"turnId": turn.turn_id}))
