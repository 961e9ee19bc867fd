"""An event for a session that is not being spoken with: a file, a message, a click (SPEC L18). No model session is opened."""

import logging
from functools import partial

import trio

from engine.config import PipelineConfiguration
from engine.elements import JsonObject
from engine.errors import ErrorCode, RealtimeException, RemoteError, Whose
from engine.interfaces import Context
from engine.principal import Principal
from engine.session.live import LiveSession, TakeEvent
from engine.session.llm_log import StoredLog
from engine.session.services import Services
from engine.session.start import find_manager, make_context, open_document, open_log, read_history, stored_owner
from engine.store.contract import StoreError, TakenOverError
from engine.store.documents import SessionDocument, SessionState

logger = logging.getLogger(__name__)


async def run_chat_event(
    configuration: PipelineConfiguration, event: JsonObject, services: Services, *, principal: Principal
) -> str:
    """Give an event to the interaction manager of a session, and save the session as IDLE. Gives the session's id.

    A session that is being spoken with keeps its holder and its state: the event joins it.

    Raises:
        RemoteError: what was asked for does not exist or is not allowed, or the event could not be worked off.
    """
    if services.live.is_stopping:
        raise RemoteError(ErrorCode.TOO_BUSY, "This server is stopping; try again.", whose=Whose.SERVER)
    live = services.live.find(configuration.session_id) if configuration.session_id else None
    if live is not None and live.owner == stored_owner(principal) and live.take_event is not None:
        await _bounded(live.session_id, live.take_event, event, services)
        return live.session_id
    running = await _running_elsewhere(configuration, services, principal=principal)
    if running is not None:
        log = open_log(running, services)
        context = await _context(configuration, running, services, principal=principal, log=log)
        await _work_off(context, event, services, log)
        return running.id
    document = await open_document(configuration, services, principal=principal)
    live = LiveSession(document.id, document.owner, document.fence, principal.credential)
    try:
        with services.live.enter(live), live.open_scope():
            log = open_log(document, services)
            context = await _context(configuration, document, services, principal=principal, log=log)
            document = context.session
            await _work_off(context, event, services, log)
            document = context.session
    finally:
        await _save_idle(document, services)  # noqa: ASYNC102 - it is shielded and bounded inside
    if live.cut is not None:
        raise live.cut.error or RemoteError(
            ErrorCode.TOO_BUSY, "This server is stopping; try again.", whose=Whose.SERVER
        )
    return document.id


async def _running_elsewhere(
    configuration: PipelineConfiguration, services: Services, *, principal: Principal
) -> SessionDocument | None:
    """The session when it is OPEN: another process speaks with its user, and opening it here would take it over."""
    if not configuration.session_id:
        return None
    try:
        document = await services.store.get_session(configuration.session_id)
    except StoreError as exc:
        message = "The session could not be read; try again later."
        raise RemoteError(ErrorCode.INTERNAL, message, whose=Whose.SERVER) from exc
    is_running = document is not None and document.state is SessionState.OPEN
    return document if is_running and document and document.owner == stored_owner(principal) else None


async def _context(
    configuration: PipelineConfiguration,
    document: SessionDocument,
    services: Services,
    *,
    principal: Principal,
    log: StoredLog,
) -> Context:
    with trio.move_on_after(services.settings.session_start_seconds):
        context = await make_context(configuration, document, services, principal=principal, log=log)
        context.messages, _ = await read_history(context, services)
        context.is_reconnect = bool(context.messages)
        return context
    raise RealtimeException(ErrorCode.INTERNAL, "The agent took too long to get ready.", whose=Whose.SERVER)


async def _work_off(context: Context, event: JsonObject, services: Services, log: StoredLog) -> None:
    manager = find_manager(context.configuration.key, context.content, context.properties, services)
    try:
        await _bounded(context.session.id, partial(manager.on_chat_event, context), event, services)
    finally:
        with trio.move_on_after(services.settings.cleanup_seconds, shield=True):
            await log.flush()


async def _bounded(session_id: str, take: TakeEvent, event: JsonObject, services: Services) -> None:
    """The manager's work, in its time. Whatever goes wrong in it is our fault, and stays here."""
    fault = RealtimeException(ErrorCode.INTERNAL, "The event could not be worked off.", whose=Whose.SERVER)
    try:
        with trio.move_on_after(services.settings.chat_event_seconds) as limit:
            await take(event)
    except RemoteError:
        raise
    except Exception as exc:
        logger.exception("an event of session %s failed", session_id)
        raise fault from exc
    if limit.cancelled_caught:
        logger.error("an event of session %s took too long and was stopped", session_id)
        raise fault


async def _save_idle(document: SessionDocument, services: Services) -> None:
    saved = document.model_copy(update={"state": SessionState.IDLE, "updated_at": services.environment.wall_clock()})
    with trio.move_on_after(services.settings.cleanup_seconds, shield=True) as limit:
        try:
            await services.store.save_session(saved)
        except TakenOverError:
            logger.debug("session %s is somebody else's by now", document.id)
        except Exception:
            logger.exception("session %s could not be saved", document.id)
    if limit.cancelled_caught:
        logger.error("session %s could not be saved in time", document.id)
