"""What the service refuses, with the code and the `param` it names, and that it refuses nothing else."""

import base64

import orjson
import pytest
from openai.types import realtime
from openai.types.realtime.realtime_audio_config_input import RealtimeAudioConfigInput
from openai.types.realtime.realtime_session_create_request import RealtimeSessionCreateRequest
from pydantic import BaseModel

from providers.openai.simulation.checks import Json, Record
from providers.openai.simulation.rules import Refused
from providers.openai.simulation.shapes import AUDIO_INPUT, CLIENT_EVENTS, ITEMS, RESPONSE, SESSION, check_event
from providers.openai.simulator import Rule
from tests.providers.openai.simulator.service import Service, error_of, user

PNG = f"data:image/png;base64,{base64.b64encode(b'png').decode()}"


def update(**session: object) -> Json:
    return {"type": "session.update", "session": {"type": "realtime", **session}}


def create(item: object, **more: object) -> Json:
    return {"type": "conversation.item.create", "item": item, **more}


def respond(**response: object) -> Json:
    return {"type": "response.create", "response": response}


def detection(**settings: object) -> Json:
    return update(audio={"input": {"turn_detection": settings}})


RIGHT: list[Json] = [
    update(),
    update(instructions="", tools=[], max_output_tokens="inf", tool_choice="none"),
    update(tools=[{"type": "function", "name": "a-tool_1", "parameters": {"type": "object"}}]),
    update(tools=[{"type": "mcp", "server_label": "shop", "server_url": "https://shop", "require_approval": "never"}]),
    update(tool_choice={"type": "function", "name": "x"}, max_output_tokens=4096, tracing="auto"),
    update(truncation={"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": {"post_instructions": 9}}),
    update(audio={"input": {"format": {"type": "audio/pcmu"}}, "output": {"voice": {"id": "voice_1"}, "speed": 1}}),
    update(audio={"input": {"noise_reduction": {"type": "near_field"}, "transcription": None}}),
    update(include=["item.input_audio_transcription.logprobs"], prompt=None),
    detection(type="server_vad", threshold=0, idle_timeout_ms=None, create_response=False),
    detection(type="semantic_vad", eagerness="low", interrupt_response=False),
    {"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "e"},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "output_audio_buffer.clear"},
    {"type": "response.cancel", "response_id": "r"},
    {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 0},
    create(user("hi", id="u1", status="completed", object="realtime.item"), previous_item_id="root"),
    create({"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PNG}]}),
    create({"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAA"}]}),
    create({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}),
    create({"type": "message", "role": "system", "content": [{"type": "input_text", "text": "hi"}]}),
    create({"type": "function_call", "name": "x", "arguments": "{}", "call_id": "c1"}),
    create({"type": "function_call_output", "call_id": "c1", "output": ""}),
    create({"type": "mcp_approval_response", "id": "m1", "approval_request_id": "m0", "approve": True}),
    {"type": "response.create"},
    respond(conversation="none", metadata={"topic": "x"}, input=[], output_modalities=["text"]),
    respond(input=[user("hi"), {"type": "item_reference", "id": "i"}], audio={"output": {"voice": "marin"}}),
]


@pytest.mark.parametrize("event", RIGHT, ids=str)
def test_what_is_right_passes(event: Json) -> None:
    assert check_event(event) == event["type"]


WRONG: list[tuple[Json, str | None, str | None]] = [
    ({}, "invalid_event", None),
    ({"type": "session.create"}, "invalid_value", "type"),
    ({"type": 7}, "invalid_value", "type"),
    ({"type": "session.update"}, "missing_required_parameter", "session"),
    ({"type": "session.update", "session": {}}, "missing_required_parameter", "session.type"),
    ({"type": "session.update", "session": []}, "invalid_type", "session"),
    (update(voice="alloy"), "unknown_parameter", "session.voice"),
    (update(modalities=["text"]), "unknown_parameter", "session.modalities"),
    (update(output_modalities=["text", "audio"]), "invalid_value", "session.output_modalities"),
    (update(output_modalities="text"), "invalid_type", "session.output_modalities"),
    (update(instructions=None), "invalid_type", "session.instructions"),
    (update(max_output_tokens=4097), "invalid_value", "session.max_output_tokens"),
    (update(max_output_tokens=0), "invalid_value", "session.max_output_tokens"),
    (update(max_output_tokens=1.5), "invalid_type", "session.max_output_tokens"),
    (update(max_output_tokens="none"), "invalid_value", "session.max_output_tokens"),
    (update(tools=[{"type": "function"}]), "missing_required_parameter", "session.tools[0].name"),
    (update(tools=[{"type": "function", "name": "two words"}]), "invalid_value", "session.tools[0].name"),
    (
        update(tools=[{"type": "function", "function": {"name": "x"}}]),
        "missing_required_parameter",
        "session.tools[0].name",
    ),
    (
        update(tools=[{"type": "function", "name": "x", "meta": 1}]),
        "unknown_parameter",
        "session.tools[0].meta",
    ),
    (
        update(tools=[{"type": "mcp", "server_label": "x"}]),
        "missing_required_parameter",
        "session.tools[0].server_url",
    ),
    (update(tool_choice="always"), "invalid_value", "session.tool_choice"),
    (update(tool_choice={"name": "x"}), "missing_required_parameter", "session.tool_choice.type"),
    (update(audio={"input": {"format": "pcm16"}}), "invalid_type", "session.audio.input.format"),
    (
        update(audio={"input": {"format": {"type": "audio/pcm", "rate": 16000}}}),
        "invalid_value",
        "session.audio.input.format.rate",
    ),
    (update(audio={"output": {"voice": "fable"}}), "invalid_value", "session.audio.output.voice"),
    (update(audio={"output": {"speed": 2}}), "invalid_value", "session.audio.output.speed"),
    (update(audio={"output": {"speed": True}}), "invalid_type", "session.audio.output.speed"),
    (detection(threshold=0.5), "missing_required_parameter", "session.audio.input.turn_detection.type"),
    (detection(type="none"), "invalid_value", "session.audio.input.turn_detection.type"),
    (
        detection(type="semantic_vad", silence_duration_ms=9),
        "unknown_parameter",
        "session.audio.input.turn_detection.silence_duration_ms",
    ),
    (
        detection(type="server_vad", idle_timeout_ms=10),
        "invalid_value",
        "session.audio.input.turn_detection.idle_timeout_ms",
    ),
    (
        detection(type="server_vad", create_response="yes"),
        "invalid_type",
        "session.audio.input.turn_detection.create_response",
    ),
    ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
    ({"type": "input_audio_buffer.append", "audio": None}, "invalid_type", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "", "rate": 8000}, "unknown_parameter", "rate"),
    (create(None), "invalid_type", "item"),
    (create({"type": "message"}), "missing_required_parameter", "item.role"),
    (create({"type": "message", "role": "developer", "content": []}), "invalid_value", "item.role"),
    (create({"type": "message", "role": "user"}), "missing_required_parameter", "item.content"),
    (
        create({"type": "message", "role": "user", "content": [{"type": "text", "text": "x"}]}),
        "invalid_value",
        "item.content[0].type",
    ),
    (
        create({"type": "message", "role": "user", "content": [{"type": "input_text"}]}),
        "missing_required_parameter",
        "item.content[0].text",
    ),
    (
        create({"type": "message", "role": "assistant", "content": [{"type": "output_audio", "transcript": "x"}]}),
        "missing_required_parameter",
        "item.content[0].text",
    ),
    (
        create({"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://x/y"}]}),
        "invalid_value",
        "item.content[0].image_url",
    ),
    (create(user("x", id="i" * 33)), "string_above_max_length", "item.id"),
    (create({"type": "function_call_output", "output": "x"}), "missing_required_parameter", "item.call_id"),
    (create({"type": "function_call_output", "call_id": "a/b", "output": "x"}), "invalid_value", "item.call_id"),
    (create({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}), "invalid_type", "item.output"),
    (create({"type": "item_reference", "id": "x"}), "invalid_value", "item.type"),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0},
        "missing_required_parameter",
        "audio_end_ms",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 1.5},
        "invalid_type",
        "audio_end_ms",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": -1},
        "invalid_value",
        "audio_end_ms",
    ),
    (respond(modalities=["text"]), "unknown_parameter", "response.modalities"),
    (respond(conversation="new"), "invalid_value", "response.conversation"),
    (respond(metadata={str(n): "" for n in range(17)}), "invalid_value", "response.metadata"),
    (respond(metadata={"a": 1}), "invalid_type", "response.metadata.a"),
    (respond(metadata={"a": "x" * 513}), "string_above_max_length", "response.metadata.a"),
    (respond(input=[{"type": "message"}]), "missing_required_parameter", "response.input[0].role"),
]


