"""What the service asks of its clients, and the words in which it refuses.

Every refusal is made here, so that a code, a message or a `param` that turns out otherwise is changed in one place. Those marked X
are assumptions: that the service refuses is documented or plain, how it words it is not.
"""

from enum import Enum

INVALID_REQUEST = "invalid_request_error"


class Rule(Enum):
    """What a client can break. The value says it in a sentence."""

    ADMISSION = "A connection asks for a path, a model and a credential that the service knows, without beta markers."
    FRAME = "Each frame is a text frame with one JSON object that has a known type."
    SHAPE = "Fields have the documented names, types and values."
    TOO_LARGE = "An append holds at most 15 MiB of audio."
    AUDIO = "Audio is base64 of whole samples in the session's input format."
    NOT_READY = "Nothing but settings is sent before the settings are acknowledged."
    IMMUTABLE = "The model and the type never change, the voice not after the first audio, traces not once they are on."
    BETWEEN_TURNS = "The speed of speech changes between turns only."
    UNSUPPORTED = "A feature is asked for where model, session or transport have it."
    ONE_RESPONSE = "One response at a time writes to the conversation."
    NOTHING_TO_CANCEL = "Only a response under way can be cancelled."
    UNANSWERED_CALL = "A response is asked for when every call of the one before has its output."
    UNKNOWN_CALL = "An output belongs to a call of the conversation."
    ANSWERED_TWICE = "A call gets one output."
    UNKNOWN_ITEM = "An id names an item of the conversation."
    DUPLICATE_ID = "The id of a new item is new."
    COMMIT_TOO_SHORT = "At least 100 ms of audio are committed."
    TRUNCATE_KIND = "Only assistant messages that have audio are truncated."
    TRUNCATE_BOUNDS = "A message is truncated within its audio."


class Refused(Exception):
    """A client event that the service answers with `error`."""

    def __init__(
        self,
        rule: Rule,
        message: str,
        code: str | None = None,
        param: str | None = None,
        *,
        error_type: str = INVALID_REQUEST,
        names_event: bool = True,
    ) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.code = code
        self.param = param
        self.error_type = error_type
        self.names_event = names_event
        """Whether the error repeats the client's event id; some never do."""


# --- frames and fields


def type_missing() -> Refused:
    return Refused(Rule.FRAME, "The 'type' field is missing.", "invalid_event")


def not_an_object(what: str) -> Refused:
    """X: the code."""
    return Refused(Rule.FRAME, f"Could not parse your event: expected one JSON object, {what}.", "invalid_event")


def missing(path: str) -> Refused:
    return Refused(Rule.SHAPE, f"Missing required parameter: '{path}'.", "missing_required_parameter", path)


def unknown(path: str) -> Refused:
    return Refused(Rule.SHAPE, f"Unknown parameter: '{path}'.", "unknown_parameter", path)


def wrong_type(path: str, expected: str, got: str) -> Refused:
    """X: the code, which is that of the company's other endpoints."""
    return Refused(
        Rule.SHAPE, f"Invalid type for '{path}': expected {expected}, but got {got} instead.", "invalid_type", path
    )


def wrong_value(path: str, message: str, rule: Rule = Rule.SHAPE) -> Refused:
    return Refused(rule, message, "invalid_value", path)


def wrong_choice(path: str, got: object, supported: tuple[str, ...], rule: Rule = Rule.SHAPE) -> Refused:
    return wrong_value(path, f"Invalid value: '{got}'. Supported values are: {', '.join(map(repr, supported))}.", rule)


def unsupported(path: str, why: str) -> Refused:
    """X: the code, which is that of the company's other endpoints."""
    return Refused(
        Rule.UNSUPPORTED, f"Unsupported parameter: '{path}' is not supported {why}.", "unsupported_parameter", path
    )


def not_for_this_session(what: str, kind: str) -> Refused:
    return Refused(Rule.UNSUPPORTED, f"Passing {what} to a {kind} session is not allowed.", "invalid_parameter")


# --- settings


def model_is_fixed() -> Refused:
    """X: the code and the message."""
    return Refused(Rule.IMMUTABLE, "The model of a session cannot be updated.", "invalid_value", "session.model")


