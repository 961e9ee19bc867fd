"""Chat with any endpoint that speaks OpenAI's chat completions.

What endpoints differ in, and what is done about it:

- `stream_options` (token usage), `temperature` and `response_format` are refused by some. A refusal that names the field is
  answered by asking again without it, which is then remembered. `includeUsage: false` never asks for usage.
- The output limit is `max_completion_tokens` at OpenAI, whose newer models refuse the old name, and `max_tokens` elsewhere.
- Streamed tool calls are told apart by their index; endpoints that send whole calls all with the same index, or none, are told
  apart by the ids of the calls. A call without an id gets one that is unique in the conversation.
- The events are read as plain JSON objects, not as the SDK's classes: it fills those without validating them, so that they
  promise nothing, at 100 µs for each token (measured; more than everything else about a token together).
- An answer that ends without a finish reason was broken off, however cleanly the connection was closed; one with a finish
  reason is whole, whatever happens to the connection afterwards.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ClassVar, cast

import attrs
import pybase64
import trio
from openai import AsyncStream
from openai.types.chat import (
    ChatCompletionContentPartParam,
    ChatCompletionMessageParam,
    ChatCompletionToolUnionParam,
)
from pydantic import Field

from engine.elements import JsonObject
from engine.errors import ErrorCode
from engine.interfaces import (
    ChatDelta,
    ChatFinished,
    ChatMessage,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ChatUsage,
    ToolCall,
    ToolSpecification,
)
from providers.compatible import (
    SDK_FAILURES,
    BrokenAnswer,
    Endpoint,
    PartErrors,
    Patience,
    Silence,
    api_key,
    have_connections,
    load_connections,
    open_pump,
    pump_stream,
    read_configuration,
    refuses,
    request_headers,
    run_tries,
    sdk_client,
)

DELTAS = 16
"""Deltas held for the reader: the tokens of one network packet, which arrive together, without a task switch for each."""
TAIL_SECONDS = 1.0
"""What is waited for the token usage and the end of the stream once the answer is whole."""
OPTIONAL = ("stream_options", "temperature", "response_format")
"""What is left out when the endpoint refuses it."""
CUT = frozenset({"length", "content_filter"})
"""Finish reasons of an answer that is not complete."""


class ChatConfiguration(Endpoint):
    """The `chat` part of a project file."""

    model: str = Field(min_length=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sent only when set here or in the request. This one wins, as a session asks for the same of every model."""
    max_tokens: int | None = Field(default=None, ge=1)
    include_usage: bool = True


def make_chat_model(configuration: Mapping[str, Any]) -> "OpenAIChatModel":
    """The part from its configuration.

    Raises:
        ConfigurationError: a field or the key is missing or wrong; the message says what to set.
    """
    settings = read_configuration(ChatConfiguration, configuration, "chat")
    return OpenAIChatModel(settings, api_key(settings, "chat"))


@attrs.define(eq=False)
class OpenAIChatModel(ChatModel):
    name: ClassVar[str] = "OpenAI"
    _settings: ChatConfiguration
    _key: str | None = attrs.field(repr=False)
    _refused: set[str] = attrs.field(factory=set[str], init=False)
    model: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.model = self._settings.model

    @property
    def is_ready(self) -> bool:
        return have_connections()

    async def load(self) -> None:
        await load_connections()

    def open_stream(self, request: ChatRequest) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[ChatDelta]]:
        """Stream one completion. A failure ends the channel and is raised on leaving the context."""
        return open_pump(partial(self._stream, request), DELTAS, f"chat with {self.model}")

    async def _stream(self, request: ChatRequest, deltas: trio.MemorySendChannel[ChatDelta]) -> None:
        errors = PartErrors("chat", "chat", ErrorCode.CHAT_FAILED, self.model)
        client = sdk_client(self._settings.base_url, self._key)

        async def once(patience: Patience) -> None:
            assembly = Assembly(known_calls=sum(len(message.tool_calls) for message in request.messages))

            async def give(event: object) -> None:
                texts = assembly.feed(event)
                patience.started = assembly.begun
                if assembly.is_finished:
                    patience.seconds = TAIL_SECONDS
                for text in texts:
                    await deltas.send(ChatText(text))

            with patience.waiting():
                stream = await client.post(
                    "/chat/completions",
                    body=self._parameters(request),
                    options={"headers": request_headers(self._key)},
                    cast_to=object,
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
            try:
                async with stream:
                    await pump_stream(stream, patience, give)
            except (Silence, *SDK_FAILURES):
                if not assembly.is_finished:
                    raise
            for delta in assembly.finish():
                await deltas.send(delta)

        await run_tries(once, errors, self._settings.timeout_seconds, adapt=self._adapt)

    def _parameters(self, request: ChatRequest) -> dict[str, Any]:
        settings = self._settings
        temperature = request.temperature if settings.temperature is None else settings.temperature
        limit = "max_completion_tokens" if settings.is_openai else "max_tokens"
        parameters: dict[str, Any] = {
            "model": self.model,
            "messages": list(write_messages(request.messages)),
            "tools": [write_tool(tool) for tool in request.tools] or None,
            "temperature": temperature,
            limit: settings.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True} if settings.include_usage else None,
            "response_format": None if request.output_schema is None else write_output_schema(request.output_schema),
        }
        return {name: value for name, value in parameters.items() if value is not None and name not in self._refused}

    def _adapt(self, exc: Exception) -> bool:
        for name in OPTIONAL:
            if name not in self._refused and refuses(exc, name):
                self._refused.add(name)
                return True
        return False


