"""The official SDK as the referee: every frame, both ways, is held against its models, strictly.

Its models let unknown keys pass, so these are looked for besides: only those that real traffic is known to have may be there.
"""

from functools import cache
from typing import Annotated, Any, cast, get_args

import orjson
from openai.types.beta.realtime.realtime_client_event import RealtimeClientEvent as OlderClientEvent
from openai.types.beta.realtime.realtime_server_event import RealtimeServerEvent as OlderServerEvent
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from openai.types.realtime.response_create_event_with_references_param import ResponseCreateEventWithReferencesParam
from pydantic import BaseModel, Field, TypeAdapter

from providers.openai.simulation.checks import Json

SESSION_EXTRAS = {"session.object", "session.id", "session.expires_at"}
"""What a snapshot has beyond the settings that a client may set."""
OLDER_SESSION_EXTRAS = {"session.object", "session.expires_at"}
"""X, beyond the SDK's types: real traffic of the older dialect is not recorded here."""
TEXT_LIKE = (
    "response.output_text.delta",
    "response.output_audio_transcript.delta",
    "response.function_call_arguments.delta",
    "conversation.item.input_audio_transcription.delta",
)


_UNIONS: dict[str, Any] = {
    "server": RealtimeServerEvent,
    "client": RealtimeClientEvent,
    "older server": OlderServerEvent,
    "older client": OlderClientEvent,
}


@cache
def _adapter(of: str) -> TypeAdapter[Any]:
    """The members of one of the SDK's unions, told apart by their `type`."""
    union: Any = get_args(_UNIONS[of])[0]
    return TypeAdapter(cast("Any", Annotated)[union, Field(discriminator="type")])


@cache
def _references() -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", ResponseCreateEventWithReferencesParam))


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


def hold_server_frame(frame: str, *, azure: bool = False, preview: bool = False) -> None:
    """Raises when the service could not have sent this."""
    if preview:
        _hold_older_server_frame(frame)
        return
    event = _adapter("server").validate_json(frame, strict=True)
    allowed: set[str] = set()
    if event.type in ("session.created", "session.updated"):
        allowed |= SESSION_EXTRAS
    if event.type in TEXT_LIKE:
        allowed.add("obfuscation")
    if azure and event.type.startswith("response.content_part."):
        allowed.add("content")
    unknown = extras(event) - allowed
    assert not unknown, f"{event.type} has {sorted(unknown)}"


def _hold_older_server_frame(frame: str) -> None:
    document = orjson.loads(frame)
    if "session" in document:
        document["session"]["model"] = "gpt-4o-realtime-preview"  # the SDK knows no names of deployments
    event = _adapter("older server").validate_json(orjson.dumps(document), strict=True)
    unknown = extras(event) - (OLDER_SESSION_EXTRAS if event.type in ("session.created", "session.updated") else set())
    assert not unknown, f"{event.type} has {sorted(unknown)}"


def hold_client_event(event: Json, *, preview: bool = False) -> None:
    """Raises when the SDK could not have sent this."""
    if preview:
        unknown = extras(_adapter("older client").validate_python(event, strict=True))
        assert not unknown, f"{event['type']} has {sorted(unknown)}"
        return
    if any(item.get("type") == "item_reference" for item in event.get("response", {}).get("input", ())):
        _references().validate_python(event, strict=True)
        return
    unknown = extras(_adapter("client").validate_python(event, strict=True))
    assert not unknown, f"{event['type']} has {sorted(unknown)}"
