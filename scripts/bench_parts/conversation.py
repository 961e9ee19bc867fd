"""The conversation that is measured: who speaks when, how a frame says when it was sent, and which one it is.

All processes of a measurement need this, and none needs anything of the others. What the agent says is not resampled and can be
stamped with the time; what the user says may be, so its frames are levels, each one step above the one before it.
"""

import struct
from enum import Enum

import attrs

MODEL_RATE = 24000
"""Hz, of the model and of the client's output."""
FRAME_MS = 20
MODEL_FRAME_SAMPLES = MODEL_RATE * FRAME_MS // 1000
MODEL_FRAME_BYTES = 2 * MODEL_FRAME_SAMPLES
FRAMES_PER_SECOND = 1000 // FRAME_MS
WARM_SECONDS = 1.5
"""A session before those that are measured, so that nothing that happens once counts as theirs."""


class Part(Enum):
    """What goes on in a frame's time."""

    PAUSE = "pause"
    USER = "the user speaks"
    AGENT = "the agent speaks"


PATTERN = (
    (Part.USER, 2.5),
    (Part.AGENT, 5.5),
    (Part.PAUSE, 1.0),
    (Part.USER, 2.5),
    (Part.AGENT, 5.0),
    (Part.PAUSE, 1.0),
    (Part.USER, 2.5),
    (Part.AGENT, 4.0),  # the user cuts in here: the pattern begins again with his words
)
"""Seconds of each part. A turn every 8 s, one of three cut off, the agent speaking six tenths of the time."""

PARTS = tuple(part for part, seconds in PATTERN for _ in range(round(seconds * FRAMES_PER_SECOND)))
"""By frame: what it belongs to."""
PATTERN_SECONDS = len(PARTS) // FRAMES_PER_SECOND

SPREAD = 0.6180339887498949
"""The golden ratio: multiples of it are spread evenly over the unit interval, however many there are."""

IN_FLIGHT_FRAMES = 5
"""How many frames of a response come after the user has cut in: what a provider had on its way by then."""
TOKEN_FRAMES = 18
"""Frames between two pieces of text: one word in 360 ms is how people speak."""
TEXT = (
    "Yes, we have a table for four at half past seven. It is by the window and quiet enough to talk. "
    "Shall I keep it for you? I only need a name and a number."
)
WORDS = tuple(TEXT.split())

ID_PREFIX = "bench-"
_STAMP = struct.Struct("<8sq")
_MARK = b"stamped:"
_REST = b"\x01\x00" * ((MODEL_FRAME_BYTES - _STAMP.size) // 2)
"""Not digital silence, so that a silence gate would let it pass."""

INTERIM = "."
"""The interim transcript that says that the user has begun to speak: what the OpenAI provider makes of the service's word."""

LEVELS = 16
_STEP = 64
"""Between two levels. The loudest is 30 dB below the loudest there can be, and what resampling does to it is far less."""
_SAMPLE = struct.Struct("<h")


def session_id(number: int) -> str:
    """Of the session, its agent, the agent's configuration, and its model where the provider is told of one."""
    return f"{ID_PREFIX}{number}"


def session_number(id_: str) -> int:
    """Raises ValueError when it is no such id."""
    return int(id_.removeprefix(ID_PREFIX))


def starting_frame(session: int, lead_seconds: float, length: int) -> int:
    """Where in the pattern a session begins: sessions are spread over it, and the first comes to the cut after the lead."""
    return (round(session * SPREAD * length) - round(lead_seconds * FRAMES_PER_SECOND)) % length


def stamped_frame(nanoseconds: int) -> bytes:
    """20 ms of speech whose first samples are the time at which they were sent."""
    return _STAMP.pack(_MARK, nanoseconds) + _REST


def stamps(pcm: bytes) -> list[int]:
    """The times in the first samples of each frame.

    Raises:
        ValueError: this is not what the model has sent.
    """
    found: list[int] = []
    for start in range(0, len(pcm), MODEL_FRAME_BYTES):
        mark, nanoseconds = _STAMP.unpack_from(pcm, start)
        if mark != _MARK:
            raise ValueError("the speech that arrived is not the speech that was sent")
        found.append(nanoseconds)
    return found


def level_frame(number: int, rate: int) -> bytes:
    """20 ms of what the user says, frame `number` of them, at so many Hz."""
    return _SAMPLE.pack(_STEP * (1 + number % LEVELS)) * (rate * FRAME_MS // 1000)


def level_of(sample: int) -> int | None:
    """The number of its frame, of `LEVELS`; None for what is of none, as silence. Right where a filter has settled (1.5 ms)."""
    level = (sample + _STEP // 2) // _STEP - 1
    return level if 0 <= level < LEVELS else None


def last_sample(pcm: bytes) -> int:
    """Of PCM16; 0 of nothing."""
    found: int = _SAMPLE.unpack_from(pcm, len(pcm) - _SAMPLE.size)[0] if pcm else 0
    return found


@attrs.frozen
class Turn:
    """The user speaks and the agent answers."""

    start: float
    """Seconds in the pattern; so are the others."""
    user_seconds: float
    agent_seconds: float
    is_cut: bool
    """The user cuts in at the end of it."""


def turns() -> list[Turn]:
    """The pattern, by turn."""
    found: list[Turn] = []
    at = 0.0
    for index, (part, seconds) in enumerate(PATTERN):
        if part is Part.USER:
            answer, answer_seconds = PATTERN[index + 1]
            assert answer is Part.AGENT, "whoever speaks is answered"
            is_cut = PATTERN[(index + 2) % len(PATTERN)][0] is Part.USER
            found.append(Turn(at, seconds, answer_seconds, is_cut))
        at += seconds
    return found
