"""Speech that was made before and is likely to be asked for again: greetings, "Of course.", "One moment, please."

An agent begins most of its answers in the same few ways, and each of its sessions with the same words. What is remembered is
heard at once and costs nothing. The longest unused goes first when there is no more room.
"""

from collections import OrderedDict
from collections.abc import Sequence

import attrs

CAPACITY_BYTES = 16 << 20
"""Five and a half minutes of PCM16 at 24 kHz."""
LONGEST_BYTES = 6 * 2 * 24_000
"""6 s: longer pieces hardly come twice."""


@attrs.define(eq=False)
class Repertoire:
    """Stretches of speech by voice and normalized text. Used from one thread."""

    capacity: int = CAPACITY_BYTES
    longest: int = LONGEST_BYTES
    _speech: OrderedDict[tuple[str, str], tuple[bytes, ...]] = attrs.field(
        factory=OrderedDict[tuple[str, str], tuple[bytes, ...]], init=False
    )
    _size: int = attrs.field(default=0, init=False)

    def find(self, voice: str, text: str) -> tuple[bytes, ...] | None:
        stretches = self._speech.get((voice, text))
        if stretches is not None:
            self._speech.move_to_end((voice, text))
        return stretches

    def add(self, voice: str, text: str, stretches: Sequence[bytes]) -> None:
        """Remember a whole piece; one that is too long is not."""
        size = sum(map(len, stretches))
        if size > self.longest or (voice, text) in self._speech:
            return
        self._speech[voice, text] = tuple(stretches)
        self._size += size
        while self._size > self.capacity:
            _, forgotten = self._speech.popitem(last=False)
            self._size -= sum(map(len, forgotten))

    def clear(self) -> None:
        self._speech.clear()
        self._size = 0
