"""The older dialect, which Azure's preview path speaks: settings that are flat, and other names of some events and of what messages
hold (Azure's migration guide; the SDK's types of `openai.types.beta.realtime`). Behind it is the same service.

X: which keys of the newer dialect's events are not in the older one, beyond what the SDK's types say; that settings of the newer one are
refused with `unknown_parameter` is known (openai-python, issue 2638).
"""

from collections.abc import Mapping

from providers.openai.simulation import rules
from providers.openai.simulation.checks import (
    Check,
    Json,
    Record,
    Tagged,
    anything,
    as_list,
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

VOICES = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse")
FORMATS = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}
PARTS = {"output_text": "text", "output_audio": "audio"}
"""What an assistant's message holds."""
EVENTS = {
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "conversation.item.added": "conversation.item.created",
}
"""The service's, by their newer names."""
MISSING = frozenset({"conversation.item.done", "input_audio_buffer.timeout_triggered"})
"""Those that there were not yet."""
NEWER_DETAILS = frozenset({"image_tokens", "cached_tokens_details"})
TEMPERATURE = 0.8
"""What it is at first."""


def _modalities(value: object, path: str) -> None:
    list_of(choice("text", "audio"))(value, path)
    if sorted(map(str, as_list(value, path))) not in (["text"], ["audio", "text"]):
        raise rules.wrong_value(
            path, f"Invalid modalities: {value}. Supported combinations are: ['text'] and ['audio', 'text']."
        )


