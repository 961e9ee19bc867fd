"""Whose fault an error is, and what it means for the conversation.

`LocalError` is ours or the operator's (a bug, a bad configuration); `RemoteError` is the other side's: the client's (bad
input) or the provider's (a dead socket, a refused request). Everything that leaves a realtime session is a
`RealtimeException` (SPEC M8): the engine maps what it does not know at the session's edge, once.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    """The codes a client can see (protocol page, section 2)."""

    BAD_JSON = "bad_json"
    UNKNOWN_TYPE = "unknown_type"
    BAD_ELEMENT = "bad_element"
    TOO_LARGE = "too_large"
    NO_SESSION = "no_session"
    UNKNOWN_ACTION = "unknown_action"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    SETUP_NOT_ALLOWED = "setup_not_allowed"
    QUOTA = "quota"
    TOO_BUSY = "too_busy"
    SLOW_CLIENT = "slow_client"
    TAKEN_OVER = "taken_over"
    SESSION_LIMIT = "session_limit"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_AUTH = "provider_auth"
    PROVIDER_QUOTA = "provider_quota"
    MODEL_NOT_FOUND = "model_not_found"
    RECOGNITION_FAILED = "recognition_failed"
    CHAT_FAILED = "chat_failed"
    SYNTHESIS_FAILED = "synthesis_failed"
    INTERNAL = "internal"


class Whose(StrEnum):
    """Whose fault an error is, as the client is told."""

    CLIENT = "client"
    PROVIDER = "provider"
    SERVER = "server"


class EngineError(Exception):
    """Root of everything the engine raises on purpose."""


class LocalError(EngineError):
    """Our side is at fault: a bug or a configuration an operator has to mend."""


class ConfigurationError(LocalError):
    """A setting, project file or installed part is wrong or missing. The message says what to do."""


class RemoteError(EngineError):
    """The other side is at fault. Carries the code and the sentence its owner may be shown.

    `message` never holds secrets or transcripts: it goes to clients and logs.
    """

    def __init__(self, code: ErrorCode, message: str, *, whose: Whose = Whose.CLIENT) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.whose = whose


class NotFoundError(RemoteError):
    """What the client named does not exist, or is not its own: both look the same from outside."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_FOUND, message)


class RealtimeException(RemoteError):
    """Everything that leaves a realtime session (SPEC M8).

    `recoverable` says whether the conversation goes on: a recoverable one reaches the client as an error element, any
    other ends the session.
    """

    def __init__(
        self, code: ErrorCode, message: str, *, recoverable: bool = False, whose: Whose = Whose.PROVIDER
    ) -> None:
        super().__init__(code, message, whose=whose)
        self.recoverable = recoverable