@pytest.mark.parametrize(("event", "code", "param"), WRONG, ids=str)
def test_what_is_wrong_is_named(event: Json, code: str, param: str) -> None:
    with pytest.raises(Refused) as caught:
        check_event(event)
    assert (caught.value.code, caught.value.param) == (code, param)
    service = Service()
    error = error_of(service.send_raw(orjson.dumps({**event, "event_id": "mine"}).decode()))
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
    assert error["event_id"] == "mine"
    (broken,) = service.core.broken
    assert broken.rule in (Rule.SHAPE, Rule.FRAME)
    assert broken.refused


@pytest.mark.parametrize("frame", ["", "{", "[]", "null", '"x"', b"\x00\x01"])
def test_a_frame_is_one_object(frame: str | bytes) -> None:
    service = Service()
    assert error_of(service.send_raw(frame))["code"] == "invalid_event"
    assert service.rules == [Rule.FRAME]
    assert service.say("still there")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("session.update", realtime.SessionUpdateEvent),
        ("input_audio_buffer.append", realtime.InputAudioBufferAppendEvent),
        ("input_audio_buffer.commit", realtime.InputAudioBufferCommitEvent),
        ("input_audio_buffer.clear", realtime.InputAudioBufferClearEvent),
        ("conversation.item.create", realtime.ConversationItemCreateEvent),
        ("conversation.item.retrieve", realtime.ConversationItemRetrieveEvent),
        ("conversation.item.truncate", realtime.ConversationItemTruncateEvent),
        ("conversation.item.delete", realtime.ConversationItemDeleteEvent),
        ("response.create", realtime.ResponseCreateEvent),
        ("response.cancel", realtime.ResponseCancelEvent),
        ("output_audio_buffer.clear", realtime.OutputAudioBufferClearEvent),
    ],
)
def test_events_have_the_fields_of_the_sdk(name: str, model: type[BaseModel]) -> None:
    assert set(CLIENT_EVENTS[name].known) == set(model.model_fields)


def test_settings_have_the_fields_of_the_sdk() -> None:
    session = SESSION.variants["realtime"]
    assert isinstance(session, Record)
    assert set(session.known) == set(RealtimeSessionCreateRequest.model_fields)
    assert set(AUDIO_INPUT.known) == set(RealtimeAudioConfigInput.model_fields)
    assert set(RESPONSE.known) == set(realtime.RealtimeResponseCreateParams.model_fields)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("function_call", realtime.RealtimeConversationItemFunctionCall),
        ("function_call_output", realtime.RealtimeConversationItemFunctionCallOutput),
        ("mcp_approval_response", realtime.RealtimeMcpApprovalResponse),
        ("mcp_approval_request", realtime.RealtimeMcpApprovalRequest),
        ("mcp_list_tools", realtime.RealtimeMcpListTools),
        ("mcp_call", realtime.RealtimeMcpToolCall),
    ],
)
def test_items_have_the_fields_of_the_sdk(name: str, model: type[BaseModel]) -> None:
    check = ITEMS[name]
    assert isinstance(check, Record)
    assert set(check.known) == set(model.model_fields)
