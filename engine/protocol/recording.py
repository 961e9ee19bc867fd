"""Where the sounds of a conversation belong in a stereo recording of it: the user on the left, the agent on the right.

Laws. Both channels are on the real time line, which begins with the recording; where nothing sounds there is silence. No sample
is lost or doubled, and within a channel none comes before one that was fed earlier: what comes in a burst is laid end to end.
The user's audio ends when it was received. The agent's begins when it was sent, or behind what is still playing; a barge-in takes
back what had not been played. Frames that follow each other are joined without looking at the clock, so nothing drifts with its
rounding; only a gap that no network makes is one.

Nothing is held here but what a resampler holds: speech that is sent ahead goes to its place in the file at once, and is taken
out again when it is cut.
"""

import struct
from collections import OrderedDict
from typing import TypeVar

import attrs

from engine.protocol.audio import SAMPLE_BYTES
from engine.protocol.resample import Resampler

USER, AGENT = 0, 1
"""The channels, left and right."""
MAX_RATE = 24_000
"""Hz. What speech has above 12 kHz is not worth twice the disk."""
FRAME_BYTES = 2 * SAMPLE_BYTES
"""One sample of each channel."""
HEADER_BYTES = 44
MAX_FRAMES = (0xFFFFFFFF - HEADER_BYTES) // FRAME_BYTES
"""A WAV file has 32 bits for its length: 12 hours at 24 kHz."""
USER_GAP_SECONDS = 0.2
"""Frames that come less than this too late are late, not a pause. Networks delay them by less, recognition takes 0.5 s for one."""
AGENT_GAP_SECONDS = 0.05
"""The same for frames on their way out: a player that has run dry makes a pause, which is heard from about here on."""
REMEMBERED = 32
"""Responses whose place is known, and ones that were cut: the newest; older ones cannot be playing any more."""


@attrs.frozen
class Put:
    """Write samples of one channel. Positions count frames from the beginning."""

    channel: int
    position: int
    pcm: bytes


@attrs.frozen
class Erase:
    """Make silence of one channel, from `start` up to `end`."""

    channel: int
    start: int
    end: int


Edit = Put | Erase
V = TypeVar("V")


def recording_rate(user_rate: int, agent_rate: int) -> int:
    """Hz: the higher of both, within reason."""
    return min(max(user_rate, agent_rate), MAX_RATE)


def wav_header(rate: int, frames: int) -> bytes:
    """Of a stereo file of 16 bits."""
    size = frames * FRAME_BYTES
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        HEADER_BYTES - 8 + size,
        b"WAVE",
        b"fmt ",
        16,
        1,
        2,
        rate,
        rate * FRAME_BYTES,
        FRAME_BYTES,
        8 * SAMPLE_BYTES,
        b"data",
        size,
    )


