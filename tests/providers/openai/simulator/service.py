"""The sans-I/O service driven by hand, at any speed, with a referee at both ends."""

from typing import Any

import attrs
import orjson
import pybase64

from providers.openai.simulation.checks import Json
from providers.openai.simulation.sound import Format
from providers.openai.simulation.wire import Closing, Frame
from providers.openai.simulator import Faults, Opening, RealtimeCore, Rule, Script, silence, tone
from tests.providers.openai.simulator.gate import hold_client_event, hold_server_frame
from tests.providers.openai.simulator.order import Order

WHISPER = {"model": "gpt-realtime-whisper"}


@attrs.frozen
class Event:
    """Something the service sent."""

    at: float
    type: str
    fields: Json

    def __getitem__(self, key: str) -> Any:
        return self.fields[key]


def user(text: str, **more: object) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}], **more}


def audio_settings(transcription: Json | None = None, detection: object = "as it is", **output: object) -> Json:
    """The `audio` of a session."""
    given: Json = {"transcription": transcription}
    if detection != "as it is":
        given["turn_detection"] = detection
    return {"input": given, **({"output": output} if output else {})}


class Service:
    """A session that is open and, unless told otherwise, has taken its settings."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        opening: Opening | None = None,
        faults: Faults | None = None,
        updates: bool = True,
        keeps_audio: bool = True,
        **session: object,
    ) -> None:
        self.opening = opening or Opening()
        self.core = RealtimeCore(script or Script(), self.opening, faults=faults, keeps_audio=keeps_audio)
        self.now = 0.0
        self.events: list[Event] = []
        self.frames: list[Frame] = []
        self.closing: Closing | None = None
        self.holds_frames = faults is None or not faults.unknown
        self.order = Order()
        self.core.open(self.now)
        self._take()
        if updates:
            kind = {} if self.opening.preview else {"type": self.opening.kind}
            self.send("session.update", session={**kind, **session})

    # --- driving

    def send(self, event_type: str, **fields: object) -> list[Event]:
        """Send an event; what comes back at once."""
        event: Json = {"type": event_type, **fields}
        before = len(self.core.broken)
        self.core.receive(orjson.dumps(event).decode(), self.now)
        if not any(broken.refused for broken in self.core.broken[before:]):
            hold_client_event(event, preview=self.opening.preview)
        return self._take()

    def send_raw(self, frame: str | bytes) -> list[Event]:
        self.core.receive(frame, self.now)
        return self._take()

    def run(self, seconds: float) -> list[Event]:
        """Let time pass; what comes meanwhile."""
        end, found = self.now + seconds, list[Event]()
        while (due := self.core.next_at()) is not None and due <= end:
            self.now = max(self.now, due)
            found += self._take()
        self.now = end
        return found + self._take()

    def _take(self) -> list[Event]:
        found: list[Event] = []
        for outgoing in self.core.take(self.now):
            if isinstance(outgoing, Closing):
                assert self.closing is None
                self.closing = outgoing
                continue
            assert self.closing is None, "something came behind the end"
            if self.holds_frames:
                hold_server_frame(outgoing.text, azure=self.opening.azure, preview=self.opening.preview)
            self.frames.append(outgoing)
            found.append(Event(outgoing.at, outgoing.type, orjson.loads(outgoing.text)))
            if not self.opening.preview:
                self.order.see(found[-1].fields)
        self.events += found
        return found

    # --- what clients do

    def say(self, text: str) -> list[Event]:
        """A typed turn."""
        return self.send("conversation.item.create", item=user(text)) + self.send("response.create")

    def append(self, audio: bytes) -> list[Event]:
        return self.send("input_audio_buffer.append", audio=pybase64.b64encode(audio).decode())

    def append_speech(self, ms: int, of: Format = Format.PCM) -> list[Event]:
        """Loud audio, 20 ms at a time, as fast as it is spoken."""
        return self._append_paced(tone(of, 20), ms)

    def append_silence(self, ms: int, of: Format = Format.PCM) -> list[Event]:
        return self._append_paced(silence(of, 20), ms)

    def _append_paced(self, chunk: bytes, ms: int) -> list[Event]:
        found: list[Event] = []
        for _ in range(ms // 20):
            found += self.run(0.02) + self.append(chunk)
        return found

    # --- asking

    def of_type(self, event_type: str) -> list[Event]:
        return [event for event in self.events if event.type == event_type]

    def last(self, event_type: str) -> Event:
        return self.of_type(event_type)[-1]

    @property
    def rules(self) -> list[Rule]:
        """The rules that were broken."""
        return [broken.rule for broken in self.core.broken]

    @property
    def response(self) -> Json:
        """The last response that was done."""
        found: Json = self.last("response.done")["response"]
        return found


def types(events: list[Event], *, without: tuple[str, ...] = ("rate_limits.updated",)) -> list[str]:
    """The types in order, repeated ones once."""
    found: list[str] = []
    for event in events:
        if event.type not in without and (not found or found[-1] != event.type):
            found.append(event.type)
    return found


def error_of(events: list[Event]) -> Json:
    """The only thing that came is an error: this."""
    (event,) = events
    assert event.type == "error"
    error: Json = event["error"]
    return error
