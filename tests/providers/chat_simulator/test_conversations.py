"""Whole conversations with the official SDK's own client, in memory and in virtual time."""

from typing import Any

import openai
import pytest
import trio
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import BaseModel
from trio.testing import MockClock

from providers.chat.simulator import (
    BROKEN_SERVICE,
    NO_QUOTA,
    OVERLOADED,
    RATE_LIMITED,
    Call,
    Disconnect,
    ErrorEvent,
    Pace,
    Place,
    RateLimit,
    Raw,
    Refusal,
    Reply,
    Script,
    Stall,
    Usage,
    When,
)
from tests.providers.chat_simulator.conftest import Connect, MakeSimulator

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
ROOMS: list[ChatCompletionToolUnionParam] = [
    {
        "type": "function",
        "function": {
            "name": "free_rooms",
            "description": "Which rooms are free",
            "parameters": {
                "type": "object",
                "properties": {"day": {"type": "string"}},
                "required": ["day"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


async def stream(client: openai.AsyncOpenAI, **more: Any) -> list[tuple[float, ChatCompletionChunk]]:
    """The chunks, with the time each came at."""
    start = trio.current_time()
    arguments: dict[str, Any] = {"model": "m", "messages": HI, **more}
    async with await client.chat.completions.create(stream=True, **arguments) as chunks:
        return [(trio.current_time() - start, chunk) async for chunk in chunks]


def said(chunks: list[tuple[float, ChatCompletionChunk]]) -> str:
    return "".join(choice.delta.content or "" for _, chunk in chunks for choice in chunk.choices)


async def test_words_come_one_by_one_at_the_pace_of_the_script(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock
) -> None:
    simulator = make_simulator(Script(["Good day to you."], pace=Pace(0.25, 0.5, 0.125)))
    chunks = await stream(await connect(simulator), stream_options={"include_usage": True})
    assert [time for time, _ in chunks] == [0.75, 0.75, 0.875, 1.0, 1.125, 1.25, 1.25, 1.25]
    assert said(chunks) == "Good day to you."
    assert chunks[-2][1].choices[0].finish_reason == "stop"
    usage = chunks[-1][1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (4, 5)
    assert simulator.requests[0].outcome == "answered"


async def test_a_completion_in_one_piece(make_simulator: MakeSimulator, connect: Connect, clock: MockClock) -> None:
    usage = Usage(prompt=50, cached=40, reasoning=7)
    simulator = make_simulator(Script([Reply("Good day.", usage=usage)], pace=Pace(0.25, 0.5, 0.125)))
    client = await connect(simulator)
    start = trio.current_time()
    completion = await client.chat.completions.create(model="m", messages=HI)
    assert trio.current_time() - start == 0.25 + 0.5 + 3 * 0.125
    assert completion.choices[0].message.content == "Good day."
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 40
    assert completion.usage.completion_tokens_details.reasoning_tokens == 7
    assert completion.usage.completion_tokens == 10
    assert completion.usage.total_tokens == 60


@pytest.mark.parametrize("streams", [True, False])
async def test_tools_in_two_rounds(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock, streams: bool
) -> None:
    calls = [Call("free_rooms", {"day": "Friday"}), Call("free_rooms", {"day": "Monday"}, "mine")]
    simulator = make_simulator(Script([Reply("Let me see.", calls)]))
    client = await connect(simulator)
    messages = list(HI)
    async with client.chat.completions.stream(model="m", messages=messages, tools=ROOMS) as events:
        completion = await events.get_final_completion()
    if not streams:
        simulator.rewrite(Script([Reply("Let me see.", calls)]))
        completion = await client.chat.completions.parse(model="m", messages=messages, tools=ROOMS)
    choice = completion.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    asked = choice.message.tool_calls or []
    assert [call.function.arguments for call in asked] == ['{"day":"Friday"}', '{"day":"Monday"}']
    assert [call.function.parsed_arguments for call in asked] == [{"day": "Friday"}, {"day": "Monday"}]
    assert asked[1].id == "mine"
    messages.append(
        {
            "role": "assistant",
            "content": choice.message.content,
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": "free_rooms", "arguments": "{}"}}
                for call in asked
            ],
        }
    )
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "the blue one"} for call in asked]
    assert said(await stream(client, messages=messages, tools=ROOMS)) == "The tool says: the blue one"
    assert simulator.broken == []


class Verdict(BaseModel):
    good: bool
    reasons: list[str]


async def test_structured_output_is_parsed(make_simulator: MakeSimulator, connect: Connect, clock: MockClock) -> None:
    simulator = make_simulator(
        Script(
            [Reply({"good": True, "reasons": ["short"]}), Reply(refusal="I would rather not.")],
            when=[When(Reply({"good": False, "reasons": []}), system="strict judge")],
        )
    )
    client = await connect(simulator)

    async def judge(messages: list[ChatCompletionMessageParam]) -> Any:
        completion = await client.chat.completions.parse(model="m", messages=messages, response_format=Verdict)
        return completion.choices[0].message

    assert (await judge(HI)).parsed == Verdict(good=True, reasons=["short"])
    refused = await judge(HI)
    assert (refused.parsed, refused.refusal) == (None, "I would rather not.")
    assert (await judge([{"role": "system", "content": "You are a strict judge."}, *HI])).parsed == Verdict(
        good=False, reasons=[]
    )
    assert (await judge(HI)).parsed == Verdict(good=False, reasons=[])  # the echo's least value
    async with client.chat.completions.stream(model="m", messages=HI, response_format=Verdict) as events:
        final = await events.get_final_completion()
    assert final.choices[0].message.parsed == Verdict(good=False, reasons=[])


async def test_output_that_is_cut_is_the_sdks_exception(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock
) -> None:
    simulator = make_simulator(Script([Reply({"good": True, "reasons": []}), Reply("Well", finish="content_filter")]))
    client = await connect(simulator)
    with pytest.raises(openai.LengthFinishReasonError):
        await client.chat.completions.parse(model="m", messages=HI, response_format=Verdict, max_completion_tokens=3)
    with pytest.raises(openai.ContentFilterFinishReasonError):
        await client.chat.completions.parse(model="m", messages=HI, response_format=Verdict)


@pytest.mark.parametrize(
    ("refusal", "error", "status", "code"),
    [
        (Refusal(400, "content_filter"), openai.BadRequestError, 400, "content_filter"),
        (Refusal(403, "unsupported_country"), openai.PermissionDeniedError, 403, "unsupported_country"),
        (Refusal(404, "model_not_found"), openai.NotFoundError, 404, "model_not_found"),
        (Refusal(409), openai.ConflictError, 409, None),
        (Refusal(422), openai.UnprocessableEntityError, 422, None),
        (RATE_LIMITED, openai.RateLimitError, 429, "rate_limit_exceeded"),
        (NO_QUOTA, openai.RateLimitError, 429, "insufficient_quota"),
        (BROKEN_SERVICE, openai.InternalServerError, 500, None),
        (OVERLOADED, openai.InternalServerError, 503, None),
    ],
)
async def test_refusals_are_the_sdks_exceptions(
    make_simulator: MakeSimulator,
    connect: Connect,
    clock: MockClock,
    refusal: Refusal,
    error: type[openai.APIStatusError],
    status: int,
    code: str | None,
) -> None:
    simulator = make_simulator(Script([refusal]))
    with pytest.raises(error) as caught:
        await stream(await connect(simulator))
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert caught.value.type == refusal.type
    assert caught.value.request_id == "req_1"
    assert simulator.requests[0].answer is refusal
    assert simulator.broken == []


async def test_keys_and_models_are_checked(make_simulator: MakeSimulator, connect: Connect, clock: MockClock) -> None:
    simulator = make_simulator(models=["m", "n"])
    client = await connect(simulator)
    assert [model.id async for model in client.models.list()] == ["m", "n"]
    assert (await client.models.retrieve("n")).id == "n"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("o")
    with pytest.raises(openai.NotFoundError) as unknown:
        await stream(client, model="o")
    assert unknown.value.code == "model_not_found"
    simulator = make_simulator(keys=["another"])
    with pytest.raises(openai.AuthenticationError) as caught:
        await connect(simulator)
    assert caught.value.code == "invalid_api_key"
    assert "0123456789" not in str(caught.value)


async def test_the_sdk_tries_again_when_it_was_told_to(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock
) -> None:
    simulator = make_simulator(
        Script([RATE_LIMITED, Reply(mishaps=[Disconnect(Place.HEADERS)]), OVERLOADED, "At last."])
    )
    client = await connect(simulator, max_retries=3)
    start = trio.current_time()
    assert said(await stream(client)) == "At last."
    assert trio.current_time() - start >= 1  # what `retry-after` says, and the SDK's own pauses
    assert [request.headers["x-stainless-retry-count"] for request in simulator.requests] == ["0", "1", "2", "3"]


async def test_more_requests_than_the_limit(make_simulator: MakeSimulator, connect: Connect, clock: MockClock) -> None:
    simulator = make_simulator(rate_limit=RateLimit(2, 60))
    client = await connect(simulator)
    first = await client.chat.completions.with_raw_response.create(model="m", messages=HI)
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    await trio.sleep(20)
    await stream(client)
    with pytest.raises(openai.RateLimitError) as caught:
        await stream(client)
    assert caught.value.response.headers["retry-after"] == "40"
    await trio.sleep(40)
    assert said(await stream(client)) == "You said: hi"


@pytest.mark.parametrize("place", [Place.FINISH, Place.DONE, Place.END, 0, 2, 99])
async def test_a_stall_holds_back_all_that_follows(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock, place: Place | int
) -> None:
    simulator = make_simulator(Script([Reply("one two three", mishaps=[Stall(place, 5)])]))
    client = await connect(simulator)
    start = trio.current_time()
    chunks = await stream(client)
    before = {0: 0, 2: 3, 99: 4, Place.FINISH: 4, Place.DONE: 5, Place.END: 5}[place]
    assert [time for time, _ in chunks] == [0] * before + [5] * (5 - before)
    assert trio.current_time() - start == (0.1 if place is Place.END else 5)  # the SDK leaves an end that does not come


async def test_a_client_that_leaves_ends_a_stall(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock
) -> None:
    simulator = make_simulator(Script([Reply("one two", mishaps=[Stall(1)])]))
    client = await connect(simulator)
    with trio.move_on_after(3) as patience:
        await stream(client)
    assert patience.cancelled_caught
    await simulator.wait_connections(0)
    assert simulator.requests[0].outcome == "left"
    assert said(await stream(client)) == "You said: hi"


async def test_an_error_comes_in_the_middle(make_simulator: MakeSimulator, connect: Connect, clock: MockClock) -> None:
    simulator = make_simulator(Script([Reply("one two three", mishaps=[ErrorEvent(2, RATE_LIMITED)])]))
    client = await connect(simulator)
    chunks = await client.chat.completions.create(model="m", messages=HI, stream=True)
    assert len([await anext(chunks) for _ in range(3)]) == 3
    with pytest.raises(openai.APIError) as caught:
        await anext(chunks)
    assert caught.value.code == "rate_limit_exceeded"
    simulator.requests.clear()  # an error is no chunk


async def test_an_error_in_place_of_the_headers(
    make_simulator: MakeSimulator, connect: Connect, clock: MockClock
) -> None:
    reply = Reply(mishaps=[Stall(Place.HEADERS, 2), ErrorEvent(Place.HEADERS, OVERLOADED)])
    client = await connect(make_simulator(Script([reply])))
    start = trio.current_time()
    with pytest.raises(openai.InternalServerError):
        await stream(client)
    assert trio.current_time() - start == 2


async def test_garbage_is_no_json(make_simulator: MakeSimulator, connect: Connect, clock: MockClock) -> None:
    client = await connect(make_simulator(Script([Reply("one two", mishaps=[Raw(at=1)])])))
    with pytest.raises(ValueError, match="Unterminated string"):
        await stream(client)
