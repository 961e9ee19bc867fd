"""The fields of every client event: their names, types and values, and nothing besides.

What a field's value means together with other fields, the model or the state of the session is checked where that is known.
"""

from collections.abc import Mapping

from providers.openai.simulation import rules
from providers.openai.simulation.checks import (
    Check,
    Json,
    Record,
    Tagged,
    anything,
    as_object,
    boolean,
    choice,
    either,
    integer,
    list_of,
    mapping,
    nullable,
    number,
    text,
)

APPEND = "input_audio_buffer.append"

LONGEST_ID = 32
"""Characters of an id that a client makes."""
NAME = r"[a-zA-Z0-9_-]{1,64}"
CALL_ID = r"[a-zA-Z0-9_-]+"
SAMPLE_RATE = 24000

VOICES = ("alloy", "ash", "ballad", "cedar", "coral", "echo", "marin", "sage", "shimmer", "verse")
TRANSCRIPTION_MODELS = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-live-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
    "gpt-4o-transcribe",
    "gpt-4o-transcribe-diarize",
    "gpt-realtime-whisper",
)
LOGPROBS = "item.input_audio_transcription.logprobs"
IMAGE_TYPES = ("data:image/png;base64,", "data:image/jpeg;base64,")


def _pcm_rate(value: object, path: str) -> None:
    integer(0)(value, path)
    if value != SAMPLE_RATE:
        raise rules.wrong_choice(path, value, (str(SAMPLE_RATE),))


def _modalities(value: object, path: str) -> None:
    list_of(choice("text", "audio"))(value, path)
    if value not in (["text"], ["audio"]):
        raise rules.wrong_value(
            path, f"Invalid modalities: {value}. Supported combinations are: ['text'] and ['audio']."
        )


def _image(value: object, path: str) -> None:
    text()(value, path)
    if not str(value).startswith(IMAGE_TYPES):
        raise rules.wrong_value(path, f"Invalid '{path}'. Expected a base64-encoded data URL of a PNG or JPEG image.")


# --- settings

FORMAT = Tagged(
    "type",
    {
        "audio/pcm": Record({"type": anything}, {"rate": _pcm_rate}),
        "audio/pcmu": Record({"type": anything}),
        "audio/pcma": Record({"type": anything}),
    },
)
VOICE = either(str, choice(*VOICES), Record({"id": text()}))
TURN_DETECTION = nullable(
    Tagged(
        "type",
        {
            "server_vad": Record(
                {"type": anything},
                {
                    "threshold": number(0.0, 1.0),
                    "prefix_padding_ms": integer(0),
                    "silence_duration_ms": integer(0),
                    "idle_timeout_ms": nullable(integer(5000, 30000)),
                    "create_response": boolean,
                    "interrupt_response": boolean,
                },
            ),
            "semantic_vad": Record(
                {"type": anything},
                {
                    "eagerness": choice("low", "medium", "high", "auto"),
                    "create_response": boolean,
                    "interrupt_response": boolean,
                },
            ),
        },
    )
)
AUDIO_INPUT = Record(
    optional={
        "format": FORMAT,
        "noise_reduction": nullable(
            Record(optional={"type": choice("near_field", "far_field"), "strength": number(0.0, 1.0)})
        ),
        "transcription": nullable(
            Record(
                optional={
                    "model": text(),
                    "language": nullable(text()),
                    "languages": list_of(text()),
                    "prompt": nullable(text()),
                    "keywords": list_of(text()),
                    "delay": choice("minimal", "low", "medium", "high", "xhigh"),
                }
            )
        ),
        "turn_detection": TURN_DETECTION,
    }
)

_FILTER = Record(optional={"read_only": boolean, "tool_names": list_of(text())})


def _mcp_tool(value: object, path: str) -> None:
    Record(
        {"type": anything, "server_label": text()},
        {
            "server_url": text(),
            "connector_id": text(),
            "tunnel_id": text(),
            "authorization": text(),
            "headers": mapping(100, text(), text()),
            "allowed_callers": list_of(choice("direct", "programmatic")),
            "allowed_tools": nullable(either(list, list_of(text()), _FILTER)),
            "defer_loading": boolean,
            "require_approval": nullable(
                either(str, choice("always", "never"), Record(optional={"always": _FILTER, "never": _FILTER}))
            ),
            "server_description": text(),
        },
    )(value, path)
    if not {"server_url", "connector_id", "tunnel_id"} & as_object(value, path).keys():
        raise rules.missing(f"{path}.server_url")


TOOLS = list_of(
    Tagged(
        "type",
        {
            "function": Record(
                {"type": anything, "name": text(pattern=NAME)},
                {"description": text(), "parameters": mapping(1000, text(), anything)},
            ),
            "mcp": _mcp_tool,
        },
    )
)
TOOL_CHOICE = either(
    str,
    choice("none", "auto", "required"),
    Tagged(
        "type",
        {
            "function": Record({"type": anything, "name": text()}),
            "mcp": Record({"type": anything, "server_label": text()}, {"name": text()}),
        },
    ),
)
GENERATION: Mapping[str, Check] = {
    "instructions": text(),
    "max_output_tokens": either(str, choice("inf"), integer(1, 4096)),
    "output_modalities": _modalities,
    "parallel_tool_calls": boolean,
    "prompt": nullable(Record({"id": text()}, {"version": text(), "variables": mapping(1000, text(), anything)})),
    "reasoning": Record(optional={"effort": choice("minimal", "low", "medium", "high", "xhigh")}),
    "tool_choice": TOOL_CHOICE,
    "tools": TOOLS,
}
"""What a session sets and a response may set otherwise."""

