"""What ends a conversation that does not end by itself (SPEC L7, L23). Each bound is a deadline on a cancel scope."""

import trio

from engine.config import Settings
from engine.elements import InstructionType, OutError, RealtimeInstruction
from engine.errors import ErrorCode, Whose
from engine.interfaces import Context
from engine.pipeline.driver import ConversationDriver
from engine.pipeline.line import ClientLine
from engine.protocol.idle_user import IdleStep, IdleUser

ASK_WHETHER_THERE = (
    "The user is silent. Ask in one short sentence, in the user's language, whether they are still there."
)


async def watch_length(context: Context, turns: ConversationDriver, line: ClientLine, settings: Settings) -> None:
    """End the session when it has lasted as long as its agent allows."""
    minutes = context.content.max_session_minutes if context.content else None
    await trio.sleep((minutes or settings.max_session_minutes) * 60)
    message = "This conversation has reached its longest duration."
    line.put_output(OutError(ErrorCode.SESSION_LIMIT, message, recoverable=False, whose=Whose.SERVER))
    turns.end("the session reached its longest duration")


async def watch_user(context: Context, turns: ConversationDriver) -> None:
    """Ask a user who says nothing whether they are there; end the session when they still say nothing."""
    limit = context.content.user_idle_seconds if context.content else None
    if limit is None:
        return
    watch = IdleUser(limit)
    watch.sign(trio.current_time())
    while True:
        await trio.sleep_until(watch.deadline)
        now = trio.current_time()
        if turns.user_active_at > watch.quiet_since:
            watch.sign(turns.user_active_at)
        watch.agent_speaks_until(turns.speaks_until(now))
        match watch.step(now):
            case IdleStep.WAIT:
                pass
            case IdleStep.ASK:
                await turns.steer(RealtimeInstruction(ASK_WHETHER_THERE, InstructionType.INSTRUCTION))
            case IdleStep.END:
                turns.end("the user was silent")
                return
