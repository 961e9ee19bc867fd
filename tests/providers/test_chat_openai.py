"""The OpenAI-compatible chat part against a strict server: what it asks, what it gives, and what it leaves behind."""

import gc
import json
import logging
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.elements import Image
from engine.errors import ConfigurationError, ErrorCode, RealtimeException
from engine.interfaces import (
    ChatDelta,
    ChatFinished,
    ChatMessage,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ChatUsage,
    ToolCall,
    ToolSpecification,
)
from providers.chat.openai import DELTAS, Assembly, OpenAIChatModel, make_chat_model, write_messages
from providers.compatible import BrokenAnswer
from tests.providers.openai_server import (
    DONE,
    KEY,
    OpenAIServer,
    Pause,
    Reply,
    answer,
    chunk,
    cut,
    error,
    event,
    usage,
)

HELLO = ChatRequest((ChatMessage("user", "hello"),))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


@pytest.fixture
async def server(nursery: trio.Nursery) -> OpenAIServer:
    server = OpenAIServer()
    await nursery.start(server.run)
    return server


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Stands still until a test sets its threshold: the SDK's first request looks at the platform in a thread."""
    return trio.testing.MockClock()


def start(clock: trio.testing.MockClock) -> None:
    """Jump when nothing has happened for 20 ms of real time: both ends of the loopback are in this process."""
    clock.autojump_threshold = 0.02


def model(server: OpenAIServer, **settings: object) -> OpenAIChatModel:
    return make_chat_model(
        {"provider": "OpenAI", "model": "m", "baseUrl": server.url, "apiKey": "env:TEST_KEY", **settings}
    )


async def ask(chat: OpenAIChatModel, request: ChatRequest = HELLO) -> list[ChatDelta]:
    async with chat.open_stream(request) as deltas:
        return [delta async for delta in deltas]


def said(deltas: Sequence[ChatDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, ChatText))


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"chat\.model: field required"),
        ({"model": "m", "modell": 1}, r"chat\.modell: extra inputs"),
        ({"model": "m", "temperature": 3}, r"chat\.temperature"),
        ({"model": "m", "baseUrl": "api.example.com"}, r"chat\.baseUrl"),
        ({"model": "m", "baseUrl": "https://me:secret@example.com"}, r"chat\.baseUrl: string should match"),
        ({"model": "m", "baseUrl": "https://example.com/v1"}, r'chat\.apiKey: write "env:NAME"'),
        ({"model": "m", "apiKey": "env:NOT_SET"}, r"chat\.apiKey: set the environment variable NOT_SET"),
        ({"model": "m", "apiKey": "sk-live-42"}, r'chat\.apiKey: write "env:NAME"'),
    ],
)
def test_a_faulty_configuration_says_what_to_set(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        make_chat_model(settings)
    assert "sk-live" not in str(caught.value)
    assert "me:secret" not in str(caught.value)


def test_the_key_of_openai_is_never_offered_to_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert make_chat_model({"model": "m"}).model == "m"
    assert make_chat_model({"model": "m", "baseUrl": "https://eu.api.openai.com/v1"}).model == "m"
    with pytest.raises(ConfigurationError):
        make_chat_model({"model": "m", "baseUrl": "https://api.openai.com.example.net/v1"})
    assert KEY not in repr(make_chat_model({"model": "m"}))


# --- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.sockets
async def test_an_answer_comes_word_by_word_over_one_connection(server: OpenAIServer) -> None:
    chat = model(server)
    server.add(answer("Good", " day"), answer("Again"))
    assert await ask(chat) == [ChatText("Good"), ChatText(" day"), ChatUsage(10, 2), ChatFinished()]
    assert said(await ask(chat)) == "Again"
    assert server.accepted == 1
    assert server.requests[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.sockets
async def test_every_option_reaches_the_endpoint(server: OpenAIServer) -> None:
    tool = ToolSpecification("book", "Books a table", {"type": "object", "properties": {}})
    server.add(answer("a"), answer("b"))
    await ask(
        model(server, temperature=0.3, maxTokens=50, includeUsage=False), ChatRequest(HELLO.messages, (tool,), 0.8)
    )
    await ask(model(server), attrs.evolve(HELLO, temperature=1.1))
    first, second = (request.body for request in server.requests)
    assert first["temperature"] == 0.3
    assert first["max_tokens"] == 50
    assert first["tools"] == [
        {
            "type": "function",
            "function": {"name": "book", "description": "Books a table", "parameters": tool.parameters},
        }
    ]
    assert "stream_options" not in first
    assert second["temperature"] == 1.1
    assert "tools" not in second


@pytest.mark.sockets
async def test_without_a_key_no_header_is_sent(server: OpenAIServer) -> None:
    server.key = None
    server.add(answer("free"))
    assert said(await ask(model(server, apiKey="none"))) == "free"


def test_a_conversation_in_the_words_of_the_endpoint() -> None:
    messages = write_messages(
        [
            ChatMessage("system", "Be kind."),
            ChatMessage("user", "look", images=(Image(b"\x01\x02", "image/png"),)),
            ChatMessage("user", images=(Image(b"\x01", "image/png"),)),
            ChatMessage(
                "assistant", tool_calls=(ToolCall("c1", "book", '{"a":1}', "r"), ToolCall("c2", "book", "oops", "r"))
            ),
            ChatMessage("tool", '"ok"', tool_call_id="c1"),
            ChatMessage("tool", '"no"', tool_call_id="c2"),
            ChatMessage("assistant", "Done."),
        ]
    )
    assert json.loads(json.dumps(list(messages))) == [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQI="}},
            ],
        },
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "book", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '"ok"'},
        {"role": "tool", "tool_call_id": "c2", "content": '"no"'},
        {"role": "assistant", "content": "Done."},
    ]


