"""The silence gate of a turnless conversation (SPEC L17): such a model speaks without end, digital silence included.

Silence is forwarded until it adds up to an eighth of a second; the frame that takes the count past it is marked as the last of
its burst; what follows is dropped until the model speaks again.
"""

import attrs

from engine.protocol.audio import SAMPLE_BYTES, is_silent

FORWARDED_SILENCE = 1 / 8
"""Seconds."""


@attrs.define(eq=False)
class SilenceGate:
    sample_rate: int
    _silent_bytes: int = attrs.field(default=0, init=False)

    def pass_on(self, pcm: bytes) -> tuple[bool, bool]:
        """Whether to forward a frame, and whether it is the last of its burst."""
        limit = int(self.sample_rate * FORWARDED_SILENCE) * SAMPLE_BYTES
        if not is_silent(pcm):
            self._silent_bytes = 0
            return True, False
        if self._silent_bytes > limit:
            return False, False
        self._silent_bytes += len(pcm)
        return True, self._silent_bytes > limit
