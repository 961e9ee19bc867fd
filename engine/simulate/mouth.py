"""The way of one side's speech to the other's ears: real time, 20 ms at a time, silence in between, and cut by a barge-in. Pure."""

from collections import deque

import attrs

from engine.protocol.audio import bytes_for_ms

RATE = 24000
"""Hz, of both directions: what a connection gets by default. Each session resamples to what its model or recognizer wants."""
FRAME_MS = 20


@attrs.define(eq=False)
class Mouth:
    """One direction. Audio is PCM16 mono at `RATE`."""

    _speech: deque[bytes] = attrs.field(factory=deque[bytes], init=False)
    _offset: int = attrs.field(default=0, init=False)
    """Into the first piece."""
    _goes_on: bool = attrs.field(default=False, init=False)
    """More of what is being said has to come."""
    _is_stalled: bool = attrs.field(default=False, init=False)
    stalls: int = attrs.field(default=0, init=False)
    """How often speech stood still in the middle of a response, because it was not made in time: the other side may take that for
    its end."""

    @property
    def is_silent(self) -> bool:
        return not self._speech

    def say(self, pcm: bytes, *, is_last: bool = True) -> None:
        """Speech that follows what is waiting; `is_last` of its response."""
        if pcm:
            self._speech.append(pcm)
        self._goes_on = not is_last

    def stop(self) -> None:
        """The other side has begun to speak: what was not said by now never is."""
        self._speech.clear()
        self._offset = 0
        self._goes_on = self._is_stalled = False

    def frame(self) -> bytes:
        """The next 20 ms, filled up with silence."""
        wanted = bytes_for_ms(FRAME_MS, RATE)
        taken = bytearray()
        while self._speech and len(taken) < wanted:
            piece = self._speech[0][self._offset : self._offset + wanted - len(taken)]
            taken += piece
            self._offset += len(piece)
            if self._offset >= len(self._speech[0]):
                self._speech.popleft()
                self._offset = 0
        was_stalled, self._is_stalled = self._is_stalled, self._goes_on and len(taken) < wanted
        self.stalls += self._is_stalled and not was_stalled
        return bytes(taken.ljust(wanted, b"\0"))
