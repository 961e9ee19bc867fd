"""What an error of the Realtime API means for the conversation (P2; protocol page, section 1.6).

The provider's own words are never repeated: they may quote a key or the conversation.
"""

from enum import Enum, auto

from engine.errors import ErrorCode

BENIGN = frozenset(
    {
        "conversation_already_has_active_response",
        "response_cancel_not_active",
        "input_audio_buffer_commit_empty",
        "unsupported_content_type",
        "item_retrieve_invalid_item_id",
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
}

REFUSED = {
    401: ErrorCode.PROVIDER_AUTH,
    403: ErrorCode.PROVIDER_AUTH,
    404: ErrorCode.MODEL_NOT_FOUND,
    429: ErrorCode.PROVIDER_QUOTA,
}
"""HTTP statuses of a refused handshake; any other is taken for a passing trouble."""


class Weight(Enum):
    BENIGN = auto()
    RECOVERABLE = auto()
    FATAL = auto()


def weigh(code: str | None, kind: str | None, message: str) -> Weight:
    """How much an error event weighs."""
    if code in FATAL:
        return Weight.FATAL
    if code in BENIGN or "already shorter than" in message:
        return Weight.BENIGN
    return Weight.RECOVERABLE
