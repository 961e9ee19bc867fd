"""The user's audio on its way to the provider, and whether the user is speaking. Sans-I/O."""

from collections import deque
from collections.abc import Iterator

import attrs

from engine.protocol.audio import SAMPLE_BYTES
from providers.openai import frames
from providers.openai.properties import OpenAIProperties

HELD_SECONDS = 30.0
"""Of audio that waits for a connection; the oldest goes first."""
LEAST_MS = 100.0
"""The service takes no shorter utterance."""
GAP_SECONDS = 0.5
"""Without audio for so long a user who speaks is taken to be silent, as with the engine's own recognition; the service measures
silence in the audio, and would wait for ever."""
MAX_SILENCE_SECONDS = 12.0
"""The service finds an end of speech in no more than 8 s of silence (semantic detection, low eagerness)."""


@attrs.define(eq=False)
class Microphone:
    properties: OpenAIProperties
    is_push_to_talk: bool = attrs.field(init=False)
    """The client says when an utterance is complete."""
    is_speaking: bool = attrs.field(default=False, init=False)
    _pressed_ms: float = attrs.field(default=0.0, init=False)
    """Audio of the utterance that is being spoken, with push-to-talk."""
    _sent_at: float = attrs.field(default=0.0, init=False)
    _silence: float = attrs.field(default=0.0, init=False)
    """Seconds put into a gap."""
    _held: deque[bytes | None] = attrs.field(factory=deque[bytes | None], init=False)
    """Audio, and None for a commit."""
    _held_bytes: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.is_push_to_talk = self.properties.detection.type == "none"

    # --- speaking

    def presses(self, pcm: bytes) -> bool:
        """Audio comes; with push-to-talk its first piece is where the user begins to speak."""
        if not self.is_push_to_talk:
            return False
        is_first = not self.is_speaking
        self._pressed_ms = (0.0 if is_first else self._pressed_ms) + self._ms(pcm)
        return is_first

    @property
    def is_enough(self) -> bool:
        return self._pressed_ms >= LEAST_MS

    def begin(self, now: float) -> None:
        self.is_speaking = True
        self._sent_at = max(self._sent_at, now)
        self._silence = 0.0

    def end(self) -> None:
        self.is_speaking = False

    # --- gaps

    def sent(self, now: float) -> None:
        self._sent_at = now
        self._silence = 0.0

    @property
    def is_in_a_gap(self) -> bool:
        """Silence stands for what the user says: audio that comes now moves the deadline nearer, else it only moves it on."""
        return self._silence > 0

    @property
    def deadline(self) -> float | None:
        if not self.is_speaking or self.is_push_to_talk or self._silence >= MAX_SILENCE_SECONDS:
            return None
        return self._sent_at + GAP_SECONDS

    def tick(self, now: float) -> bytes:
        """Silence to fill a gap with, if there is one."""
        deadline = self.deadline
        if deadline is None or now < deadline:
            return b""
        self._sent_at = now
        self._silence += GAP_SECONDS
        return bytes(int(GAP_SECONDS * self.properties.sample_rate) * SAMPLE_BYTES)

    # --- without a connection

    def hold(self, pcm: bytes) -> None:
        self._held.append(pcm)
        self._held_bytes += len(pcm)
        most = int(HELD_SECONDS * self.properties.sample_rate) * SAMPLE_BYTES
        while self._held_bytes > most:
            oldest = self._held.popleft()
            self._held_bytes -= len(oldest or b"")

    def hold_commit(self) -> None:
        self._held.append(None)

    def drop(self) -> None:
        """What was held of the utterance that was just spoken."""
        while self._held and self._held[-1] is not None:
            self._held_bytes -= len(self._held.pop() or b"")

    def lost(self) -> None:
        self._pressed_ms = 0.0

    def connected(self, now: float) -> Iterator[str]:
        """The frames that were held, in their order."""
        self._sent_at = now
        while self._held:
            held = self._held.popleft()
            yield frames.audio_commit() if held is None else frames.audio_append(held)
        self._held_bytes = 0

    def _ms(self, pcm: bytes) -> float:
        return len(pcm) / SAMPLE_BYTES * 1000 / self.properties.sample_rate
