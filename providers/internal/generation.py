"""One answer: the chat model's words, streamed into speech, with its tool calls and what it says after them (SPEC P8)."""

import attrs
import trio

from engine.elements import RealtimeElement, ResponseStatus, SpeechItem, Token
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
from providers.internal.history import ChatHistory
from providers.internal.speech import Piece, SpokenResponse

MAX_ROUNDS = 8
"""Requests for one answer: a model that goes on calling tools after that has lost its way."""
MAX_PIECES = 256
"""Pieces waiting to be spoken. Speech is much slower than words, so a long answer waits here; the words wait behind it."""
AUDIO_CHUNKS = 4


@attrs.define(eq=False)
class Generation:
    """Runs in the session's answer scope; cancelled by a barge-in, after `stop` has told what was heard."""

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
    status: ResponseStatus = attrs.field(default=ResponseStatus.COMPLETED, init=False)
    ends_session: bool = attrs.field(default=False, init=False)
    _spoken: SpokenResponse = attrs.field(init=False)
    _said: str = attrs.field(default="", init=False)
    """What of the words the history has already."""
    _open_calls: set[str] = attrs.field(factory=set[str], init=False)
    _all_settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._spoken = SpokenResponse(self.response_id, self.context.locale, is_silent=self.synthesizer is None)

    # --- what the session's other task tells

    def settled(self, result: ToolSettled) -> None:
        """A call of this answer has ended; its output is in the history."""
        self._open_calls.discard(result.call_id)
        self.ends_session = self.ends_session or result.ends_session
        if not self._open_calls:
            self._all_settled.set()

    def stop(self, heard: str) -> None:
        """The user cut in: what is not in the history yet comes there as far as it was heard."""
        if not self._is_stopped:
            self._is_stopped = True
            self.history.add_answer(self.response_id, self._spoken.text[len(self._said) :].strip())
            self.history.cut(self.response_id, heard)

    # --- the answer

    async def run(self) -> None:
        """Answer to the end, with speech.

        Raises:
            RealtimeException: the chat model or the synthesis failed, within a group.
        """
        to_speak, pieces = trio.open_memory_channel[Piece](MAX_PIECES)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._speak_all, pieces, name="speech")
            with to_speak:
                await self._converse(to_speak)

    async def _converse(self, to_speak: trio.MemorySendChannel[Piece]) -> None:
        """Ask the model, run the tools it calls, ask again with their results."""
        for _ in range(MAX_ROUNDS):
            calls = await self._ask(to_speak)
            pieces = self._spoken.flush()
            self.history.add_answer(self.response_id, self._spoken.text[len(self._said) :].strip(), calls)
            self._said = self._spoken.text
            for call in calls:  # in the history before they run, and nothing can come between
                self.start_tool(call)
            for piece in pieces:
                await to_speak.send(piece)
            await self._show()
            if not calls:
                return
            await self._all_settled.wait()
            if self.ends_session and self._said.strip():
                return  # the goodbye was said before the call; there is nothing to say after it
        raise RealtimeException(ErrorCode.CHAT_FAILED, "The chat model called tools without end.")

    async def _ask(self, to_speak: trio.MemorySendChannel[Piece]) -> tuple[ToolCall, ...]:
        """One request: stream its words into speech and start its calls."""
        calls: list[ToolCall] = []
        self._all_settled = trio.Event()
        request = ChatRequest(
            self.history.request(self.system_prompt), self.tools, self.temperature, self.context.locale
        )
        async with self.chat.open_stream(request) as deltas:
            async for delta in deltas:
                match delta:
                    case ChatText(text):
                        await self.elements.send(Token(text, self.response_id))
                        for piece in self._spoken.feed(text):
                            await to_speak.send(piece)
                        await self._show()
                    case ChatToolCall():
                        calls.append(self._call(delta))
                    case ChatUsage():
                        self.usage.input += delta.input
                        self.usage.output += delta.output
                        self.usage.cached += delta.cached
                    case ChatFinished(complete):
                        self.status = ResponseStatus.COMPLETED if complete else ResponseStatus.INCOMPLETE
        return tuple(calls)

    def _call(self, delta: ChatToolCall) -> ToolCall:
        call = ToolCall(
            delta.call_id or self.context.environment.new_id("call"), delta.name, delta.arguments, self.response_id
        )
        self._open_calls.add(call.call_id)
        return call

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
                async for pcm in audio:
                    self._spoken.speak(len(pcm) / SAMPLE_BYTES * 1000 / synthesizer.sample_rate)
                    await self.elements.send(
                        SpeechItem(pcm, synthesizer.sample_rate, self.response_id, provider=synthesizer.name)
                    )

    async def _synthesize(self, piece: Piece, synthesizer: Synthesizer, made: trio.MemorySendChannel[bytes]) -> None:
        with made:
            try:
                await synthesizer.speak(piece.text, self.voice, made)
            except RealtimeException:
                raise
            except Exception as exc:
                raise RealtimeException(ErrorCode.SYNTHESIS_FAILED, "Speech synthesis failed.") from exc

    async def _show(self) -> None:
        for text in self._spoken.texts():
            await self.elements.send(text)
