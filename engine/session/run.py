"""One conversation: a nursery that holds the provider, the turns with their legs, the recognition and the watchdogs.

When `run_session` returns, nothing of the session runs and everything that could be saved is.
"""

import logging
from enum import Enum, auto
from functools import partial

import attrs
import trio

from engine.boundary import PASSES, Boundary, Note
from engine.config import PipelineConfiguration
from engine.elements import JsonObject, OutCommand, OutError, OutEvaluation
from engine.errors import ErrorCode, LocalError, RealtimeException, RemoteError, Whose
from engine.identity.permissions import may_talk
from engine.interfaces import (
    Context,
    InteractionManager,
    RecognizerInput,
    SessionInput,
    ToolCall,
    TurnInteractionManager,
    TurnlessInteractionManager,
)
from engine.observation import Happening, Outcome, Span, SpanKind, bind_session, bound_session
from engine.outside import told_inputs
from engine.pipeline.contract_watch import ContractWatch, is_sampled
from engine.pipeline.driver import ConversationDriver, FromModel
from engine.pipeline.input import SessionInputs, TakeInput
from engine.pipeline.line import ClientLine
from engine.pipeline.ordered_writer import MessageWriter, TurnWriter
from engine.pipeline.recognition import Recognition
from engine.pipeline.tools import ToolRunner
from engine.pipeline.turn import TurnPipeline
from engine.pipeline.turnless import TurnlessPipeline
from engine.principal import Principal
from engine.protocol.memory import ConversationMemory
from engine.protocol.sentence_release import SentenceRelease
from engine.protocol.sentences import SentenceAssembler
from engine.protocol.turn import TurnLimits
from engine.protocol.turns import TurnMachine
from engine.protocol.usage import ActivityMeter
from engine.session.finish import announce_end, fenced, finish_session, say_last
from engine.session.holdings import SessionHoldings
from engine.session.live import LiveSession, taken_over
from engine.session.outside import services_at, without_secrets
from engine.session.services import Services
from engine.session.start import (
    PreparedSession,
    SessionEnd,
    make_context,
    open_document,
    open_log,
    prepare,
    stored_owner,
)
from engine.session.visitors import note_visitors
from engine.session.watchdog import watch_length, watch_user
from engine.store.contract import StoreError, TakenOverError
from engine.store.documents import EvaluationRecord, SessionDocument, SessionState
from engine.timing import timed

logger = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
CLIENT_VANISHED = "the client vanished"
RECOGNIZER_AUDIO = 8
"""Audio frames between the input and the recognition: it takes them inline, so this only evens out bursts."""


NOT_KEPT = {"admin_key", "jwt_secret", "jwt_keys", "jwt_audience", "jwt_issuer", "allowed_hosts", "allowed_origins"}
"""Settings that are nobody's business who reads a capsule, and that no session asks for."""


class SessionMode(Enum):
    """What the end of the client's input means."""

    CONVERSATION = auto()
    """The conversation is over: it is evaluated, reported and saved as CLOSED (L6)."""
    SINGLE_TURN = auto()
    """One turn of a longer one: it is saved as IDLE, without end-of-session work."""


async def run_session(
    configuration: PipelineConfiguration,
    line: ClientLine,
    services: Services,
    *,
    principal: Principal,
    take: TakeInput | None = None,
    mode: SessionMode = SessionMode.CONVERSATION,
) -> SessionEnd:
    """Hold one conversation over `line`, from its start to its saved end.

    `principal` is who may resume the session. `take` gives the session's input when the line carries more than one session.
    Cancelling this is how a vanished client is told: the session is saved as DISCONNECTED before the cancellation goes on.
    Failures of the session are told to the client and end in the returned value; they never raise.
    """
    if services.keep is None:
        return await _run_session(configuration, line, services, PASSES, principal, take or line.take_input, mode)
    about = {
        "configuration": configuration,
        "principal": without_secrets(principal),
        "mode": mode.name,
        "settings": services.settings.model_dump(mode="json", exclude=NOT_KEPT),
        "filters": [getattr(each, "__name__", type(each).__name__) for each in services.filters],
        "began": services.environment.wall_clock(),
    }
    async with services.keep(about) as boundary:
        return await run_at_boundary(configuration, line, services, boundary, principal=principal, take=take, mode=mode)


