"""One conversation: a nursery that holds the provider, the turns with their legs, the recognition and the watchdogs.

When `run_session` returns, nothing of the session runs and everything that could be saved is.
"""

import logging
from functools import partial

import attrs
import trio

from engine.config import PipelineConfiguration
from engine.elements import OutCommand, OutError
from engine.errors import ErrorCode, LocalError, RealtimeException, RemoteError, Whose
from engine.interfaces import (
    RecognizerInput,
    SessionInput,
    ToolCall,
    TurnInteractionManager,
    TurnlessInteractionManager,
)
from engine.pipeline.driver import ConversationDriver, FromModel
from engine.pipeline.input import SessionInputs, TakeInput
from engine.pipeline.line import ClientLine
from engine.pipeline.recognition import Recognition
from engine.pipeline.tools import ToolRunner
from engine.pipeline.turn import TurnPipeline
from engine.pipeline.turn_writer import TurnWriter
from engine.pipeline.turnless import TurnlessPipeline
from engine.protocol.memory import ConversationMemory
from engine.protocol.sentence_release import SentenceRelease
from engine.protocol.sentences import SentenceAssembler
from engine.protocol.turn import TurnLimits
from engine.protocol.turns import TurnMachine
from engine.protocol.usage import ActivityMeter
from engine.session.finish import announce_end, fenced, finish_session, say_last
from engine.session.services import Services
from engine.session.start import PreparedSession, SessionEnd, open_document, prepare
from engine.session.watchdog import watch_length, watch_user
from engine.store.contract import StoreError
from engine.store.documents import SessionDocument, SessionState

logger = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
CLIENT_VANISHED = "the client vanished"
RECOGNIZER_AUDIO = 8
"""Audio frames between the input and the recognition: it takes them inline, so this only evens out bursts."""


async def run_session(
    configuration: PipelineConfiguration,
    line: ClientLine,
    services: Services,
    *,
    owner: str,
    take: TakeInput | None = None,
) -> SessionEnd:
    """Hold one conversation over `line`, from its start to its saved end.

    `owner` is who may resume the session. `take` gives the session's input when the line carries more than one session.
    Cancelling this is how a vanished client is told: the session is saved as DISCONNECTED before the cancellation goes on.
    Failures of the session are told to the client and end in the returned value; they never raise.
    """
    try:
        document = await open_document(configuration, services, owner=owner)
    except RemoteError as error:
        end = SessionEnd(configuration.session_id, SessionState.DISCONNECTED, error.message, error)
        return _refuse(line, end)
    except Exception:
        logger.exception("a session could not be opened")
        fault = RealtimeException(ErrorCode.INTERNAL, "The session could not be opened.", whose=Whose.SERVER)
        return _refuse(line, SessionEnd(configuration.session_id, SessionState.DISCONNECTED, fault.message, fault))
    try:
        prepared = await prepare(configuration, document, services)
    except RemoteError as error:
        await _save_unstarted(document, services, error.message)
        return _refuse(line, SessionEnd(document.id, SessionState.DISCONNECTED, error.message, error))
    except LocalError as exc:
        logger.error("session %s could not be started: %s", document.id, exc)
        message = "This agent is not completely configured on this server; its log says what is missing."
        fault = RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, message, whose=Whose.SERVER)
        await _save_unstarted(document, services, fault.message)
        return _refuse(line, SessionEnd(document.id, SessionState.DISCONNECTED, fault.message, fault))
    except Exception:
        logger.exception("session %s could not be started", document.id)
        fault = RealtimeException(ErrorCode.INTERNAL, "The session could not be started.", whose=Whose.SERVER)
        await _save_unstarted(document, services, fault.message)
        return _refuse(line, SessionEnd(document.id, SessionState.DISCONNECTED, fault.message, fault))
    except BaseException:  # a cancellation, alone or in groups of it
        await _save_unstarted(document, services, CLIENT_VANISHED)  # noqa: ASYNC102 - it is shielded and bounded inside
        raise
    return await Conversation(prepared, line, services).run(take or line.take_input)


