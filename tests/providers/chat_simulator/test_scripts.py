"""What a script makes of requests: which reply, in which pieces, how it ends. Without a network."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.chat.simulation.script import pieces_of
from providers.chat.simulation.steps import Body, End, Head, Lose, Wait
from providers.chat.simulator import (
    BAD_GATEWAY,
    GARBAGE,
    Call,
    Disconnect,
    Drop,
    Duplicate,
    Faults,
    Mishap,
    Pace,
    Place,
    Raw,
    Reply,
    Script,
    ScriptError,
    Stall,
    Usage,
    When,
)
from tests.providers.chat_simulator.service import HI, TOOL, ask, choice, make_service, message, steps_of, take


def says(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": words}]}]


def said(script: Script, *requests: list[dict[str, Any]], **body: Any) -> list[str]:
    service = make_service(script)
    return [message(ask(service, messages=messages, **body))["content"] for messages in requests]


# --- which reply


def test_replies_come_in_order_and_then_the_echo() -> None:
    assert said(Script(["one", Reply("two")]), HI, HI, HI) == ["one", "two", "You said: hi"]
    assert said(Script("one", repeats=True), HI, HI) == ["one", "one"]
    assert said(Script(answer=lambda asked: Reply(f"{asked.number}")), HI, HI) == ["0", "1"]


def test_the_first_condition_that_fits_answers_and_takes_no_reply_away() -> None:
    script = Script(
        ["one", "two"],
        when=[
            When(Reply("once"), says="HURRY", times=1),
            When([Reply("first"), Reply("then")], says="hurry"),
            When(Reply("judged"), system="judge"),
            When(Reply("late"), test=lambda asked: len(asked.messages) > 2),
        ],
    )
    hurry = says("Please hurry.")
    judge = [{"role": "system", "content": "You are a judge."}, *HI]
    assert said(script, HI, hurry, judge, hurry, hurry, hurry, HI, HI * 3) == [
        "one",
        "once",
        "judged",
        "first",
        "then",
        "then",
        "two",
        "late",
    ]


def test_who_asks_is_told_by_model_or_tools() -> None:
    service = make_service(
        Script(when=[When(Reply("small"), model="mini"), When(Reply("tool"), tool="book"), When(BAD_GATEWAY)])
    )
    assert message(ask(service, model="mini"))["content"] == "small"
    assert message(ask(service, tools=[TOOL]))["content"] == "tool"
    refused = ask(service)
    assert refused.answer is BAD_GATEWAY
    assert steps_of(refused)[0] == Head(
        502, [("x-request-id", "req_2"), ("openai-version", "2020-10-01"), ("content-type", "text/html")]
    )


def test_the_echo_does_what_it_is_asked_for() -> None:
    service = make_service()
    forced = choice(ask(service, tools=[TOOL], tool_choice="required"))
    assert forced["finish_reason"] == "tool_calls"
    assert forced["message"]["tool_calls"][0]["function"] == {"name": "book", "arguments": "{}"}
    chosen = choice(ask(service, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "book"}}))
    assert chosen["finish_reason"] == "stop"
    as_json = message(ask(service, messages=says("json"), response_format={"type": "json_object"}))
    assert as_json["content"] == '{"said":"json"}'


# --- how it is cut


def test_words_are_pieces_and_chance_cuts_anywhere() -> None:
    words = "Dobrý den, Jiří! 👋🏽 "
    assert "".join(pieces_of(words)) == words
    service, again, other = (
        make_service(Script([words, words], seed=seed, pace=Pace(token_seconds=0.1, jitter=0.5))) for seed in (1, 1, 2)
    )
    steps = [steps_of(ask(one, stream=True)) for one in (service, again, other)]
    assert steps[0] == steps[1] != steps[2]
    waits = [step.seconds for step in steps[0] if isinstance(step, Wait)]
    assert all(seconds is not None and 0.05 <= seconds <= 0.15 for seconds in waits)
    assert len(set(waits)) == len(waits) > 1
    assert message(ask(service))["content"] == words


@settings(deadline=None)
@given(st.text(max_size=40), st.integers(0, 9) | st.none())
def test_nothing_is_lost_in_pieces(text: str, seed: int | None) -> None:
    request = take(ask(make_service(Script([text], seed=seed)), stream=True))
    heard = "".join(one["delta"].get("content", "") for event in request.events for one in event["choices"])
    assert heard == text


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_limit_cuts_words_and_calls(field: str) -> None:
    calls = [Call("book", {"table": 12}), Call("book")]
    service = make_service(Script(["one two three", Reply(calls=calls), Reply(usage=Usage(reasoning=9)), "one"]))
    cut = choice(ask(service, **{field: 2}))
    assert (cut["message"]["content"], cut["finish_reason"]) == ("one two", "length")
    half = choice(ask(service, tools=[TOOL], **{field: 2}))
    assert half["finish_reason"] == "length"
    assert [call["function"]["arguments"] for call in half["message"]["tool_calls"]] == ['{"table"']
    thought = take(ask(service, **{field: 5}))
    body = orjson.loads(thought.sent[0])
    assert (body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == ("length", 5)
    assert choice(ask(service, **{field: 1}))["finish_reason"] == "stop"


def test_stop_words_end_the_text_before_them() -> None:
    service = make_service(Script(["one two three", "one two three", Reply("abc", [Call("book")])]))
    assert choice(ask(service, stop=" t"))["message"]["content"] == "one"
    assert choice(ask(service, stop=["x", "wo t"]))["message"]["content"] == "one t"
    stopped = choice(ask(service, stop="c", tools=[TOOL]))
    assert stopped["finish_reason"] == "stop"
    assert "tool_calls" not in stopped["message"]


def test_several_choices_and_their_probabilities() -> None:
    request = take(ask(make_service(), n=3, stream=True, logprobs=True, stream_options={"include_usage": True}))
    assert request.events[-1]["usage"]["completion_tokens"] == 12
    assert request.events[1]["choices"][0]["logprobs"]["content"][0]["token"] == "You"


def test_padding_is_left_out_on_request() -> None:
    service = make_service()
    assert all(event["obfuscation"] for event in take(ask(service, stream=True)).events)
    plain = take(ask(service, stream=True, stream_options={"include_obfuscation": False}))
    assert not any("obfuscation" in event for event in plain.events)


def test_calls_are_cut_into_pieces_one_after_the_other() -> None:
    calls = [Call("book", '{"table":12}', "mine"), Call("book", "oops")]
    request = take(ask(make_service(Script([Reply(calls=calls)])), tools=[TOOL], stream=True))
    deltas = [event["choices"][0]["delta"] for event in request.events]
    assert deltas[0] == {"role": "assistant", "content": None, "refusal": None}
    assert [delta["tool_calls"][0] for delta in deltas[1:-1]] == [
        {"index": 0, "id": "mine", "type": "function", "function": {"name": "book", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"table"'}},
        {"index": 0, "function": {"arguments": ":12}"}},
        {"index": 1, "id": "call_0_1", "type": "function", "function": {"name": "book", "arguments": ""}},
        {"index": 1, "function": {"arguments": "oops"}},
    ]


# --- what no model could do

STRICT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "book",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"table": {"type": "integer"}},
            "required": ["table"],
            "additionalProperties": False,
        },
    },
}
STRICT_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "v", "strict": True, "schema": STRICT_TOOL["function"]["parameters"]},
}


@pytest.mark.parametrize(
    ("reply", "body", "message"),
    [
        (Reply("no"), {"tools": [TOOL], "tool_choice": "required"}, "forces a call of a tool"),
        (Reply(calls=[Call("book")]), {}, "offers the tools"),
        (Reply(calls=[Call("book")]), {"tools": [TOOL], "tool_choice": "none"}, "forbids calls"),
        (Reply(calls=[Call("book")] * 2), {"tools": [TOOL], "parallel_tool_calls": False}, "forbids parallel"),
        (Reply(calls=[Call("book")]), {"tools": [STRICT_TOOL]}, "has no 'table'"),
        (Reply(calls=[Call("book", "oops")]), {"tools": [STRICT_TOOL]}, "has to be JSON"),
        (Reply("no"), {"response_format": STRICT_FORMAT}, "has to be JSON"),
        (Reply({"table": "x"}), {"response_format": STRICT_FORMAT}, "not of type integer"),
        (Reply("[]"), {"response_format": {"type": "json_object"}, "messages": says("json")}, "not of type object"),
    ],
)
def test_a_reply_that_no_model_could_give(reply: Reply, body: dict[str, Any], message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        ask(make_service(Script([reply])), **body)


def test_bad_services_do_it_all_the_same() -> None:
    reply = Reply(calls=[Call("sing", "oops")], is_held=False)
    assert message(ask(make_service(Script([reply]))))["tool_calls"][0]["function"]["name"] == "sing"


# --- what goes wrong


def test_mishaps_happen_at_their_places() -> None:
    mishaps: list[Mishap] = [
        Stall(Place.HEADERS, 1),
        Raw(at=0),
        Duplicate(1),
        Stall(),
        Raw(b"data: x\n\n", Place.DONE),
        Disconnect(Place.END, Drop.TORN),
    ]
    first, head, garbage, opening, one, again, two, stall, closing, raw, done, lost = steps_of(
        ask(make_service(Script([Reply("a b", mishaps=mishaps)])), stream=True)
    )
    assert (first, stall) == (Wait(1), Wait(None))
    assert isinstance(head, Head)
    assert (garbage, raw, done) == (Body(GARBAGE), Body(b"data: x\n\n"), Body(b"data: [DONE]\n\n"))
    assert again == one != two
    assert isinstance(opening, Body)
    assert isinstance(closing, Body)
    assert lost == Lose(Drop.TORN)


def test_a_loss_knows_what_it_is_in_the_middle_of() -> None:
    service = make_service(
        Script([Reply("a b", mishaps=[Disconnect(1, Drop.TORN)]), Reply(mishaps=[Disconnect(Place.HEADERS)])])
    )
    *_, torn = steps_of(ask(service, stream=True))
    assert isinstance(torn, Lose)
    assert isinstance(torn.next, Body)
    assert b'" b"' in torn.next.data
    (lost,) = steps_of(ask(service))
    assert isinstance(lost, Lose)
    assert isinstance(lost.next, Head)


@pytest.mark.parametrize("mishap", [Raw(at=Place.HEADERS), Duplicate(Place.HEADERS), Duplicate(0)])
def test_some_things_cannot_happen_before_there_is_a_stream(mishap: Raw | Duplicate) -> None:
    with pytest.raises(ScriptError, match="before there is a stream"):
        steps_of(ask(make_service(Script([Reply("a", mishaps=[mishap])])), stream=True))


def test_faults_are_the_same_for_the_same_seed() -> None:
    chances: dict[str, Any] = dict.fromkeys(
        ("delay", "stall", "drop", "garbage", "error", "duplicate", "comment", "refuse"), 0.2
    )

    def run(seed: int) -> list[object]:
        service = make_service(faults=Faults(seed, silence=0.1, **chances))
        return [steps_of(ask(service, stream=True)) for _ in range(40)]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_every_fault_comes_with_its_own_probability() -> None:
    def steps(streams: bool = True, **chances: Any) -> list[object]:
        return list(steps_of(ask(make_service(faults=Faults(3, **chances)), stream=streams)))

    assert steps(silence=1) == [Wait(None)]
    refused = steps(refuse=1)[0]
    assert isinstance(refused, Head)
    assert refused.status >= 429
    head, lost = steps(drop=1)
    assert isinstance(head, Head)
    assert isinstance(lost, Lose)
    assert isinstance(lost.next, Body)
    events = len(steps())
    assert len(steps(delay=1)) == len(steps(stall=1)) == 2 * events - 2
    assert len(steps(garbage=1)) == len(steps(duplicate=1)) == len(steps(comment=1)) == 2 * events - 2
    failed = steps(error=1)
    assert isinstance(failed[-1], End)
    assert len(failed) == 3
    whole = steps(False, garbage=1, error=1, duplicate=1, comment=1)
    assert len(whole) == 3
