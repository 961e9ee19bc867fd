"""What the Realtime API sends, as far as something is done about it (protocol page, section 1.4).

Only the fields that are used are read, and what is not as it should be is taken for missing. A service adds fields, values and kinds
as it likes, and one value that a stricter reader did not know would leave a response without an end. The tests hold these classes,
and the frames that are sent, against the official SDK's models.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs
import orjson
import pybase64

logger = logging.getLogger(__name__)

AUDIO_DELTA = "response.output_audio.delta"
MAX_LOGGED = 200
"""Kinds of trouble that are logged once each."""


@attrs.frozen
class AudioDelta:
    response_id: str
    item_id: str
    pcm: bytes


@attrs.frozen
class TextDelta:
    """Words of an answer, spoken or written."""

    response_id: str
    item_id: str
    text: str


@attrs.frozen
class Used:
    """Tokens; the cached ones are part of the input."""

    input: int
    output: int
    cached: int


@attrs.frozen
class Response:
    id: str
    status: str = ""
    answer_id: str = ""
    """What the request said it was for; empty when nobody asked."""
    error_code: str = ""
    used: Used | None = None


@attrs.frozen
class ResponseCreated:
    response: Response


@attrs.frozen
class ResponseDone:
    response: Response


@attrs.frozen
class Item:
    id: str
    type: str
    status: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@attrs.frozen
class ItemAdded:
    response_id: str
    item: Item


@attrs.frozen
class ItemDone:
    response_id: str
    item: Item


@attrs.frozen
class SpeechStarted:
    item_id: str


@attrs.frozen
class SpeechStopped:
    item_id: str


@attrs.frozen
class Committed:
    item_id: str


@attrs.frozen
class WordsDelta:
    """More words of the user's."""

    item_id: str
    text: str


@attrs.frozen
class WordsCompleted:
    item_id: str
    text: str


@attrs.frozen
class WordsFailed:
    item_id: str
    code: str


@attrs.frozen
class SessionCreated:
    expires_at: float | None
    """Seconds since 1970, by the service's clock."""


@attrs.frozen
class SessionUpdated:
    expires_at: float | None


@attrs.frozen
class RateLimits:
    reset_seconds: float
    """Until tokens can be had again; 0 as long as there are some."""


@attrs.frozen
class Fault:
    """An error event."""

    code: str
    type: str
    message: str
    event_id: str
    """Of what was sent; empty when it was none of ours, or the service does not say."""
    param: str


Event = (
    AudioDelta
    | TextDelta
    | ResponseCreated
    | ResponseDone
    | ItemAdded
    | ItemDone
    | SpeechStarted
    | SpeechStopped
    | Committed
    | WordsDelta
    | WordsCompleted
    | WordsFailed
    | SessionCreated
    | SessionUpdated
    | RateLimits
    | Fault
)

Json = Mapping[str, Any]


class _UnreadableError(Exception):
    """A field that cannot be done without is missing; says which."""