@attrs.define(eq=False)
class Conversation:
    """A prepared session at work."""

    prepared: PreparedSession
    line: ClientLine
    services: Services
    meter: ActivityMeter = attrs.field(init=False)
    turns: ConversationDriver = attrs.field(init=False)
    _inputs: trio.MemorySendChannel[SessionInput] = attrs.field(init=False)
    _model_side: trio.MemoryReceiveChannel[SessionInput] = attrs.field(init=False)
    _output: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """The session's output. Its deadline is the session-end timeout, once the input has ended (L7)."""

    def __attrs_post_init__(self) -> None:
        settings, prepared = self.services.settings, self.prepared
        context = prepared.context
        self.meter = ActivityMeter(trio.current_time(), settings.activity_gap_seconds)
        self._inputs, self._model_side = trio.open_memory_channel[SessionInput](settings.model_input_channel)
        self.line.hearing.text_only = context.configuration.text_only
        memory = ConversationMemory(settings.history_messages, list(prepared.history))
        context.messages = memory.messages
        if isinstance(prepared.manager, TurnlessInteractionManager) and context.properties.is_turnless:
            self.turns = self._without_turns(prepared.manager, memory)
        else:
            assert isinstance(prepared.manager, TurnInteractionManager), "checked when it was chosen"
            self.turns = self._with_turns(prepared.manager, memory)

    def _with_turns(self, manager: TurnInteractionManager, memory: ConversationMemory) -> TurnPipeline:
        settings, context, session = self.services.settings, self.prepared.context, self.prepared.session
        machine = TurnMachine(
            context.environment.new_id,
            self.line.hearing,
            TurnLimits(
                idle_response_end=settings.idle_response_end_seconds,
                interim_lapse=settings.interim_lapse_seconds,
                utterance_limit=settings.utterance_limit_seconds,
                remembered_responses=settings.superseded_response_memory,
            ),
            None if session.makes_sentences else SentenceAssembler(context.locale),
        )
        return TurnPipeline(
            context=context,
            settings=settings,
            manager=manager,
            session=session,
            machine=machine,
            memory=memory,
            line=self.line,
            writer=TurnWriter(self.services.store),
            model_inputs=self._inputs,
            meter=self.meter,
            shows_steering=context.content.show_steering if context.content else True,
            turn_count=self.prepared.stored_turns,
        )

    def _without_turns(self, manager: TurnlessInteractionManager, memory: ConversationMemory) -> TurnlessPipeline:
        settings, context = self.services.settings, self.prepared.context
        context.turn_id = context.environment.new_id("turn")  # the one that all of it carries
        return TurnlessPipeline(
            context=context,
            settings=settings,
            manager=manager,
            session=self.prepared.session,
            release=SentenceRelease(SentenceAssembler(context.locale), settings.sentence_release_seconds),
            memory=memory,
            line=self.line,
            writer=TurnWriter(self.services.store),
            meter=self.meter,
            turn_count=self.prepared.stored_turns,
        )

    async def run(self, take: TakeInput) -> SessionEnd:
        """Converse until the end, then finish. The only place where a session's nursery is opened."""
        session_id = self.prepared.context.session.id
        end = SessionEnd(session_id, SessionState.DISCONNECTED, CLIENT_VANISHED)
        try:
            error = await self._converse(take)
            reason = error.message if error else self.turns.end_reason or "the client ended the session"
            end = SessionEnd(session_id, SessionState.DISCONNECTED if error else SessionState.CLOSED, reason, error)
        finally:
            await finish_session(self.prepared, self.turns, self.meter, self.line, self.services, end)  # noqa: ASYNC102 - it is shielded and bounded inside
        return end

    async def _converse(self, take: TakeInput) -> RemoteError | None:
        """The error that ended the conversation, if one did; it has been told to the client."""
        error: RemoteError | None = None
        try:
            with self._output:
                self._say_ready()
                async with trio.open_nursery() as nursery:
                    await self._start(nursery, take)
        except* RemoteError as group:
            error = _first(group)
        except* Exception as group:
            logger.error("session %s failed", self.prepared.context.session.id, exc_info=group)
            if error is None:  # else it is what came of that error
                error = RealtimeException(ErrorCode.INTERNAL, "The conversation failed.", whose=Whose.SERVER)
        if self._output.cancelled_caught and not self.turns.is_finished:
            self.turns.end_reason = "the output was closed after the input had ended"
            logger.warning("session %s: the output was force-closed", self.prepared.context.session.id)
        if error is not None:
            say_last(self.line, OutError(error.code, error.message, recoverable=False, whose=error.whose))
        return error

    def _say_ready(self) -> None:
        context, properties = self.prepared.context, self.prepared.session.properties
        self.line.put_output(
            OutCommand(
                "ready",
                {
                    "protocol": PROTOCOL_VERSION,
                    "sessionId": context.session.id,
                    "agent": context.session.agent,
                    "userId": context.session.user_id,
                    "deviceRef": context.configuration.device_ref,
                    "provider": properties.provider,
                    "sampleRate": properties.sample_rate,
                    "temperature": properties.temperature,
                    "warnings": list(self.prepared.warnings),
                },
            )
        )

    async def _start(self, nursery: trio.Nursery, take: TakeInput) -> None:
        """Start the session's tasks: provider, turns, input, recognition, watchdogs."""
        settings, prepared = self.services.settings, self.prepared
        elements, from_model = trio.open_memory_channel[FromModel](settings.element_channel)
        self.turns.tools = ToolRunner(
            box=prepared.tool_box,
            context=prepared.context,
            nursery=nursery,
            results=self._inputs,
            tell=self.turns.receive,
            is_dead=self.turns.is_dead,
            default_timeout=settings.tool_seconds,
        )
        nursery.start_soon(self._run_turns, from_model, nursery.cancel_scope, name="turns")
        nursery.start_soon(self.turns.writer.run, name="turn writer")
        nursery.start_soon(watch_length, prepared.context, self.turns, self.line, settings, name="watchdog: length")
        nursery.start_soon(watch_user, prepared.context, self.turns, name="watchdog: user")
        await self._connect(nursery, elements)
        audio: trio.MemorySendChannel[RecognizerInput] | None = None
        rate = prepared.session.properties.sample_rate
        if prepared.recognizer is not None:
            audio, frames = trio.open_memory_channel[RecognizerInput](RECOGNIZER_AUDIO)
            rate = prepared.recognizer.sample_rate
            recognition = Recognition(prepared.recognizer, self.turns, self._inputs)
            with trio.move_on_after(settings.connect_seconds) as limit:
                await nursery.start(recognition.run, frames, name="recognition")
            if limit.cancelled_caught:
                message = f"Speech recognition ({prepared.recognizer.name}) did not answer in time."
                raise RealtimeException(ErrorCode.RECOGNITION_FAILED, message)
        inputs = SessionInputs(
            context=prepared.context,
            settings=settings,
            line=self.line,
            turns=self.turns,
            model_inputs=self._inputs,
            recognizer_audio=audio,
            sample_rate=rate,
            deaf=prepared.deaf,
            save_rating=partial(self._rate, nursery),
            filters=self.services.filters,
        )
        nursery.start_soon(self._run_input, inputs, take, audio, name="input")

    async def _connect(self, nursery: trio.Nursery, elements: trio.MemorySendChannel[FromModel]) -> None:
        """Start the provider and wait until it has acknowledged its configuration: the client's input waits so long (M9)."""
        with trio.move_on_after(self.services.settings.connect_seconds) as limit:
            await nursery.start(self._run_provider, nursery, elements, name="provider")
        if limit.cancelled_caught:
            provider = self.prepared.context.properties.provider
            raise RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, f"{provider} did not answer in time.")

    async def _run_provider(  # noqa: ASYNC128 - the status is passed on
        self,
        nursery: trio.Nursery,
        elements: trio.MemorySendChannel[FromModel],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """The model's session. Whatever leaves it is a RealtimeException (M8)."""
        session = self.prepared.session

        def start_tool(call: ToolCall) -> None:
            try:
                elements.send_nowait(call)
            except trio.WouldBlock:
                nursery.start_soon(_hand_over, elements.clone(), call, name=f"call of {call.name}")

        with elements, self._model_side:
            try:
                await session.run(self._model_side, elements, start_tool, task_status=task_status)
            except* RealtimeException:
                raise
            except* Exception as group:
                provider = self.prepared.context.properties.provider
                message = f"The connection to {provider} failed."
                raise RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, message) from group

    async def _run_turns(self, from_model: trio.MemoryReceiveChannel[FromModel], session: trio.CancelScope) -> None:
        with from_model:
            await self.turns.run(from_model)
            session.cancel(reason=self.turns.end_reason or "nothing is open any more")  # first: a model may be speaking

    async def _run_input(
        self, inputs: SessionInputs, take: TakeInput, audio: trio.MemorySendChannel[RecognizerInput] | None
    ) -> None:
        """The client's input. Its end starts the session-end timeout: a deadline on the output's scope (L7)."""
        await inputs.run(take)
        self._output.deadline = trio.current_time() + self.services.settings.session_end_timeout_seconds
        if audio is not None:
            audio.close()  # the recognition flushes the utterance under way, then says that it is over
        else:
            self.turns.recognition_over(by_engine=False)
        self.turns.input_ended()

    def _rate(self, nursery: trio.Nursery, value: int, text: str) -> None:
        """A rating is saved at once, so that a crash cannot lose it (L6); the client's next words do not wait for that."""
        context = self.prepared.context
        context.session = context.session.model_copy(update={"rating": value, "rating_text": text})
        nursery.start_soon(fenced, "saving the rating", self._save_rating, name="rating")

    async def _save_rating(self) -> None:
        session = self.prepared.context.session  # as it is now: of two ratings the later one stays
        try:
            await self.services.store.save_session(session)
        except StoreError:
            logger.warning("the rating of session %s is saved with the session", session.id)


async def _hand_over(elements: trio.MemorySendChannel[FromModel], call: ToolCall) -> None:
    with elements:
        try:
            await elements.send(call)
        except trio.BrokenResourceError:
            logger.debug("the session ended before the call of %s was taken", call.name)


def _first(group: BaseExceptionGroup[RemoteError]) -> RemoteError:
    """The error the client is told of; the others are the group's, and were its company."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, RemoteError)
    return error


def _refuse(line: ClientLine, end: SessionEnd) -> SessionEnd:
    assert end.error is not None
    say_last(line, OutError(end.error.code, end.error.message, recoverable=False, whose=end.error.whose))
    announce_end(line, end)
    return end


async def _save_unstarted(document: SessionDocument, services: Services, reason: str) -> None:
    """A session that never came to run is not left OPEN."""
    saved = document.model_copy(
        update={
            "state": SessionState.DISCONNECTED,
            "end_reason": reason,
            "updated_at": services.environment.wall_clock(),
        }
    )
    with trio.move_on_after(services.settings.cleanup_seconds, shield=True) as limit:
        try:
            await services.store.save_session(saved)
        except Exception:
            logger.exception("session %s could not be saved", document.id)
    if limit.cancelled_caught:
        logger.error("session %s could not be saved in time", document.id)
