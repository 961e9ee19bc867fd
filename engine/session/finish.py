"""What happens when a session has ended, however it ended (SPEC L6, L16; DESIGN section 3, law 8).

All of it is shielded from the cancellation that may have ended the session, and bounded; each part is fenced from the others.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVarTuple

import trio

from engine.elements import OutCommand, OutputElement, ResponseStatus
from engine.errors import RemoteError
from engine.interfaces import Context
from engine.observation import Happening, Outcome, Span, SpanKind
from engine.pipeline.driver import ConversationDriver
from engine.pipeline.line import ClientLine
from engine.pipeline.ordered_writer import FIRST_RETRY, LONGEST_RETRY, MOST_ACCIDENTS
from engine.protocol.steering import steering_record
from engine.protocol.usage import ActivityMeter
from engine.recording import SessionRecorder
from engine.session.live import LiveSession
from engine.session.services import Services
from engine.session.start import PreparedSession, SessionEnd
from engine.session.webhooks import post_session
from engine.store.contract import StoreError, TakenOverError
from engine.store.documents import SessionDocument, SessionState, UsageDocument

logger = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")


async def finish_session(
    prepared: PreparedSession,
    turns: ConversationDriver,
    meter: ActivityMeter,
    line: ClientLine,
    services: Services,
    live: LiveSession,
    end: SessionEnd,
) -> None:
    """Close the open turn, save, write the usage record, run the disconnect hook, tell the client. Takes `cleanup_seconds`
    at most, and returns in that time whatever hangs."""
    context = prepared.context
    recorder = line.recorder
    client_is_gone = end.cut is not None or (end.state is SessionState.DISCONNECTED and end.error is None)
    with trio.move_on_after(services.settings.cleanup_seconds, shield=True) as limit:
        status = ResponseStatus.FAILED if end.error else ResponseStatus.CANCELLED
        if recorder is not None and client_is_gone:
            recorder.stop(trio.current_time())
        await fenced("closing the turn", partial(turns.abandon, status, client_is_gone=client_is_gone))
        meter.activity(trio.current_time())
        context.session = _closed(context, turns, services, end)
        run = steering_record(turns.steering)
        if run is not None:
            services.observer.session_steered(context.session, run)
        session_saved = trio.Event()
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "saving the turns": partial(_flush, turns, live, session_saved),
            "saving the session": partial(_save, context, services, session_saved),
            "the usage record": partial(_write_usage, prepared, turns, meter, services),
            "saving the LLM log": prepared.log.flush,
            **_more_parts(context, recorder, services, end),
            "on_session_disconnect": partial(prepared.manager.on_session_disconnect, context),
        }
        async with trio.open_nursery() as legs:
            for name, part in parts.items():
                legs.start_soon(_finish_part, context, name, part, name=name)
        await fenced("saving the LLM log", prepared.log.flush)  # what the hook has asked of models
    if limit.cancelled_caught:
        seconds = services.settings.cleanup_seconds
        logger.error("session %s: the clean-up was not over in %g s and was stopped", end.session_id, seconds)
    for _ in range(turns.writer.unsaved + turns.writer.lost):
        services.observer.happened(Happening.TURN_LOST, end.session_id)
    if turns.writer.unsaved:
        logger.error("session %s: %d %ss could not be saved", end.session_id, turns.writer.unsaved, turns.writer.what)
    line.recorder = None
    announce_end(line, end)


def announce_end(line: ClientLine, end: SessionEnd) -> None:
    """The session's last element."""
    say_last(
        line,
        OutCommand("session-end", {"sessionId": end.session_id, "state": end.state.value, "reason": end.reason}),
    )


def say_last(line: ClientLine, element: OutputElement) -> None:
    """Tell a client that may be lost: the session ends all the same."""
    try:
        line.put_output(element)
    except RemoteError:
        logger.debug("no room for %s: the client is lost", type(element).__name__)


