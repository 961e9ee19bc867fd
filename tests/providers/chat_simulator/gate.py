"""The official SDK as the referee: every request that was served, and every frame of its answer, is held against its types, strictly.

Its models let unknown keys pass, so these are looked for besides; its request types drop them, so a request has to come through whole.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import orjson
from openai.types import CompletionUsage, ErrorObject
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import BaseModel, TypeAdapter

from providers.chat.simulation.checks import Json
from providers.chat.simulator import Request

_STREAMING: TypeAdapter[Any] = TypeAdapter(cast("Any", CompletionCreateParamsStreaming))
_WHOLE: TypeAdapter[Any] = TypeAdapter(cast("Any", CompletionCreateParamsNonStreaming))


def extras(value: object, path: str = "") -> set[str]:
    """The paths of all keys that the models do not know."""
    found: set[str] = set()
    if isinstance(value, BaseModel):
        found |= {f"{path}{key}" for key in value.model_extra or {}}
        for key in type(value).model_fields:
            found |= extras(getattr(value, key), f"{path}{key}.")
    elif isinstance(value, list):
        for element in cast("list[object]", value):
            found |= extras(element, path)
    return found


def _whole(value: object) -> object:
    """What a validated value has, with everything in it that is only validated when it is read."""
    if isinstance(value, Mapping):
        return {key: _whole(element) for key, element in cast("Mapping[str, object]", value).items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_whole(element) for element in cast("Iterable[object]", value)]
    return value


def hold_request(body: Json) -> None:
    """Raises when the SDK's types would not have it."""
    adapter = _STREAMING if body.get("stream") else _WHOLE
    assert _whole(adapter.validate_python(body)) == body


def _hold_model(model: type[BaseModel], value: object) -> None:
    unknown = extras(model.model_validate_json(orjson.dumps(value), strict=True))
    assert not unknown, f"{model.__name__} has {sorted(unknown)}"


def hold_stream(events: list[Json], body: Json, *, is_complete: bool) -> None:
    """The chunks of one answer, and their order."""
    finished: set[int] = set()
    begun: set[int] = set()
    usage: object = None
    options: Json = body.get("stream_options") or {}
    wants_usage = options.get("include_usage", False)
    for event in events:
        _hold_model(ChatCompletionChunk, event)
        assert usage is None, "the usage comes last"
        assert ("usage" in event) == wants_usage
        assert (event["id"], event["created"]) == (events[0]["id"], events[0]["created"])
        usage = event.get("usage")
        assert (usage is not None) == (not event["choices"])
        for choice in event["choices"]:
            index = choice["index"]
            assert index not in finished
            assert ("role" in choice["delta"]) == (index not in begun)
            begun.add(index)
            if choice["finish_reason"]:
                assert choice["delta"] == {}
                finished.add(index)
    if is_complete:
        assert finished == set(range(body.get("n") or 1))
        assert (usage is not None) == wants_usage
    if usage is not None:
        _hold_model(CompletionUsage, usage)


def hold(request: Request, *, is_odd: bool = False) -> None:
    """Hold a request and its answer. Odd ones were made to break the order of chunks."""
    if request.status >= 400:
        if request.sent and request.sent[0].startswith(b"{"):
            _hold_model(ErrorObject, orjson.loads(request.sent[0])["error"])
        return
    if request.path != "/v1/chat/completions" or not request.body or request.broken is not None:
        return  # what was refused by chance has not even been read
    hold_request(request.body)
    if not request.sent or is_odd:
        return
    if request.body.get("stream"):
        hold_stream(request.events, request.body, is_complete=request.outcome == "answered")
    else:
        _hold_model(ChatCompletion, orjson.loads(request.sent[0]))
