"""Our own chat part, the SDK and its HTTP client against the simulator, in virtual time."""

from collections.abc import Sequence
from typing import Any

import attrs
import openai
import pytest
import trio
import trio.testing

from engine.errors import ErrorCode, RealtimeException
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
from providers.chat.openai import OpenAIChatModel, make_chat_model
from providers.chat.simulator import (
    BAD_GATEWAY,
    BROKEN_SERVICE,
    COMMENT,
    MEMORY_URL,
    NO_QUOTA,
    OVERLOADED,
    RATE_LIMITED,
    Answer,
    Call,
    ChatSimulator,
    Disconnect,
    Drop,
    Duplicate,
    ErrorEvent,
    Faults,
    MemoryTransport,
    Model,
    Pace,
    Place,
    Raw,
    Refusal,
    Reply,
    Script,
    Stall,
    Usage,
)
from providers.compatible import sdk_client
from tests.providers.chat_simulator.conftest import KEY, MakeSimulator

HELLO = ChatRequest((ChatMessage("user", "hello"),))
BOOK = ToolSpecification("book", "Books a table", {"type": "object", "properties": {"table": {"type": "integer"}}})


@attrs.define
class Line:
    """The part's connections lead to a simulator in memory; the clock jumps when nothing happens."""

    nursery: trio.Nursery
    clock: trio.testing.MockClock
    monkeypatch: pytest.MonkeyPatch

    async def open(self, simulator: ChatSimulator, **settings: object) -> OpenAIChatModel:
        def make_pool() -> openai.DefaultAsyncHttpxClient:
            return openai.DefaultAsyncHttpxClient(transport=MemoryTransport(simulator, self.nursery))

        self.monkeypatch.setenv("TEST_KEY", KEY)
        self.monkeypatch.setattr("providers.compatible._make_pool", make_pool)
        await sdk_client(
            MEMORY_URL, KEY
        ).models.list()  # the first request of a client looks at the platform in a thread
        simulator.requests.clear()
        self.clock.autojump_threshold = 0
        return make_chat_model({"model": "m", "baseUrl": MEMORY_URL, "apiKey": "env:TEST_KEY", **settings})


