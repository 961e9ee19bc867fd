"""When the user begins and ends to speak: probabilities of speech in, events out. Sans-I/O.

Time is counted in chunks of audio, so a client that sends faster or slower than real time is heard the same. An utterance
begins with enough speech that no click is one, and is given with a little of what came before it, as the detector hears the
first sound of a word late. It ends with enough silence; some time earlier it pauses, which is when it is worth beginning to
recognize it: most pauses of that length are the end.
"""

from collections import deque
from math import ceil
from typing import Final

import attrs

from providers.local.voice_activity import CHUNK_MS

SPEECH: Final = 0.5
QUIET: Final = 0.35
"""Probabilities: from the first on a chunk is speech, below the second it is not; one between is what the last one was."""
DETECTOR_LAG_MS: Final = 85
"""Speech ends so much before the end of the last chunk that the detector takes for it: the median of 70 utterances, of which
four fifths lie between 57 and 147 ms."""
PRE_ROLL_MS: Final = 320
"""What is kept from before the first chunk of speech. The detector needs up to 120 ms for a soft beginning."""
PAUSE_MS: Final = 224
"""Silence after which the utterance is taken to be over for the purpose of recognizing it. Shorter pauses are common inside
a sentence (stops before consonants, commas); the rest of the 500 ms then hides the recognition, which takes 100 to 200 ms."""
LIMIT_MS: Final = 30_000
"""The longest utterance: as much as Whisper hears at once."""
LIMIT_WINDOW_MS: Final = 5_000
"""An utterance that comes this close to the limit is cut at its next short pause, or at the limit where it was quietest."""
LIMIT_PAUSE_MS: Final = 192
ONSET_GAP_MS: Final = 96
"""Silence that makes what was speech before it, and not long enough, a noise."""
HALF_CHUNK_MS: Final = CHUNK_MS / 2
"""Times are rounded to the nearest chunk."""
RESUMED_CHUNKS: Final = 2
"""Chunks of speech in a row that end a pause: a single one is a breath or a click."""
WITHIN_WORD_MS: Final = 96
"""In a silence up to this long a single chunk of speech is the next sound of the same word."""
COMMITTED_CHUNKS: Final = 2
"""Chunks of speech before a commit that make an utterance: who says that he has spoken needs less proof."""


@attrs.frozen
class TurnDetection:
    """When an utterance begins and ends, in ms."""

    silence_ms: int = 500
    min_speech_ms: int = 200
    complete_silence_ms: int | None = None
    """Silence that ends an utterance whose words are a complete sentence; None: no less than any other."""


@attrs.frozen
class SpeechStarted:
    """The user speaks."""


@attrs.frozen
class Utterance:
    """PCM16 at 16 kHz from shortly before the first sound on, and how much of it is speech."""

    audio: bytes
    speech_ms: int


@attrs.frozen
class SpeechPaused:
    """It may have been all: the utterance as it would be."""

    utterance: Utterance


@attrs.frozen
class SpeechResumed:
    """It was not all: the last pause was one inside the utterance."""


@attrs.frozen
class SpeechEnded:
    """The utterance is complete, or was cut at the limit (`is_cut`) and goes on."""

    utterance: Utterance
    is_cut: bool = False


EndpointEvent = SpeechStarted | SpeechPaused | SpeechResumed | SpeechEnded


@attrs.frozen
class _Chunk:
    pcm: bytes
    probability: float


