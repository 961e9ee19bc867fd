"""Each call of a logged chat model is recorded once, however it ends, and what is streamed is not changed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.config import PipelineConfiguration, RealtimeProperties
from engine.elements import Image, JsonObject
from engine.errors import ErrorCode, RealtimeException
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
    SessionLog,
    TokenUsage,
    ToolCall,
    ToolSpecification,
)
from engine.llm_log import KEPT_CHARACTERS, logged
from engine.store.documents import LogKind, SessionDocument
from engine.testing.stage import EPOCH, scripted_environment

HELLO = ChatRequest((ChatMessage("system", "Be kind."), ChatMessage("user", "Hello.")))
BROKEN = RealtimeException(ErrorCode.CHAT_FAILED, "The chat endpoint broke.")


@attrs.frozen
class Entry:
    kind: LogKind
    content: JsonObject
    component: str
    model: str
    turn_id: str
    usage: TokenUsage | None
    seconds: float | None


@attrs.define(eq=False)
class KeptLog(SessionLog):
    entries: list[Entry] = attrs.field(factory=list[Entry])

    def record(
        self,
        kind: LogKind,
        content: JsonObject,
        *,
        component: str = "",
        model: str = "",
        turn_id: str = "",
        usage: TokenUsage | None = None,
        seconds: float | None = None,
    ) -> None:
        self.entries.append(Entry(kind, content, component, model, turn_id, usage, seconds))


@attrs.define(eq=False)
class Chat(ChatModel):
    """Streams its deltas, a second before each, and then fails when it is to."""

    name: ClassVar[str] = "Scripted"
    deltas: Sequence[ChatDelta]
    failure: Exception | None = None
    fails_at_once: bool = False
    model: str = "gpt"
    is_loaded: bool = False

    @property
    def is_ready(self) -> bool:
        return self.is_loaded

    async def load(self) -> None:
        await trio.lowlevel.checkpoint()
        self.is_loaded = True

    def open_stream(self, request: ChatRequest) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[ChatDelta]]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[trio.MemoryReceiveChannel[ChatDelta]]:
        if self.failure is not None and self.fails_at_once:
            raise self.failure
        send, receive = trio.open_memory_channel[ChatDelta](0)

        async def play() -> None:
            with send:
                for delta in self.deltas:
                    await trio.sleep(1)
                    await send.send(delta)

        with receive:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(play)  # noqa: ASYNC113 - nothing relies on its having begun
                yield receive
                nursery.cancel_scope.cancel(reason="the reader has left")
        if self.failure is not None:
            raise self.failure


def make_context() -> tuple[Context, KeptLog]:
    log = KeptLog()
    context = Context(
        configuration=PipelineConfiguration(),
        session=SessionDocument(id="s1", created_at=EPOCH, updated_at=EPOCH),
        properties=RealtimeProperties(provider="Internal"),
        environment=scripted_environment(),
        log=log,
        turn_id="t1",
    )
    return context, log


async def read(chat: ChatModel, request: ChatRequest = HELLO) -> list[ChatDelta]:
    async with chat.open_stream(request) as deltas:
        return [delta async for delta in deltas]


def contents(log: KeptLog, *names: str) -> list[list[Any]]:
    return [[entry.content.get(name) for name in names] for entry in log.entries]


async def test_a_call_is_recorded_with_its_request_tokens_and_duration(autojump_clock: MockClock) -> None:
    context, log = make_context()
    deltas: list[ChatDelta] = [
        ChatText("Hel"),
        ChatText("lo."),
        ChatToolCall("c1", "look", "{}"),
        ChatUsage(100, 20, 60),
        ChatFinished(),
    ]
    request = attrs.evolve(HELLO, tools=(ToolSpecification("look", "Looks.", {"type": "object"}),))

    chat = logged(Chat(deltas), context, "speaker")

    assert await read(chat, request) == deltas
    assert log.entries == [
        Entry(
            LogKind.CHAT,
            {
                "outcome": "completed",
                "answer": "Hello.",
                "toolCalls": [{"callId": "c1", "name": "look", "arguments": "{}"}],
                "firstMs": 1000,
                "repeated": 0,
                "messages": [{"role": "system", "text": "Be kind."}, {"role": "user", "text": "Hello."}],
                "tools": ["look"],
            },
            "speaker",
            "gpt",
            "t1",
            TokenUsage(100, 20, 60),
            5.0,
        )
    ]


async def test_the_reader_may_take_its_time(autojump_clock: MockClock) -> None:
    context, log = make_context()
    async with logged(Chat([ChatText("a"), ChatFinished()]), context, "speaker").open_stream(HELLO) as deltas:
        async for _ in deltas:
            pass
        context.turn_id = "t2"
        await trio.sleep(60)
    (entry,) = log.entries
    assert (entry.seconds, entry.turn_id) == (2.0, "t1")


async def test_messages_that_were_told_before_are_not_repeated(autojump_clock: MockClock) -> None:
    context, log = make_context()
    chat = logged(Chat([ChatFinished()]), context, "speaker")
    call = ToolCall("c1", "look", "{}", "r1")
    more = (
        *HELLO.messages,
        ChatMessage("assistant", tool_calls=(call,)),
        ChatMessage("tool", "a café", tool_call_id="c1"),
        ChatMessage("user", "And this?", images=(Image(b"12345", "image/png"),)),
    )
    cut = (HELLO.messages[0], ChatMessage("user", "Bye."))
    for messages in (HELLO.messages, more, more, cut):
        await read(chat, ChatRequest(messages))
    assert contents(log, "repeated", "messages")[1:] == [
        [
            2,
            [
                {
                    "role": "assistant",
                    "text": "",
                    "toolCalls": [{"callId": "c1", "name": "look", "arguments": "{}"}],
                },
                {"role": "tool", "text": "a café", "toolCallId": "c1"},
                {"role": "user", "text": "And this?", "images": ["image/png, 5 bytes"]},
            ],
        ],
        [5, []],
        [1, [{"role": "user", "text": "Bye."}]],
    ]


async def test_an_answer_that_was_cut_short_is_told_apart(autojump_clock: MockClock) -> None:
    context, log = make_context()
    await read(logged(Chat([ChatText("a"), ChatFinished(complete=False)]), context, "judge"))
    assert contents(log, "outcome", "answer") == [["incomplete", "a"]]


async def test_a_reader_that_leaves_cancels_the_call(autojump_clock: MockClock) -> None:
    context, log = make_context()
    chat = logged(Chat([ChatText("a"), ChatText("b"), ChatFinished()]), context, "speaker")
    async with chat.open_stream(HELLO) as deltas:
        assert await deltas.receive() == ChatText("a")
    assert contents(log, "outcome", "answer") == [["cancelled", "a"]]
    assert log.entries[0].seconds == 1.0


@pytest.mark.parametrize("seconds", [0.5, 1.5])
async def test_a_barge_in_cancels_the_call(autojump_clock: MockClock, seconds: float) -> None:
    context, log = make_context()
    with trio.move_on_after(seconds):
        await read(logged(Chat([ChatText("a"), ChatUsage(9, 9), ChatFinished()]), context, "speaker"))
    assert contents(log, "outcome", "error", "answer", "firstMs") == [
        ["cancelled", None, "a", 1000] if seconds > 1 else ["cancelled", None, "", None]
    ]
    assert log.entries[0].seconds == seconds
    assert log.entries[0].usage == TokenUsage()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_failed_call_is_recorded_and_fails_all_the_same(autojump_clock: MockClock, at_once: bool) -> None:
    context, log = make_context()
    chat = logged(Chat([ChatText("a")], BROKEN, at_once), context, "speaker")
    with pytest.raises(RealtimeException) as caught:
        await read(chat)
    assert caught.value is BROKEN
    assert contents(log, "outcome", "error", "answer") == [["failed", "chat_failed", "" if at_once else "a"]]


async def test_a_failure_among_cancellations_is_a_failure(autojump_clock: MockClock) -> None:
    context, log = make_context()

    async def read_in_company() -> None:
        async with logged(Chat([ChatText("a")]), context, "speaker").open_stream(HELLO):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise BaseExceptionGroup("both", [ValueError("its words may be the user's"), KeyboardInterrupt()])

    with pytest.RaisesGroup(ValueError, KeyboardInterrupt, flatten_subgroups=True):
        await read_in_company()
    assert contents(log, "outcome", "error") == [["failed", "ValueError"]]


async def test_an_endless_answer_is_not_held(autojump_clock: MockClock) -> None:
    context, log = make_context()
    await read(logged(Chat([ChatText("x" * 1000)] * 70), context, "speaker"))
    assert contents(log, "outcome") == [["cancelled"]]  # it never said that it had finished
    assert len(log.entries[0].content["answer"]) == KEPT_CHARACTERS


async def test_it_can_be_read_like_any_channel(autojump_clock: MockClock) -> None:
    context, log = make_context()
    async with logged(Chat([ChatText("a"), ChatText("b")]), context, "speaker").open_stream(HELLO) as deltas:
        with pytest.raises(trio.WouldBlock):
            deltas.receive_nowait()
        await trio.sleep(1)
        await trio.testing.wait_all_tasks_blocked()
        assert deltas.receive_nowait() == ChatText("a")
        deltas.close()
        await deltas.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await deltas.receive()
    assert contents(log, "outcome", "answer") == [["cancelled", "a"]]


async def test_it_is_the_part_it_wraps(autojump_clock: MockClock) -> None:
    context, log = make_context()
    inner = Chat([ChatFinished()], model="")
    chat = logged(inner, context, "speaker")
    ready = [chat.is_ready]
    await chat.load()
    assert [*ready, chat.is_ready] == [False, True]
    await read(chat)
    assert log.entries[0].model == "Scripted"  # of a part that names no model