# --- the conversation as the endpoint wants it -----------------------------------------------------------------------


def write_output_schema(schema: JsonObject) -> JsonObject:
    """What an answer has to fit. Not the endpoint's strict mode, which knows only some schemas: whoever asks reads with care."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def write_messages(messages: Iterable[ChatMessage]) -> Iterable[ChatCompletionMessageParam]:
    """The messages of a request in the endpoint's words."""
    for message in messages:
        match message.role:
            case "system":
                yield {"role": "system", "content": message.text}
            case "tool":
                yield {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
            case "assistant" if message.tool_calls:
                yield {
                    "role": "assistant",
                    "content": message.text or None,
                    "tool_calls": [_write_call(call) for call in message.tool_calls],
                }
            case "assistant":
                yield {"role": "assistant", "content": message.text}
            case _:
                yield {"role": "user", "content": _write_content(message)}


def _write_content(message: ChatMessage) -> str | list[ChatCompletionContentPartParam]:
    if not message.images:
        return message.text
    parts: list[ChatCompletionContentPartParam] = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{image.media_type};base64,{pybase64.b64encode(image.data).decode()}"},
        }
        for image in message.images
    ]
    if message.text:
        parts.insert(0, {"type": "text", "text": message.text})
    return parts


def _write_call(call: ToolCall) -> Any:
    """A past call. Some endpoints parse the arguments of past calls and fail on the whole request when they cannot."""
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments if _is_object(call.arguments) else "{}"},
    }


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def write_tool(tool: ToolSpecification) -> ChatCompletionToolUnionParam:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


# --- the answer as it comes ------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Call:
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@attrs.define(eq=False)
class Assembly:
    """Puts the events of one answer together. Sans-I/O; any JSON value is taken, and what is not understood is passed over."""

    known_calls: int = 0
    """Tool calls already in the conversation, so that a made-up id is new."""
    _calls: dict[int, _Call] = attrs.field(factory=dict[int, _Call], init=False)
    _usage: ChatUsage | None = attrs.field(default=None, init=False)
    _finish_reason: str = attrs.field(default="", init=False)
    begun: bool = attrs.field(default=False, init=False)
    """Whether there was any output, if only a piece of a tool call."""

    @property
    def is_finished(self) -> bool:
        return bool(self._finish_reason)

    def feed(self, event: object) -> list[str]:
        """The texts in an event; everything else is kept for `finish`."""
        if (usage := _read_usage(_get(event, "usage"))) is not None:
            self._usage = usage  # the last one wins: some endpoints send a running total with every chunk
        texts: list[str] = []
        for choice in _list(_get(event, "choices")):
            delta = _get(choice, "delta")
            texts += [text for name in ("content", "refusal") if (text := _string(_get(delta, name)))]
            fragments = _list(_get(delta, "tool_calls"))
            for fragment in fragments:
                self._add(fragment)
            self.begun = self.begun or bool(texts or fragments)
            self._finish_reason = _string(_get(choice, "finish_reason")) or self._finish_reason
        return texts

    def finish(self) -> list[ChatDelta]:
        """What follows the last text: the tool calls in the order of their index, the usage, the end.

        The calls of an answer that was cut are left out: the last one is likely broken, and half of a plan is not a plan.

        Raises:
            BrokenAnswer: the stream ended before the answer did.
        """
        if not self.is_finished:
            raise BrokenAnswer
        complete = self._finish_reason not in CUT
        deltas: list[ChatDelta] = []
        if complete:
            for position, (_, call) in enumerate(sorted(self._calls.items())):
                call_id = call.call_id or f"call-{self.known_calls + position}"
                deltas.append(ChatToolCall(call_id, call.name, call.arguments or "{}"))
        if self._usage is not None:
            deltas.append(self._usage)
        deltas.append(ChatFinished(complete))
        return deltas

    def _add(self, fragment: object) -> None:
        call_id = _string(_get(fragment, "id"))
        index = _get(fragment, "index")
        call = self._call(index if isinstance(index, int) else None, call_id)
        call.call_id = call_id or call.call_id
        function = _get(fragment, "function")
        call.name = call.name or _string(_get(function, "name"))
        call.arguments += _string(_get(function, "arguments"))

    def _call(self, index: int | None, call_id: str) -> _Call:
        """The call a fragment belongs to."""
        known = next((call for call in self._calls.values() if call_id and call.call_id == call_id), None)
        if known is not None:
            return known
        last = max(self._calls, default=-1)
        if index is None:
            index = last + 1 if call_id or last < 0 else last
        elif index in self._calls and call_id and self._calls[index].call_id:
            index = last + 1  # another call under an index that is taken
        return self._calls.setdefault(index, _Call())


def _get(value: object, name: str) -> object:
    return cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < 1e12 else 0


def _read_usage(value: object) -> ChatUsage | None:
    if value is None:
        return None
    cached = _count(_get(_get(value, "prompt_tokens_details"), "cached_tokens"))
    prompt = _count(_get(value, "prompt_tokens"))
    return ChatUsage(prompt, _count(_get(value, "completion_tokens")), min(cached, prompt))
