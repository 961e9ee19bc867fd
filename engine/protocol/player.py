"""What a client's loudspeaker plays and when: one response's speech after the other, until a barge-in stops it.

The same rule as a browser's player follows, kept on a time line that can be written to a file.
"""

import attrs

from engine.protocol.audio import SAMPLE_BYTES


@attrs.define(eq=False)
class PlayedLine:
    """Times are seconds since the line began; audio is PCM16 mono at `sample_rate` Hz."""

    sample_rate: int
    _pcm: bytearray = attrs.field(factory=bytearray, init=False)

    @property
    def ends_at(self) -> float:
        """When everything heard so far will have been played."""
        return len(self._pcm) / SAMPLE_BYTES / self.sample_rate

    def play(self, pcm: bytes, now: float) -> None:
        """Speech that arrived: it is played now, or behind what is playing."""
        self._fill(now)
        self._pcm += pcm

    def stop(self, now: float) -> None:
        """A barge-in: what has not been played by now never is."""
        del self._pcm[self._position(now) :]

    def finish(self, now: float) -> bytes:
        """The whole line, as long as the conversation took."""
        self._fill(now)
        return bytes(self._pcm)

    def _fill(self, now: float) -> None:
        missing = self._position(now) - len(self._pcm)
        if missing > 0:
            self._pcm += bytes(missing)

    def _position(self, now: float) -> int:
        return max(0, int(now * self.sample_rate)) * SAMPLE_BYTES
