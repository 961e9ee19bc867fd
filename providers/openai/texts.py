"""What the user is told when the provider fails for good, and what the model is told in odd moments."""

from engine.errors import ErrorCode
from engine.texts import Sentence, say

_FATAL = {
    ErrorCode.SESSION_LIMIT: Sentence.SESSION_LIMIT,
    ErrorCode.PROVIDER_AUTH: Sentence.PROVIDER_AUTH,
    ErrorCode.PROVIDER_QUOTA: Sentence.PROVIDER_QUOTA,
    ErrorCode.MODEL_NOT_FOUND: Sentence.MODEL_NOT_FOUND,
}

APOLOGIZE = (
    "A technical fault made you miss what the user said last, or cut your answer. Apologize in one short sentence, in the"
    " user's language, and ask them to say it again."
)
GO_ON = "A noise cut your last answer; the user has said nothing new. Go on where it stopped, and do not repeat what was said."
STILL_RUNNING = '{"status":"This call is still running. Its result will follow."}'
INTERRUPTED = '{"error":"The user interrupted this call."}'


def text_of(code: ErrorCode, locale: str) -> str:
    """A failure of the provider, in the user's language."""
    return say(_FATAL.get(code, Sentence.PROVIDER_UNAVAILABLE), locale)