# --- how it is put together ------------------------------------------------------------------------------------------


def fragment(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str = "") -> Any:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    fields = {"index": index, "id": call_id, "function": function}
    return {name: value for name, value in fields.items() if value is not None}


def assemble(*fragments: Any, finish: str = "tool_calls", known_calls: int = 0) -> list[ChatDelta]:
    assembly = Assembly(known_calls)
    for one in fragments:
        assembly.feed({"choices": [{"delta": {"tool_calls": [one]}}]})
    end: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": finish}]}
    assembly.feed(end)
    return assembly.finish()


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        (  # interleaved by index
            [
                fragment(0, "c1", "book", ""),
                fragment(1, "c2", "menu", ""),
                fragment(1, arguments='{"b"'),
                fragment(0, arguments='{"a":'),
                fragment(1, arguments=":2}"),
                fragment(0, arguments="1}"),
            ],
            [ChatToolCall("c1", "book", '{"a":1}'), ChatToolCall("c2", "menu", '{"b":2}')],
        ),
        (  # the id in every fragment
            [fragment(0, "c1", "book", '{"a":'), fragment(0, "c1", "book", "1}")],
            [ChatToolCall("c1", "book", '{"a":1}')],
        ),
        (  # whole calls, all under index 0
            [fragment(0, "c1", "book", "{}"), fragment(0, "c2", "menu", "{}")],
            [ChatToolCall("c1", "book", "{}"), ChatToolCall("c2", "menu", "{}")],
        ),
        (  # whole calls without an index; no arguments at all
            [fragment(None, "c1", "book"), fragment(None, "c2", "menu")],
            [ChatToolCall("c1", "book", "{}"), ChatToolCall("c2", "menu", "{}")],
        ),
        (  # neither index nor id
            [fragment(None, None, "book", '{"a":'), fragment(None, arguments="1}")],
            [ChatToolCall("call-3", "book", '{"a":1}')],
        ),
    ],
)
def test_tool_calls_are_put_together(fragments: list[Any], calls: list[ChatToolCall]) -> None:
    assert assemble(*fragments, known_calls=3) == [*calls, ChatFinished()]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_cut_answer_is_not_complete_and_calls_nothing(finish: str) -> None:
    assert assemble(fragment(0, "c1", "book", '{"a'), finish=finish) == [ChatFinished(complete=False)]


