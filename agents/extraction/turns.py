"""Extraction: after each turn, and at the session's end what no turn has brought (SPEC L11, R14; S0, "Session Disconnect").

One invocation of the chat model serves all extractors. They read the same lines, so one request costs a quarter of what four would;
the next turn waits for this work, so the slowest of four would count; and a section that does not fit is dropped, or asked for again,
alone. The price is that a model which fails fails for all of them, for one turn.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, TypeVarTuple

from pydantic import BaseModel

from agents.extraction.contract import Extractor
from agents.extraction.records import read_records, write_record
from agents.extraction.spoken import SPEAKERS, has_user_spoken, plain, spoken, transcript
from agents.extraction.structured import Output, ask_sections
from agents.prompts import language_name, render
from engine.elements import JsonObject
from engine.interfaces import ChatModel, Context, Message, Role, TurnInput
from engine.store.contract import StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

COMPONENT = "extraction"
"""In the LLM log."""
TURN_SECONDS = 8.0
"""What the chat model gets for a turn, both tries: the next turn waits for it."""
BEFORE_LINES = 6
"""Of the conversation before the turn, in its request."""


async def extract_turn(
    context: Context,
    turn: TurnInput,
    chat: ChatModel | None,
    extractors: Sequence[Extractor],
    seconds: float = TURN_SECONDS,
) -> dict[str, JsonObject]:
    """Look at a turn: what each extractor has found, by its name; those that failed are missing. Keeps a record of it, and what
    extractors keep besides. An action is no user's word, and without a chat model nothing is found. Never raises but for
    cancellation."""
    if chat is None or not extractors or not turn.text.strip() or turn.text.startswith("#"):
        return {}
    said = [f"{SPEAKERS[Role.USER]}: {plain(turn.text)}"]
    said += [f"{SPEAKERS[Role.ASSISTANT]}: {plain(output)}" for output in turn.output if output.strip()]
    before = [message for message in context.messages if message.turn_id != turn.turn_id]
    told = await _told(context, extractors, transcript(before, BEFORE_LINES), "\n".join(said), is_turn=True)
    found = await _ask(context, chat, extractors, told, seconds, is_turn=True)
    return await _keep(context, extractors, found, (turn.turn_id,), 1)


async def extract_session(
    context: Context, chat: ChatModel | None, extractors: Sequence[Extractor], seconds: float
) -> dict[str, JsonObject]:
    """Look, as one piece, at those turns of the conversation that have no record: a barge-in has cut their extraction, it failed,
    or the conversation has no turns. Asks nobody when there are none. Never raises but for cancellation."""
    if chat is None or not extractors or not has_user_spoken(context.messages):
        return {}
    try:
        covered = {turn_id for record in await read_records(context) for turn_id in record.turn_ids}
    except StoreError as exc:
        logger.warning("the records of session %s cannot be read: %s", context.session.id, exc)
        return {}
    messages = [message for message in spoken(context.messages) if message.turn_id not in covered]
    if not has_user_spoken(messages):
        return {}
    told = await _told(context, extractors, "", transcript(messages), is_turn=False)
    found = await _ask(context, chat, extractors, told, seconds, is_turn=False)
    return await _keep(context, extractors, found, _turn_ids(messages), sum(m.role is Role.USER for m in messages))


def _turn_ids(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(message.turn_id for message in messages if message.turn_id))


async def _told(context: Context, extractors: Sequence[Extractor], before: str, exchange: str, *, is_turn: bool) -> str:
    known: list[str] = []
    for extractor in extractors:
        text = await _fenced(f"what {extractor.name} knows", extractor.known, context)
        if text:
            known.append(text)
    return render("extraction.turn", known=known, before=before, exchange=exchange, is_turn=is_turn)


async def _ask(
    context: Context, chat: ChatModel, extractors: Sequence[Extractor], told: str, seconds: float, *, is_turn: bool
) -> dict[str, BaseModel]:
    sections: list[tuple[str, str]] = []
    wanted: dict[str, type[BaseModel]] = {}
    for extractor in extractors:
        try:
            sections.append((extractor.name, extractor.instructions()))
        except Exception as exc:  # as in `_fenced`
            logger.error("what %s wants: failed (%s)", extractor.name, type(exc).__name__)
        else:
            wanted[extractor.name] = extractor.output
    instructions = render(COMPONENT, language=language_name(context.locale), sections=sections, is_turn=is_turn)
    return await ask_sections(chat, context, COMPONENT, instructions, told, wanted, seconds) if wanted else {}


async def _keep(
    context: Context,
    extractors: Sequence[Extractor],
    found: dict[str, BaseModel],
    turn_ids: tuple[str, ...],
    turns: int,
) -> dict[str, JsonObject]:
    results = {name: _json(section) for name, section in found.items()}
    if results:
        await _fenced("a record of extraction", write_record, context, turn_ids, turns, results)
    for extractor in extractors:
        if extractor.name in found:
            await _fenced(f"what {extractor.name} found", extractor.keep, context, found[extractor.name])
    return results


def _json(section: BaseModel) -> JsonObject:
    return section.to_json() if isinstance(section, Output) else section.model_dump(mode="json", by_alias=True)


async def _fenced(what: str, step: Callable[[*Arguments], Awaitable[T]], *args: *Arguments) -> T | None:
    """Run a step; None when it fails. Extractors come from anywhere, and one must not take the others with it."""
    try:
        return await step(*args)
    except StoreError as exc:
        logger.warning("%s: the memory failed: %s", what, exc)
    except Exception as exc:  # its words may be those of the conversation
        logger.error("%s: failed (%s)", what, type(exc).__name__)
    return None
