"""The description of the WebSocket doors as AsyncAPI 3.0, made from the models of their messages.

Clients send (`receive`) and are sent (`send`): AsyncAPI speaks from the server's point of view. The HTTP routes are described by
`engine.transport.openapi`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

import orjson
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from engine.config import PipelineConfiguration
from engine.elements import JsonObject
from engine.protocol.parameters import LOCALES, PARAMETERS, REFERENCE_CHARACTERS
from engine.transport.commands import COMMANDS, literal_of
from engine.transport.messages import INPUTS, OUTPUTS
from engine.transport.wire_model import Message, examples_of

VERSION = "1"
"""Of the client wire; `ready` tells it as `protocol`."""

PING_SECONDS = 20

_REFERENCE = {"type": "string", "minLength": 1, "maxLength": REFERENCE_CHARACTERS}
_RATE = {"type": "integer", "minimum": 8000, "maximum": 48000}
_ENCODING = {"type": "string", "enum": ["pcm16", "mulaw"]}
_FLAG = {"type": "boolean"}

WISHES: Mapping[str, tuple[JsonObject, str]] = {
    "sessionId": (
        {"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,128}$"},
        "A known one of the same owner resumes that session, from any state; an unknown one begins it under this id. "
        "Without one the session gets a new id.",
    ),
    "deviceRef": (
        _REFERENCE,
        "Who an anonymous client is: a secret of its own. With neither this nor a speakerRef one is made and told in `ready`.",
    ),
    "speakerRef": (_REFERENCE, "Who an anonymous client without a deviceRef is."),
    "locales": (
        {"type": "string", "examples": ["cs-CZ,en"]},
        f"Language tags with commas between, best first, at most {LOCALES}.",
    ),
    "timeZone": (_REFERENCE | {"examples": ["Europe/Prague"]}, "An IANA time zone."),
    "inputEncoding": (_ENCODING, "Of the audio that is sent here: pcm16 is little-endian, mono."),
    "outputEncoding": (_ENCODING, "Of the speech that is sent back."),
    "inputSampleRate": (_RATE, "Hz."),
    "outputSampleRate": (_RATE, "Hz."),
    "wire": (
        {"type": "string", "enum": ["json", "binary"]},
        "How speech is sent back: as base64 in JSON, or as binary frames.",
    ),
    "textOnly": (_FLAG, "No speech is sent back."),
    "tokens": (_FLAG, "The pieces of the answer's text are sent back as they are made."),
    "partials": (_FLAG, "The words so far of what the user says are sent back."),
    "testMode": (_FLAG, "Marks the session as a test."),
    "noSystemPrompt": (_FLAG, "Acts on agents of type Test only."),
    "realtimeConfigurationId": (_REFERENCE, "For the setups `realtime` and `realtime-preview`; ignored for `agent`."),
}
"""The schema and the meaning of every query parameter, by its name in `engine.protocol.parameters`."""

DESCRIPTION = """The client wire of a voice-agent server. A client sends what its user says, shows and does, and is sent what the \
agent says, does and thinks.

A session begins with `ready` and ends with `session-end`; each of its turns ends with `exit`, which says that the turn is saved. \
Bad input is answered with an `error` in its place, and the session goes on."""

CLOSING = f"""A browser cannot read why its handshake was refused, so only credentials (401, 403), a full server (503) and sizes are \
refused there; everything else is accepted, told in an `error`, and closed.

Close codes: 1000 after `#end` and after an end by the agent; 1001 the server stops; 1002 or 1007 what was sent is no WebSocket \
frame or no UTF-8; 1008 policy (credentials, takeover, a slow client); 1009 a frame is too big; 1011 our fault; 1013 too busy.

A client that closes without `#exit` or `#end` was cut off: its session is kept as DISCONNECTED and may be resumed. Pings come every \
{PING_SECONDS} s; a client that is silent for {PING_SECONDS} s more is gone."""

KEYED = f"""One conversation with the agent that the key names; it begins at once. `#exit` ends the session and keeps the connection, \
on which `#ready` begins another.

{CLOSING}"""

KEYLESS = f"""Conversations one after another, each begun by a `#ready` token with its key. Between them everything else is dropped \
with the error `no_session`.

