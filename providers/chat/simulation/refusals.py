"""What the service asks of its clients, and the words in which it refuses.

Every refusal is made here, so that a status, a code, a message or a `param` that turns out otherwise is changed in one place. Those
marked X are assumptions: that the service refuses is documented or plain, how it words it is not. The service is of two minds about
paths (`messages[0].content` for the shape of a field, `messages.[0].content` for its meaning), and so is this.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import orjson

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"


@attrs.frozen
class Refusal:
    """A request that is answered with an HTTP error."""

    status: int = 500
    code: str | None = None
    message: str = "This request was made to fail."
    type: str = INVALID_REQUEST
    param: str | None = None
    retry_after: float | None = None
    """Seconds, as the service asks the client to wait."""
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    """Sent in place of the JSON: what a proxy says, for example. `headers` names its content type then."""

    @property
    def wire(self) -> dict[str, Any]:
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}

    @property
    def payload(self) -> bytes:
        return orjson.dumps({"error": self.wire}) if self.body is None else self.body


class Refused(Exception):
    """A request that the service would not serve."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def bad(message: str, code: str | None = None, param: str | None = None) -> Refused:
    return Refused(Refusal(400, code, message, param=param))


# --- the door


def unknown_url(method: str, path: str) -> Refused:
    return Refused(Refusal(404, None, f"Invalid URL ({method} {path})"))


def wrong_method(method: str, path: str) -> Refused:
    return Refused(
        Refusal(
            405,
            None,
            f"Not allowed to {method} on {path}. (HINT: Perhaps you meant to use a different HTTP method?)",
        )
    )


def no_key() -> Refused:
    return Refused(Refusal(401, None, "You didn't provide an API key in an Authorization header (Bearer YOUR_KEY)."))


def wrong_key(key: str) -> Refused:
    """The service shows the ends of the key and hides the middle."""
    shown = f"{key[:7]}{'*' * max(0, len(key) - 11)}{key[-4:]}" if len(key) > 11 else "*" * len(key)
    return Refused(Refusal(401, "invalid_api_key", f"Incorrect API key provided: {shown}."))


def unknown_model(model: str) -> Refused:
    return Refused(
        Refusal(
            404, "model_not_found", f"The model `{model}` does not exist or you do not have access to it.", param=None
        )
    )


def rate_limited(model: str, limit: int, retry_after: float) -> Refused:
    return Refused(attrs.evolve(RATE_LIMITED, retry_after=retry_after, message=_limit_message(model, limit)))


def _limit_message(model: str, limit: int) -> str:
    return f"Rate limit reached for {model} on requests: Limit {limit}. Please try again later."


RATE_LIMITED = Refusal(
    429, "rate_limit_exceeded", "Rate limit reached for requests. Please try again in 1s.", "requests", retry_after=1.0
)
NO_QUOTA = Refusal(
    429,
    "insufficient_quota",
    "You exceeded your current quota, please check your plan and billing details.",
    "insufficient_quota",
)
BROKEN_SERVICE = Refusal(
    500, None, "The server had an error while processing your request. Sorry about that!", SERVER_ERROR
)
OVERLOADED = Refusal(
    503, None, "The engine is currently overloaded, please try again later.", "service_unavailable_error"
)
BAD_GATEWAY = Refusal(
    502, headers=(("content-type", "text/html"),), body=b"<html><body><h1>502 Bad Gateway</h1></body></html>"
)
FILTERED_PROMPT = Refusal(
    400,
    "content_filter",
    "The response was filtered due to the prompt triggering the content management policy.",
    param="prompt",
)
"""How Azure turns a prompt away."""


# --- the body and its fields


def not_json() -> Refused:
    return bad("We could not parse the JSON body of your request.")


def not_json_content(content_type: str) -> Refused:
    return Refused(
        Refusal(
            415, "unsupported_content_type", f"Unsupported content type: {content_type!r}."
        )  # X: all but the status
    )


def no_model() -> Refused:
    return bad("you must provide a model parameter")


def missing(path: str) -> Refused:
    return bad(f"Missing required parameter: '{path}'.", "missing_required_parameter", path)


def unknown(path: str) -> Refused:
    """At the top there is no code and no `param`."""
    if "." not in path and "[" not in path:
        return bad(f"Unrecognized request argument supplied: {path}")
    return bad(f"Unknown parameter: '{path}'.", "unknown_parameter", path)