def test_usage_counts_cached_tokens_as_part_of_the_input() -> None:
    assembly = Assembly()
    assembly.feed({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}})
    figures = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}
    assembly.feed({"choices": [], "usage": figures})
    assert assembly.finish() == [ChatUsage(100, 7, 40), ChatFinished()]


def test_a_refusal_is_spoken() -> None:
    event: dict[str, Any] = {"choices": [{"delta": {"content": None, "refusal": "I cannot."}}]}
    assert Assembly().feed(event) == ["I cannot."]


STRANGE: list[Any] = [None, True, -1, 0.5, float("nan"), "", "text", [], {}, ["x"], {"index": []}]
odd = st.sampled_from(STRANGE)
events_of_any_kind = odd | st.fixed_dictionaries(
    {},
    optional={
        "usage": odd
        | st.fixed_dictionaries({"prompt_tokens": odd, "prompt_tokens_details": odd | st.just({"cached_tokens": 9})}),
        "choices": odd
        | st.lists(
            st.fixed_dictionaries(
                {"finish_reason": odd, "delta": odd | st.fixed_dictionaries({"content": odd, "refusal": odd})}
            )
            | st.fixed_dictionaries(
                {
                    "delta": st.fixed_dictionaries(
                        {
                            "tool_calls": st.lists(
                                odd
                                | st.fixed_dictionaries(
                                    {"index": odd, "id": odd, "function": odd | st.just({"name": "book"})}
                                ),
                                max_size=3,
                            )
                        }
                    )
                }
            ),
            max_size=2,
        ),
    },
)


@settings(deadline=None)
@given(st.lists(events_of_any_kind, max_size=6))
def test_no_event_is_too_strange(events: list[object]) -> None:
    assembly = Assembly()
    texts = [text for one in events for text in assembly.feed(one)]
    assert all(isinstance(text, str) and text for text in texts)
    assert assembly.begun or not texts
    try:
        assert isinstance(assembly.finish()[-1], ChatFinished)
    except BrokenAnswer:
        assert not assembly.is_finished


@pytest.mark.sockets
async def test_the_places_where_the_bytes_are_cut_do_not_matter(server: OpenAIServer) -> None:
    chat = model(server)
    calls = [fragment(0, "c1", "book", '{"name":"Jiří"}')]
    body = b": a comment\r\n\r\n" + b"".join(
        [chunk("Dobrý den, "), chunk("👋🏽"), chunk(tool_calls=calls), chunk(finish="tool_calls"), usage(3, 2, 1), DONE]
    )
    expected: list[ChatDelta] = [
        ChatText("Dobrý den, "),
        ChatText("👋🏽"),
        ChatToolCall("c1", "book", '{"name":"Jiří"}'),
        ChatUsage(3, 2, 1),
        ChatFinished(),
    ]
    choose = random.Random(1)
    cuts = [range(len(body)), *([choose.randrange(len(body)) for _ in range(12)] for _ in range(20))]
    for places in cuts:
        server.add(cut(body, places))
        assert await ask(chat) == expected


# --- failures --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Failing:
    reply: Reply
    code: ErrorCode
    tries: int
    hint: str


