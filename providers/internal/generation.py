"""One answer: the chat model's words, streamed into speech, with its tool calls and what it says after them (SPEC P8)."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

import attrs
import trio

from engine.elements import RealtimeElement, RealtimeError, ResponseStatus, SpeechItem, Token
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    ChatFinished,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ChatUsage,
    Context,
    StartTool,
    Synthesizer,
    TokenUsage,
    ToolCall,
    ToolSettled,
    ToolSpecification,
    Voice,
)
from engine.protocol.audio import SAMPLE_BYTES
from engine.protocol.session_end import Ending, PlannedSessionEnd
from engine.texts import Sentence, say
from providers.internal.history import ChatHistory
from providers.internal.speech import Piece, SpokenResponse

logger = logging.getLogger(__name__)

MAX_ROUNDS = 8
"""Requests for one answer: a model that goes on calling tools after that has lost its way."""
MAX_PIECES = 256
"""Pieces waiting to be spoken. Speech is much slower than words, so a long answer waits here; the words wait behind it."""
AUDIO_CHUNKS = 4
NOT_ENDED = '{"status": "The goodbye was interrupted: the conversation has not ended."}'
"""What the model reads of a call that was to end the session when the goodbye was cut."""


@attrs.define(eq=False)
class Generation:
    """Runs in a task of the session's. When a barge-in cuts it, that task unwinds by itself: the next answer does not wait for
    what the parts do when they are cancelled."""

    response_id: str
    context: Context
    system_prompt: str
    tools: tuple[ToolSpecification, ...]
    temperature: float | None
    chat: ChatModel
    synthesizer: Synthesizer | None
    voice: Voice
    history: ChatHistory
    usage: TokenUsage
    elements: trio.MemorySendChannel[RealtimeElement]
    start_tool: StartTool
    session_end: PlannedSessionEnd = attrs.field(factory=PlannedSessionEnd)
    ending: Ending = attrs.field(factory=Ending)
    """What this answer has to do with the session's end."""
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the answer is complete, but for its end, or was cut and is unwound."""
    status: ResponseStatus = attrs.field(default=ResponseStatus.COMPLETED, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _spoken: SpokenResponse = attrs.field(init=False)
    _remembered: int = attrs.field(default=0, init=False)
    """How much of the words the history has already."""
    _open_calls: set[str] = attrs.field(factory=set[str], init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when no result is waited for any more."""
    _finish_calls: dict[str, None] = attrs.field(factory=dict[str, None], init=False)
    """The calls of this answer that end the session, in their order."""
    _goes_on: bool = attrs.field(default=True, init=False)
    """Whether the model is asked again with the results of its calls."""

    def __attrs_post_init__(self) -> None:
        self._spoken = SpokenResponse(self.response_id, self.context.locale, is_silent=self.synthesizer is None)

    # --- what the session's other task tells

    def settle(self, result: ToolSettled) -> None:
        """A call has ended, maybe one of this answer; its output is in the history."""
        if result.call_id not in self._open_calls:
            return
        self._open_calls.discard(result.call_id)
        if result.interrupted:
            self.stop_asking()
        self.session_end.settle(self.ending, result)
        if result.ends_session:
            self._finish_calls[result.call_id] = None
        if not self._open_calls:
            self._settled.set()

    def stop_asking(self) -> None:
        """The results will not all come, or too late: say what there is to say, and end."""
        self._goes_on = False
        self._settled.set()

    def interrupt(self) -> None:
        """The user cuts in: nothing is said any more, and the words so far come into the history, to be cut there."""
        self._scope.cancel(reason="barge-in")
        self._remember()
        for call_id in self._finish_calls:
            self.history.add_output(call_id, NOT_ENDED)
        if self.ending.ends_session:
            self.history.add_instruction(say(Sentence.GOODBYE_CUT, self.context.locale))

    def _remember(self, calls: tuple[ToolCall, ...] = ()) -> None:
        """What was said since the last time, with the calls that follow it."""
        text = self._spoken.text
        self.history.add_answer(self.response_id, text[self._remembered :].strip(), calls)
        self._remembered = len(text)

    # --- the answer

    async def run(self) -> None:
        """Answer to the end, with speech.

        Raises:
            RealtimeException: the chat model or the synthesis failed, within a group. Not when the answer was cut: how parts
                take that is their affair, and the next request shows what works.
        """
        try:
            with self._scope:
                await self._answer()
        except* RealtimeException as group:
            if not self._scope.cancel_called:
                raise
            logger.warning("an answer failed after it was cut: %r", group.exceptions)
        finally:
            self.over.set()

    async def _answer(self) -> None:
        to_speak, pieces = trio.open_memory_channel[Piece](MAX_PIECES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._speak_all, pieces, name="speech")
            with to_speak:
                await self._converse(to_speak)

    async def _converse(self, to_speak: trio.MemorySendChannel[Piece]) -> None:
        """Ask the model, run the tools it calls, ask again with their results."""
        for _ in range(MAX_ROUNDS):
            said_before = len(self._spoken.text)
            calls = await self._ask(to_speak)
            # A barge-in may have come together with the end of the stream: then nothing may be started any more.
            await trio.lowlevel.checkpoint_if_cancelled()
            if self.context.guard is not None:
                await self._pass_on(self.context.guard.finish(self.response_id), to_speak)
            has_spoken = bool(self._spoken.text[said_before:].strip())
            pieces = self._spoken.flush()
            self._remember(calls)
            self._start(calls)
            for piece in pieces:
                await to_speak.send(piece)
            await self._show()
            if not calls:
                return
            await self._settled.wait()
            if not self._goes_on:
                self.status, self.ending = ResponseStatus.INCOMPLETE, Ending()
                return
            if self.ending.is_said(has_spoken=has_spoken):
                return
            self.ending.asked_again()
        logger.warning("the chat model called tools in %d requests for one answer; it is not asked again", MAX_ROUNDS)
        message = "The chat model called tools without end; its answer was ended."
        await self.elements.send(RealtimeError(ErrorCode.CHAT_FAILED, message))
        self.status = ResponseStatus.INCOMPLETE

    async def _ask(self, to_speak: trio.MemorySendChannel[Piece]) -> tuple[ToolCall, ...]:
        """One request: stream its words into speech. Returns its calls, which are not started yet."""
        await trio.lowlevel.checkpoint_if_cancelled()  # a barge-in may have come together with the last result
        calls: list[ToolCall] = []
        request = ChatRequest(
            self.history.request(self.system_prompt),
            self.tools if self._goes_on else (),
            self.temperature,
            self.context.locale,
        )
        with _failing_as(ErrorCode.CHAT_FAILED, "The chat model failed."):
            async with self.chat.open_stream(request) as deltas:
                async for delta in deltas:
                    match delta:
                        case ChatText(text):
                            await self._say(text, to_speak)
                        case ChatToolCall():
                            calls.append(self._call(delta))
                        case ChatUsage():
                            self.usage.input += delta.input
                            self.usage.output += delta.output
                            self.usage.cached += delta.cached
                        case ChatFinished(complete):
                            self.status = ResponseStatus.COMPLETED if complete else ResponseStatus.INCOMPLETE
        return tuple(calls)

    async def _say(self, text: str, to_speak: trio.MemorySendChannel[Piece]) -> None:
        guard = self.context.guard
        await self._pass_on(text if guard is None else guard.feed(self.response_id, text), to_speak)

    async def _pass_on(self, text: str, to_speak: trio.MemorySendChannel[Piece]) -> None:
        if not text:
            return
        await self.elements.send(Token(text, self.response_id))
        for piece in self._spoken.feed(text):
            await to_speak.send(piece)
        await self._show()

    def _call(self, delta: ChatToolCall) -> ToolCall:
        """The call under an id that no other call of the session has had: a repeated one would not be run."""
        new = self.history.take_call_id(delta.call_id)
        call_id = delta.call_id if new else self.context.environment.new_id("call")
        return ToolCall(call_id, delta.name, delta.arguments, self.response_id)

    def _start(self, calls: tuple[ToolCall, ...]) -> None:
        self._open_calls = {call.call_id for call in calls}
        if self._goes_on:
            self._settled = trio.Event()
        for call in calls:
            self.start_tool(call)

    # --- speech

    async def _speak_all(self, pieces: trio.MemoryReceiveChannel[Piece]) -> None:
        with pieces:
            async for piece in pieces:
                assert self.synthesizer is not None, "nothing is spoken on a text-only connection"
                self._spoken.begin(piece)
                await self._show()
                await self._speak(piece, self.synthesizer)

    async def _speak(self, piece: Piece, synthesizer: Synthesizer) -> None:
        made, audio = trio.open_memory_channel[bytes](AUDIO_CHUNKS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._synthesize, piece, synthesizer, made, name="synthesis")
            with audio:
                text = piece.text
                async for pcm in audio:
                    self._spoken.speak(len(pcm) / SAMPLE_BYTES * 1000 / synthesizer.sample_rate)
                    item = SpeechItem(pcm, synthesizer.sample_rate, self.response_id, synthesizer.name, text=text)
                    await self.elements.send(item)
                    text = ""
                if text:  # nothing of it can be spoken, and it is passed over in its place
                    item = SpeechItem(b"", synthesizer.sample_rate, self.response_id, synthesizer.name, text=text)
                    await self.elements.send(item)

    async def _synthesize(self, piece: Piece, synthesizer: Synthesizer, made: trio.MemorySendChannel[bytes]) -> None:
        with made, _failing_as(ErrorCode.SYNTHESIS_FAILED, "Speech synthesis failed."):
            await synthesizer.speak(piece.text, self.voice, made)

    async def _show(self) -> None:
        """Send the sentences that can be shown. Taken one by one, so that both tasks together keep their order."""
        while (text := self._spoken.next_text()) is not None:
            await self.elements.send(text)


@contextmanager
def _failing_as(code: ErrorCode, message: str) -> Generator[None]:
    """What a part raises leaves as a RealtimeException: its own, or one of this code."""
    try:
        yield
    except* RealtimeException:
        raise
    except* Exception as group:
        raise RealtimeException(code, message) from group
