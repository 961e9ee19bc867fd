"""What the store knows of one side's session when it is over: what was heard, what it cost."""

import logging

import attrs

from engine.simulate.report import ComponentUsage, SideUsage, Whisper
from engine.store.contract import Store, StoreError
from engine.store.documents import LogEntry, LogKind, TurnDocument, UsageDocument

logger = logging.getLogger(__name__)

PAGE = 500
"""Documents read at once."""


@attrs.frozen
class StoredSide:
    """Empty for a session that never began, or whose store has failed."""

    state: str = ""
    end_reason: str = ""
    heard: dict[str, str] = attrs.field(factory=dict[str, str])
    """What was heard of each response, by its id."""
    instructions: list[Whisper] = attrs.field(factory=list[Whisper])
    usage: SideUsage = attrs.field(factory=SideUsage)


async def read_side(store: Store, session_id: str) -> StoredSide:
    """Everything of one session. A store that fails is logged: the report says less."""
    if not session_id:
        return StoredSide()
    try:
        document = await store.get_session(session_id)
        turns = await _turns(store, session_id)
        log = await _log(store, session_id)
        usage = await store.get_usage(session_id)
    except StoreError as exc:
        logger.warning("what was stored of session %s could not be read: %s", session_id, exc)
        return StoredSide()
    return StoredSide(
        state=document.state.value if document else "",
        end_reason=document.end_reason if document else "",
        heard={output.response_id: output.heard for turn in turns for output in turn.output},
        instructions=[
            Whisper(
                at=None, order=None, kind="instruction", instruction_type=told.type, text=told.text, turn_id=turn.id
            )
            for turn in turns
            for told in turn.instructions
        ],
        usage=_usage(usage, log),
    )


async def _turns(store: Store, session_id: str) -> list[TurnDocument]:
    turns: list[TurnDocument] = []
    while page := await store.get_turns(session_id, limit=PAGE, after=turns[-1].index if turns else -1):
        turns += page
    return turns


async def _log(store: Store, session_id: str) -> list[LogEntry]:
    entries: list[LogEntry] = []
    while page := await store.get_log(session_id, limit=PAGE, after=entries[-1].position if entries else -1):
        entries += page
    return entries


def _usage(documents: list[UsageDocument], log: list[LogEntry]) -> SideUsage:
    components: dict[str, ComponentUsage] = {}
    for entry in log:
        if entry.kind is LogKind.CHAT:
            so_far = components.get(entry.component, ComponentUsage())
            components[entry.component] = ComponentUsage(
                calls=so_far.calls + 1,
                input_tokens=so_far.input_tokens + entry.input_tokens,
                output_tokens=so_far.output_tokens + entry.output_tokens,
                cached_tokens=so_far.cached_tokens + entry.cached_tokens,
            )
    return SideUsage(
        provider=documents[-1].provider if documents else "",
        active_seconds=sum(each.active_seconds for each in documents),
        input_tokens=sum(each.input_tokens for each in documents),
        output_tokens=sum(each.output_tokens for each in documents),
        cached_tokens=sum(each.cached_tokens for each in documents),
        components=dict(sorted(components.items())),
    )
