"""Whether what Whisper heard was said. Given silence or noise it makes words up: this is where they are dropped.

Sans-I/O. Each rule names what it is for; a transcript that breaks none is left as it is.
"""

import re
import zlib
from typing import Final

import attrs

NO_SPEECH: Final = 0.6
"""The model's own probability that there were no words (Whisper's default threshold)."""
DOUBTFUL_NO_SPEECH: Final = 0.35
"""From here on a phrase that it is known to make up is taken for made up."""
UNSURE: Final = -1.0
"""Average log probability below which words are guesses (Whisper's default threshold)."""
SHORT_SPEECH_MS: Final = 350
QUIET_DBFS: Final = -50.0
"""Speech into any microphone is louder."""
COMPRESSION: Final = 2.4
"""Text that compresses better repeats itself (Whisper's default threshold)."""
WORDS_A_SECOND: Final = 7.0
"""More cannot be said; a decoder that repeats itself can write it."""
REPEATS: Final = 3
WORDS_A_SECOND_TWICE: Final = 5.0
"""The same sentence twice, faster than this, was said once."""

_MADE_UP: Final = frozenset(
    {
        "you",
        "thank you",
        "thank you very much",
        "thanks for watching",
        "thank you for watching",
        "thanks",
        "bye",
        "so",
        "oh",
        "okay",
        "the",
        "i",
        "please subscribe",
        "the end",
        "hmm",
        "uh",
        "mm",
        "mmhmm",
        "yeah",
    }
)
"""What comes out of silence and hum, from the subtitles that the model was trained on."""
_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@attrs.frozen
class Evidence:
    """What is known of an utterance beside its words."""

    no_speech_probability: float
    average_log_probability: float
    speech_ms: int
    """As the voice activity detector counts it."""
    level_dbfs: float
    """Of its loudest tenth of a second, 0 for a full-scale square wave."""


def plausible_text(text: str, evidence: Evidence) -> str:
    """The text without what cannot have been said; "" when nothing is left."""
    words = [word.lower() for word in _WORD.findall(text)]
    if not words or evidence.no_speech_probability > NO_SPEECH or evidence.level_dbfs < QUIET_DBFS:
        return ""
    is_doubtful = (
        evidence.no_speech_probability > DOUBTFUL_NO_SPEECH
        or evidence.average_log_probability < UNSURE
        or evidence.speech_ms < SHORT_SPEECH_MS / 2
    )
    if is_doubtful and " ".join(words).replace("'", "") in _MADE_UP:
        return ""
    if evidence.average_log_probability < UNSURE and evidence.speech_ms < SHORT_SPEECH_MS:
        return ""
    if len(words) > WORDS_A_SECOND * (evidence.speech_ms / 1000 + 0.5) or _repeats(text):
        text = _once(text)
        words = [word.lower() for word in _WORD.findall(text)]
    if _is_twice(words) and len(words) > WORDS_A_SECOND_TWICE * evidence.speech_ms / 1000:
        return _first_half(text, len(words))
    return text


def _repeats(text: str) -> bool:
    data = text.encode()
    return len(data) / len(zlib.compress(data)) > COMPRESSION


def _is_twice(words: list[str]) -> bool:
    half = len(words) // 2
    return len(words) > 2 and words[:half] == words[half:]


def _first_half(text: str, count: int) -> str:
    matches = list(_WORD.finditer(text))
    return text[: matches[count // 2].start()].rstrip()


def _once(text: str) -> str:
    """The text up to where it begins to repeat the same words over and over; the rest is the decoder's."""
    matches = list(_WORD.finditer(text))
    words = [match[0].lower() for match in matches]
    for start in range(len(words)):
        for length in range(1, (len(words) - start) // REPEATS + 1):
            phrase = words[start : start + length]
            if all(words[start + length * n : start + length * (n + 1)] == phrase for n in range(1, REPEATS)):
                end = matches[start + length - 1].end()
                return text[:end] + (text[end : end + 1] if text[end : end + 1] in ".?!" else "")
    return text
