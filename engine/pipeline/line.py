"""The line between a client's door and its session: an inbox and an outbox, with somebody waiting at each.

The door's reader puts what it received and its writer takes what to send; the session does the opposite. The session's side of
the outbox is synchronous: a session never waits for its client (DESIGN section 3, law 3).
"""

from collections.abc import Callable

import attrs
import trio

from engine.boundary import Boundary
from engine.config import PipelineConfiguration, Settings
from engine.elements import InputAudio, InputElement, OutputElement, OutSpeech, SpeechCut
from engine.pipeline.contract_watch import ContractWatch
from engine.protocol.hearing import Hearing
from engine.protocol.inbox import Inbox
from engine.protocol.outbox import Outbox, OutboxFullError
from engine.recording import SessionRecorder


def open_line(configuration: PipelineConfiguration, settings: Settings) -> "ClientLine":
    """The line of one connection, with the bounds of the settings."""
    outbox = Outbox(
        Hearing(text_only=configuration.text_only),
        max_speech_ms=settings.outbox_speech_seconds * 1000,
        max_elements=settings.outbox_elements,
    )
    return ClientLine(Inbox(settings.inbox_bytes, settings.inbox_elements), outbox)


@attrs.define(eq=False)
class ClientLine:
    """One client connection as a session sees it."""

    inbox: Inbox
    outbox: Outbox
    recorder: SessionRecorder | None = attrs.field(default=None, init=False)
    """Set by a session that is recorded: it hears what is sent, when it is sent."""
    boundary: Boundary | None = attrs.field(default=None, init=False)
    """Set by a session that is kept: it is told what passes."""
    contract: ContractWatch | None = attrs.field(default=None, init=False)
    """Set by a session that is judged: it is told what is sent, when it is sent."""
    _earlier: int = attrs.field(default=0, init=False)
    """Of what waits to be sent, so much is none of the kept session's."""
    take_audio: Callable[[InputAudio], bool] | None = attrs.field(default=None, init=False)
    """Set by a session that can work off audio in the door's task; False when it would have to wait.

    It is asked only while the session has nothing in hand and nothing waits in the inbox, so the order stays what it was. Most
    input is audio, and to wake a task for a frame costs several times what is to be done with it.
    """
    _input_ended: bool = attrs.field(default=False, init=False)
    _output_ended: bool = attrs.field(default=False, init=False)
    _is_lost: bool = attrs.field(default=False, init=False)
    _arrived: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Not set: the session has taken all there was and waits for more."""
    _room: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ready: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def hearing(self) -> Hearing:
        return self.outbox.hearing

    # the door's side

    async def put_input(self, element: InputElement) -> None:
        """Hand in what was received; waits for room, and the caller bounds the wait."""
        if self.boundary is not None:
            self.boundary.received(element)
        is_idle = not self._arrived.is_set()
        if is_idle and self.take_audio is not None and isinstance(element, InputAudio) and self.take_audio(element):
            return
        while not self.inbox.has_room(element):
            self._room = trio.Event()
            await self._room.wait()
        self.inbox.put(element)
        self._arrived.set()

    def end_input(self) -> None:
        """No input will follow: the session ends gracefully. What was handed in is still worked off."""
        self._input_ended = True
        if self.boundary is not None:
            self.boundary.input_ended()
        self._arrived.set()

    async def take_output(self) -> OutputElement | None:
        """The next element to send; None when the output has ended. What is taken counts as sent."""
        while True:
            element = self.outbox.take(trio.current_time())
            if element is not None:
                if self._earlier:
                    self._earlier -= 1
                elif self.boundary is not None:
                    self.boundary.took()
                if self.recorder is not None and isinstance(element, OutSpeech) and element.data:
                    now = trio.current_time()
                    self.recorder.agent_audio(element.data, element.sample_rate, now, element.response_id)
                if self.contract is not None:
                    self.contract.sent(element, trio.current_time())
                return element
            if self._output_ended:
                if self.contract is not None and not self._is_lost:  # else the client is owed what it did not read
                    self.contract.over()
                    self.contract = None
                return None
            self._ready = trio.Event()
            await self._ready.wait()

    # the session's side

    async def take_input(self) -> InputElement:
        """The next element.

        Raises:
            trio.EndOfChannel: the client has ended its input and all of it was taken.
        """
        while True:
            element = self.inbox.take()
            if element is not None:
                self._room.set()
                return element
            if self._input_ended:
                raise trio.EndOfChannel
            self._arrived = trio.Event()
            await self._arrived.wait()

    def put_output(self, element: OutputElement) -> bool:
        """Queue an element for the client; never waits. False when it was speech that had to be shed.

        Raises:
            OutboxFullError: the client is lost. It is said once, and ends the session; what the session says on its way out is
                for nobody.
        """
        if self._is_lost:
            return True
        if self.boundary is not None:
            self.boundary.told(element)
        try:
            kept = self.outbox.put(element)
        except OutboxFullError:
            self._is_lost = True
            raise
        self._ready.set()
        return kept

    @property
    def is_lost(self) -> bool:
        """The client reads so slowly that it was given up."""
        return self._is_lost

    def keep_at(self, boundary: Boundary) -> None:
        """A session begins that is kept: it is told of what waits for it already, and of all that passes from now on."""
        for element in self.inbox.waiting():
            boundary.received(element)
        if self._input_ended:
            boundary.input_ended()
        self._earlier = len(self.outbox)
        self.boundary = boundary

    def cut_response(self, response_id: str, turn_id: str) -> None:
        """A barge-in: take back what is unsent of a response's speech and words."""
        if self.boundary is not None:
            self.boundary.took_back(response_id, turn_id)
        self.outbox.cut_response(response_id, turn_id)
        if self.recorder is not None:
            self.recorder.cut(response_id, trio.current_time())
        self._ready.set()

    def close_run(self, response_id: str, turn_id: str) -> None:
        """The speech of a response ended without being complete: its run is closed behind what was queued."""
        self.put_output(SpeechCut(turn_id, response_id))

    def end_output(self) -> None:
        """Nothing will follow; the writer sends what is queued, then stops."""
        self._output_ended = True
        self._ready.set()
