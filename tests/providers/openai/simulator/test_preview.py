"""The older dialect of Azure's preview path. Every frame is held against the SDK's types of it."""

from typing import Any

import pybase64
import pytest

from providers.openai.simulator import Call, Format, Opening, Reply, Rule, Script, Utterance, tone
from tests.providers.openai.simulator.service import Service, error_of, types

PREVIEW = Opening(azure=True, preview=True)


def preview(script: Script | None = None, **session: Any) -> Service:
    return Service(script, opening=PREVIEW, **session)


def test_a_session_is_flat() -> None:
    service = preview(
        modalities=["text"],
        voice="ash",
        input_audio_transcription={"model": "whisper"},
        input_audio_noise_reduction={"type": "near_field"},
        turn_detection={"type": "semantic_vad", "eagerness": "low"},
        max_response_output_tokens=100,
        temperature=0.7,
        speed=1.25,
        input_audio_format="g711_ulaw",
        output_audio_format="g711_alaw",
    )
    created, updated = (service.last(f"session.{what}")["session"] for what in ("created", "updated"))
    assert (created["modalities"], created["input_audio_format"], created["temperature"]) == (
        ["audio", "text"],
        "pcm16",
        0.8,
    )
    assert created["turn_detection"]["type"] == "server_vad"
    assert updated["modalities"] == ["text"]
    assert (updated["voice"], updated["speed"], updated["temperature"]) == ("ash", 1.25, 0.7)
    assert (updated["input_audio_format"], updated["output_audio_format"]) == ("g711_ulaw", "g711_alaw")
    assert updated["input_audio_transcription"]["model"] == "whisper"
    assert updated["input_audio_noise_reduction"] == {"type": "near_field"}
    assert updated["turn_detection"]["eagerness"] == "low"
    assert updated["max_response_output_tokens"] == 100


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"type": "realtime"}, "session.type"),
        ({"output_modalities": ["audio"]}, "session.output_modalities"),
        ({"audio": {}}, "session.audio"),
        ({"max_output_tokens": 5}, "session.max_output_tokens"),
        ({"modalities": ["audio"]}, "session.modalities"),
        ({"voice": "marin"}, "session.voice"),
        ({"temperature": 0.1}, "session.temperature"),
        ({"input_audio_format": "mp3"}, "session.input_audio_format"),
        ({"turn_detection": {"type": "server_vad", "idle_timeout_ms": 6000}}, "session.turn_detection.idle_timeout_ms"),
    ],
)
def test_the_newer_dialect_is_refused(session: dict[str, Any], param: str) -> None:
    service = preview()
    assert error_of(service.send("session.update", session=session))["param"] == param
    assert service.rules == [Rule.SHAPE]


@pytest.mark.parametrize("kind", ["output_text", "input_image", "output_audio"])
def test_newer_parts_are_refused(kind: str) -> None:
    service = preview()
    item = {"type": "message", "role": "assistant", "content": [{"type": kind, "text": "Hello."}]}
    error = error_of(service.send("conversation.item.create", item=item))
    assert (error["code"], error["param"]) == ("invalid_value", "item.content[0].type")


def test_a_session_is_needed() -> None:
    service = preview()
    assert error_of(service.send("session.update"))["code"] == "missing_required_parameter"


def test_a_spoken_answer_has_the_older_names() -> None:
    service = preview(Script(replies=[Reply("Good morning."), Reply("Again.")]))
    told = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hello."}]}
    assert types(service.send("conversation.item.create", item=told)) == ["conversation.item.created"]
    service.say("Hi")
    service.run(5)
    assert types(service.events[3:]) == [
        "conversation.item.created",
        "response.created",
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
        *types(service.of_type("response.audio_transcript.delta")),
        "response.audio.delta",
        "response.audio.done",
        "response.audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    (item,) = service.response["output"]
    assert item["content"] == [{"type": "audio", "transcript": "Good morning."}]
    assert service.response["modalities"] == ["audio", "text"]


def test_a_response_has_settings_of_its_own() -> None:
    service = preview()
    asked = {
        "modalities": ["text"],
        "metadata": {"answer": "a1"},
        "conversation": "none",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Alone"}]}],
        "max_response_output_tokens": 50,
        "output_audio_format": "pcm16",
    }
    service.send("response.create", response=asked)
    service.run(5)
    assert service.response["metadata"] == {"answer": "a1"}
    assert service.response["output"][0]["content"] == [{"type": "text", "text": "You said: Alone"}]
    assert service.of_type("response.text.done")
    refused = service.send("response.create", response={"output_modalities": ["text"]})
    assert error_of(refused)["param"] == "response.output_modalities"


def test_a_voice_turn_and_a_tool() -> None:
    script = Script(
        utterances=[Utterance("What time is it?", at=0.1, seconds=0.5)],
        replies=[Reply(Call("clock")), Reply("It is nine.")],
    )
    tool = {"type": "function", "name": "clock", "parameters": {"type": "object"}}
    service = preview(script, input_audio_transcription={"model": "whisper"}, tools=[tool])
    service.append_silence(2000)
    call = service.response["output"][0]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "nine"}
    service.send("conversation.item.create", item=output)
    service.send("response.create")
    service.run(5)
    assert service.response["output"][0]["content"][0]["transcript"] == "It is nine."
    transcribed = service.last("conversation.item.input_audio_transcription.completed")
    assert transcribed["transcript"] == "What time is it?"
    assert service.of_type("input_audio_buffer.speech_started")
    assert service.rules == []


def test_an_answer_is_truncated_and_retrieved() -> None:
    service = preview(Script(replies=[Reply("One two three four five.")]))
    service.say("Count")
    service.run(5)
    item_id = service.response["output"][0]["id"]
    service.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=300)
    (retrieved,) = service.send("conversation.item.retrieve", item_id=item_id)
    assert retrieved["item"]["content"][0]["type"] == "audio"
    assert service.of_type("conversation.item.truncated")
    assert service.append(tone(Format.PCM, 20)) is not None
    assert pybase64.b64decode(retrieved["item"]["content"][0]["audio"])