@attrs.define(eq=False)
class StereoLine:
    """Sounds in, edits of the file out, which have to be made in this order.

    Times are seconds of any clock, on which the recording began at `began_at`. Audio is mono PCM16 of whole samples, at any rate,
    else `ValueError`.
    """

    rate: int
    """Hz, of the recording."""
    began_at: float
    max_seconds: float
    """What is behind is left out."""
    _user: "_Track" = attrs.field(init=False)
    _agent: "_Track" = attrs.field(init=False)
    _starts: OrderedDict[str, int] = attrs.field(factory=OrderedDict[str, int], init=False)
    """Where each response begins."""
    _cut: OrderedDict[str, None] = attrs.field(factory=OrderedDict[str, None], init=False)

    def __attrs_post_init__(self) -> None:
        limit = min(int(self.max_seconds * self.rate), MAX_FRAMES)
        self._user = _Track(USER, self.rate, round(USER_GAP_SECONDS * self.rate), limit)
        self._agent = _Track(AGENT, self.rate, round(AGENT_GAP_SECONDS * self.rate), limit)

    @property
    def frames(self) -> int:
        """How long the recording is by now, with what was sent ahead."""
        return max(self._user.end, self._agent.end)

    def user_audio(self, pcm: bytes, rate: int, at: float) -> list[Edit]:
        """What the user said, received at `at`."""
        length = len(pcm) // SAMPLE_BYTES * self.rate // rate
        return self._user.feed(pcm, rate, self._position(at) - length)

    def agent_audio(self, pcm: bytes, rate: int, at: float, response_id: str) -> list[Edit]:
        """What the agent says, sent at `at`. What comes late of a cut response was not heard."""
        if not pcm or response_id in self._cut:
            return []
        edits: list[Edit] = []
        if response_id not in self._starts:
            edits += self._agent.end_run()
            _remember(self._starts, response_id, self._agent.place(self._position(at)))
        return edits + self._agent.feed(pcm, rate, self._position(at))

    def cut(self, response_id: str, at: float) -> list[Edit]:
        """A barge-in: of this response, and of what would have been played behind it, nothing was heard after `at`."""
        _remember(self._cut, response_id, None)
        start = self._starts.get(response_id)
        return [] if start is None else self._agent.cut(max(start, self._position(at)))

    def stop(self, at: float) -> list[Edit]:
        """The client has gone: what it had not played by then it never will."""
        return self._agent.cut(self._position(at))

    def finish(self, at: float) -> list[Edit]:
        """The end of the recording, which is as long as the conversation, and as what was sent takes to be heard."""
        edits = self._user.end_run() + self._agent.end_run()
        self._user.pad(self._position(at))
        return edits

    def _position(self, at: float) -> int:
        return max(0, round((at - self.began_at) * self.rate))


@attrs.define(eq=False)
class _Track:
    """One channel. A run is audio without a pause, resampled in one piece."""

    channel: int
    rate: int
    gap: int
    """Frames."""
    limit: int
    _resampler: Resampler = attrs.field(init=False)
    _start: int = attrs.field(default=0, init=False)
    """Where the run under way begins."""
    _fed: int = attrs.field(default=0, init=False)
    """Samples of it, at their own rate."""
    _given: int = attrs.field(default=0, init=False)
    """Samples of it that were put in their place."""

    def __attrs_post_init__(self) -> None:
        self._resampler = Resampler(self.rate, self.rate)

    @property
    def end(self) -> int:
        """Behind the last sample that was put in its place."""
        return min(self._start + self._given, self.limit)

    @property
    def _next(self) -> int:
        """Where the next sample goes when there is no pause."""
        return self._start + self._fed * self.rate // self._resampler.rate_in

    def place(self, position: int) -> int:
        """Where audio goes that belongs there by the clock."""
        return position if position > self._next + self.gap else self._next

    def feed(self, pcm: bytes, rate: int, position: int) -> list[Edit]:
        edits: list[Edit] = []
        if not pcm:  # it says nothing, also not that there was a pause
            return edits
        if rate != self._resampler.rate_in:
            edits += self.end_run()
            self._resampler = Resampler(rate, self.rate)
        if position > self._next + self.gap:
            edits += self.end_run()
            self._start = position
        self._fed += len(pcm) // SAMPLE_BYTES
        return edits + self._give(self._resampler.feed(pcm))

    def end_run(self) -> list[Edit]:
        edits = self._give(self._resampler.flush())
        self._start += self._given
        self._fed = self._given = 0
        return edits

    def cut(self, position: int) -> list[Edit]:
        """Nothing sounds from there on."""
        if position >= self._next:
            return self.end_run()
        self._resampler.reset()
        end = self.end
        self._start = position
        self._fed = self._given = 0
        return [Erase(self.channel, position, end)] if position < end else []

    def pad(self, position: int) -> None:
        """It lasts until there, if only in silence."""
        self._start = max(self._start, position)

    def _give(self, pcm: bytes) -> list[Edit]:
        position = self._start + self._given
        self._given += len(pcm) // SAMPLE_BYTES
        pcm = pcm[: max(0, self.limit - position) * SAMPLE_BYTES]
        return [Put(self.channel, position, pcm)] if pcm else []


def _remember(places: OrderedDict[str, V], response_id: str, place: V) -> None:
    places[response_id] = place
    while len(places) > REMEMBERED:
        places.popitem(last=False)
