"""The older dialect, both ways, without any connection. The SDK's types of it are the referee."""

from typing import Any

import orjson
import pytest

from engine.elements import Image
from engine.interfaces import ToolSpecification
from providers.azure_openai.preview import CURRENT_NAMES, from_preview, to_preview
from providers.openai import frames
from providers.openai.events import READ, EventReader, TextDelta
from providers.openai.properties import OpenAIProperties
from tests.providers.openai.simulator.gate import hold_client_event

TOOL = ToolSpecification("look", "Looks.", {"type": "object"})


def older(frame: str) -> dict[str, Any]:
    said = to_preview(frame)
    assert said is not None
    event: dict[str, Any] = orjson.loads(said)
    hold_client_event(event, preview=True)
    return event


def session(text_only: bool = False, **more: Any) -> dict[str, Any]:
    openai = OpenAIProperties(voice="echo", **more)
    event = older(frames.session_update(openai, "Be brief.", [TOOL], ["cs"], text_only=text_only))
    found: dict[str, Any] = event["session"]
    return found


def test_settings() -> None:
    assert session() == {
        "modalities": ["audio", "text"],
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}],
        "tool_choice": "auto",
        "input_audio_format": "pcm16",
        "output_audio_format": "pcm16",
        "turn_detection": {"type": "server_vad", "create_response": True, "interrupt_response": True},
        "input_audio_transcription": {"model": "gpt-4o-mini-transcribe", "language": "cs"},
        "voice": "echo",
    }


def test_rarer_settings() -> None:
    found = session(
        text_only=True,
        speed=1.25,
        max_output_tokens=100,
        noise_reduction="far_field",
        turn_detection={"type": "semantic_vad", "eagerness": "low"},
    )
    assert found["modalities"] == ["text"]
    assert (found["speed"], found["max_response_output_tokens"]) == (1.25, 100)
    assert found["input_audio_noise_reduction"] == {"type": "far_field"}
    assert found["turn_detection"]["eagerness"] == "low"


def test_recognition_by_the_engine() -> None:
    found = session(stt_provider="Local")
    assert (found["turn_detection"], found["input_audio_transcription"]) == (None, None)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (frames.user_item("Hello."), "input_text"),
        (frames.system_item("Hello."), "input_text"),
        (frames.assistant_item("Hello.", after="item_1"), "text"),
    ],
)
def test_messages(frame: str, kind: str) -> None:
    assert older(frame)["item"]["content"] == [{"type": kind, "text": "Hello."}]


@pytest.mark.parametrize(
    "frame",
    [
        frames.audio_append(b"\0\0" * 480),
        frames.audio_commit(),
        frames.audio_clear(),
        frames.call_output_item("call_1", "found"),
        frames.response_create("event_1", "answer-1"),
        frames.response_cancel("resp_1"),
        frames.item_truncate("item_1", 300),
        frames.item_delete("item_1"),
    ],
)
def test_most_is_the_same(frame: str) -> None:
    assert older(frame) == orjson.loads(frame)


def test_images_have_no_word() -> None:
    assert to_preview(frames.image_item(Image(b"\x89PNG", "image/png"), "image-1")) is None


@pytest.mark.parametrize("name", CURRENT_NAMES)
def test_events(name: str) -> None:
    event = {"event_id": "e", "type": name, "response_id": "r", "item_id": "i", "delta": 'say "response.text.delta"'}
    for message in (orjson.dumps(event), orjson.dumps(event).decode()):
        assert orjson.loads(from_preview(message)) == event | {"type": CURRENT_NAMES[name]}


def test_what_is_read_has_its_current_name() -> None:
    assert {name for name in READ if ".output_audio" in name or ".output_text" in name} <= set(CURRENT_NAMES.values())
    event = '{"type":"response.text.delta","response_id":"r","item_id":"i","delta":"Hi"}'
    assert EventReader().read(from_preview(event)) == TextDelta("r", "i", "Hi")


@pytest.mark.parametrize(
    "message", ["", "no JSON", "[]", "3", '{"no":"type"}', '{"type":5}', '{"type":"session.created"}', b"\xff"]
)
def test_others_pass_as_they_are(message: str | bytes) -> None:
    assert from_preview(message) is message