@pytest.mark.sockets
@pytest.mark.parametrize(
    "case",
    [
        Failing(error(401, "invalid_api_key"), ErrorCode.PROVIDER_AUTH, 1, "apiKey"),
        Failing(error(403), ErrorCode.PROVIDER_AUTH, 1, "apiKey"),
        Failing(error(429, "insufficient_quota"), ErrorCode.PROVIDER_QUOTA, 1, "no quota left"),
        Failing(error(429, "rate_limit_exceeded", retry_after="0"), ErrorCode.PROVIDER_QUOTA, 2, "more requests"),
        Failing(error(404, "model_not_found"), ErrorCode.MODEL_NOT_FOUND, 1, "chat.model"),
        Failing(error(404, message="The model `m` does not exist"), ErrorCode.MODEL_NOT_FOUND, 1, "chat.model"),
        Failing(error(400, "model_not_found"), ErrorCode.MODEL_NOT_FOUND, 1, "chat.model"),
        Failing(Reply((b"<html>no</html>",), 404, "text/html"), ErrorCode.CHAT_FAILED, 1, "chat.baseUrl"),
        Failing(error(400, message="bad"), ErrorCode.CHAT_FAILED, 1, "HTTP 400"),
        Failing(error(500, retry_after="0"), ErrorCode.CHAT_FAILED, 2, "HTTP 500"),
        Failing(Reply((b"busy",), 503, "text/plain", {"retry-after-ms": "0"}), ErrorCode.CHAT_FAILED, 2, "HTTP 503"),
        Failing(Reply((event({"error": {"code": "insufficient_quota"}}),)), ErrorCode.PROVIDER_QUOTA, 1, "quota"),
        Failing(Reply((b"data: {oops\n\n",)), ErrorCode.CHAT_FAILED, 2, "broken"),
        Failing(Reply((b"data: \xff\xfe\n\n",)), ErrorCode.CHAT_FAILED, 2, "broken"),
        Failing(Reply((DONE,)), ErrorCode.CHAT_FAILED, 2, "broken"),
        Failing(Reply((b"<html>Please log in</html>",), 200, "text/html"), ErrorCode.CHAT_FAILED, 2, "broken"),
        Failing(Reply((Pause.DROP,)), ErrorCode.CHAT_FAILED, 2, "connection"),
    ],
    ids=lambda case: f"{case.reply.status} {case.code}",
)
async def test_failures_are_typed_and_say_what_to_do(
    server: OpenAIServer, clock: trio.testing.MockClock, case: Failing
) -> None:
    chat = model(server)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    server.add(case.reply, case.reply, answer("too late"))
    with pytest.raises(RealtimeException) as caught:
        await ask(chat)
    assert caught.value.code is case.code
    assert case.hint in caught.value.message
    assert not caught.value.recoverable
    assert len(server.requests) == 1 + case.tries


