"""What the model's side sees of the conversations: when which of the client's frames came, and when it was cut off."""

from array import array

from bench_parts.conversation import FRAMES_PER_SECOND, LEVELS, MODEL_FRAME_BYTES, level_of
from bench_parts.worker import Options, Report, monotonic_ns

MOST_AHEAD = LEVELS // 2
"""Frames that one piece of audio may be ahead of the one before it. More is a level read wrong, where two frames meet."""


class Notes:
    """Kept by whichever process has the model in it. The memory is taken at once, so that it does not count as the sessions'."""

    FIELDS = 4

    def __init__(self, capacity: int) -> None:
        self._rows = array("q", bytes(8 * self.FIELDS * capacity))
        self._used = 0
        self._newest: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._cuts: array[int] = array("q")

    @classmethod
    def for_run(cls, options: Options) -> "Notes":
        """Room for all that may be heard; options as for a server. One session more than are measured comes first, to warm up."""
        return cls((options["sessions"] + 1) * FRAMES_PER_SECOND * options["total_seconds"])

    def heard(self, session: int, sample: int, size: int) -> None:
        """So many bytes of a session's audio have come, of which this is the last sample."""
        now = monotonic_ns()
        total = self._bytes[session] = self._bytes.get(session, 0) + size
        newest = self._newest.get(session, -1)
        level = level_of(sample)
        if level is None or not 0 < (ahead := (level - newest) % LEVELS) <= MOST_AHEAD:
            return
        newest += ahead
        self._newest[session] = newest
        rows, at = self._rows, self._used
        if at < len(rows):
            rows[at] = session
            rows[at + 1] = now
            rows[at + 2] = newest
            rows[at + 3] = (newest + 1) * MODEL_FRAME_BYTES - total
            self._used = at + self.FIELDS

    def cut(self, session: int) -> None:
        """The model says now that the user has begun to speak, in the middle of its answer."""
        self._cuts.extend((session, monotonic_ns()))

    def report(self) -> Report:
        """`arrivals`: session, nanoseconds, the newest frame that has begun to be there, bytes of the frames so far that are
        still to come; `cuts`: session, nanoseconds."""
        return {"arrivals": self._rows[: self._used].tolist(), "cuts": self._cuts.tolist()}
