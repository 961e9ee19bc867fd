"""Faults by chance, but the same for the same seed: what a network and a busy service do to a stream of events.

Nothing happens here that the protocol forbids. The order of events on a socket is the service's, so what is reordered is only what
the service itself does in no fixed order, each kind keeping its own:

- the text of spoken words and their audio are two streams that drift apart, and meet again at what closes the message;
- the transcript of what the user said comes anywhere, from before the response to after its end.

What may come twice is `rate_limits.updated`, which tells a state. Unknown types and keys may always come.
"""

import random
from enum import Enum, auto

import attrs

from providers.openai.simulation.script import Disconnect, Drop

UNKNOWN_TYPE = "response.simulated_novelty"
UNKNOWN_KEY = "simulated_novelty"
RATE_LIMITS = "rate_limits.updated"


@attrs.frozen
class Faults:
    """How often what happens; each number is a probability for every event."""

    seed: int
    delay: float = 0.0
    """All that follows comes up to `delay_seconds` later."""
    delay_seconds: float = 0.2
    stall: float = 0.0
    """All that follows comes `stall_seconds` later."""
    stall_seconds: float = 5.0
    drop: float = 0.0
    """The connection is lost in place of the event, in one of `drop_ways`."""
    drop_ways: tuple[Drop, ...] = tuple(Drop)
    duplicate: float = 0.0
    reorder: float = 0.0
    """A stream that may drift falls behind by up to `drift_seconds`."""
    drift_seconds: float = 0.3
    unknown: float = 0.0
    """An event of an unknown type comes first, or a key that nobody knows."""


class Lane(Enum):
    """Events of a lane keep their order."""

    MAIN = auto()
    SPOKEN_TEXT = auto()
    TRANSCRIPT = auto()


def lane_of(event_type: str) -> Lane:
    if event_type.startswith("conversation.item.input_audio_transcription."):
        return Lane.TRANSCRIPT
    if event_type == "response.output_audio_transcript.delta":
        return Lane.SPOKEN_TEXT
    return Lane.MAIN


def _waits_for_text(event_type: str) -> bool:
    """Audio overtakes the words it belongs to, everything else of the main lane waits for them."""
    return event_type != "response.output_audio.delta"


@attrs.frozen
class Passed:
    """What becomes of an event: when it comes, how often, and whether the connection is lost instead."""

    at: float
    times: int = 1
    novelty: str = ""
    """`UNKNOWN_TYPE` for an event before it, `UNKNOWN_KEY` for a key in it."""
    lost: Disconnect | None = None


class Chance:
    """The faults of one connection. Every event takes the same draws, whatever happens to it."""

    def __init__(self, faults: Faults, connection: int) -> None:
        self._faults = faults
        self._random = random.Random(f"{faults.seed}/{connection}")
        self._free_at = dict.fromkeys(Lane, 0.0)
        self._fence_at = 0.0
        """When the last event comes that no lane may overtake."""

    def event(self, event_type: str, now: float) -> Passed:
        faults = self._faults
        late, stalls, lost, twice, drifts, odd, size = (self._random.random() for _ in range(7))
        if lost < faults.drop:
            ways = faults.drop_ways
            return Passed(now, lost=Disconnect(ways[int(size * len(ways))]))
        hiccup = size * faults.delay_seconds if late < faults.delay else 0.0
        if stalls < faults.stall:
            hiccup += faults.stall_seconds
        lane = lane_of(event_type)
        at = max(now, self._free_at[lane], self._fence_at)
        if lane is not Lane.MAIN and drifts < faults.reorder:
            at += size * faults.drift_seconds
        is_fence = lane is Lane.MAIN and _waits_for_text(event_type)
        if is_fence:
            at = max(at, self._free_at[Lane.SPOKEN_TEXT])
        at += hiccup
        self._free_at[lane] = at
        if is_fence or hiccup:
            self._fence_at = max(self._fence_at, at)
        novelty = ""
        if odd < faults.unknown and event_type != "session.created":
            novelty = UNKNOWN_KEY if odd < faults.unknown / 2 else UNKNOWN_TYPE
        return Passed(at, 2 if event_type == RATE_LIMITS and twice < faults.duplicate else 1, novelty)
