"""Chat models whose every call is written into the session's LLM log (SPEC L22).

    chat = logged(chat, context, "planner")

The call is recorded when its stream is left, however it ended. What is streamed is passed on as it comes, without a task or a
channel in between: a token costs a third of a microsecond more.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, ClassVar, cast

import attrs
import trio

from engine.boundary import PASSES, Outside
from engine.elements import JsonObject
from engine.errors import RemoteError
from engine.interfaces import (
    ChatDelta,
    ChatFinished,
    ChatMessage,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ChatUsage,
    Context,
    TokenUsage,
)
from engine.store.documents import LogKind

KEPT_CHARACTERS = 64_000
"""Of an answer. The log keeps less of it; this bounds what is held while a model does not stop."""

COMPLETED, INCOMPLETE, CANCELLED, FAILED = "completed", "incomplete", "cancelled", "failed"
"""How a call ended: an incomplete answer was cut by the model's limits, a cancelled one by its reader."""


def logged(chat: ChatModel, context: Context, component: str) -> "LoggedChat":
    """The same chat model for one component of one session; its calls are in `context.log`.

    `component` is who asks: "speaker", "planner", an extractor's or a judge's name.
    """
    return LoggedChat(chat, context, component)


@attrs.define(eq=False)
class LoggedChat(ChatModel):
    """See `logged`.

    An entry's content: `outcome`, `error` (its code), `answer`, `toolCalls`, `firstMs` (until the first delta), and the request:
    `messages` without the first `repeated` ones, which are those of this component's call before, and the names of its `tools`.
    """

    name: ClassVar[str] = "Logged"
    chat: ChatModel
    context: Context
    component: str
    model: str = attrs.field(init=False)
    is_scripted: bool = attrs.field(init=False)
    _told: tuple[ChatMessage, ...] = attrs.field(default=(), init=False)
    """The messages of the call before."""

    def __attrs_post_init__(self) -> None:
        self.model, self.is_scripted = self.chat.model, self.chat.is_scripted

    @property
    def is_ready(self) -> bool:
        return self.chat.is_ready

    async def load(self) -> None:
        await self.chat.load()

    @asynccontextmanager
    async def open_stream(self, request: ChatRequest) -> AsyncGenerator[trio.MemoryReceiveChannel[ChatDelta]]:
        call = _Call(trio.current_time(), self.context.turn_id)
        repeated = _common(self._told, request.messages)
        self._told = request.messages
        try:
            async with self._open(request, repeated) as deltas:
                # The contract names Trio's own channel, which nobody can make another kind of; all that readers do is receive.
                yield cast("trio.MemoryReceiveChannel[ChatDelta]", _Watched(deltas, call))
        except BaseException as exc:
            call.failed(exc)
            raise
        finally:
            self._record(call, request, repeated)

    def _open(
        self, request: ChatRequest, repeated: int
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[ChatDelta]]:
        boundary = self.context.boundary
        if boundary is PASSES:
            return self.chat.open_stream(request)
        about = {
            "repeated": repeated,
            "messages": [_message(message) for message in request.messages[repeated:]],
            "tools": [tool.name for tool in request.tools],
        }
        return boundary.stream(Outside.CHAT, self.component, partial(self.chat.open_stream, request), about)

    def _record(self, call: "_Call", request: ChatRequest, repeated: int) -> None:
        usage = call.usage
        self.context.log.record(
            LogKind.CHAT,
            {
                **call.content(),
                "repeated": repeated,
                "messages": [_message(message) for message in request.messages[repeated:]],
                "tools": [tool.name for tool in request.tools],
            },
            component=self.component,
            model=self.chat.model or self.chat.name,
            turn_id=call.turn_id,
            usage=TokenUsage(usage.input, usage.output, usage.cached),
            seconds=(trio.current_time() if call.ended_at is None else call.ended_at) - call.began_at,
        )


@attrs.define(eq=False)
class _Call:
    """What is known of one call."""

    began_at: float
    turn_id: str
    ended_at: float | None = None
    """When the model had said that it had finished; its reader may stay longer."""
    first_at: float | None = None
    usage: TokenUsage = attrs.field(factory=TokenUsage)
    _texts: list[str] = attrs.field(factory=list[str], init=False)
    _room: int = attrs.field(default=KEPT_CHARACTERS, init=False)
    _tool_calls: list[JsonObject] = attrs.field(factory=list[JsonObject], init=False)
    _outcome: str = attrs.field(default=CANCELLED, init=False)
    """As long as nothing else is known: its reader has left."""
    _error: str = attrs.field(default="", init=False)

    def see(self, delta: ChatDelta) -> None:
        if self.first_at is None:
            self.first_at = trio.current_time()
        match delta:
            case ChatText(text):
                if self._room > 0:
                    self._texts.append(text)
                    self._room -= len(text)
            case ChatToolCall(call_id, name, arguments):
                self._tool_calls.append({"callId": call_id, "name": name, "arguments": arguments})
            case ChatUsage(input_tokens, output_tokens, cached):
                self.usage.input += input_tokens
                self.usage.output += output_tokens
                self.usage.cached += cached
            case ChatFinished(complete):
                self._outcome = COMPLETED if complete else INCOMPLETE
                self.ended_at = trio.current_time()

    def failed(self, exc: BaseException) -> None:
        """It was left with an exception. A cancellation is none of the model's doing."""
        faults = [leaf for leaf in _leaves(exc) if not isinstance(leaf, trio.Cancelled)]
        if not faults:
            self._outcome = CANCELLED
            return
        self._outcome = FAILED
        remote = next((fault for fault in faults if isinstance(fault, RemoteError)), None)
        self._error = remote.code.value if remote is not None else type(faults[0]).__name__

    def content(self) -> JsonObject:
        """What is most wanted comes first, as a long entry is cut at its end."""
        content: JsonObject = {"outcome": self._outcome}
        if self._error:
            content["error"] = self._error
        content["answer"] = "".join(self._texts)
        if self._tool_calls:
            content["toolCalls"] = self._tool_calls
        if self.first_at is not None:
            content["firstMs"] = round((self.first_at - self.began_at) * 1000)
        return content


class _Watched(trio.abc.ReceiveChannel[ChatDelta]):
    """A stream's channel, with somebody looking over the reader's shoulder."""

    __slots__ = ("_call", "_deltas")

    def __init__(self, deltas: trio.MemoryReceiveChannel[ChatDelta], call: _Call) -> None:
        self._deltas = deltas
        self._call = call

    async def receive(self) -> ChatDelta:
        delta = await self._deltas.receive()
        self._call.see(delta)
        return delta

    def receive_nowait(self) -> ChatDelta:
        delta = self._deltas.receive_nowait()
        self._call.see(delta)
        return delta

    def close(self) -> None:
        self._deltas.close()

    async def aclose(self) -> None:
        await self._deltas.aclose()


def _common(before: tuple[ChatMessage, ...], now: tuple[ChatMessage, ...]) -> int:
    """How many messages both begin with."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count


def _message(message: ChatMessage) -> JsonObject:
    """A message as it is kept; of pictures only that there were some."""
    kept: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.tool_calls:
        kept["toolCalls"] = [
            {"callId": call.call_id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.tool_call_id:
        kept["toolCallId"] = message.tool_call_id
    if message.images:
        kept["images"] = [f"{image.media_type}, {len(image.data)} bytes" for image in message.images]
    return kept


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", exc).exceptions:
            yield from _leaves(each)
    else:
        yield exc