def voice_is_fixed() -> Refused:
    return Refused(
        Rule.IMMUTABLE, "Cannot update a conversation's voice if assistant audio is present.", "cannot_update_voice"
    )


def tracing_is_fixed() -> Refused:
    """X: the code and the message."""
    return Refused(
        Rule.IMMUTABLE, "Tracing cannot be updated once it is enabled.", "invalid_parameter", "session.tracing"
    )


def speed_is_fixed() -> Refused:
    """X: the code and the message."""
    return Refused(
        Rule.BETWEEN_TURNS,
        "Speed cannot be updated while a response is in progress.",
        "invalid_parameter",
        "session.audio.output.speed",
    )


# --- audio


def bad_audio(format_name: str) -> Refused:
    return wrong_value(
        "audio",
        f"Invalid 'audio'. Expected base64-encoded audio bytes ({format_name}) but got an invalid value.",
        Rule.AUDIO,
    )


def too_large(limit: int) -> Refused:
    """X: the code and the message."""
    return wrong_value("audio", f"Invalid 'audio': at most {limit} bytes can be appended at once.", Rule.TOO_LARGE)


def commit_too_short(ms: float) -> Refused:
    return Refused(
        Rule.COMMIT_TOO_SHORT,
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        f"but buffer only has {ms:.2f}ms of audio.",
        "input_audio_buffer_commit_empty",
    )


def only_on_calls(event_type: str) -> Refused:
    """X: the code and the message."""
    return Refused(Rule.UNSUPPORTED, f"'{event_type}' is for WebRTC and SIP sessions only.", "invalid_event", "type")


# --- items


def unknown_item(item_id: str, doing: str, verb: str) -> Refused:
    """`doing` and `verb` as in "deleting" and "delete"."""
    return Refused(
        Rule.UNKNOWN_ITEM,
        f"Error {doing} item: the item with id '{item_id}' does not exist.",
        f"item_{verb}_invalid_item_id",
        "item_id",
    )


def unknown_previous_item(item_id: str) -> Refused:
    """X: the code."""
    return Refused(
        Rule.UNKNOWN_ITEM,
        f"Error adding item: the previous item with id '{item_id}' does not exist.",
        "item_create_invalid_previous_item_id",
        "previous_item_id",
    )


def unknown_reference(item_id: str, path: str) -> Refused:
    """X: the code."""
    return wrong_value(path, f"Error adding item: the item with id '{item_id}' does not exist.", Rule.UNKNOWN_ITEM)


def duplicate_id(item_id: str) -> Refused:
    """X: the code."""
    return Refused(
        Rule.DUPLICATE_ID,
        f"Error adding item: an item with id '{item_id}' already exists.",
        "item_create_duplicate_item_id",
        "item.id",
    )


def too_long(path: str, limit: int, length: int) -> Refused:
    return Refused(
        Rule.SHAPE,
        f"Invalid '{path}': string too long. Expected a string with maximum length {limit}, "
        f"but got a string with length {length} instead.",
        "string_above_max_length",
        path,
    )


def unknown_call(call_id: str) -> Refused:
    return Refused(Rule.UNKNOWN_CALL, f"Tool call ID '{call_id}' not found in conversation.", "invalid_tool_call_id")


def cannot_truncate() -> Refused:
    return Refused(
        Rule.TRUNCATE_KIND, "Only model output audio messages can be truncated", "unsupported_content_type", "item_id"
    )


def shorter_already(has_ms: int, asked_ms: int) -> Refused:
    return Refused(
        Rule.TRUNCATE_BOUNDS,
        f"Audio content of {has_ms}ms is already shorter than {asked_ms}ms",
        names_event=False,
    )


# --- responses


def already_active(response_id: str) -> Refused:
    return Refused(
        Rule.ONE_RESPONSE,
        f"Conversation already has an active response in progress: {response_id}. "
        "Wait until the response is finished before creating a new one.",
        "conversation_already_has_active_response",
    )


def nothing_to_cancel() -> Refused:
    return Refused(
        Rule.NOTHING_TO_CANCEL, "Cancellation failed: no active response found", "response_cancel_not_active"
    )


def unanswered_call(call_id: str) -> Refused:
    """X: the code is null and the message that of the company's Responses endpoint."""
    return Refused(Rule.UNANSWERED_CALL, f"No tool output found for function call {call_id}.")
