"""The preview API speaks an older dialect: flat settings, other names of some events (Azure's migration guide; the SDK's types of
`openai.types.beta.realtime`). The session speaks the current one, and this stands between it and the connection."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import orjson

from providers.link import Link
from providers.openai.connection import OpenLink

logger = logging.getLogger(__name__)

Json = dict[str, Any]

CURRENT_NAMES = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio.done": "response.output_audio.done",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
    "response.audio_transcript.done": "response.output_audio_transcript.done",
    "response.text.delta": "response.output_text.delta",
    "response.text.done": "response.output_text.done",
    "conversation.item.created": "conversation.item.added",
}
"""By the older name. What they carry is the same, as far as it is read."""
SETTINGS = {
    "instructions": "instructions",
    "tools": "tools",
    "tool_choice": "tool_choice",
    "max_output_tokens": "max_response_output_tokens",
}
HEARING = {
    "turn_detection": "turn_detection",
    "transcription": "input_audio_transcription",
    "noise_reduction": "input_audio_noise_reduction",
}
SPEAKING = {"voice": "voice", "speed": "speed"}
FORMAT = "pcm16"
"""At 24 kHz, as in the current dialect."""


def to_preview(frame: str) -> str | None:
    """What the session says; None when the preview API has no word for it."""
    if frame.startswith('{"type":"input_audio_buffer.'):
        return frame  # most of all frames, and the same
    event: Json = orjson.loads(frame)
    match event["type"]:
        case "session.update":
            event["session"] = _older_session(event["session"])
        case "conversation.item.create":
            parts: list[Json] = event["item"].get("content", [])
            if any(part["type"] == "input_image" for part in parts):
                return None
            for part in parts:
                part["type"] = {"output_text": "text"}.get(part["type"], part["type"])
        case _:
            return frame
    return orjson.dumps(event).decode()


def from_preview(message: str | bytes) -> str | bytes:
    """What the service says."""
    try:
        event: object = orjson.loads(message)
    except orjson.JSONDecodeError:
        return message  # whoever reads it says what is wrong
    if not isinstance(event, dict):
        return message
    told = cast("Json", event)
    current = CURRENT_NAMES.get(str(told.get("type")))
    return message if current is None else orjson.dumps({**told, "type": current}).decode()


def _older_session(session: Json) -> Json:
    heard: Json = session["audio"]["input"]
    spoken: Json = session["audio"]["output"]
    return {
        "modalities": ["text"] if session["output_modalities"] == ["text"] else ["audio", "text"],
        "input_audio_format": FORMAT,
        "output_audio_format": FORMAT,
        **_renamed(session, SETTINGS),
        **_renamed(heard, HEARING),
        **_renamed(spoken, SPEAKING),
    }


def _renamed(settings: Json, names: Mapping[str, str]) -> Json:
    return {name: settings[current] for current, name in names.items() if current in settings}


@attrs.define(eq=False)
class PreviewLink:
    """A link that speaks the older dialect; see `Link`."""

    link: Link
    _has_told: bool = attrs.field(default=False, init=False)

    def send(self, frame: str) -> None:
        older = to_preview(frame)
        if older is not None:
            self.link.send(older)
        elif not self._has_told:
            self._has_told = True
            logger.warning("the preview API takes no images; they are left out")

    async def receive(self) -> str | bytes:
        return from_preview(await self.link.receive())


def open_preview(open_link: OpenLink) -> OpenLink:
    """Links that speak the older dialect."""

    @asynccontextmanager
    async def open_(url: str, headers: Mapping[str, str]) -> AsyncGenerator[Link]:
        async with open_link(url, headers) as link:
            yield PreviewLink(link)

    return open_
