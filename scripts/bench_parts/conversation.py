"""The conversation that is measured: who speaks when, and how a frame says when it was sent.

Both processes of a measurement need this, and neither needs anything of the other.
"""

import struct
from enum import Enum

MODEL_RATE = 24000
"""Hz, of the model and of the client's output."""
FRAME_MS = 20
MODEL_FRAME_SAMPLES = MODEL_RATE * FRAME_MS // 1000
MODEL_FRAME_BYTES = 2 * MODEL_FRAME_SAMPLES
FRAMES_PER_SECOND = 1000 // FRAME_MS


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

_STAMP = struct.Struct("<8sq")
_MARK = b"stamped:"
_REST = b"\x01\x00" * ((MODEL_FRAME_BYTES - _STAMP.size) // 2)
"""Not digital silence, so that a silence gate would let it pass."""

CUT = "cut"
"""The first word of an interim transcript that cuts the agent off; its second is when it was sent."""


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
