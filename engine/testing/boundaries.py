"""The boundaries of a session, each with mishaps on it: client, provider link, model, recognition, chat, tools, store.

Each of these stands in front of a real part or of a scripted one, and the part does not know of it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import attrs
import trio

from engine.elements import BadInput, InputAudio, InputElement, JsonObject, Partial, RealtimeElement, Transcript
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    ChatDelta,
    ChatModel,
    ChatRequest,
    ChatText,
    Context,
    RecognitionElement,
    Recognizer,
    RecognizerInput,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
)
from engine.testing.faults import Fault, FaultPlan, StoreCall
from engine.testing.mishaps import ClosedByMishapError, Mishap, Mishaps, Passage

RELAY = 16
"""Elements under way in a relay, so that who sends one need not wait for a delay in front of it."""


# --- the client's door ------------------------------------------------------------------------------------------------


def half_of_input(element: InputElement) -> InputElement:
    """What the door makes of half a frame: half the audio, or something that cannot be read."""
    if isinstance(element, InputAudio):
        return InputAudio(element.data[: len(element.data) // 2])
    return BadInput(ErrorCode.BAD_JSON, "The frame ends in the middle.")


def client_passage(mishaps: Mishaps, put: Callable[[InputElement], Awaitable[None]]) -> Passage[InputElement]:
    """From a client to its session."""
    return Passage(mishaps.named("client"), put, half_of_input)


# --- bytes: a provider's link, or anything else over a stream -----------------------------------------------------------


class ShakyStream(trio.abc.Stream):
    """A byte stream with mishaps on what is sent: for the link to a provider, or for a client's socket.

    Bytes that are lost, doubled or out of order are what TCP never does; they stand for a peer that is broken. `PARTIAL` sends
    half and closes, `CLOSE` closes.
    """

    def __init__(self, stream: trio.abc.Stream, mishaps: Mishaps) -> None:
        self._stream = stream
        self._passage = Passage(mishaps.named("link"), stream.send_all, _half_of_bytes, breaks=True)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._passage.put(bytes(data))
        except ClosedByMishapError as exc:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError(str(exc)) from exc

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _half_of_bytes(data: bytes) -> bytes:
    return data[: len(data) // 2]


# --- elements of a model or of a recognition ----------------------------------------------------------------------------


def half_of_element(element: RealtimeElement) -> RealtimeElement | None:
    """Half the words of what was recognized; nothing of anything else."""
    match element:
        case Transcript(text) if not element.is_interim:
            return attrs.evolve(element, text=text[: len(text) // 2])
        case Partial(text):
            return attrs.evolve(element, text=text[: len(text) // 2])
        case _:
            return None


class ShakyRecognizer(Recognizer):
    """A recognizer whose results go astray. `CLOSE` is a recognition that fails for good."""

    name: ClassVar[str] = "Shaky"

    def __init__(self, inner: Recognizer, mishaps: Mishaps) -> None:
        self.inner = inner
        self.mishaps = mishaps.named("recognition")
        self.sample_rate = inner.sample_rate

    @property
    def is_ready(self) -> bool:
        return self.inner.is_ready

    async def load(self) -> None:
        await self.inner.load()

    async def run(  # noqa: ASYNC128 - the status is passed on
        self,
        audio: trio.MemoryReceiveChannel[RecognizerInput],
        elements: trio.MemorySendChannel[RecognitionElement],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        said, heard = trio.open_memory_channel[RecognitionElement](RELAY)

        async def relay() -> None:
            passage = Passage[RecognitionElement](self.mishaps, elements.send, _half_of_recognition)
            with heard:
                async for element in heard:
                    try:
                        await passage.put(element)
                    except ClosedByMishapError as exc:
                        raise RealtimeException(ErrorCode.RECOGNITION_FAILED, "The recognition is gone.") from exc
            await passage.flush()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay, name="shaky recognition")
            with said:
                await self.inner.run(audio, said, task_status=task_status)


def _half_of_recognition(element: RecognitionElement) -> RecognitionElement | None:
    half = half_of_element(element)
    return half if isinstance(half, Transcript | Partial) else None


# --- the chat stream ----------------------------------------------------------------------------------------------------


class ShakyChat(ChatModel):
    """A chat model whose stream has mishaps. `CLOSE` is a stream that breaks (`chat_failed`), `PARTIAL` half a piece of text.

    `mishaps` may be replaced at any time: streams that are opened then have those.
    """

    name: ClassVar[str] = "Shaky"

    def __init__(self, inner: ChatModel, mishaps: Mishaps) -> None:
        self.inner = inner
        self.mishaps = mishaps.named("chat")
        self.model, self.is_scripted = inner.model, inner.is_scripted

    @property
    def is_ready(self) -> bool:
        return self.inner.is_ready

    async def load(self) -> None:
        await self.inner.load()

    @asynccontextmanager
    async def open_stream(self, request: ChatRequest) -> AsyncGenerator[trio.MemoryReceiveChannel[ChatDelta]]:
        send, receive = trio.open_memory_channel[ChatDelta](0)
        broken: list[ClosedByMishapError] = []
        failed: list[Exception] = []

        async def relay(deltas: trio.MemoryReceiveChannel[ChatDelta]) -> None:
            passage = Passage[ChatDelta](self.mishaps, send.send, _half_of_delta)
            with send:
                try:
                    async for delta in deltas:
                        await passage.put(delta)
                    await passage.flush()
                except ClosedByMishapError as exc:
                    broken.append(exc)
                except trio.BrokenResourceError:
                    return  # the reader has left
                except Exception as exc:
                    failed.append(exc)

        async with self.inner.open_stream(request) as deltas:
            with receive:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(relay, deltas, name="shaky chat")
                    yield receive
                    nursery.cancel_scope.cancel(reason="the reader has left")
        if broken:
            raise RealtimeException(ErrorCode.CHAT_FAILED, "The stream broke.") from broken[0]
        if failed:
            raise failed[0]


def _half_of_delta(delta: ChatDelta) -> ChatDelta | None:
    return ChatText(delta.text[: len(delta.text) // 2]) if isinstance(delta, ChatText) else None


# --- tools --------------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class ShakyTools(ToolBox):
    """Tools whose calls have mishaps: late (`DELAY`, `STALL`, `REORDER`), never answered (`DROP`), done twice (`DUPLICATE`), with an
    answer nobody can use (`PARTIAL`), or crashed (`CLOSE`)."""

    inner: ToolBox
    mishaps: Mishaps

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self.inner.specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        match self.mishaps.named("tools").next():
            case Mishap.DELAY | Mishap.REORDER:
                await trio.sleep(self.mishaps.delay_seconds)
            case Mishap.STALL:
                await trio.sleep(self.mishaps.stall_seconds)
            case Mishap.DROP:
                await trio.sleep_forever()
            case Mishap.DUPLICATE:
                await self.inner.call(name, arguments, context)
            case Mishap.PARTIAL:
                await self.inner.call(name, arguments, context)
                raise ToolError("The answer ends in the middle.")
            case Mishap.CLOSE:
                raise RuntimeError(f"{name} was made to crash")
            case None:
                pass
        return await self.inner.call(name, arguments, context)


# --- the store ----------------------------------------------------------------------------------------------------------

WRITES = frozenset({"append_turns", "append_messages", "save_session", "save_usage", "append_log"})
"""The operations of a session that are done again when they fail."""


def shaky_store(mishaps: Mishaps, operations: frozenset[str] = WRITES) -> FaultPlan:
    """A plan for a `FaultyStore`: of these operations some are late (`DELAY`, `STALL`), fail (`REORDER`, `PARTIAL`, `CLOSE`), are done
    while the answer is lost (`DUPLICATE`, so that they are done twice), or never end (`DROP`)."""
    mishaps = mishaps.named("store")

    def plan(call: StoreCall) -> Fault | float | None:
        if call.operation not in operations:
            return None
        match mishaps.next():
            case Mishap.DELAY:
                return mishaps.delay_seconds
            case Mishap.STALL:
                return mishaps.stall_seconds
            case Mishap.DROP:
                return Fault.HANG
            case Mishap.DUPLICATE:
                return Fault.DONE_AND_LOST
            case Mishap.REORDER | Mishap.PARTIAL | Mishap.CLOSE:
                return Fault.FAIL
            case None:
                return None

    return plan
