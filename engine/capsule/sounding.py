"""What became of what an agent said: when it was made, when it left for the client, what of it was heard, what was cut.

A capsule holds what was queued, how often the door took the next one, and what was taken back. The engine's own queue (`Outbox`), fed
with the same, knows the rest.
"""

from functools import lru_cache

import attrs

from engine.elements import JsonObject, OutCommand, OutputElement, OutSpeech, OutText, OutToken
from engine.protocol.hearing import Hearing
from engine.protocol.outbox import Outbox, OutboxFullError, speech_ms

MOST_CHUNK_BYTES = 1 << 20
"""More than a chunk of speech ever has."""
MOST_WAITING = 20_000
"""Elements other than speech; a server gives a client up long before."""
MOST_LOOKED_AT = 2_000_000
"""Elements that all barge-ins together go through: a second's work, which no conversation comes near."""
MOST_SEGMENTS = 2000
"""Of a response: pieces with silence in between."""
DRY_SECONDS = 0.02
"""Silence inside a response's speech that is shorter is none."""
SPEECH_SECONDS = 120.0
"""`engine.config.Settings.outbox_speech_seconds`, where a capsule names no other."""


@attrs.define(eq=False)
class Spoken:
    """One response's speech. Times are seconds, lengths seconds of sound."""

    response_id: str
    turn_id: str
    queued_at: float
    queued: float = 0.0
    sent: float = 0.0
    first_sent: float | None = None
    last_sent: float | None = None
    segments: list[list[float]] = attrs.field(factory=list[list[float]])
    """From and until: when what was sent plays, if the client plays it at once."""
    cut_at: float | None = None
    heard: float | None = None
    """By the time it was cut."""


@attrs.define(eq=False)
class Sounding:
    """Fed with a capsule's records in their order."""

    text_only: bool = False
    speech_seconds: float = SPEECH_SECONDS
    spoken: dict[str, Spoken] = attrs.field(factory=dict[str, Spoken], init=False)
    _outbox: Outbox = attrs.field(init=False)
    _marks: dict[int, tuple[OutputElement, JsonObject]] = attrs.field(
        factory=dict[int, tuple[OutputElement, JsonObject]], init=False
    )
    """The items of what is queued, by the id of the element, which is kept here so that it stays its own."""
    _cut: set[str] = attrs.field(factory=set[str], init=False)
    _looked_at: int = attrs.field(default=0, init=False)
    _plays_until: float = attrs.field(default=0.0, init=False)
    _playing: str = attrs.field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self._outbox = Outbox(Hearing(text_only=self.text_only), self.speech_seconds * 1000, MOST_WAITING)

    def put_speech(self, at: float, element: OutSpeech) -> None:
        spoken = self.spoken.get(element.response_id)
        if spoken is None:
            spoken = self.spoken[element.response_id] = Spoken(element.response_id, element.turn_id, at)
        spoken.queued += speech_ms(element) / 1000
        self._outbox.put(element)

    def put(self, element: OutputElement, item: JsonObject | None = None) -> None:
        """Anything but speech; `item` gets a member `sent` when it is."""
        try:
            self._outbox.put(element)
        except OutboxFullError:
            return  # the client was given up, and is sent nothing more
        if item is not None:
            self._marks[id(element)] = element, item

    def took(self, at: float) -> None:
        """The door took the next one."""
        element = self._outbox.take(at)
        if isinstance(element, OutSpeech):
            self._sent(at, element)
        elif id(element) in self._marks:
            _, item = self._marks.pop(id(element))
            item["sent"] = at

    def _sent(self, at: float, element: OutSpeech) -> None:
        seconds = speech_ms(element) / 1000
        spoken = self.spoken.get(element.response_id)
        if spoken is None or not seconds:
            return
        if spoken.first_sent is None:
            spoken.first_sent = at
        spoken.last_sent = at
        spoken.sent += seconds
        starts = max(self._plays_until, at)
        self._plays_until = starts + seconds
        self._playing = element.response_id
        if spoken.segments and starts - spoken.segments[-1][1] < DRY_SECONDS:
            spoken.segments[-1][1] = self._plays_until
        elif len(spoken.segments) < MOST_SEGMENTS:
            spoken.segments.append([starts, self._plays_until])

    def cut(self, at: float, response_id: str, turn_id: str) -> Spoken | None:
        """What was unsent was taken back, which is done once."""
        spoken = self.spoken.get(response_id)
        if response_id in self._cut:
            return spoken
        self._cut.add(response_id)
        heard = self._outbox.hearing.cut(response_id, at)
        self._looked_at += len(self._outbox)
        if self._looked_at <= MOST_LOOKED_AT:
            self._outbox.cut_response(response_id, turn_id)
        if response_id == self._playing:
            self._plays_until = at
        if spoken is not None:
            spoken.cut_at, spoken.heard = at, heard / 1000
        return spoken

    def playback(self, at: float, response_id: str, played_ms: float) -> None:
        self._outbox.hearing.playback(response_id, int(played_ms), at)


def speech_of(turn_id: str, response_id: str, rate: float, length: float, text: str, *, is_last: bool) -> OutSpeech:
    """Speech as a capsule knows it: silence of the same length."""
    sample_rate = int(rate) if 1000 <= rate <= 1_000_000 else 24000
    data = _silence(int(min(max(length, 0), MOST_CHUNK_BYTES)))
    return OutSpeech(data, sample_rate, turn_id, response_id, is_last=is_last, text=text)


@lru_cache(maxsize=32)
def _silence(length: int) -> bytes:
    """Chunks are of few lengths, and hours of them take no more room than one."""
    return bytes(length)


def words_of(kind: str, name: str, turn_id: str, response_id: str) -> OutputElement:
    """What counts in the queue beside speech."""
    match kind:
        case "OutToken":
            return OutToken("", turn_id, response_id)
        case "OutText":
            return OutText("", turn_id, response_id)
        case _:
            return OutCommand(name, {"responseId": response_id}, turn_id)
