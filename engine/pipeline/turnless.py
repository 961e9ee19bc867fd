"""A conversation without turns (SPEC L17): the model speaks continuously and decides for itself when to.

Its elements pass straight to the client; what the engine does about them runs beside that stream and never delays speech. There
is no response that ends, so no ResponseEnd is made, no turn is recorded and nothing is windowed; the lines of both sides are
stored as chat messages.
"""

import logging

import attrs
import trio

from engine.config import Settings
from engine.elements import (
    Interrupted,
    OutSpeech,
    Partial,
    RealtimeElement,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Text,
    Token,
    Transcript,
)
from engine.interfaces import Context, Message, RealtimeSession, Role, ToolCall, TurnlessInteractionManager
from engine.outside import note_told
from engine.pipeline.driver import ConversationDriver, FromModel, model_has_ended
from engine.pipeline.line import ClientLine
from engine.pipeline.ordered_writer import MessageWriter
from engine.pipeline.tools import ToolRunner
from engine.protocol.audio import SampleCarry, bytes_for_ms
from engine.protocol.memory import ConversationMemory
from engine.protocol.output import to_output
from engine.protocol.resample import Resampler
from engine.protocol.sentence_release import SentenceRelease
from engine.protocol.silence import SilenceGate
from engine.protocol.usage import ActivityMeter
from engine.store.documents import MessageDocument

logger = logging.getLogger(__name__)

MESSAGE_QUEUE = 64
"""Messages waiting for the manager's hook; one that is always behind loses the oldest news, not the conversation."""