{CLOSING}"""


class _Schemas(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a field is called what it is called


def wishes() -> list[tuple[str, JsonObject]]:
    """Name and schema of every query parameter, with its meaning and its default."""
    defaults = PipelineConfiguration()
    described: list[tuple[str, JsonObject]] = []
    for parameter in PARAMETERS:
        schema, meaning = WISHES[parameter.name]
        default: object = getattr(defaults, parameter.field)
        if isinstance(default, tuple):
            default = ",".join(cast("tuple[str, ...]", default))
        shown: JsonObject = {**schema, "description": meaning}
        if default != "":
            shown["default"] = default
        described.append((parameter.name, shown))
    return described


def _headers() -> JsonObject:
    described = dict(wishes())
    properties: JsonObject = {
        parameter.header: described[parameter.name]
        | {"description": f"The same as `{parameter.name}` in the query, which wins."}
        for parameter in PARAMETERS
    }
    properties["Sec-WebSocket-Protocol"] = {
        "type": "string",
        "description": "Browsers, which cannot set headers, send their token as the subprotocol `souffleur.auth.<token>`.",
    }
    return {"type": "object", "properties": properties}


def _name(model: type[Message]) -> str:
    """What a message is called on the wire."""
    if model in COMMANDS:
        return literal_of(model, "name")
    return literal_of(model, "type")


def _message(model: type[Message]) -> JsonObject:
    summary, _, rest = (model.__doc__ or "").strip().partition("\n")
    return {
        "name": _name(model),
        "title": model.__name__,
        "summary": summary,
        "description": " ".join(rest.split()) or summary,
        "contentType": "application/json",
        "payload": {"$ref": f"#/components/schemas/{model.__name__}"},
        "examples": [{"payload": example} for example in examples_of(model)],
    }


def _frame(title: str, summary: str) -> JsonObject:
    return {
        "name": "binary frame",
        "title": title,
        "summary": summary,
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "format": "binary"},
    }


_FRAMES = {
    "InputFrame": _frame("InputFrame", "Audio in the connection's input encoding, of any length."),
    "SpeechFrame": _frame(
        "SpeechFrame", "Speech between `speech-start` and `speech-end`: whole samples, at most 100 ms (`wire=binary`)."
    ),
}


def describe() -> JsonObject:
    """The document."""
    sent = [*(model.__name__ for model in INPUTS), "InputFrame"]
    told = [*(model.__name__ for model in OUTPUTS), "SpeechFrame"]
    _, schemas = models_json_schema(
        [(model, "validation") for model in (*INPUTS, *OUTPUTS)],
        ref_template="#/components/schemas/{model}",
        schema_generator=_Schemas,
    )
    channels = {
        "session": _channel("/api/pipeline/{key}", "One agent", KEYED, [*sent, *told], _KEY),
        "sessions": _channel("/api/pipeline", "Any agent", KEYLESS, [*sent, *told], {}),
    }
    operations: JsonObject = {}
    for channel in channels:
        operations[f"{channel}.receive"] = _operation(channel, "receive", "What a client sends", sent)
        operations[f"{channel}.send"] = _operation(channel, "send", "What a client is sent", told)
    return {
        "asyncapi": "3.0.0",
        "id": "urn:souffleur:client-wire",
        "info": {"title": "Souffleur", "version": VERSION, "description": DESCRIPTION},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {model.__name__: _message(model) for model in (*INPUTS, *OUTPUTS)} | _FRAMES,
            "schemas": schemas["$defs"],
            "securitySchemes": _SECURITY,
        },
    }


_KEY = {
    "key": {
        "description": "`setup:reference`; the reference is an agent's ref, and empty for the realtime setups.",
        "examples": ["agent:barista", "realtime:"],
    }
}

_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Authorization: Bearer …"},
    "basic": {"type": "http", "scheme": "basic", "description": "Authorization: Basic …"},
    "apiKey": {"type": "httpApiKey", "in": "header", "name": "X-API-Key", "description": "A key of this server."},
    "subprotocol": {
        "type": "httpApiKey",
        "in": "header",
        "name": "Sec-WebSocket-Protocol",
        "description": "`souffleur.auth.<token>`, for browsers. Without credentials a client is anonymous.",
    },
}


def _channel(address: str, title: str, description: str, messages: Iterable[str], parameters: JsonObject) -> JsonObject:
    return {
        "address": address,
        "title": title,
        "description": description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {
            "ws": {
                "bindingVersion": "0.1.0",
                "method": "GET",
                "query": {"type": "object", "properties": dict(wishes())},
                "headers": _headers(),
            }
        },
        **({"parameters": parameters} if parameters else {}),
    }


def _operation(channel: str, action: str, title: str, messages: Iterable[str]) -> JsonObject:
    return {
        "action": action,
        "title": title,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
        "security": [{"$ref": f"#/components/securitySchemes/{name}"} for name in _SECURITY],
    }


@cache
def document() -> bytes:
    """The document as JSON; it is the same for every process of a version."""
    return orjson.dumps(describe())
