"""What the service refuses, with its status, type, code and parameter."""

from typing import Any

import attrs
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from providers.chat.simulation.core import Model
from providers.chat.simulation.shapes import REQUEST
from tests.providers.chat_simulator.service import HEADERS, HI, TOOL, ask, choice, make_service, refusal

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL_OUTPUT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema, "strict": True}}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "book", **function}}


def user(content: object) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@attrs.frozen
class Case:
    body: dict[str, Any]
    code: str | None
    param: str | None
    hint: str


CASES = {
    "no model": Case({"model": None}, None, None, "provide a model"),
    "empty model": Case({"model": ""}, None, None, "provide a model"),
    "model of a wrong type": Case({"model": 1}, "invalid_type", "model", "expected a string, but got an integer"),
    "no messages": Case({"messages": []}, "empty_array", "messages", "empty array"),
    "unknown at the top": Case({"colour": 1}, None, None, "Unrecognized request argument supplied: colour"),
    "unknown below": Case(
        {"messages": [{**HI[0], "colour": 1}]}, "unknown_parameter", "messages[0].colour", "Unknown parameter"
    ),
    "messages of a wrong type": Case({"messages": "hi"}, "invalid_type", "messages", "expected an array"),
    "content of a wrong type": Case(
        {"messages": user(5)}, "invalid_type", "messages[0].content", "one of a string or an array of objects"
    ),
    "no content": Case({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content", ""),
    "null content": Case({"messages": user(None)}, None, "messages.[0].content", "expected a string, got null"),
    "empty content": Case({"messages": user([])}, "empty_array", "messages[0].content", ""),
    "unknown part": Case(
        {"messages": user([{"type": "input_text", "text": "a"}])},
        "invalid_value",
        "messages[0].content[0].type",
        "Invalid value: 'input_text'",
    ),
    "picture from nowhere": Case(
        {"messages": user([{"type": "image_url", "image_url": {"url": "kitten.png"}}])},
        "invalid_value",
        "messages[0].content[0].image_url.url",
        "valid URL",
    ),
    "unknown role": Case(
        {"messages": [{"role": "robot", "content": "a"}]}, "invalid_value", "messages[0].role", "and 'function'"
    ),
    "no role": Case({"messages": [{"content": "a"}]}, "missing_required_parameter", "messages[0].role", ""),
    "assistant without anything": Case(
        {"messages": [{"role": "assistant"}]}, None, "messages.[0].content", "expected a string"
    ),
    "empty calls": Case(
        {"messages": [{"role": "assistant", "content": "a", "tool_calls": []}]},
        "empty_array",
        "messages[0].tool_calls",
        "",
    ),
    "tool message first": Case({"messages": [TOOL_OUTPUT]}, None, "messages.[0].role", "preceeding message"),
    "tool message late": Case(
        {"messages": [*HI, CALLS, TOOL_OUTPUT, *HI, TOOL_OUTPUT]}, None, "messages.[4].role", "preceeding message"
    ),
    "tool message for another call": Case(
        {"messages": [*HI, CALLS, {**TOOL_OUTPUT, "tool_call_id": "c2"}]},
        None,
        "messages.[2].tool_call_id",
        "'c2' not found",
    ),
    "tool message twice": Case(
        {"messages": [*HI, CALLS, TOOL_OUTPUT, TOOL_OUTPUT]}, None, "messages.[3].tool_call_id", "'c1' not found"
    ),
    "unanswered call": Case({"messages": [*HI, CALLS, *HI]}, None, "messages.[2].role", "response messages: c1"),
    "unanswered call at the end": Case({"messages": [*HI, CALLS]}, None, "messages.[1].role", "response messages: c1"),
    "arguments of a wrong type": Case(
        {"messages": [{**CALLS, "tool_calls": [{**CALL, "function": {"name": "book", "arguments": {}}}]}]},
        "invalid_type",
        "messages[0].tool_calls[0].function.arguments",
        "expected a string, but got an object",
    ),
    "long call id": Case(
        {"messages": [{**CALLS, "tool_calls": [{**CALL, "id": "c" * 41}]}]},
        "string_above_max_length",
        "messages[0].tool_calls[0].id",
        "maximum length 40",
    ),
    "hot": Case({"temperature": 2.5}, "decimal_above_max_value", "temperature", "<= 2, but got 2.5"),
    "cold": Case({"temperature": -1}, "decimal_below_min_value", "temperature", ">= 0, but got -1"),
    "temperature in words": Case({"temperature": "warm"}, "invalid_type", "temperature", "expected a decimal"),
    "true is no number": Case({"temperature": True}, "invalid_type", "temperature", "a boolean"),
    "no tokens": Case({"max_completion_tokens": 0}, "integer_below_min_value", "max_completion_tokens", ">= 1"),
    "half a token": Case({"max_tokens": 1.5}, "invalid_type", "max_tokens", "expected an integer, but got a decimal"),
    "two limits": Case(
        {"max_tokens": 5, "max_completion_tokens": 5}, "invalid_parameter_combination", "max_tokens", "same time"
    ),
    "stream in words": Case({"stream": "yes"}, "invalid_type", "stream", "expected a boolean"),
    "stream options alone": Case({"stream_options": {}}, None, "stream_options", "only allowed when 'stream'"),
    "unknown stream option": Case(
        {"stream": True, "stream_options": {"usage": True}}, "unknown_parameter", "stream_options.usage", ""
    ),
    "no tools": Case({"tools": []}, "empty_array", "tools", ""),
    "too many tools": Case({"tools": [TOOL] * 129}, "array_above_max_length", "tools", "maximum length 128"),
    "tool of a wrong kind": Case({"tools": [{"type": "hammer"}]}, "invalid_value", "tools[0].type", "'hammer'"),
    "tool with a bad name": Case(
        {"tools": [{"type": "function", "function": {"name": "book it"}}]},
        "invalid_value",
        "tools[0].function.name",
        "^[a-zA-Z0-9_-]+$",
    ),
    "tool with a long name": Case(
        {"tools": [{"type": "function", "function": {"name": "b" * 65}}]},
        "string_above_max_length",
        "tools[0].function.name",
        "",
    ),
    "tool with a bad schema": Case(
        {"tools": [TOOL, tool(parameters={"properties": {}})]},
        "invalid_function_parameters",
        "tools[1].function.parameters",
        "Invalid schema for function 'book'",
    ),
    "strict tool with a loose schema": Case(
        {"tools": [tool(parameters={"type": "object", "properties": {}}, strict=True)]},
        "invalid_function_parameters",
        "tools[0].function.parameters",
        "'additionalProperties' is required",
    ),
    "array without items": Case(
        {"tools": [tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]},
        "invalid_function_parameters",
        "tools[0].function.parameters",
        "array schema missing items",
    ),
    "choice without tools": Case({"tool_choice": "auto"}, None, "tool_choice", "only allowed when 'tools'"),
    "parallel without tools": Case({"parallel_tool_calls": False}, None, "parallel_tool_calls", "only allowed"),
    "unknown choice": Case({"tools": [TOOL], "tool_choice": "any"}, "invalid_value", "tool_choice", "'any'"),
    "choice of another tool": Case(
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "sing"}}},
        None,
        "tool_choice",
        "'sing' not found",
    ),
    "format in words": Case({"response_format": "json_object"}, "invalid_type", "response_format", "an object"),
    "no word of json": Case({"response_format": {"type": "json_object"}}, None, "messages", "the word 'json'"),
    "format without a name": Case(
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "missing_required_parameter",
        "response_format.json_schema.name",
        "",
    ),
    "format that is a list": Case(
        {"response_format": strict({"type": "array", "items": {"type": "string"}})},
        None,
        "response_format",
        "Invalid schema for response_format 'verdict': schema must be a JSON Schema of 'type: \"object\"'",
    ),
    "probabilities of nothing": Case({"top_logprobs": 3}, None, "top_logprobs", "only allowed"),
    "many stops": Case({"stop": ["a"] * 5}, "array_above_max_length", "stop", ""),
    "sound": Case({"audio": {"voice": "ash", "format": "wav"}}, "not_simulated", "audio", "The simulator"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("streams", [False, True])
def test_what_is_refused(name: str, streams: bool) -> None:
    case = CASES[name]
    body = {**({"stream": True} if streams and "stream_options" not in case.body else {}), **case.body}
    found = refusal(ask(make_service(), **body))
    assert (found.status, found.type) == (400, "invalid_request_error")
    assert (found.code, found.param) == (case.code, case.param)
    assert case.hint in found.message


ACCEPTED: dict[str, dict[str, Any]] = {
    "calls and their outputs": {"messages": [*HI, CALLS, TOOL_OUTPUT, *HI]},
    "a refusal": {"messages": [*HI, {"role": "assistant", "refusal": "no"}, *HI]},
    "parts": {
        "messages": user(
            [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQI=", "detail": "low"}},
            ]
        )
    },
    "a developer": {"messages": [{"role": "developer", "content": "Be kind.", "name": "me"}, *HI]},
    "settings": {
        "temperature": 0.2,
        "top_p": 1,
        "seed": 1,
        "stop": ["x"],
        "metadata": {"component": "judge"},
        "user": "u",
        "n": 2,
        "logprobs": True,
        "top_logprobs": 0,
        "service_tier": "auto",
        "store": False,
        "presence_penalty": -1.5,
    },
    "nulls": {"temperature": None, "max_tokens": None, "stop": None, "response_format": {"type": "text"}},
    "tools": {"tools": [tool(parameters={"type": "object"}, description="Books.")], "tool_choice": "auto"},
    "json": {"messages": user("as JSON please"), "response_format": {"type": "json_object"}},
    "a loose format": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "v", "schema": {"type": "object", "properties": {"a": {}}}},
        }
    },
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted(name: str) -> None:
    request = ask(make_service(), **ACCEPTED[name])
    assert request.broken is None
    assert choice(request)["finish_reason"] == "stop"