@pytest.mark.sockets
async def test_what_the_provider_says_is_not_repeated(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server.key = "another"
    with pytest.raises(RealtimeException) as caught:
        await ask(model(server))
    assert KEY not in str(caught.value)
    assert "hello" not in str(caught.value)
    assert KEY not in caplog.text
    assert "hello" not in caplog.text


async def test_an_endpoint_that_is_not_there(unused_address: str, clock: trio.testing.MockClock) -> None:
    start(clock)
    chat = make_chat_model({"model": "m", "baseUrl": unused_address, "apiKey": "none"})
    with pytest.raises(RealtimeException, match="cannot be reached") as caught:
        await ask(chat)
    assert caught.value.code is ErrorCode.CHAT_FAILED
    assert trio.current_time() == 0.25


@pytest.fixture
async def unused_address() -> AsyncIterator[str]:
    """A port that is ours but does not listen."""
    with trio.socket.socket() as sock:
        await sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"


@pytest.mark.sockets
@pytest.mark.parametrize("first", [error(500), Reply((Pause.DROP,)), Reply((chunk("", role="assistant"), Pause.DROP))])
async def test_the_second_try_succeeds(server: OpenAIServer, clock: trio.testing.MockClock, first: Reply) -> None:
    chat = model(server)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    server.add(first, answer("better"))
    assert said(await ask(chat)) == "better"
    assert trio.current_time() == 0.25


@pytest.mark.sockets
async def test_there_is_no_second_try_after_the_first_word(server: OpenAIServer) -> None:
    server.add((chunk("Well"), Pause.DROP), answer("Well again"))
    heard: list[ChatDelta] = []
    with pytest.raises(RealtimeException, match="connection broke"):
        async with model(server).open_stream(HELLO) as deltas:
            heard = [delta async for delta in deltas]
    assert heard == [ChatText("Well")]
    assert len(server.requests) == 1


@pytest.mark.sockets
async def test_the_pause_an_endpoint_asks_for_is_kept(server: OpenAIServer, clock: trio.testing.MockClock) -> None:
    chat = model(server)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    server.add(error(429, retry_after="3"), answer("better"))
    assert said(await ask(chat)) == "better"
    assert trio.current_time() == 3


@pytest.mark.sockets
async def test_a_pause_beyond_the_bound_is_not_waited_for(server: OpenAIServer, clock: trio.testing.MockClock) -> None:
    chat = model(server, timeoutSeconds=5)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    server.add(error(429, retry_after="5"), answer("too late"))
    with pytest.raises(RealtimeException, match="more requests"):
        await ask(chat)
    assert trio.current_time() == 0


@pytest.mark.sockets
@pytest.mark.parametrize(
    "stalled",
    [
        (Pause.STALL,),
        (chunk("", role="assistant"), Pause.STALL),
        (chunk("a"), chunk("b"), Pause.STALL),
        (chunk(tool_calls=[fragment(0, "c", "book")]), Pause.STALL),
    ],
)
async def test_silence_has_a_bound(
    server: OpenAIServer, clock: trio.testing.MockClock, stalled: tuple[bytes | Pause, ...]
) -> None:
    chat = model(server, timeoutSeconds=7)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    server.add(stalled, answer("never"))
    with pytest.raises(RealtimeException, match="gave nothing for 7 s"):
        await ask(chat)
    assert trio.current_time() == 7
    assert len(server.requests) == 2
    await server.wait_connections(0)


@pytest.mark.sockets
async def test_a_slow_reader_is_not_the_silence_of_the_endpoint(
    server: OpenAIServer, clock: trio.testing.MockClock
) -> None:
    chat = model(server, timeoutSeconds=1)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    words = [f"{number} " for number in range(DELTAS + 5)]
    server.add(answer(*words))
    async with chat.open_stream(HELLO) as deltas:
        await trio.sleep(60)
        assert said([delta async for delta in deltas]) == "".join(words)


@pytest.mark.sockets
@pytest.mark.parametrize("end", [Pause.STALL, Pause.DROP])
async def test_an_answer_is_whole_with_its_finish_reason(
    server: OpenAIServer, clock: trio.testing.MockClock, end: Pause
) -> None:
    chat = model(server)
    server.add(answer("warm"))
    await ask(chat)
    start(clock)
    server.add((chunk("Whole."), chunk(finish="stop"), end))
    assert await ask(chat) == [ChatText("Whole."), ChatFinished()]
    assert trio.current_time() == (1 if end is Pause.STALL else 0)


@pytest.mark.sockets
async def test_refused_options_are_left_out_from_then_on(server: OpenAIServer) -> None:
    chat = model(server, temperature=0.5)
    server.add(
        error(400, message="stream_options is not supported by this server"),
        error(400, "unsupported_value", param="temperature"),
        answer("At last."),
        answer("At once."),
    )
    assert said(await ask(chat)) == "At last."
    assert said(await ask(chat)) == "At once."
    bodies = [request.body for request in server.requests]
    assert ["stream_options" in body for body in bodies] == [True, False, False, False]
    assert ["temperature" in body for body in bodies] == [True, True, False, False]


# --- what is left behind ---------------------------------------------------------------------------------------------


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@pytest.fixture
async def warm(server: OpenAIServer) -> OpenAIChatModel:
    """A model whose process-wide connections are there already, and none of them open."""
    chat = model(server)
    server.add((*answer("warm")[:-1], Pause.DROP))
    await ask(chat)
    await server.wait_connections(0)
    await trio.testing.wait_all_tasks_blocked()
    return chat


@pytest.mark.sockets
@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_leaving_a_stream_that_hangs_closes_its_connection(server: OpenAIServer, warm: OpenAIChatModel) -> None:
    before = tasks()
    server.add((chunk("a"), chunk("b"), Pause.STALL))
    async with warm.open_stream(HELLO) as deltas:
        assert await deltas.receive() == ChatText("a")
        await server.wait_stalled()
        assert server.connections == 1
    await server.wait_connections(0)
    await trio.testing.wait_all_tasks_blocked()
    assert tasks() == before
    gc.collect()


@pytest.mark.sockets
@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_a_cancelled_turn_closes_its_connection(server: OpenAIServer, warm: OpenAIChatModel) -> None:
    before = tasks()
    server.add((chunk("a"), Pause.STALL))
    with trio.CancelScope() as turn:
        async with warm.open_stream(HELLO) as deltas:
            async for _ in deltas:
                await server.wait_stalled()
                turn.cancel()
    assert turn.cancelled_caught
    await server.wait_connections(0)
    await trio.testing.wait_all_tasks_blocked()
    assert tasks() == before
    gc.collect()


@pytest.mark.sockets
@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_leaving_with_the_channel_full(server: OpenAIServer, warm: OpenAIChatModel) -> None:
    before = tasks()
    server.add((*map(chunk, "abcdefgh" * DELTAS), Pause.STALL))
    async with warm.open_stream(HELLO) as deltas:
        await deltas.receive()
        await server.wait_stalled()
        await trio.testing.wait_all_tasks_blocked()
        assert deltas.statistics().current_buffer_used == DELTAS
    await server.wait_connections(0)
    await trio.testing.wait_all_tasks_blocked()
    assert tasks() == before
    gc.collect()


@attrs.define(eq=False, slots=False)
class CancelAfter(trio.abc.Instrument):
    """Cancels a scope when a number of task steps have run in it."""

    steps: int
    scope: trio.CancelScope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps -= 1
        if self.steps == 0:
            self.scope.cancel()


@pytest.mark.sockets
async def test_cancelled_at_any_step_nothing_is_left(server: OpenAIServer, warm: OpenAIChatModel) -> None:
    before = tasks()
    finished = 0
    for steps in range(1, 200):
        server.replies.clear()
        server.add((*answer(*"abc")[:-1], Pause.DROP))
        with trio.CancelScope() as scope:
            instrument = CancelAfter(steps, scope)
            trio.lowlevel.add_instrument(instrument)
            try:
                async with warm.open_stream(HELLO) as deltas:
                    async for delta in deltas:
                        finished += isinstance(delta, ChatUsage)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        await server.wait_connections(0)
        await trio.testing.wait_all_tasks_blocked()
        assert tasks() == before
        if finished:
            break
    assert finished == 1
    server.replies.clear()
    server.add(answer("still well"))
    assert said(await ask(warm)) == "still well"


@pytest.mark.sockets
async def test_the_readers_own_exception_passes_as_it_is(server: OpenAIServer, warm: OpenAIChatModel) -> None:
    server.add((chunk("a"), Pause.STALL))
    with pytest.raises(KeyError, match="mine"):
        async with warm.open_stream(HELLO) as deltas:
            await deltas.receive()
            raise KeyError("mine")
    await server.wait_connections(0)


@pytest.mark.sockets
async def test_the_end_of_a_broken_stream_is_its_failure(server: OpenAIServer) -> None:
    server.add(error(400))
    with pytest.raises(RealtimeException):
        async with model(server).open_stream(HELLO) as deltas:
            await deltas.receive()


@pytest.mark.sockets
async def test_it_can_be_made_ready_beforehand(server: OpenAIServer) -> None:
    chat = model(server)
    before = chat.is_ready
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chat.load)
        nursery.start_soon(model(server).load)
    assert (before, chat.is_ready) == (False, True)
    server.add(answer("ready"))
    assert said(await ask(chat)) == "ready"


@pytest.mark.sockets
def test_no_connection_outlives_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    open_at_the_end = 0
    server = OpenAIServer()

    async def program() -> None:
        nonlocal open_at_the_end
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            server.add(answer("Hello"))
            await ask(model(server))
            open_at_the_end = server.connections
            nursery.cancel_scope.cancel()

    trio.run(program)
    gc.collect()  # an open socket would be a ResourceWarning, which is an error here
    assert open_at_the_end == 1
