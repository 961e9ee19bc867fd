"""The request of a chat completion: the names, types and values of its fields, and what they mean together."""

from typing import cast

import orjson

from providers.chat.simulation import refusals, schemas
from providers.chat.simulation.checks import (
    Check,
    Json,
    Record,
    Tagged,
    anything,
    as_object,
    boolean,
    choice,
    integer,
    list_of,
    mapping,
    not_simulated,
    nullable,
    number,
    text,
    text_or_list,
    text_or_object,
)

NAME = r"^[a-zA-Z0-9_-]+$"
LONGEST_NAME = 64
LONGEST_CALL_ID = 40
MOST_TOOLS = 128
MOST_STOPS = 4
REASONING_DEFAULTS = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""What reasoning models take no other value of."""
REASONING_REFUSES = ("logprobs", "top_logprobs", "logit_bias", "stop")

_name = text(longest=LONGEST_NAME, pattern=NAME)
_schema = mapping(anything)


# --- messages


def _url(value: object, path: str) -> None:
    text()(value, path)
    if not str(value).startswith(("https://", "http://", "data:image/")):
        raise refusals.wrong_value(
            path, f"Invalid '{path}'. Expected a valid URL, but got a value with an invalid format."
        )


_CACHE = {"prompt_cache_breakpoint": mapping(anything)}
_TEXT = Record({"type": anything, "text": text()}, _CACHE)
_PARTS: dict[str, Check] = {
    "text": _TEXT,
    "image_url": Record(
        {"type": anything, "image_url": Record({"url": _url}, {"detail": choice("auto", "low", "high", "original")})},
        _CACHE,
    ),
    "input_audio": Record(
        {"type": anything, "input_audio": Record({"data": text(), "format": choice("wav", "mp3")})}, _CACHE
    ),
    "file": Record(
        {
            "type": anything,
            "file": Record(optional={"file_data": text(), "file_id": text(), "filename": text()}),
        },
        _CACHE,
    ),
}


def _content(parts: dict[str, Check]) -> Check:
    return text_or_list(list_of(Tagged("type", parts), least=1), "an array of objects")


_text_content = _content({"text": _TEXT})
_CALL = Record(
    {
        "id": text(longest=LONGEST_CALL_ID),
        "type": choice("function"),
        "function": Record({"name": _name, "arguments": text()}),
    }
)
_MESSAGES = Tagged(
    "role",
    {
        "system": Record({"role": anything, "content": nullable(_text_content)}, {"name": _name}),
        "developer": Record({"role": anything, "content": nullable(_text_content)}, {"name": _name}),
        "user": Record({"role": anything, "content": nullable(_content(_PARTS))}, {"name": _name}),
        "assistant": Record(
            {"role": anything},
            {
                "content": nullable(
                    _content({"text": _TEXT, "refusal": Record({"type": anything, "refusal": text()})})
                ),
                "refusal": nullable(text()),
                "name": _name,
                "tool_calls": nullable(list_of(_CALL, least=1)),
                "annotations": anything,  # the SDK gives the message back as it got it
                "audio": nullable(Record({"id": text()})),
                "function_call": not_simulated,
            },
        ),
        "tool": Record({"role": anything, "content": nullable(_text_content), "tool_call_id": text()}),
        "function": not_simulated,
    },
)


# --- everything else

_FUNCTION = Record({"name": _name}, {"description": text(), "parameters": _schema, "strict": nullable(boolean)})
_TOOL = Tagged("type", {"function": Record({"type": anything, "function": _FUNCTION}), "custom": not_simulated})
_TOOL_CHOICE = text_or_object(
    choice("none", "auto", "required"),
    Tagged(
        "type",
        {
            "function": Record({"type": anything, "function": Record({"name": _name})}),
            "allowed_tools": not_simulated,
            "custom": not_simulated,
        },
    ),
)
_FORMAT = Tagged(
    "type",
    {
        "text": Record({"type": anything}),
        "json_object": Record({"type": anything}),
        "json_schema": Record(
            {
                "type": anything,
                "json_schema": Record(
                    {"name": _name}, {"description": text(), "schema": _schema, "strict": nullable(boolean)}
                ),
            }
        ),
    },
)
REQUEST = Record(
    {"messages": list_of(_MESSAGES, least=1), "model": text()},
    {
        "audio": not_simulated,
        "frequency_penalty": nullable(number(-2, 2)),
        "function_call": not_simulated,
        "functions": not_simulated,
        "logit_bias": nullable(mapping(number(-100, 100))),
        "logprobs": nullable(boolean),
        "max_completion_tokens": nullable(integer(1)),
        "max_tokens": nullable(integer(1)),
        "metadata": nullable(mapping(text(longest=512), key=text(longest=64), most=16)),
        "modalities": nullable(list_of(choice("text"), least=1)),
        "moderation": not_simulated,
        "n": nullable(integer(1, 128)),
        "parallel_tool_calls": boolean,
        "prediction": nullable(Record({"type": choice("content"), "content": _text_content})),
        "presence_penalty": nullable(number(-2, 2)),
        "prompt_cache_key": nullable(text()),
        "prompt_cache_options": Record(optional={"mode": choice("implicit", "explicit"), "ttl": choice("30m")}),
        "prompt_cache_retention": nullable(choice("in_memory", "24h")),
        "reasoning_effort": nullable(choice("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        "response_format": _FORMAT,
        "safety_identifier": nullable(text(longest=128)),
        "seed": nullable(integer(-(2**63), 2**63 - 1)),
        "service_tier": nullable(choice("auto", "default", "flex", "scale", "priority", "fast")),
        "stop": nullable(text_or_list(list_of(text(), most=MOST_STOPS), "an array of strings")),
        "store": nullable(boolean),
        "stream": nullable(boolean),
        "stream_options": nullable(Record(optional={"include_usage": boolean, "include_obfuscation": boolean})),
        "temperature": nullable(number(0, 2)),
        "tool_choice": _TOOL_CHOICE,
        "tools": list_of(_TOOL, least=1, most=MOST_TOOLS),
        "top_logprobs": nullable(integer(0, 20)),
        "top_p": nullable(number(0, 1)),
        "user": text(),
        "verbosity": nullable(choice("low", "medium", "high")),
        "web_search_options": not_simulated,
    },
)


def parse(data: bytes) -> Json:
    """The body of a request.

    Raises:
        Refused: it is no JSON object.
    """
    try:
        return as_object(orjson.loads(data), "")
    except orjson.JSONDecodeError:
        raise refusals.not_json() from None


def check(body: Json, *, is_reasoning: bool = False) -> None:
    """Hold a request against everything the service asks for but the model's existence.

    Raises:
        Refused: for the first fault there is.
    """
    if not body.get("model"):
        raise refusals.no_model()
    REQUEST(body, "")
    _check_limits(body, is_reasoning=is_reasoning)
    _check_messages(body["messages"])
    _check_tools(body)
    _check_format(body)


def _check_limits(body: Json, *, is_reasoning: bool) -> None:
    if body.get("stream_options") is not None and not body.get("stream"):
        raise refusals.only_when_streaming()
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise refusals.only_with("top_logprobs", "logprobs")
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise refusals.two_limits()
    if not is_reasoning:
        return
    if body.get("max_tokens") is not None:
        raise refusals.unsupported_limit()
    for field in REASONING_REFUSES:
        if body.get(field):
            raise refusals.unsupported(field)
    for field, default in REASONING_DEFAULTS.items():
        if body.get(field, default) not in (None, default):
            raise refusals.unsupported_value(field, body[field], default)


def _check_messages(messages: list[Json]) -> None:
    """Each call is answered by a tool message right behind it, and no tool message comes from nowhere."""
    asked: list[str] = []
    """The ids of the assistant's last calls, as long as only tool messages have followed."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if not asked:
                raise refusals.tool_without_call(index)
            if call_id not in waiting:
                raise refusals.tool_with_wrong_id(index, call_id)
            waiting.remove(call_id)
        else:
            if waiting:
                raise refusals.unanswered_calls(index, waiting)
            asked = [call["id"] for call in message.get("tool_calls") or ()]
            waiting = list(asked)
        if message.get("content") is None and not (message.get("tool_calls") or message.get("refusal")):
            raise refusals.null_content(index)
    if waiting:
        raise refusals.unanswered_calls(len(messages) - 1, waiting)