def test_no_field_of_the_sdk_is_unknown() -> None:
    known = {*REQUEST.required, *REQUEST.optional}
    assert known == set(CompletionCreateParamsBase.__annotations__) | {"stream"}


def test_reasoning_models_refuse_what_others_take() -> None:
    service = make_service(models=[Model("m", is_reasoning=True)])
    assert refusal(ask(service, max_tokens=5)).code == "unsupported_parameter"
    assert refusal(ask(service, temperature=0.5)).code == "unsupported_value"
    assert refusal(ask(service, stop="x")).param == "stop"
    assert choice(ask(service, temperature=1, max_completion_tokens=50, top_p=None))["finish_reason"] == "stop"


def test_a_prompt_may_be_too_long() -> None:
    service = make_service(models=[Model("m", context_tokens=50)])
    assert ask(service).broken is None
    assert refusal(ask(service, messages=user("words " * 50))).code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("method", "target", "headers", "data", "status", "hint"),
    [
        ("POST", "/v1/chat/completions", {}, b"{}", 401, "didn't provide an API key"),
        ("POST", "/v1/chat/completions", {"authorization": "Basic abc"}, b"{}", 401, "didn't provide"),
        ("GET", "/v1/chat/completions", HEADERS, b"", 405, "Not allowed to GET"),
        ("POST", "/v1/models", HEADERS, b"", 405, "Not allowed to POST"),
        ("POST", "/v1/chat/completion", HEADERS, b"{}", 404, "Invalid URL (POST /v1/chat/completion)"),
        ("POST", "/v1/chat/completions", {**HEADERS, "content-type": "text/plain"}, b"{}", 415, "text/plain"),
        ("POST", "/v1/chat/completions", HEADERS, b"{", 400, "could not parse"),
        ("POST", "/v1/chat/completions", HEADERS, b"[]", 400, "could not parse"),
        ("POST", "/v1/chat/completions", HEADERS, b"{}", 400, "provide a model"),
        ("POST", "/v1/chat/completions", HEADERS, b'{"model":"m"}', 400, "Missing required parameter: 'messages'"),
    ],
)
def test_the_door(method: str, target: str, headers: dict[str, str], data: bytes, status: int, hint: str) -> None:
    found = refusal(make_service().receive(method, target, headers, data, 0.0))
    assert found.status == status
    assert hint in found.message