_TURN_DETECTION = Tagged(
    "type",
    {
        "server_vad": Record(
            {"type": anything},
            {
                "threshold": number(0.0, 1.0),
                "prefix_padding_ms": integer(0),
                "silence_duration_ms": integer(0),
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
_TOOL = Tagged(
    "type",
    {
        "function": Record(
            {"type": anything, "name": text(pattern=r"[a-zA-Z0-9_-]{1,64}")},
            {"description": text(), "parameters": mapping(1000, text(), anything)},
        )
    },
)
_GENERATION: Mapping[str, Check] = {
    "instructions": text(),
    "max_response_output_tokens": either(str, choice("inf"), integer(1, 4096)),
    "modalities": _modalities,
    "output_audio_format": choice(*FORMATS.values()),
    "temperature": number(0.6, 1.2),
    "tool_choice": either(str, choice("none", "auto", "required"), Record({"type": anything, "name": text()})),
    "tools": list_of(_TOOL),
    "voice": choice(*VOICES),
}
SESSION = Record(
    optional={
        **_GENERATION,
        "input_audio_format": choice(*FORMATS.values()),
        "input_audio_noise_reduction": nullable(Record({"type": choice("near_field", "far_field")})),
        "input_audio_transcription": nullable(
            Record(optional={"model": text(), "language": nullable(text()), "prompt": nullable(text())})
        ),
        "model": text(),
        "speed": number(0.25, 1.5),
        "tracing": anything,
        "turn_detection": nullable(_TURN_DETECTION),
    }
)
RESPONSE = Record(
    optional={
        **_GENERATION,
        "conversation": choice("auto", "none"),
        "input": list_of(anything),
        "metadata": nullable(mapping(16, text(longest=64), text(longest=512))),
    }
)


class Preview:
    """A connection's dialect."""

    def __init__(self) -> None:
        self._temperature = TEMPERATURE

    # --- what the client says

    def read(self, event: Json) -> Json:
        """The newer event that an older one means.

        Raises:
            Refused: it is none.
        """
        match event.get("type"):
            case "session.update":
                if "session" not in event:
                    raise rules.missing("session")
                SESSION(event["session"], "session")
                self._temperature = event["session"].get("temperature", self._temperature)
                return {**event, "session": _newer_session(event["session"])}
            case "response.create" if "response" in event:
                RESPONSE(event["response"], "response")
                return {**event, "response": _newer_response(event["response"])}
            case "conversation.item.create" if "item" in event:
                return {**event, "item": _newer_item(event["item"], "item")}
            case _:
                return event

    # --- what the service says

    def write(self, event: Json) -> Json | None:
        """The older event for a newer one; None when there was none."""
        name = str(event["type"])
        if name in MISSING:
            return None
        told: Json = {**event, "type": EVENTS.get(name, name)}
        told.pop("obfuscation", None)
        if "session" in told:
            told["session"] = self._session(told["session"])
        if "response" in told:
            told["response"] = self._response(told["response"])
        if "item" in told:
            told["item"] = _older_item(told["item"])
        if name.startswith("response.content_part."):
            told.pop("content", None)
        if name == "response.function_call_arguments.done":
            told.pop("name", None)
        return told

    def _session(self, session: Json) -> Json:
        heard, spoken = session["audio"]["input"], session["audio"]["output"]
        detection = heard["turn_detection"]
        reduction = heard["noise_reduction"]
        return {
            **{
                key: session[key]
                for key in ("object", "id", "model", "expires_at", "instructions", "tools", "tool_choice")
            },
            "modalities": _older_modalities(session["output_modalities"]),
            "temperature": self._temperature,
            "max_response_output_tokens": session["max_output_tokens"],
            "input_audio_format": FORMATS[heard["format"]["type"]],
            "input_audio_transcription": heard["transcription"],
            "input_audio_noise_reduction": reduction and {"type": reduction["type"]},
            "turn_detection": detection and {key: it for key, it in detection.items() if key != "idle_timeout_ms"},
            "output_audio_format": FORMATS[spoken["format"]["type"]],
            "voice": spoken["voice"],
            "speed": spoken["speed"],
            "tracing": session["tracing"],
        }

    def _response(self, response: Json) -> Json:
        told = {key: value for key, value in response.items() if key not in ("audio", "output_modalities")}
        spoken = response["audio"]["output"]
        told["modalities"] = _older_modalities(response["output_modalities"])
        told["voice"], told["output_audio_format"] = spoken["voice"], FORMATS[spoken["format"]["type"]]
        told["temperature"] = self._temperature
        if response.get("usage"):
            usage: Json = response["usage"]
            details = {key: it for key, it in usage["input_token_details"].items() if key not in NEWER_DETAILS}
            told["usage"] = {**usage, "input_token_details": details}
        told["output"] = [_older_item(item) for item in response["output"]]
        return told


def _older_modalities(newer: list[str]) -> list[str]:
    return ["text"] if newer == ["text"] else ["audio", "text"]


def _older_item(item: Json) -> Json:
    if "content" not in item:
        return item
    return {**item, "content": [{**part, "type": PARTS.get(part["type"], part["type"])} for part in item["content"]]}


def _newer_session(session: Json) -> Json:
    heard: Json = {}
    for older, newer in (
        ("turn_detection", "turn_detection"),
        ("input_audio_transcription", "transcription"),
        ("input_audio_noise_reduction", "noise_reduction"),
    ):
        if older in session:
            heard[newer] = session[older]
    if "input_audio_format" in session:
        heard["format"] = {"type": _type_of(session["input_audio_format"])}
    newer_session = _newer_generation(session)
    spoken: Json = newer_session.pop("audio", {}).get("output", {})
    if "speed" in session:
        spoken["speed"] = session["speed"]
    kept: Json = {key: session[key] for key in ("model", "tracing") if key in session}
    return {"type": "realtime", **newer_session, **kept, "audio": {"input": heard, "output": spoken}}


def _newer_response(response: Json) -> Json:
    newer = _newer_generation(response)
    newer |= {key: response[key] for key in ("conversation", "metadata") if key in response}
    if "input" in response:
        newer["input"] = [_newer_item(item, f"response.input[{index}]") for index, item in enumerate(response["input"])]
    return newer


def _newer_generation(given: Json) -> Json:
    newer: Json = {key: given[key] for key in ("instructions", "tools", "tool_choice") if key in given}
    spoken: Json = {}
    if "modalities" in given:
        newer["output_modalities"] = ["audio"] if "audio" in given["modalities"] else ["text"]
    if "max_response_output_tokens" in given:
        newer["max_output_tokens"] = given["max_response_output_tokens"]
    if "voice" in given:
        spoken["voice"] = given["voice"]
    if "output_audio_format" in given:
        spoken["format"] = {"type": _type_of(given["output_audio_format"])}
    if spoken:
        newer["audio"] = {"output": spoken}
    return newer


def _newer_item(given: object, path: str) -> Json:
    item = as_object(given, path)
    if "content" not in item:
        return item
    newer = {older: newer for newer, older in PARTS.items()}
    parts: list[Json] = []
    for index, each in enumerate(as_list(item["content"], f"{path}.content")):
        part = as_object(each, f"{path}.content[{index}]")
        if "type" in part:
            known = ("input_text", "input_audio", "item_reference", "text", "audio")
            choice(*known)(part["type"], f"{path}.content[{index}].type")
            part = {**part, "type": newer.get(part["type"], part["type"])}
        parts.append(part)
    return {**item, "content": parts}


def _type_of(older_format: str) -> str:
    return next(newer for newer, older in FORMATS.items() if older == older_format)
