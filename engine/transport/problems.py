"""What an error of the engine is over HTTP: its status, as a problem document (RFC 9457). The one place that says so."""

from collections.abc import Mapping

from engine.errors import ErrorCode
from engine.protocol.admission import RETRY_AFTER_SECONDS
from engine.transport.asgi import Problem
from engine.transport.auth import CHALLENGE

STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.BAD_JSON: 400,
    ErrorCode.UNKNOWN_TYPE: 422,
    ErrorCode.BAD_ELEMENT: 422,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.NO_SESSION: 409,
    ErrorCode.UNKNOWN_ACTION: 422,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.SETUP_NOT_ALLOWED: 404,  # the setup is part of the path, and this server has nothing there
    ErrorCode.QUOTA: 429,
    ErrorCode.TOO_BUSY: 503,
    ErrorCode.SLOW_CLIENT: 408,
    ErrorCode.TAKEN_OVER: 409,
    ErrorCode.SESSION_LIMIT: 504,
    ErrorCode.PROVIDER_UNAVAILABLE: 502,
    ErrorCode.PROVIDER_AUTH: 502,
    ErrorCode.PROVIDER_QUOTA: 502,
    ErrorCode.MODEL_NOT_FOUND: 502,
    ErrorCode.RECOGNITION_FAILED: 502,
    ErrorCode.CHAT_FAILED: 502,
    ErrorCode.SYNTHESIS_FAILED: 502,
    ErrorCode.INTERNAL: 500,
}

_HEADERS: Mapping[ErrorCode, Mapping[str, str]] = {
    ErrorCode.UNAUTHORIZED: CHALLENGE,
    ErrorCode.TOO_BUSY: {"Retry-After": str(RETRY_AFTER_SECONDS)},
}


def problem_of(code: ErrorCode, message: str) -> Problem:
    return Problem(STATUS[code], message, _HEADERS.get(code, {}))