def wrong_type(path: str, expected: str, got: str) -> Refused:
    return bad(f"Invalid type for '{path}': expected {expected}, but got {got} instead.", "invalid_type", path)


def wrong_value(path: str, message: str, code: str | None = "invalid_value") -> Refused:
    return bad(message, code, path)


def wrong_choice(path: str, got: str, supported: Sequence[str]) -> Refused:
    *others, last = map(repr, supported)
    names = f"{', '.join(others)}, and {last}" if others else last
    return wrong_value(path, f"Invalid value: '{got}'. Supported values are: {names}.")


def out_of_bounds(path: str, kind: str, *, above: bool, bound: float, got: float) -> Refused:
    """`kind` is integer or decimal."""
    side, sign = ("above maximum", "<=") if above else ("below minimum", ">=")
    return wrong_value(
        path,
        f"Invalid '{path}': {kind} {side} value. Expected a value {sign} {bound:g}, but got {got:g} instead.",
        f"{kind}_{'above_max' if above else 'below_min'}_value",
    )


def too_long(path: str, limit: int, length: int) -> Refused:
    return wrong_value(
        path,
        f"Invalid '{path}': string too long. Expected a string with maximum length {limit}, "
        f"but got a string with length {length} instead.",
        "string_above_max_length",
    )


def no_match(path: str, pattern: str) -> Refused:
    return wrong_value(
        path,
        f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern '{pattern}'.",
    )


def empty_array(path: str) -> Refused:
    return wrong_value(
        path,
        f"Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        "empty_array",
    )


def array_too_long(path: str, limit: int, length: int) -> Refused:
    return wrong_value(
        path,
        f"Invalid '{path}': array too long. Expected an array with maximum length {limit}, "
        f"but got an array with length {length} instead.",
        "array_above_max_length",
    )


# --- fields together


def only_with(field: str, other: str) -> Refused:
    return bad(f"Invalid value for '{field}': '{field}' is only allowed when '{other}' are specified.", param=field)


def only_when_streaming() -> Refused:
    return bad("The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options")


def two_limits() -> Refused:
    """X: the code."""
    return bad(
        "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        "invalid_parameter_combination",
        "max_tokens",
    )


def unsupported_limit() -> Refused:
    return bad(
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "unsupported_parameter",
        "max_tokens",
    )


def unsupported(field: str) -> Refused:
    return bad(f"Unsupported parameter: '{field}' is not supported with this model.", "unsupported_parameter", field)


def unsupported_value(field: str, value: object, default: object) -> Refused:
    return bad(
        f"Unsupported value: '{field}' does not support {value} with this model. "
        f"Only the default ({default}) value is supported.",
        "unsupported_value",
        field,
    )


def not_simulated(field: str) -> Refused:
    """No word of the service: it can do this, the simulator cannot."""
    return bad(f"The simulator does not know how to do '{field}'.", "not_simulated", field)


def unknown_tool_choice(name: str) -> Refused:
    return bad(f"Invalid value for 'tool_choice': tool choice '{name}' not found in 'tools'.", param="tool_choice")


def no_json_word() -> Refused:
    return bad(
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
        param="messages",
    )


def bad_format_schema(name: str, why: str) -> Refused:
    return bad(f"Invalid schema for response_format '{name}': {why}", param="response_format")


def bad_function_schema(index: int, name: str, why: str) -> Refused:
    return bad(
        f"Invalid schema for function '{name}': {why}",
        "invalid_function_parameters",
        f"tools[{index}].function.parameters",
    )


# --- the order of messages


def null_content(index: int) -> Refused:
    return bad("Invalid value for 'content': expected a string, got null.", param=f"messages.[{index}].content")


def tool_without_call(index: int) -> Refused:
    return bad(
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        param=f"messages.[{index}].role",
    )


def tool_with_wrong_id(index: int, call_id: str) -> Refused:
    return bad(
        f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message.",
        param=f"messages.[{index}].tool_call_id",
    )


def unanswered_calls(index: int, call_ids: Sequence[str]) -> Refused:
    """X: which message the `param` names; here the first that comes too early, or the last one."""
    return bad(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(call_ids)}",
        param=f"messages.[{index}].role",
    )


def context_too_long(limit: int, got: int) -> Refused:
    return bad(
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {got} tokens. "
        "Please reduce the length of the messages.",
        "context_length_exceeded",
        "messages",
    )