class EventReader:
    """Reads the service's messages. What cannot be read is logged once a kind, without its content, and skipped."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def read(self, message: str | bytes) -> Event | None:
        try:
            document: object = orjson.loads(message)
        except orjson.JSONDecodeError:
            self._warn("no JSON")
            return None
        if not isinstance(document, dict):
            self._warn("no event")
            return None
        event = cast("Json", document)
        kind = event.get("type")
        read = _READERS.get(kind) if isinstance(kind, str) else None
        if read is None:
            return None
        try:
            return read(event)
        except _UnreadableError as exc:
            self._warn(f"an event {kind} without {exc}")
            return None

    def _warn(self, what: str) -> None:
        if what not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(what)
            logger.warning("the provider sent %s; it is skipped", what)


# --- fields -----------------------------------------------------------------------------------------------------------


def _text(value: Json, key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _id(value: Json, key: str) -> str:
    found = _text(value, key)
    if not found:
        raise _UnreadableError(key)
    return found


def _object(value: Json, key: str) -> Json:
    found = value.get(key)
    return cast("Json", found) if isinstance(found, dict) else {}


def _number(value: Json, key: str) -> float | None:
    found = value.get(key)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _count(value: Json, key: str) -> int:
    return max(0, int(_number(value, key) or 0))


# --- events -----------------------------------------------------------------------------------------------------------


def _audio_delta(event: Json) -> AudioDelta:
    try:
        pcm = pybase64.b64decode(_text(event, "delta"), validate=True)
    except ValueError:
        raise _UnreadableError("audio") from None
    return AudioDelta(_id(event, "response_id"), _id(event, "item_id"), pcm)


def _text_delta(event: Json) -> TextDelta:
    return TextDelta(_id(event, "response_id"), _id(event, "item_id"), _text(event, "delta"))


def _response(event: Json) -> Response:
    response = _object(event, "response")
    error = _object(_object(response, "status_details"), "error")
    return Response(
        _id(response, "id"),
        _text(response, "status"),
        _text(_object(response, "metadata"), "answer"),
        _text(error, "code") or _text(error, "type"),
        _used(response),
    )


def _used(response: Json) -> Used | None:
    usage = _object(response, "usage")
    if not usage:
        return None
    cached = _count(_object(usage, "input_token_details"), "cached_tokens")
    return Used(_count(usage, "input_tokens"), _count(usage, "output_tokens"), cached)


def _item(event: Json) -> Item:
    item = _object(event, "item")
    texts = (_text(item, key) for key in ("status", "call_id", "name", "arguments"))
    return Item(_id(item, "id"), _text(item, "type"), *texts)


def _rate_limits(event: Json) -> RateLimits:
    """The longest wait of the limits that are used up."""
    limits = event.get("rate_limits")
    entries = (
        [cast("Json", each) for each in cast("list[object]", limits) if isinstance(each, dict)]
        if isinstance(limits, list)
        else []
    )
    used_up = (_number(each, "reset_seconds") or 0.0 for each in entries if (_number(each, "remaining") or 0.0) <= 0)
    return RateLimits(max(used_up, default=0.0))


def _fault(event: Json) -> Fault:
    error = _object(event, "error")
    return Fault(*(_text(error, key) for key in ("code", "type", "message", "event_id", "param")))


_WORDS = "conversation.item.input_audio_transcription"
_READERS: Mapping[str, Callable[[Json], Event]] = {
    AUDIO_DELTA: _audio_delta,
    "response.output_audio_transcript.delta": _text_delta,
    "response.output_text.delta": _text_delta,
    "response.created": lambda event: ResponseCreated(_response(event)),
    "response.done": lambda event: ResponseDone(_response(event)),
    "response.output_item.added": lambda event: ItemAdded(_id(event, "response_id"), _item(event)),
    "response.output_item.done": lambda event: ItemDone(_id(event, "response_id"), _item(event)),
    "input_audio_buffer.speech_started": lambda event: SpeechStarted(_id(event, "item_id")),
    "input_audio_buffer.speech_stopped": lambda event: SpeechStopped(_id(event, "item_id")),
    "input_audio_buffer.committed": lambda event: Committed(_id(event, "item_id")),
    f"{_WORDS}.delta": lambda event: WordsDelta(_id(event, "item_id"), _text(event, "delta")),
    f"{_WORDS}.completed": lambda event: WordsCompleted(_id(event, "item_id"), _text(event, "transcript")),
    f"{_WORDS}.failed": lambda event: WordsFailed(_id(event, "item_id"), _text(_object(event, "error"), "code")),
    "session.created": lambda event: SessionCreated(_number(_object(event, "session"), "expires_at")),
    "session.updated": lambda event: SessionUpdated(_number(_object(event, "session"), "expires_at")),
    "rate_limits.updated": _rate_limits,
    "error": _fault,
}
READ = frozenset(_READERS)
"""The types that are read; all others are acknowledgements, parts and summaries of what was said already."""