@pytest.fixture
def line(nursery: trio.Nursery, clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(nursery, clock, monkeypatch)


async def ask(chat: OpenAIChatModel, request: ChatRequest = HELLO) -> list[ChatDelta]:
    async with chat.open_stream(request) as deltas:
        return [delta async for delta in deltas]


def said(deltas: Sequence[ChatDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, ChatText))


async def test_words_come_when_they_are_said(
    line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock
) -> None:
    reply = Reply("Good day, friend.", usage=Usage(prompt=100, cached=64))
    simulator = make_simulator(Script([reply, "Again."], pace=Pace(0.25, 0.5, 0.125)))
    chat = await line.open(simulator)
    heard: list[tuple[float, ChatDelta]] = []
    async with chat.open_stream(HELLO) as deltas:
        heard += [(trio.current_time(), delta) async for delta in deltas]
    assert heard == [
        (0.75, ChatText("Good")),
        (0.875, ChatText(" day")),
        (1.0, ChatText(",")),
        (1.125, ChatText(" friend")),
        (1.25, ChatText(".")),
        (1.25, ChatUsage(100, 5, 64)),
        (1.25, ChatFinished()),
    ]
    assert said(await ask(chat)) == "Again."
    assert simulator.accepted == 1
    assert simulator.requests[0].body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_tools_in_two_rounds(line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock) -> None:
    calls = [Call("book", {"table": 1}), Call("book", {"table": 2})]
    simulator = make_simulator(Script([Reply("One moment.", calls)], seed=3))
    chat = await line.open(simulator)
    request = ChatRequest(HELLO.messages, (BOOK,))
    first = await ask(chat, request)
    assert said(first) == "One moment."
    made = [delta for delta in first if isinstance(delta, ChatToolCall)]
    assert [call.arguments for call in made] == ['{"table":1}', '{"table":2}']
    past = tuple(ToolCall(call.call_id, call.name, call.arguments, "r") for call in made)
    messages = (
        *request.messages,
        ChatMessage("assistant", said(first), tool_calls=past),
        *(ChatMessage("tool", '"booked"', tool_call_id=call.call_id) for call in made),
    )
    assert said(await ask(chat, attrs.evolve(request, messages=messages))) == 'The tool says: "booked"'
    assert simulator.broken == []


async def test_an_order_no_service_takes_is_seen(
    line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator()
    chat = await line.open(simulator)
    with pytest.raises(RealtimeException, match="HTTP 400"):
        await ask(chat, ChatRequest((*HELLO.messages, ChatMessage("tool", "ok", tool_call_id="c1"))))
    assert [request.broken.param for request in simulator.broken if request.broken] == ["messages.[1].role"]


@pytest.mark.parametrize(
    ("reply", "complete", "text"),
    [
        (Reply("Well", finish="content_filter"), False, "Well"),
        (Reply(calls=[Call("book")], finish="length"), False, ""),
        (Reply(refusal="I would rather not."), True, "I would rather not."),
        (Reply(""), True, ""),
        (Reply("one two", mishaps=[Raw(COMMENT, 0), Raw(COMMENT, 1)]), True, "one two"),
        (Reply("one two", mishaps=[Duplicate(1)]), True, "oneone two"),  # nothing tells a chunk that comes twice
        (Reply("one", mishaps=[Disconnect(Place.DONE)]), True, "one"),
        (Reply("one", mishaps=[Raw(at=Place.DONE)]), True, "one"),
    ],
)
async def test_answers_of_all_kinds(
    line: Line,
    make_simulator: MakeSimulator,
    clock: trio.testing.MockClock,
    reply: Reply,
    complete: bool,
    text: str,
) -> None:
    chat = await line.open(make_simulator(Script([reply])))
    deltas = await ask(chat, ChatRequest(HELLO.messages, (BOOK,)))
    assert (said(deltas), deltas[-1]) == (text, ChatFinished(complete))
    assert not any(isinstance(delta, ChatToolCall) for delta in deltas)
    assert trio.current_time() == 0


FAILURES: list[tuple[Answer, ErrorCode, int, float, str]] = [
    (Refusal(401, "invalid_api_key"), ErrorCode.PROVIDER_AUTH, 1, 0, "apiKey"),
    (Refusal(403), ErrorCode.PROVIDER_AUTH, 1, 0, "apiKey"),
    (NO_QUOTA, ErrorCode.PROVIDER_QUOTA, 1, 0, "no quota left"),
    (RATE_LIMITED, ErrorCode.PROVIDER_QUOTA, 2, 1, "more requests"),
    (Refusal(404, "model_not_found"), ErrorCode.MODEL_NOT_FOUND, 1, 0, "chat.model"),
    (Refusal(400, "content_filter"), ErrorCode.CHAT_FAILED, 1, 0, "HTTP 400"),
    (BROKEN_SERVICE, ErrorCode.CHAT_FAILED, 2, 0.25, "HTTP 500"),
    (BAD_GATEWAY, ErrorCode.CHAT_FAILED, 2, 0.25, "HTTP 502"),
    (attrs.evolve(OVERLOADED, retry_after=3), ErrorCode.CHAT_FAILED, 2, 3, "HTTP 503"),
    (attrs.evolve(OVERLOADED, retry_after=30), ErrorCode.CHAT_FAILED, 1, 0, "HTTP 503"),
    (Reply(mishaps=[Disconnect(Place.HEADERS)]), ErrorCode.CHAT_FAILED, 2, 0.25, "connection"),
    (Reply(mishaps=[Disconnect(Place.HEADERS, Drop.TORN)]), ErrorCode.CHAT_FAILED, 2, 0.25, "connection"),
    (Reply("a", mishaps=[Disconnect(0, Drop.TORN)]), ErrorCode.CHAT_FAILED, 2, 0.25, "connection"),
    (Reply("a", mishaps=[Disconnect(0, Drop.CLEAN)]), ErrorCode.CHAT_FAILED, 2, 0.25, "broken"),
    (Reply("a", mishaps=[Raw(at=0)]), ErrorCode.CHAT_FAILED, 2, 0.25, "broken"),
    (Reply("a", mishaps=[Raw(b"data: \xff\xfe\n\n", 0)]), ErrorCode.CHAT_FAILED, 2, 0.25, "broken"),
    (Reply("a", mishaps=[ErrorEvent(0, NO_QUOTA)]), ErrorCode.PROVIDER_QUOTA, 1, 0, "quota"),
    (Reply("a b", mishaps=[Disconnect(1)]), ErrorCode.CHAT_FAILED, 1, 0, "connection"),
    (Reply("a b", mishaps=[Disconnect(1, Drop.CLEAN)]), ErrorCode.CHAT_FAILED, 1, 0, "broken"),
    (Reply("a b", mishaps=[ErrorEvent(1)]), ErrorCode.CHAT_FAILED, 1, 0, "broken"),
    (Reply("a", mishaps=[Stall(Place.HEADERS)]), ErrorCode.CHAT_FAILED, 1, 20, "nothing for 20 s"),
    (Reply("a", mishaps=[Stall(0)]), ErrorCode.CHAT_FAILED, 1, 20, "nothing for 20 s"),
    (Reply("a b", mishaps=[Stall(1)]), ErrorCode.CHAT_FAILED, 1, 20, "nothing for 20 s"),
]


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: f"{case[4]}-{case[2]}")
async def test_failures_are_typed_and_take_their_time(
    line: Line,
    make_simulator: MakeSimulator,
    clock: trio.testing.MockClock,
    case: tuple[Answer, ErrorCode, int, float, str],
) -> None:
    answer, code, tries, seconds, hint = case
    simulator = make_simulator(Script([answer, answer, "too late"]), is_odd=True)
    chat = await line.open(simulator)
    with pytest.raises(RealtimeException) as caught:
        await ask(chat)
    assert (caught.value.code, len(simulator.requests)) == (code, tries)
    assert hint in caught.value.message
    assert trio.current_time() == seconds


@pytest.mark.parametrize("first", [BROKEN_SERVICE, RATE_LIMITED, Reply("a", mishaps=[Disconnect(0)])])
async def test_the_second_try_succeeds(
    line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock, first: Answer
) -> None:
    chat = await line.open(make_simulator(Script([first, "better"])))
    assert said(await ask(chat)) == "better"
    assert trio.current_time() == (1 if first is RATE_LIMITED else 0.25)


async def test_a_model_that_takes_no_temperature_is_asked_without(
    line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(models=[Model("m", is_reasoning=True)])
    chat = await line.open(simulator, temperature=0.5)
    assert said(await ask(chat)) == "You said: hello"
    assert said(await ask(chat)) == "You said: hello"
    assert ["temperature" in request.body for request in simulator.requests] == [True, False, False]
    assert [request.status for request in simulator.requests] == [400, 200, 200]


async def test_a_turn_that_is_left_closes_its_connection(
    line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script(["one two three"], pace=Pace(token_seconds=1)))
    chat = await line.open(simulator)
    async with chat.open_stream(HELLO) as deltas:
        assert await deltas.receive() == ChatText("one")
        assert await deltas.receive() == ChatText(" two")
    await simulator.wait_connections(0)
    assert (trio.current_time(), simulator.requests[0].outcome) == (1, "left")
    with trio.move_on_after(1.5):
        await ask(chat)
    await trio.testing.wait_all_tasks_blocked()
    assert said(await ask(chat)) == "You said: hello"


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_by_chance_an_answer_is_whole_or_fails_in_time(
    line: Line, make_simulator: MakeSimulator, clock: trio.testing.MockClock, seed: int
) -> None:
    chances: dict[str, Any] = dict.fromkeys(("delay", "stall", "drop", "garbage", "error", "comment"), 0.04)
    faults = Faults(seed, refuse=0.2, silence=0.1, **chances)
    script = Script(seed=seed, pace=Pace(0.1, 0.1, 0.05, 1.0))
    simulator = make_simulator(script, is_odd=True)
    chat = await line.open(simulator, timeoutSeconds=4)
    simulator.trouble(faults)
    failures: list[RealtimeException] = []
    for _ in range(10):
        start = trio.current_time()
        try:
            deltas = await ask(chat)
        except RealtimeException as exc:
            failures.append(exc)
        else:
            assert (said(deltas), deltas[-1]) == ("You said: hello", ChatFinished())
        assert trio.current_time() - start < 60
    assert not any(failure.recoverable for failure in failures)
    assert len(failures) < 10
    await trio.testing.wait_all_tasks_blocked()
