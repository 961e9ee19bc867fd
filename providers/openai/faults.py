"""What trouble of the Realtime API means for the conversation (P2; protocol page, section 1.6).

The provider's own words are never repeated: they may quote a key or the conversation.
"""

from enum import Enum, auto

from engine.errors import ErrorCode
from providers.link import LinkClosedError, LinkRefusedError
from providers.openai.events import Fault

ALREADY_ACTIVE = "conversation_already_has_active_response"
NOTHING_COMMITTED = "input_audio_buffer_commit_empty"
BENIGN = frozenset(
    {
        "response_cancel_not_active",
        NOTHING_COMMITTED,
        "unsupported_content_type",
        "invalid_tool_call_id",
        "item_truncate_invalid_item_id",
        "item_delete_invalid_item_id",
    }
)
"""A race that both sides lose nothing by."""

FATAL = {
    "session_expired": ErrorCode.SESSION_LIMIT,
    "invalid_api_key": ErrorCode.PROVIDER_AUTH,
    "account_deactivated": ErrorCode.PROVIDER_AUTH,
    "permission_denied": ErrorCode.PROVIDER_AUTH,
    "insufficient_quota": ErrorCode.PROVIDER_QUOTA,
    "billing_hard_limit_reached": ErrorCode.PROVIDER_QUOTA,
    "invalid_model": ErrorCode.MODEL_NOT_FOUND,
    "model_not_found": ErrorCode.MODEL_NOT_FOUND,
    "beta_api_shape_disabled": ErrorCode.PROVIDER_UNAVAILABLE,
}
"""To ask again would be in vain."""

TOO_EARLY_MESSAGE = "No tool output found"
"""A call of a response that is not known here yet; the error has no code."""

RATE_LIMITED = frozenset({"rate_limit_exceeded", "inference_rate_limit_exceeded"})

_STATUSES = {
    401: ErrorCode.PROVIDER_AUTH,
    403: ErrorCode.PROVIDER_AUTH,
    404: ErrorCode.MODEL_NOT_FOUND,
    429: ErrorCode.PROVIDER_QUOTA,
}
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
_POLICY_VIOLATION = 1008
_APPLICATION_CODES = range(4000, 5000)
_EXPIRED = "maximum duration"
"""In the reason of the close, when no error came before it."""


class Weight(Enum):
    BENIGN = auto()
    TOO_EARLY = auto()
    """What was asked for will be possible in a moment."""
    RECOVERABLE = auto()
    FATAL = auto()


def weigh(fault: Fault) -> Weight:
    """How much an error event weighs in the middle of a conversation."""
    if fault.code in FATAL:
        return Weight.FATAL
    if fault.code == ALREADY_ACTIVE or (not fault.code and fault.message.startswith(TOO_EARLY_MESSAGE)):
        return Weight.TOO_EARLY
    if fault.code in BENIGN or "already shorter than" in fault.message:
        return Weight.BENIGN
    return Weight.RECOVERABLE


class Trouble(Exception):
    """There is no connection, or none any more. `is_final`: another try at the same place would be in vain."""

    def __init__(self, code: ErrorCode, *, is_final: bool = False, retry_after: float | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.is_final = is_final
        self.retry_after = retry_after


def refused(error: LinkRefusedError) -> Trouble:
    """The handshake was. Redirects are final: this is the wrong address for the model."""
    status = error.status
    is_passing = status is None or status >= 500 or status in _PASSING_STATUSES
    code = _STATUSES.get(status or 0, ErrorCode.PROVIDER_UNAVAILABLE)
    return Trouble(code, is_final=not is_passing, retry_after=error.retry_after)


def unconfigured(fault: Fault) -> Trouble:
    """The service did not take the settings."""
    is_passing = fault.code not in FATAL and (fault.type == "server_error" or fault.code in RATE_LIMITED)
    return Trouble(FATAL.get(fault.code, ErrorCode.PROVIDER_UNAVAILABLE), is_final=not is_passing)


def closed(error: LinkClosedError) -> Trouble:
    """The connection is over."""
    if error.code is None:
        return Trouble(ErrorCode.PROVIDER_UNAVAILABLE)
    if _EXPIRED in error.reason:
        return Trouble(ErrorCode.SESSION_LIMIT, is_final=True)
    named = FATAL.get(error.reason.rpartition(".")[2])
    is_final = named is not None or error.code == _POLICY_VIOLATION or error.code in _APPLICATION_CODES
    return Trouble(named or ErrorCode.PROVIDER_UNAVAILABLE, is_final=is_final)