@attrs.define(eq=False)
class Endpointer:
    """Not speaking, then speaking, again and again."""

    detection: TurnDetection = attrs.field(factory=TurnDetection)
    is_speaking: bool = attrs.field(default=False, init=False)
    _chunks: deque[_Chunk] = attrs.field(factory=deque[_Chunk], init=False)
    """Speaking: the utterance. Not speaking: the pre-roll and what may become the beginning of one."""
    _speech: int = attrs.field(default=0, init=False)
    """Chunks of speech in the utterance, or in what may become one."""
    _quiet: int = attrs.field(default=0, init=False)
    """Chunks since the last one of speech."""
    _again: int = attrs.field(default=0, init=False)
    """Chunks of speech in a row inside a silence."""
    _has_paused: bool = attrs.field(default=False, init=False)
    _is_complete: bool = attrs.field(default=False, init=False)

    @property
    def is_heard(self) -> bool:
        """Whether the user is speaking this very moment, not pausing."""
        return self.is_speaking and not self._quiet

    @property
    def may_pause(self) -> bool:
        """Whether the user is speaking and has not paused yet."""
        return self.is_speaking and not self._has_paused

    @property
    def length_ms(self) -> int:
        """Of the utterance so far."""
        return len(self._chunks) * CHUNK_MS

    def feed(self, pcm: bytes, probability: float) -> list[EndpointEvent]:
        """One chunk of 32 ms and how probably it is speech."""
        self._chunks.append(_Chunk(pcm, probability))
        return self._go_on(probability) if self.is_speaking else self._listen(probability)

    def commit(self, rest: bytes = b"") -> list[EndpointEvent]:
        """The user says that the utterance ends here; `rest` is audio that filled no chunk. Nothing when there was no speech."""
        if not self.is_speaking and self._speech >= COMMITTED_CHUNKS:
            return [*self._start(), *self.flush(rest)]
        return self.flush(rest)

    def flush(self, rest: bytes = b"") -> list[EndpointEvent]:
        """No more audio comes: the utterance under way ends here."""
        events: list[EndpointEvent] = [self._end(rest)] if self.is_speaking else []
        self._reset()
        return events

    def pause(self) -> list[EndpointEvent]:
        """The audio stops coming: it may have been all."""
        if not self.is_speaking or self._has_paused:
            return []
        return self._pause()

    def complete(self) -> None:
        """What was said up to the pause under way is a complete sentence."""
        self._is_complete = self._has_paused

    def utterance(self) -> Utterance:
        """The utterance so far."""
        return Utterance(b"".join(chunk.pcm for chunk in self._chunks), self._speech * CHUNK_MS)

    def _listen(self, probability: float) -> list[EndpointEvent]:
        if probability >= SPEECH:
            self._speech += 1
            self._quiet = 0
            if self._speech >= max(1, round(self.detection.min_speech_ms / CHUNK_MS)):
                return self._start()
        elif self._speech:
            self._quiet += 1
            if self._quiet * CHUNK_MS >= ONSET_GAP_MS:
                self._speech = 0
        if not self._speech:
            while len(self._chunks) * CHUNK_MS > PRE_ROLL_MS:
                self._chunks.popleft()
        return []

    def _start(self) -> list[EndpointEvent]:
        self.is_speaking = True
        self._quiet = 0
        return [SpeechStarted()]

    def _go_on(self, probability: float) -> list[EndpointEvent]:
        events: list[EndpointEvent] = []
        if probability >= SPEECH or (probability >= QUIET and not self._quiet):
            self._again += 1
            is_same_word = not self._has_paused and self._quiet * CHUNK_MS <= WITHIN_WORD_MS
            if is_same_word or self._again >= RESUMED_CHUNKS:
                if self._has_paused:
                    events.append(SpeechResumed())
                self._quiet = 0
                self._has_paused = self._is_complete = False
            else:
                self._quiet += 1
            self._speech += 1
        else:
            self._again = 0
            self._quiet += 1
        return events + self._weigh()

    def _weigh(self) -> list[EndpointEvent]:
        """What the silence so far, and the length so far, mean."""
        silence = self._quiet * CHUNK_MS + DETECTOR_LAG_MS if self._quiet else 0
        needed = self.detection.silence_ms
        if self._is_complete and self.detection.complete_silence_ms is not None:
            needed = min(needed, self.detection.complete_silence_ms)
        if silence and silence + HALF_CHUNK_MS >= needed:
            return self.flush()
        if self.length_ms >= LIMIT_MS - LIMIT_WINDOW_MS and self._quiet * CHUNK_MS >= LIMIT_PAUSE_MS:
            event = self._end(is_cut=True)
            self._reset()
            return [event]
        if self.length_ms + CHUNK_MS > LIMIT_MS:
            return self._cut()
        if silence + HALF_CHUNK_MS >= PAUSE_MS and not self._has_paused:
            return self._pause()
        return []

    def _pause(self) -> list[EndpointEvent]:
        self._has_paused = True
        self._again = 0
        return [SpeechPaused(self.utterance())]

    def _end(self, rest: bytes = b"", *, is_cut: bool = False) -> SpeechEnded:
        utterance = self.utterance()
        return SpeechEnded(attrs.evolve(utterance, audio=utterance.audio + rest), is_cut)

    def _cut(self) -> list[EndpointEvent]:
        """At the limit: cut where the last seconds were quietest, and listen to what comes behind as if it were new."""
        chunks = list(self._chunks)
        first = len(chunks) - ceil(LIMIT_WINDOW_MS / CHUNK_MS)
        quietest = min(range(first, len(chunks)), key=lambda index: (chunks[index].probability, -index))
        place = quietest + 1 if chunks[quietest].probability < QUIET else len(chunks)
        behind = chunks[place:]
        speech = sum(chunk.probability >= SPEECH for chunk in behind)
        utterance = Utterance(b"".join(chunk.pcm for chunk in chunks[:place]), (self._speech - speech) * CHUNK_MS)
        self._reset()
        events: list[EndpointEvent] = [SpeechEnded(utterance, is_cut=True)]
        for chunk in behind:
            events += self.feed(chunk.pcm, chunk.probability)
        return events

    def _reset(self) -> None:
        self.is_speaking = False
        self._chunks.clear()
        self._speech = self._quiet = self._again = 0
        self._has_paused = self._is_complete = False
