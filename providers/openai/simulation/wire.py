"""One connection's way out: ids, the clock, and the frames that wait for their time."""

import heapq
from collections.abc import Callable
from typing import Any

import attrs
import orjson

from providers.openai.simulation.agenda import Agenda, Timer
from providers.openai.simulation.checks import Json
from providers.openai.simulation.faults import UNKNOWN_KEY, UNKNOWN_TYPE, Chance
from providers.openai.simulation.rules import Refused
from providers.openai.simulation.script import Disconnect, Drop, Trouble

OBFUSCATED_TO = 16
"""The `obfuscation` of a text-like delta fills it up to a multiple of so many characters."""
_FILLING = "obfuscation-by-a-simulator" * 2


@attrs.frozen
class Frame:
    """A text frame for the client."""

    at: float
    type: str
    text: str


@attrs.frozen
class Closing:
    """The connection ends, in this way. Nothing comes after it."""

    at: float
    how: Drop
    code: int = 1000
    reason: str = ""


Outgoing = Frame | Closing


def obfuscation(delta: str) -> str:
    """Filling, so that the length of a frame does not tell that of the words."""
    return _FILLING[: OBFUSCATED_TO - len(delta) % OBFUSCATED_TO]


class Wire:
    """Makes events into frames, and keeps them until they are due."""

    def __init__(self, number: int, chance: Chance | None, *, azure: bool) -> None:
        self.now = 0.0
        self.azure = azure
        self.closed = False
        """A closing has been put; what is put after it is lost."""
        self._number = number
        self._chance = chance
        self._agenda = Agenda()
        self._ids = 0
        self._frames: list[tuple[float, int, Outgoing]] = []
        self._count = 0

    # --- ids and time

    def new_id(self, prefix: str) -> str:
        """As the service's: 21 characters behind the prefix; these tell the connection and count."""
        self._ids += 1
        return f"{prefix}_C{self._number:05}N{self._ids:014}"

    def at(self, time: float, action: Callable[[], None]) -> Timer:
        return self._agenda.set(time, action)

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        return self._agenda.set(self.now + seconds, action)

    def advance(self, now: float) -> None:
        """Let everything happen that is due by then, each at its own time."""
        while timer := self._agenda.pop(now):
            self.now = max(self.now, timer.at)
            if timer.action is not None and not self.closed:
                timer.action()
        self.now = max(self.now, now)

    # --- what goes out

    def emit(self, event_type: str, **fields: Any) -> None:
        """An event with its id."""
        event = {"type": event_type, "event_id": self.new_id("event"), **fields}
        self.put(event_type, lambda: orjson.dumps(event).decode(), event)

    def emit_delta(self, event_type: str, place: Json, delta: str) -> None:
        """A text-like delta."""
        self.emit(event_type, **place, delta=delta, obfuscation=obfuscation(delta))

    def emit_prepared(self, event_type: str, head: str, tail: str) -> None:
        """An event whose JSON is made but for its id, which stands between `head` and `tail`."""
        text = f"{head}{self.new_id('event')}{tail}"
        self.put(event_type, lambda: text)

    def emit_error(self, error: Refused | Trouble, event_id: str | None = None) -> None:
        if isinstance(error, Refused):
            error_type, names_event = error.error_type, error.names_event
        else:
            error_type, names_event = error.type, True
        self.emit(
            "error",
            error={
                "type": error_type,
                "code": error.code,
                "message": error.message,
                "param": error.param,
                "event_id": event_id if names_event else None,
            },
        )

    def put(self, event_type: str, text: Callable[[], str], event: Json | None = None) -> None:
        """Queue an event, as chance has it. With `event`, `text` makes its JSON when it is called."""
        if self._chance is None:
            self._queue(Frame(self.now, event_type, text()))
            return
        passed = self._chance.event(event_type, self.now)
        if passed.lost is not None:
            self.close(passed.lost.how, passed.lost.code, passed.lost.reason)
            return
        if passed.novelty == UNKNOWN_TYPE:
            novelty = {"type": UNKNOWN_TYPE, "event_id": self.new_id("event")}
            self._queue(Frame(passed.at, UNKNOWN_TYPE, orjson.dumps(novelty).decode()))
        elif passed.novelty == UNKNOWN_KEY and event is not None:
            event[UNKNOWN_KEY] = {"of": "interest", "to": []}
        for _ in range(passed.times):
            self._queue(Frame(passed.at, event_type, text()))

    def close(self, how: Drop, code: int = 1000, reason: str = "") -> None:
        """End the connection behind what has been put so far; an abrupt or silent end overtakes what still waits."""
        if not self.closed:
            last = max((at for at, _, _ in self._frames), default=self.now) if how is Drop.CLOSE else self.now
            self.closed = True
            self._queue(Closing(max(self.now, last), how, code, reason))

    def disconnect(self, disconnect: Disconnect) -> None:
        self.close(disconnect.how, disconnect.code, disconnect.reason)

    def _queue(self, outgoing: Outgoing) -> None:
        if self.closed and not isinstance(outgoing, Closing):
            return
        self._count += 1
        heapq.heappush(self._frames, (outgoing.at, self._count, outgoing))

    def next_at(self) -> float | None:
        """When something will have to be done; None when only the client can bring anything about."""
        frame = self._frames[0][0] if self._frames else None
        timer = None if self.closed else self._agenda.next_at()
        if frame is None or timer is None:
            return frame if timer is None else timer
        return min(frame, timer)

    def take(self, now: float) -> list[Outgoing]:
        """What is due by now, in order."""
        self.advance(now)
        due: list[Outgoing] = []
        while self._frames and self._frames[0][0] <= now:
            due.append(heapq.heappop(self._frames)[2])
        return due