async def run_at_boundary(
    configuration: PipelineConfiguration,
    line: ClientLine,
    services: Services,
    boundary: Boundary,
    *,
    principal: Principal,
    take: TakeInput | None = None,
    mode: SessionMode = SessionMode.CONVERSATION,
) -> SessionEnd:
    """As `run_session`, with everything that comes from outside passing `boundary`."""
    line.keep_at(boundary)
    end: SessionEnd | None = None

    async def tell_of_leaving() -> None:
        try:
            await trio.sleep_forever()
        finally:
            if end is None:
                boundary.vanished()

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_of_leaving, name="watch: client")
            inside = services_at(boundary, services)
            end = await _run_session(configuration, line, inside, boundary, principal, take or line.take_input, mode)
            nursery.cancel_scope.cancel(reason="the session is over")
    finally:
        line.boundary = None
        state, reason = (end.state, end.reason) if end is not None else (SessionState.DISCONNECTED, CLIENT_VANISHED)
        boundary.ended(state.value, reason)
    assert end is not None, "it has returned"
    return end


async def _run_session(
    configuration: PipelineConfiguration,
    line: ClientLine,
    services: Services,
    boundary: Boundary,
    principal: Principal,
    take: TakeInput,
    mode: SessionMode,
) -> SessionEnd:
    try:
        await _make_room(configuration.session_id, principal, services)
        document = await open_document(configuration, services, principal=principal)
    except RemoteError as error:
        end = SessionEnd(configuration.session_id, SessionState.DISCONNECTED, error.message, error)
        return _refuse(line, end, services)
    except Exception:
        logger.exception("a session could not be opened")
        fault = RealtimeException(ErrorCode.INTERNAL, "The session could not be opened.", whose=Whose.SERVER)
        end = SessionEnd(configuration.session_id, SessionState.DISCONNECTED, fault.message, fault)
        return _refuse(line, end, services)
    live = LiveSession(document.id, document.owner, document.fence, principal.credential, boundary)
    boundary.named(document.id, document.fence)
    with services.live.enter(live), bind_session(document.id):
        async with trio.open_nursery() as held:
            holdings = SessionHoldings(held, services.settings.release_seconds)
            try:
                prepared = await _prepare(configuration, document, holdings, services, live, principal, mode)
                if isinstance(prepared, SessionEnd):
                    end = _refuse(line, prepared, services)
                else:
                    end = await Conversation(prepared, line, services, live, mode).run(take)
            finally:
                holdings.release()
    return end


async def _make_room(session_id: str, principal: Principal, services: Services) -> None:
    """End the session when it runs in this process, and give it the time to save its open turn: the new holder reads it."""
    if services.live.is_stopping:
        raise RemoteError(ErrorCode.TOO_BUSY, "This server is stopping; connect again.", whose=Whose.SERVER)
    older = services.live.find(session_id) if session_id else None
    if older is None or older.owner != stored_owner(principal):
        return
    services.observer.happened(Happening.TAKEN_OVER, session_id)
    older.end(taken_over())
    with trio.move_on_after(services.settings.takeover_wait_seconds):
        await older.saved.wait()


async def _prepare(
    configuration: PipelineConfiguration,
    document: SessionDocument,
    holdings: SessionHoldings,
    services: Services,
    live: LiveSession,
    principal: Principal,
    mode: SessionMode,
) -> PreparedSession | SessionEnd:
    """All parts of the session, or how it ended before it began; that is saved."""
    fault: RemoteError
    try:
        with live.open_scope(), trio.move_on_after(services.settings.session_start_seconds) as limit:
            log = open_log(document, services)
            context = await make_context(configuration, document, services, principal=principal, log=log)
            context.holdings, context.boundary = holdings, live.boundary
            document = context.session
            if mode is SessionMode.SINGLE_TURN and context.properties.is_turnless:
                message = "This agent's model speaks without turns; talk to it over the WebSocket."
                raise RemoteError(ErrorCode.SETUP_NOT_ALLOWED, message)
            return await prepare(context, services, log)
        if live.cut is not None:
            reason = live.cut.reason
            await _save_unstarted(document, services, reason)
            return SessionEnd(document.id, SessionState.DISCONNECTED, reason, live.cut.error, live.cut)
        assert limit.cancelled_caught
        fault = RealtimeException(ErrorCode.INTERNAL, "The agent took too long to get ready.", whose=Whose.SERVER)
    except RemoteError as error:
        fault = error
    except TakenOverError:
        cut = taken_over()
        return SessionEnd(document.id, SessionState.DISCONNECTED, cut.reason, cut.error, cut)
    except LocalError as exc:
        logger.error("session %s could not be started: %s", document.id, exc)
        message = "This agent is not completely configured on this server; its log says what is missing."
        fault = RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, message, whose=Whose.SERVER)
    except Exception:
        logger.exception("session %s could not be started", document.id)
        fault = RealtimeException(ErrorCode.INTERNAL, "The session could not be started.", whose=Whose.SERVER)
    except BaseException:  # a cancellation, alone or in groups of it
        await _save_unstarted(document, services, CLIENT_VANISHED)  # noqa: ASYNC102 - it is shielded and bounded inside
        raise
    await _save_unstarted(document, services, fault.message)
    return SessionEnd(document.id, SessionState.DISCONNECTED, fault.message, fault)