SESSION = Tagged(
    "type",
    {
        "realtime": Record(
            {"type": anything},
            {
                **GENERATION,
                "model": text(),
                "include": nullable(list_of(choice(LOGPROBS))),
                "tracing": nullable(
                    either(
                        str,
                        choice("auto"),
                        Record(optional={"workflow_name": text(), "group_id": text(), "metadata": anything}),
                    )
                ),
                "truncation": either(
                    str,
                    choice("auto", "disabled"),
                    Record(
                        {"type": choice("retention_ratio"), "retention_ratio": number(0.0, 1.0)},
                        {"token_limits": Record(optional={"post_instructions": integer(0)})},
                    ),
                ),
                "audio": Record(
                    optional={
                        "input": AUDIO_INPUT,
                        "output": Record(optional={"format": FORMAT, "speed": number(0.25, 1.5), "voice": VOICE}),
                    }
                ),
            },
        ),
        "transcription": Record(
            {"type": anything},
            {"audio": Record(optional={"input": AUDIO_INPUT}), "include": nullable(list_of(choice(LOGPROBS)))},
        ),
    },
)

# --- items

_COMMON: Mapping[str, Check] = {
    "id": text(longest=LONGEST_ID),
    "object": choice("realtime.item"),
    "status": choice("completed", "incomplete", "in_progress"),
}


def _message(part: Check) -> Record:
    return Record({"type": anything, "role": anything, "content": list_of(part)}, _COMMON)


_INPUT_TEXT = Record({"type": anything, "text": text()})


def _assistant_content(value: object, path: str) -> None:
    """Assistant audio cannot be created by a client: what the service then misses is the text."""
    part = as_object(value, path)
    if part.get("type") == "output_audio" and "text" not in part:
        raise rules.missing(f"{path}.text")
    Tagged("type", {"output_text": Record({"type": anything, "text": text()})})(value, path)


MESSAGE = Tagged(
    "role",
    {
        "user": _message(
            Tagged(
                "type",
                {
                    "input_text": _INPUT_TEXT,
                    "input_audio": Record({"type": anything, "audio": text()}, {"transcript": nullable(text())}),
                    "input_image": Record(
                        {"type": anything, "image_url": _image}, {"detail": choice("auto", "low", "high")}
                    ),
                },
            )
        ),
        "assistant": _message(_assistant_content),
        "system": _message(Tagged("type", {"input_text": _INPUT_TEXT})),
    },
)
_CALL_ID = text(longest=LONGEST_ID, pattern=CALL_ID)
ITEMS: Mapping[str, Check] = {
    "message": MESSAGE,
    "function_call": Record({"type": anything, "name": text(), "arguments": text()}, {**_COMMON, "call_id": _CALL_ID}),
    "function_call_output": Record({"type": anything, "call_id": _CALL_ID, "output": text()}, _COMMON),
    "mcp_approval_response": Record(
        {"type": anything, "id": text(longest=LONGEST_ID), "approval_request_id": text(), "approve": boolean},
        {"reason": nullable(text())},
    ),
    "mcp_approval_request": Record(
        {
            "type": anything,
            "id": text(longest=LONGEST_ID),
            "name": text(),
            "arguments": text(),
            "server_label": text(),
        }
    ),
    "mcp_list_tools": Record(
        {"type": anything, "server_label": text(), "tools": list_of(anything)}, {"id": text(longest=LONGEST_ID)}
    ),
    "mcp_call": Record(
        {"type": anything, "id": text(longest=LONGEST_ID), "name": text(), "arguments": text(), "server_label": text()},
        {"approval_request_id": nullable(text()), "error": anything, "output": nullable(text())},
    ),
}
ITEM = Tagged("type", ITEMS)
ITEM_OR_REFERENCE = Tagged("type", {**ITEMS, "item_reference": Record({"type": anything, "id": text()})})

# --- events

RESPONSE = Record(
    optional={
        **GENERATION,
        "audio": Record(optional={"output": Record(optional={"format": FORMAT, "voice": VOICE})}),
        "conversation": choice("auto", "none"),
        "input": list_of(ITEM_OR_REFERENCE),
        "metadata": nullable(mapping(16, text(longest=64), text(longest=512))),
    }
)


def _event(required: Mapping[str, Check] = {}, optional: Mapping[str, Check] = {}) -> Record:
    return Record({"type": anything, **required}, {"event_id": text(longest=512), **optional})


CLIENT_EVENTS: Mapping[str, Record] = {
    "session.update": _event({"session": SESSION}),
    APPEND: _event({"audio": text()}),
    "input_audio_buffer.commit": _event(),
    "input_audio_buffer.clear": _event(),
    "conversation.item.create": _event({"item": ITEM}, {"previous_item_id": nullable(text())}),
    "conversation.item.retrieve": _event({"item_id": text()}),
    "conversation.item.truncate": _event({"item_id": text(), "content_index": integer(0), "audio_end_ms": integer(0)}),
    "conversation.item.delete": _event({"item_id": text()}),
    "response.create": _event(optional={"response": RESPONSE}),
    "response.cancel": _event(optional={"response_id": text()}),
    "output_audio_buffer.clear": _event(),
}


def check_event(event: Json) -> str:
    """The type of a client event whose fields are right.

    Raises:
        Refused: they are not.
    """
    event_type = event.get("type")
    if event_type is None:
        raise rules.type_missing()
    if not isinstance(event_type, str) or event_type not in CLIENT_EVENTS:
        raise rules.wrong_choice("type", event_type, tuple(CLIENT_EVENTS), rules.Rule.FRAME)
    CLIENT_EVENTS[event_type](event, "")
    return event_type
