"""A chat model that answers by a script, for tests of whatever asks one."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import attrs
import trio

from engine.interfaces import (
    ChatDelta,
    ChatFinished,
    ChatMessage,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
)

Step = ChatDelta | str | float | Exception
"""A delta, a text, a delay in seconds, a failure."""
Script = Sequence[Step]
"""One answer. A `ChatFinished` is added at its end when it has none."""


def tokens(text: str, seconds: float = 0.0) -> list[Step]:
    """A text word by word, each after a delay."""
    words = text.split(" ")
    steps: list[Step] = []
    for index, word in enumerate(words):
        steps += [seconds, word if index == len(words) - 1 else f"{word} "]
    return steps


def call(name: str, call_id: str = "", arguments: str = "{}") -> ChatToolCall:
    return ChatToolCall(call_id, name, arguments)


@attrs.define(eq=False)
class ScriptedChat(ChatModel):
    """Answers each request with what `answer` says to it, in virtual time.

    It is strict: a request whose tool calls and results do not match fails a test.
    """

    name: ClassVar[str] = "Scripted"
    answer: Callable[[ChatRequest], Script]
    unwind_seconds: float = 0.0
    """How long leaving a stream takes, cancelled or not."""
    asked: list[tuple[float, ChatRequest]] = attrs.field(factory=list[tuple[float, ChatRequest]], init=False)
    open_streams: int = attrs.field(default=0, init=False)

    @property
    def requests(self) -> list[ChatRequest]:
        return [request for _, request in self.asked]

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.asked]

    @asynccontextmanager
    async def open_stream(self, request: ChatRequest) -> AsyncGenerator[trio.MemoryReceiveChannel[ChatDelta]]:
        check_messages(request.messages)
        self.asked.append((round(trio.current_time(), 6), request))
        script = self.answer(request)
        if script and isinstance(script[0], Exception):
            raise script[0]
        send, receive = trio.open_memory_channel[ChatDelta](0)
        failures: list[Exception] = []

        async def play() -> None:
            with send:
                try:
                    await _play(script, send)
                except Exception as exc:
                    failures.append(exc)

        self.open_streams += 1
        try:
            with receive:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(play, name="scripted chat")
                    yield receive
                    nursery.cancel_scope.cancel(reason="the reader has left")
        finally:
            self.open_streams -= 1
            if self.unwind_seconds:  # with 0 there is no checkpoint at all
                with trio.move_on_after(self.unwind_seconds, shield=True):
                    await trio.sleep_forever()
        if failures:
            raise failures[0]


async def _play(script: Script, send: trio.MemorySendChannel[ChatDelta]) -> None:
    for step in script:
        match step:
            case Exception():
                raise step
            case float() | int():
                await trio.sleep(step)
            case str():
                await send.send(ChatText(step))
            case _:
                await send.send(step)
    if not any(isinstance(step, ChatFinished) for step in script):
        await send.send(ChatFinished())


def check_messages(messages: Sequence[ChatMessage]) -> None:
    """What strict endpoints insist on: each call is answered once, directly behind the message that made it."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting, f"a result without its call: {message.tool_call_id}"
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting, f"calls without an answer: {waiting}"
        assert message.text.strip() or message.tool_calls, f"an empty message of {message.role}"
        for made in message.tool_calls:
            assert made.call_id not in seen, f"a call id is used twice: {made.call_id}"
            seen.add(made.call_id)
            waiting.append(made.call_id)
    assert not waiting, f"calls without an answer: {waiting}"