async def fenced(name: str, leg: Callable[[*Arguments], Awaitable[None]], *args: *Arguments) -> None:
    """Run one leg; its failure is logged and stops no other."""
    try:
        await leg(*args)
    except Exception:
        logger.exception("%s failed", name)


async def _finish_part(context: Context, name: str, part: Callable[[], Awaitable[None]]) -> None:
    """One leg of the clean-up; its failure is logged and stops no other."""
    span = Span(SpanKind.FINISH, name, name, context.session.id)
    context.observer.began(span, trio.current_time())
    outcome = Outcome.CANCELLED
    try:
        await part()
        outcome = Outcome.OK
    except Exception:
        outcome = Outcome.FAILED
        logger.exception("%s failed", name)
    finally:
        context.observer.ended(span, trio.current_time(), outcome)


async def _flush(turns: ConversationDriver, live: LiveSession, session_saved: trio.Event) -> None:
    """Whoever takes the session over waits for this, and goes on counting from what was saved."""
    await turns.writer.flush()
    await session_saved.wait()
    live.saved.set()


def _more_parts(
    context: Context, recorder: SessionRecorder | None, services: Services, end: SessionEnd
) -> dict[str, Callable[[], Awaitable[None]]]:
    """What only some sessions have: a recording to close, webhooks to call when the conversation came to its end (L6)."""
    parts: dict[str, Callable[[], Awaitable[None]]] = {}
    if recorder is not None:
        parts["closing the recording"] = recorder.aclose
    webhooks = context.content.post_session_webhooks if context.content is not None else ()
    if webhooks and end.state is SessionState.CLOSED:
        store, environment = services.store, services.environment
        post = partial(post_session, context.session, webhooks, store, environment, wake=services.wake_deliveries)
        parts["post-session webhooks"] = post
    return parts


def _closed(context: Context, turns: ConversationDriver, services: Services, end: SessionEnd) -> SessionDocument:
    """The session as it is saved."""
    return context.session.model_copy(
        update={
            "state": end.state,
            "end_reason": end.reason,
            "turn_count": turns.turn_count,
            "steering": steering_record(turns.steering, context.session.steering),
            "updated_at": services.environment.wall_clock(),
        }
    )


async def _save(context: Context, services: Services, session_saved: trio.Event) -> None:
    try:
        await _persist("the session", partial(services.store.save_session, context.session))
    finally:
        session_saved.set()


async def _persist(what: str, write: Callable[[], Awaitable[None]]) -> None:
    """Write, again and again while the store cannot; the clean-up bounds it. What no store should raise is taken for an accident
    at first: with this write goes what nobody else will ever write."""
    pause, accidents = FIRST_RETRY, 0
    while True:
        try:
            await write()
        except StoreError as exc:
            logger.warning("%s could not be saved and will be tried again: %s", what, exc)
        except TakenOverError:
            logger.debug("%s is not saved: the session has another holder", what)
            return
        except Exception:
            accidents += 1
            if accidents >= MOST_ACCIDENTS:
                raise
            logger.exception("%s could not be saved and will be tried again", what)
        else:
            return
        await trio.sleep(pause)
        pause = min(2 * pause, LONGEST_RETRY)


async def _write_usage(
    prepared: PreparedSession, turns: ConversationDriver, meter: ActivityMeter, services: Services
) -> None:
    context, usage = prepared.context, prepared.session.usage
    document = UsageDocument(
        id=services.environment.new_id("usage"),
        session_id=context.session.id,
        provider=context.properties.provider,
        project_ref=context.project_ref,
        agent=context.session.agent,
        test_mode=context.session.test_mode,
        active_seconds=round(meter.active_seconds, 3),
        input_tokens=usage.input,
        output_tokens=usage.output,
        cached_tokens=usage.cached,
        turns=max(turns.turn_count - prepared.stored, 0),
        created_at=services.environment.wall_clock(),
    )
    await _persist("the usage record", partial(services.store.save_usage, document))