@attrs.define(eq=False)
class TurnlessPipeline(ConversationDriver):
    """See `ConversationDriver`."""

    context: Context
    settings: Settings
    manager: TurnlessInteractionManager
    session: RealtimeSession
    release: SentenceRelease
    memory: ConversationMemory
    line: ClientLine
    writer: MessageWriter
    meter: ActivityMeter
    turn_count: int = 0
    message_count: int = 0
    """Messages stored so far, of earlier runs too."""
    tools: ToolRunner | None = attrs.field(default=None, init=False)
    end_reason: str = attrs.field(default="", init=False)
    _gate: SilenceGate = attrs.field(init=False)
    _carry: SampleCarry = attrs.field(factory=SampleCarry, init=False)
    _resampler: Resampler | None = attrs.field(default=None, init=False)
    _rate: int = attrs.field(default=0, init=False)
    _response_id: str = attrs.field(default="", init=False)
    _user_at: float = attrs.field(default=0.0, init=False)
    _model_at: float = attrs.field(default=0.0, init=False)
    _quiet: trio.CancelScope | None = attrs.field(default=None, init=False)
    _messages: trio.MemorySendChannel[Message] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._gate = SilenceGate(self.session.properties.sample_rate)

    async def run(self, elements: trio.MemoryReceiveChannel[FromModel]) -> None:
        messages, told = trio.open_memory_channel[Message](MESSAGE_QUEUE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_manager, told, name="chat messages")
            self._messages = messages
            with messages:
                await self._work(elements)
            nursery.cancel_scope.deadline = trio.current_time() + self.settings.turn_end_seconds

    async def _work(self, elements: trio.MemoryReceiveChannel[FromModel]) -> None:
        while not self.end_reason:
            with trio.CancelScope() as self._quiet:
                if self.release.deadline is not None:
                    self._quiet.deadline = self.release.deadline
                try:
                    element = await elements.receive()
                except trio.EndOfChannel:
                    self._say(self.release.flush())
                    raise model_has_ended(self.context) from None
                if isinstance(element, ToolCall):
                    self.start_tool(element)
                else:
                    self.receive(element)
            if self._quiet.cancelled_caught:
                self._say(self.release.tick(trio.current_time()))
        self._say(self.release.flush())

    async def _tell_manager(self, messages: trio.MemoryReceiveChannel[Message]) -> None:
        with messages:
            async for message in messages:
                try:
                    await self.manager.on_chat_message(self.context, message)
                except Exception:
                    logger.exception("on_chat_message failed; the conversation goes on")

    def receive(self, element: RealtimeElement) -> None:
        now = trio.current_time()
        self.meter.activity(now)
        configuration = self.context.configuration
        match element:
            case SpeechItem():
                if not configuration.text_only:
                    self._speak(element)
            case Token(text, response_id):
                self._response_id, self._model_at = response_id, now
                if configuration.tokens:
                    self._put(element)
                self._say(self.release.feed(text, now))
            case Text(text):
                self._model_at = now
                self._note(Role.ASSISTANT, text)
                self._put(element)
            case Transcript(text, is_interim):
                self._user_at = now
                self._put(element)
                if not is_interim and text.strip():
                    self._note(Role.USER, text)
            case Partial():
                self._user_at = now
                if configuration.partials:
                    self._put(element)
            case ResponseEnd():
                pass  # such a model has none; one that is made up by a provider means nothing here
            case _:
                self._put(element)

    def _speak(self, item: SpeechItem) -> None:
        forward, is_last = self._gate.pass_on(item.data)
        if not forward:
            return
        rate = self.context.configuration.output_sample_rate
        if self._resampler is None or item.sample_rate != self._rate:
            self._resampler, self._rate = Resampler(item.sample_rate, rate), item.sample_rate
        pcm = self._resampler.feed(self._carry.feed(item.data))
        size = bytes_for_ms(self.settings.speech_frame_ms, rate)
        frames = [pcm[at : at + size] for at in range(0, len(pcm), size)] or ([b""] if is_last else [])
        for index, frame in enumerate(frames):
            last = is_last and index == len(frames) - 1
            self.line.put_output(OutSpeech(frame, rate, self.context.turn_id, item.response_id, is_last=last))

    def _say(self, sentences: list[str]) -> None:
        for sentence in sentences:
            self._note(Role.ASSISTANT, sentence)
            self._put(Text(sentence, self._response_id))

    def _note(self, role: Role, text: str) -> None:
        message = Message(role, text)
        self.memory.put(message)
        environment = self.context.environment
        self.writer.put(
            MessageDocument(
                id=environment.new_id("message"),
                session_id=self.context.session.id,
                position=self.message_count,
                role="user" if role is Role.USER else "assistant",
                text=text,
                created_at=environment.wall_clock(),
            )
        )
        self.message_count += 1
        if self._messages is not None:
            try:
                self._messages.send_nowait(message)
            except trio.WouldBlock:
                logger.warning("the manager is behind with chat messages; one was not told")

    def _put(self, element: RealtimeElement) -> None:
        self.line.put_output(to_output(element, self.context.turn_id))

    # --- what the session's other tasks ask

    @property
    def is_finished(self) -> bool:
        return bool(self.end_reason)

    def interrupt(self, interim: Transcript) -> Interrupted:
        self._user_at = trio.current_time()
        return Interrupted()

    def expect_answer(self, text: str, provider: str) -> None:
        self._user_at = trio.current_time()

    def input_ended(self) -> None:
        """Nothing is ever owed by such a model."""
        self.end("the client ended the session")

    def recognition_over(self, *, by_engine: bool) -> None:
        """The model recognizes by itself."""

    def playback(self, response_id: str, played_ms: int) -> None:
        self.line.hearing.playback(response_id, played_ms, trio.current_time())

    def end(self, reason: str) -> None:
        self.end_reason = self.end_reason or reason
        if self._quiet is not None:
            self._quiet.cancel(reason=reason)

    def is_dead(self, response_id: str) -> bool:
        return False

    @property
    def user_active_at(self) -> float:
        return self._user_at

    def speaks_until(self, now: float) -> float:
        spoken_until = self.line.hearing.spoken_until(now)
        return self._model_at if spoken_until is None else max(spoken_until, self._model_at)

    async def steer(self, instruction: RealtimeInstruction) -> None:
        note_told(self.context, instruction)
        await self.session.instruct(instruction)

    async def abandon(self, status: ResponseStatus, *, client_is_gone: bool) -> None:
        if self.tools is not None:
            self.tools.stop()
        await trio.lowlevel.checkpoint()