def _check_tools(body: Json) -> None:
    tools = body.get("tools")
    if tools is None:
        for field in ("tool_choice", "parallel_tool_calls"):
            if field in body and body[field] != "none":
                raise refusals.only_with(field, "tools")
        return
    for index, tool in enumerate(tools):
        function = tool["function"]
        try:
            if "parameters" in function:
                schemas.check_schema(function["parameters"], strict=bool(function.get("strict")))
        except schemas.SchemaError as exc:
            raise refusals.bad_function_schema(index, function["name"], str(exc)) from None
    wanted: object = body.get("tool_choice")
    if isinstance(wanted, dict):
        name = cast("Json", wanted)["function"]["name"]
        if all(tool["function"]["name"] != name for tool in tools):
            raise refusals.unknown_tool_choice(name)


def _check_format(body: Json) -> None:
    wanted = body.get("response_format", {"type": "text"})
    if wanted["type"] == "json_object" and b"json" not in orjson.dumps(body["messages"]).lower():
        raise refusals.no_json_word()
    if wanted["type"] == "json_schema" and "schema" in wanted["json_schema"]:
        details = wanted["json_schema"]
        try:
            schemas.check_schema(details["schema"], strict=bool(details.get("strict")))
        except schemas.SchemaError as exc:
            raise refusals.bad_format_schema(details["name"], str(exc)) from None
