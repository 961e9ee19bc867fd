"""What a connection is sent, as it is kept and compared: frames as they are, and runs of sound, on which nothing in an engine depends
any more, as how many frames they were, how long, and a checksum of their ends."""

from typing import Any
from zlib import adler32

import attrs

LONGEST_FRAME = 600
"""Characters. A frame that is longer and ends in sound is none to be kept whole."""
RUN = 50
"""Frames of sound in one record, a second of them: half of what passes a session's boundary is these."""
_BEGINNING = 64
"""Characters of a run's first frame that are kept."""
_MARKS = '"audio"', "append"
_END = 64
"""Characters of each of its frames of which there is a checksum."""


@attrs.define(eq=False)
class Outgoing:
    """One connection's.

    Of a run's frames there is a checksum of their ends: what is resampled or encoded otherwise, or is one sample late, is otherwise to
    the end. It is Adler-32, as others need tables, which drive out of the processor's caches what the conversation needs.
    """

    _opening: str = attrs.field(default="\0", init=False)
    """How a frame of sound begins, as far as they are all alike."""
    _beginning: str = attrs.field(default="", init=False)
    _ends: list[str] = attrs.field(factory=list[str], init=False)
    _length: int = attrs.field(default=0, init=False)

    def add(self, frame: str) -> tuple[Any, ...]:
        """A frame is sent. Gives what is to be kept by now, as plain data, in its order."""
        length = len(frame)
        if length <= LONGEST_FRAME or not (frame.startswith(self._opening) or self._is_another(frame)):
            return (*self.end(), frame) if self._ends else (frame,)
        ends = self._ends
        if not ends:
            self._beginning = frame[:_BEGINNING]
        ends.append(frame[-_END:])
        self._length += length
        return self.end() if len(ends) >= RUN else ()

    def _is_another(self, frame: str) -> bool:
        """It is sound that begins as none did before."""
        if not is_sound(frame):
            return False
        self._opening = frame[: max(frame.index(mark) + len(mark) for mark in _MARKS)]
        return True

    def end(self) -> tuple[Any, ...]:
        """No frame follows. Gives the run that is under way, if there is one: how it begins, its frames, their characters in all, and
        the checksum."""
        if not self._ends:
            return ()
        ends = "".join(self._ends).encode("utf-8", "surrogatepass")
        run = [self._beginning, len(self._ends), self._length, adler32(ends)]
        self._ends, self._length = [], 0
        return (run,)


def is_sound(frame: str) -> bool:
    """It appends sound, in a provider's JSON."""
    if len(frame) <= LONGEST_FRAME:
        return False
    beginning = frame[:128]
    return all(mark in beginning for mark in _MARKS)