@attrs.define(eq=False)
class Conversation:
    """A prepared session at work."""

    prepared: PreparedSession
    line: ClientLine
    services: Services
    live: LiveSession
    mode: SessionMode
    meter: ActivityMeter = attrs.field(init=False)
    turns: ConversationDriver = attrs.field(init=False)
    _inputs: trio.MemorySendChannel[SessionInput] = attrs.field(init=False)
    _model_side: trio.MemoryReceiveChannel[SessionInput] = attrs.field(init=False)
    _output: trio.CancelScope = attrs.field(init=False)
    """The session's output. Its deadline is the session-end timeout, once the input has ended (L7). A cut cancels it too."""

    _was_forced: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        settings, prepared = self.services.settings, self.prepared
        context = prepared.context
        self._output = self.live.open_scope()
        self.live.take_event = partial(
            _take_event, prepared.manager, context
        )  # no cycle: a session is freed at its end
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
            writer=TurnWriter(partial(self.services.store.append_turns, fence=self.live.fence), self._lose),
            model_inputs=self._inputs,
            meter=self.meter,
            shows_steering=context.content.show_steering if context.content else True,
            turn_count=self.prepared.stored,
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
            writer=MessageWriter(
                partial(self.services.store.append_messages, fence=self.live.fence), self._lose, "message"
            ),
            meter=self.meter,
            message_count=self.prepared.stored,
        )

    def _lose(self) -> None:
        """A write was refused: the session has another holder, in another process."""
        self.live.end(taken_over())

    async def run(self, take: TakeInput) -> SessionEnd:
        """Converse until the end, then finish. The only place where a session's nursery is opened."""
        context, observer = self.prepared.context, self.services.observer
        session_id, provider = context.session.id, context.properties.provider
        span = Span(SpanKind.SESSION, session_id, context.session.agent or context.configuration.key, session_id)
        observer.began(span, trio.current_time())
        observer.session_opened(context.session, provider)
        self._sample()
        bound = bound_session()
        if bound is not None:
            bound.read_turn_id = lambda: context.turn_id
        end = SessionEnd(session_id, SessionState.DISCONNECTED, CLIENT_VANISHED)
        try:
            end = self._end(await self._converse(take))
            if end.state is SessionState.CLOSED:
                await self._evaluate()
        finally:
            await finish_session(self.prepared, self.turns, self.meter, self.line, self.services, self.live, end)  # noqa: ASYNC102 - it is shielded and bounded inside
            observer.session_closed(context.session, provider, self.meter.active_seconds)
            outcome = Outcome.OK if end.state is not SessionState.DISCONNECTED else Outcome.FAILED
            observer.ended(span, trio.current_time(), Outcome.CANCELLED if end.reason == CLIENT_VANISHED else outcome)
        return end

    def _sample(self) -> None:
        """Have the output judged if this is one of the sessions whose output is, or follows one on its connection."""
        context, line = self.prepared.context, self.line
        if line.contract is None and is_sampled(context.session.id, self.services.settings.contract_sample_rate):
            line.contract = ContractWatch(context.session.id, self.services.observer)
        if line.contract is not None:
            line.contract.promises.has_turns = not context.properties.is_turnless

    def _end(self, error: RemoteError | None) -> SessionEnd:
        session_id, cut = self.prepared.context.session.id, self.live.cut
        if cut is not None:
            return SessionEnd(session_id, SessionState.DISCONNECTED, cut.reason, cut.error, cut)
        if error is not None:
            return SessionEnd(session_id, SessionState.DISCONNECTED, error.message, error)
        reason = self.turns.end_reason or "the client ended the session"
        is_ended_by_agent = bool(self.turns.end_reason) and not self._was_forced
        is_over = self.mode is SessionMode.CONVERSATION or is_ended_by_agent
        return SessionEnd(session_id, SessionState.CLOSED if is_over else SessionState.IDLE, reason)

    async def _evaluate(self) -> None:
        """The end-of-conversation evaluation; each verdict is told and stored as it comes (L6). What ends sessions from outside
        ends it too: those of the verdicts that are there are kept."""
        context = self.prepared.context

        def emit(evaluation: OutEvaluation) -> None:
            record = EvaluationRecord(
                name=evaluation.name,
                score=evaluation.score,
                reasons=list(evaluation.reasons),
                data=None if evaluation.data is None else dict(evaluation.data),
            )
            evaluations = [*context.session.evaluations, record]
            context.session = context.session.model_copy(update={"evaluations": evaluations})
            say_last(self.line, evaluation)

        with self.live.open_scope(), trio.move_on_after(self.services.settings.evaluation_seconds) as limit:
            await fenced("the end-of-conversation evaluation", self.prepared.manager.evaluate, context, emit)
        if limit.cancelled_caught:
            logger.warning("the evaluation of session %s took too long and was stopped", context.session.id)

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
        if self.live.cut is not None:
            self.turns.end_reason = self.live.cut.reason
            error = self.live.cut.error
        elif self._output.cancelled_caught and not self.turns.is_finished:
            self._was_forced = True
            cancelled = {"scope": "output", "reason": "the session-end timeout is over", "turn_id": ""}
            self.prepared.context.boundary.note(Note.CANCELLED, cancelled)
            self.turns.end_reason = "the output was closed after the input had ended"
            self.services.observer.happened(Happening.FORCE_CLOSED, self.prepared.context.session.id)
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
        nursery.start_soon(prepared.log.run, name="LLM log")
        self._record(nursery)
        nursery.start_soon(watch_length, prepared.context, self.turns, self.line, settings, name="watchdog: length")
        nursery.start_soon(watch_user, prepared.context, self.turns, name="watchdog: user")
        nursery.start_soon(
            fenced, "noting the visitors", note_visitors, prepared.context, self.services, name="visitors"
        )
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
            take_audio=prepared.session.take_audio,
            deaf=prepared.deaf,
            save_rating=partial(self._rate, nursery),
            authorize=self._authorize,
            filters=self.services.filters,
            action_mappers=self.services.action_mappers,
        )
        nursery.start_soon(self._run_input, inputs, take, audio, name="input")

    def _record(self, nursery: trio.Nursery) -> None:
        """Record the conversation, when its agent wants that (L10)."""
        context, open_recorder = self.prepared.context, self.services.open_recorder
        if open_recorder is None or context.content is None or not context.content.recording:
            return
        configuration, environment = context.configuration, context.environment
        minutes = context.content.max_session_minutes or self.services.settings.max_session_minutes
        recorder = open_recorder(
            session_id=context.session.id,
            run=self.live.fence,
            user_rate=configuration.input_sample_rate,
            agent_rate=configuration.output_sample_rate,
            began=environment.wall_clock(),
            max_seconds=minutes * 60 + self.services.settings.session_end_timeout_seconds,
        )
        self.line.recorder = recorder
        recordings = [*context.session.recordings, recorder.file_name]
        context.session = context.session.model_copy(update={"recordings": recordings})
        nursery.start_soon(recorder.run, name="recording")

    async def _connect(self, nursery: trio.Nursery, elements: trio.MemorySendChannel[FromModel]) -> None:
        """Start the provider and wait until it has acknowledged its configuration: the client's input waits so long (M9)."""
        seconds = self.services.settings.connect_seconds
        with timed(self.prepared.context, "provider"), trio.move_on_after(seconds) as limit:
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
                inputs = told_inputs(self.prepared.context, self._model_side)
                await session.run(inputs, elements, start_tool, task_status=task_status)
            except* RealtimeException:
                raise
            except* Exception as group:
                provider = self.prepared.context.properties.provider
                message = f"The connection to {provider} failed."
                raise RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, message) from group

    async def _run_turns(self, from_model: trio.MemoryReceiveChannel[FromModel], session: trio.CancelScope) -> None:
        with from_model:
            await self.turns.run(from_model)
            reason = self.turns.end_reason or "nothing is open any more"
            self.prepared.context.boundary.note(Note.CANCELLED, {"scope": "session", "reason": reason, "turn_id": ""})
            session.cancel(reason=reason)  # first: a model may be speaking

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

    async def _authorize(self, value: str) -> None:
        """Other credentials for the rest of the session. Its stored owner stays who it is (L4, case C43 b).

        Raises:
            RemoteError: they do not hold, or whose they are may not talk here; the old ones stay.
        """
        context = self.prepared.context
        principal = await self.services.authenticator.authenticate_value(value)
        try:
            may_talk(principal, await self.services.catalog.project(context.project_ref))
        except StoreError as exc:
            message = "New credentials could not be checked; try again later."
            raise RemoteError(ErrorCode.INTERNAL, message, whose=Whose.SERVER) from exc
        context.principal = principal
        self.live.credential = principal.credential

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
        except TakenOverError:
            self._lose()


async def _take_event(manager: InteractionManager, context: Context, event: JsonObject) -> None:
    context.boundary.event(event)
    await manager.on_chat_event(context, event)


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


def _refuse(line: ClientLine, end: SessionEnd, services: Services) -> SessionEnd:
    if end.error is not None:
        services.observer.refused(end.error.code.value)
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
        except TakenOverError:
            logger.debug("session %s is somebody else's by now", document.id)
        except Exception:
            logger.exception("session %s could not be saved", document.id)
    if limit.cancelled_caught:
        logger.error("session %s could not be saved in time", document.id)
