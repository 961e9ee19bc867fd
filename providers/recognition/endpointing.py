"""When an utterance begins and when it is over. Sans-I/O; time is counted in audio, not in clocks.

`Endpointer` is the rule; whether a frame holds a voice is decided by what it is given (`Loudness`, or a better detector). Its
laws: an utterance begins when enough of the recent audio was voiced, so that a click is none; it ends after a stretch without
voice, at a commit, or at its longest; its audio starts a little before the first voiced frame, as consonants are quiet, and no
audio is ever in two utterances.
"""

from collections import deque
from typing import Protocol

import attrs
from pydantic import Field

from engine.config import CamelModel
from engine.protocol.audio import Framer, bytes_for_ms, rms_dbfs

FRAME_MS = 20
LONGEST_MS = 30_000
"""What recognizers take at once; the engine's utterance limit is a little more than this."""
COMMIT_MS = 60
"""Voice that makes an utterance when a commit says that there is one: a short "no"."""


class TurnDetection(CamelModel):
    """The `turnDetection` part of a project file, in milliseconds."""

    silence_ms: int = Field(default=500, ge=100, le=10_000)
    """Without a voice for this long the utterance is over."""
    min_speech_ms: int = Field(default=200, ge=20, le=2_000)
    """Voice that is taken for speech; also how long after its start a barge-in is noticed."""
    padding_ms: int = Field(default=300, ge=0, le=2_000)
    """Kept before the first voiced frame."""


@attrs.frozen
class SpeechStarted:
    pass


@attrs.frozen
class SpeechEnded:
    pcm: bytes
    """The utterance: PCM16 mono; nothing when there was no voice in the rest of an overlong one."""


class VoiceDetector(Protocol):
    def __call__(self, frame: bytes, in_speech: bool) -> bool:
        """Whether a frame holds a voice; while one is speaking, less is enough."""
        ...


@attrs.define(eq=False)
class Loudness:
    """A voice is what stands out from the room. Without a model, so that it hears a door as well as a person.

    The room's level is followed down at once and up slowly: speech has dips in every second, in which the room is heard.
    """

    rise_db: float = 6.0
    """Per second; fast enough for a fan that starts, too slow for a sentence."""
    above_db: float = 12.0
    above_in_speech_db: float = 8.0
    quietest_dbfs: float = -50.0
    """Below this nothing is a voice: a microphone in a quiet room is at -60 and less."""
    _room: float | None = attrs.field(default=None, init=False)

    def __call__(self, frame: bytes, in_speech: bool) -> bool:
        level = rms_dbfs(frame)
        room = min(level, self.quietest_dbfs) if self._room is None else self._room
        self._room = min(level, room + self.rise_db * FRAME_MS / 1000)
        above = self.above_in_speech_db if in_speech else self.above_db
        return level > max(room + above, self.quietest_dbfs)


@attrs.define(eq=False)
class Endpointer:
    sample_rate: int
    rule: TurnDetection
    is_voiced: VoiceDetector
    _framer: Framer = attrs.field(init=False)
    _recent: deque[bytes] = attrs.field(init=False)
    """What was heard before an utterance; in one, its frames are in `_frames`."""
    _frames: list[bytes] = attrs.field(factory=list[bytes], init=False)
    _in_speech: bool = attrs.field(default=False, init=False)
    _voiced: int = attrs.field(default=0, init=False)
    """Voiced frames, less those without a voice that followed: how sure it is that someone speaks."""
    _silent: int = attrs.field(default=0, init=False)
    """Frames without a voice at the end of an utterance."""
    _has_voice: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._framer = Framer(bytes_for_ms(FRAME_MS, self.sample_rate))
        # Twice the least speech, as that much may be half voiced.
        self._recent = deque[bytes](maxlen=max(1, (self.rule.padding_ms + 2 * self.rule.min_speech_ms) // FRAME_MS))

    def feed(self, pcm: bytes) -> list[SpeechStarted | SpeechEnded]:
        """Any amount of audio; what happened in it, in order."""
        return [event for frame in self._framer.feed(pcm) for event in self._take(frame)]

    def commit(self) -> list[SpeechStarted | SpeechEnded]:
        """The speaker says that the utterance is over. Without one, nothing happens."""
        events: list[SpeechStarted | SpeechEnded] = []
        if not self._in_speech and self._voiced * FRAME_MS >= COMMIT_MS:
            events.append(self._start())
        if self._in_speech:
            if rest := self._framer.flush():
                self._frames.append(rest)
            events.append(self._end())
        self._framer.flush()
        self._recent.clear()
        self._voiced = 0
        return events

    def _take(self, frame: bytes) -> list[SpeechStarted | SpeechEnded]:
        voiced = self.is_voiced(frame, self._in_speech)
        if not self._in_speech:
            self._recent.append(frame)
            self._voiced = self._voiced + 1 if voiced else max(0, self._voiced - 1)
            return [self._start()] if self._voiced * FRAME_MS >= self.rule.min_speech_ms else []
        self._frames.append(frame)
        self._silent = 0 if voiced else self._silent + 1
        self._has_voice = self._has_voice or voiced
        if self._silent * FRAME_MS >= self.rule.silence_ms:
            return [self._end()]
        if len(self._frames) * FRAME_MS >= LONGEST_MS:
            events: list[SpeechStarted | SpeechEnded] = [self._end(), self._start()]
            self._has_voice = False
            return events
        return []

    def _start(self) -> SpeechStarted:
        self._in_speech = True
        self._frames = list(self._recent)
        self._recent.clear()
        self._silent = 0
        self._has_voice = True
        return SpeechStarted()

    def _end(self) -> SpeechEnded:
        """The utterance, with a third of the silence that ended it: recognizers invent words in long silence."""
        self._in_speech = False
        self._voiced = 0
        spare = max(0, self._silent - self.rule.silence_ms // FRAME_MS // 3)
        kept = self._frames[: len(self._frames) - spare] if self._has_voice else []
        self._frames = []
        return SpeechEnded(b"".join(kept))
