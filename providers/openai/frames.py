"""What is sent to the Realtime API (protocol page, sections 1.2 and 1.3)."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pybase64

from engine.elements import Image, JsonObject
from engine.interfaces import ToolSpecification
from providers.openai.properties import OpenAIProperties

MAX_ID = 32
"""Characters of an id that a client makes."""


def _frame(event: Mapping[str, Any]) -> str:
    return orjson.dumps(event).decode()


def session_update(
    properties: OpenAIProperties,
    instructions: str,
    tools: Sequence[ToolSpecification],
    locales: Sequence[str],
    *,
    text_only: bool,
) -> str:
    """Instructions, tools, formats, transcription and turn detection (P1)."""
    sound = {"type": "audio/pcm", "rate": properties.sample_rate}
    spoken: JsonObject = {"format": sound, "voice": properties.voice}
    if properties.speed is not None:
        spoken["speed"] = properties.speed
    heard: JsonObject = {"format": sound, "turn_detection": None, "transcription": None}
    if properties.hears:
        heard["turn_detection"] = properties.detection.wire()
        heard["transcription"] = {"model": properties.transcription_model} | _language(locales)
        if properties.noise_reduction is not None:
            heard["noise_reduction"] = {"type": properties.noise_reduction}
    session: JsonObject = {
        "type": "realtime",
        "instructions": instructions,
        "output_modalities": ["text"] if text_only else ["audio"],
        "tools": [_function_tool(each) for each in tools],
        "tool_choice": "auto",
        "audio": {"input": heard, "output": spoken},
    }
    if properties.max_output_tokens is not None:
        session["max_output_tokens"] = properties.max_output_tokens
    return _frame({"type": "session.update", "session": session})


def _language(locales: Sequence[str]) -> JsonObject:
    """The language that is spoken (ISO 639-1), when it can be no other: with a wrong one nothing is understood."""
    languages = {locale.replace("_", "-").partition("-")[0].lower() for locale in locales}
    language = languages.pop() if len(languages) == 1 else ""
    return {"language": language} if len(language) == 2 else {}


def _function_tool(specification: ToolSpecification) -> JsonObject:
    return {
        "type": "function",
        "name": specification.name,
        "description": specification.description,
        "parameters": specification.parameters,
    }


def audio_append(pcm: bytes) -> str:
    return '{"type":"input_audio_buffer.append","audio":"' + pybase64.b64encode_as_string(pcm) + '"}'


def audio_commit() -> str:
    return '{"type":"input_audio_buffer.commit"}'


def audio_clear() -> str:
    return '{"type":"input_audio_buffer.clear"}'


def user_item(text: str) -> str:
    return _message("user", "input_text", text)


def system_item(text: str) -> str:
    return _message("system", "input_text", text)


def assistant_item(text: str, after: str | None = None) -> str:
    """What the agent has said. `after` is the item it follows, else it comes last."""
    return _message("assistant", "output_text", text, after)


def _message(role: str, kind: str, text: str, after: str | None = None) -> str:
    item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    place = {} if after is None else {"previous_item_id": after}
    return _frame({"type": "conversation.item.create", **place, "item": item})


def image_item(image: Image, item_id: str) -> str:
    url = f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"
    content = [{"type": "input_image", "image_url": url}]
    item = {"id": item_id, "type": "message", "role": "user", "content": content}
    return _frame({"type": "conversation.item.create", "item": item})


def call_output_item(call_id: str, output: str) -> str:
    item = {"type": "function_call_output", "call_id": call_id, "output": output}
    return _frame({"type": "conversation.item.create", "item": item})


def response_create(event_id: str, answer_id: str) -> str:
    """The answer's id comes back in the response's metadata, so that nothing has to be guessed."""
    return _frame({"type": "response.create", "event_id": event_id, "response": {"metadata": {"answer": answer_id}}})


def response_cancel(response_id: str) -> str:
    return _frame({"type": "response.cancel", "response_id": response_id})


def item_truncate(item_id: str, audio_end_ms: int) -> str:
    event = {"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": audio_end_ms}
    return _frame(event)


def item_delete(item_id: str) -> str:
    return _frame({"type": "conversation.item.delete", "item_id": item_id})
