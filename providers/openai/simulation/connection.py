"""What a connection to the simulator was and is: what came, what went, and what can be made to happen on it."""

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import attrs
import orjson
import pybase64
import trio

from providers.openai.simulation.admission import Admitted, Handshake
from providers.openai.simulation.checks import Json
from providers.openai.simulation.core import Broken, RealtimeCore
from providers.openai.simulation.script import Mishap, Refusal, Script, Utterance

Message = TypeVar("Message")


@attrs.frozen
class Received:
    """A message of the client, and when it came, on Trio's clock."""

    at: float
    frame: str | bytes
    event: Json | None
    """None when it was no JSON object."""

    @property
    def type(self) -> str:
        return str(self.event.get("type", "")) if self.event is not None else ""


@attrs.frozen(slots=False)
class Sent:
    """A message to the client, and when it went."""

    at: float
    type: str
    frame: str

    @cached_property
    def event(self) -> Json:
        event: Json = orjson.loads(self.frame)
        return event


@attrs.frozen
class ClientClose:
    """How the client ended the connection: with which code, or 1006 when it just left."""

    at: float
    code: int
    reason: str


@attrs.define(eq=False)
class Observer:
    """Is told of every message at the moment it goes or comes: for measurements, where records would cost too much."""

    sent: Callable[["Connection", str, str], None] | None = None
    """Connection, type and frame, right before it is sent."""
    received: Callable[["Connection", Json], None] | None = None
    """Connection and event."""


@attrs.define(eq=False)
class Connection:
    """One client, from its handshake on."""

    number: int
    """From 0, in the order of their coming; refused ones count."""
    script: Script
    keeps_records: bool = True
    handshake: Handshake | None = attrs.field(default=None, init=False)
    outcome: Admitted | Refusal | None = attrs.field(default=None, init=False)
    core: RealtimeCore | None = attrs.field(default=None, init=False)
    """The session; None before the handshake is done."""
    received: list[Received] = attrs.field(factory=list[Received], init=False)
    sent: list[Sent] = attrs.field(factory=list[Sent], init=False)
    counts: "Counter[str]" = attrs.field(factory=Counter[str], init=False)
    """Messages by type, both ways; there are no types that go both ways. Counted without records too."""
    client_close: ClientClose | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _wake: trio.Event = attrs.field(factory=trio.Event, init=False)

    # --- what a test makes happen

    def speak(self, utterance: Utterance) -> None:
        """The user begins to speak now."""
        self._session().speak(utterance, trio.current_time())
        self.wake()

    def happen(self, mishap: Mishap) -> None:
        """Something goes wrong now."""
        self._session().happen(mishap, trio.current_time())
        self.wake()

    def expire(self) -> None:
        """The session reaches its maximum duration now."""
        self._session().expire(trio.current_time())
        self.wake()

    def _session(self) -> RealtimeCore:
        assert self.core is not None, "the connection is not open"
        return self.core

    # --- what a test asks

    @property
    def broken(self) -> list[Broken]:
        """The rules that the client broke, in order."""
        return self.core.broken if self.core is not None else []

    def events(self, event_type: str) -> list[Json]:
        """What the client sent of a type."""
        return [one.event for one in self.received if one.event is not None and one.type == event_type]

    def sent_events(self, event_type: str) -> list[Json]:
        """What it was sent of a type."""
        return [one.event for one in self.sent if one.type == event_type]

    @property
    def appended_audio(self) -> bytes:
        """All audio that the client appended, refused or not, in order."""
        return b"".join(pybase64.b64decode(event["audio"]) for event in self.events("input_audio_buffer.append"))

    async def wait_received(self, event_type: str, count: int = 1) -> Received:
        """The message that is the client's `count`th of a type, already there or still to come. Needs records."""
        return await self._wait(lambda: [one for one in self.received if one.type == event_type], count)

    async def wait_sent(self, event_type: str, count: int = 1) -> Sent:
        """The message that is the `count`th of a type to the client."""
        return await self._wait(lambda: [one for one in self.sent if one.type == event_type], count)

    async def _wait(self, found: Callable[[], list[Message]], count: int) -> Message:
        while len(found()) < count:
            self._news = trio.Event()
            await self._news.wait()
        return found()[count - 1]

    # --- what the server notes

    def note_received(self, frame: str | bytes, event: Json | None) -> None:
        received = Received(trio.current_time(), frame, event)
        self.counts[received.type] += 1
        if self.keeps_records:
            self.received.append(received)
            self._news.set()

    def note_sent(self, event_type: str, frame: str) -> None:
        self.counts[event_type] += 1
        if self.keeps_records:
            self.sent.append(Sent(trio.current_time(), event_type, frame))
            self._news.set()

    def wake(self) -> None:
        """There is something to send, or it is due earlier."""
        self._wake.set()

    async def wait_until(self, due: float | None) -> None:
        """Wait until then, or until it is woken."""
        with trio.CancelScope() as scope:
            if due is not None:
                scope.deadline = due
            await self._wake.wait()
        self._wake = trio.Event()
