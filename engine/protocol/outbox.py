"""What is still to be sent to a client (DESIGN section 3, law 3).

Models deliver speech much faster than it is played. The reader of the model puts here and never waits; the client's writer
takes from here at the client's pace; a barge-in takes back the speech, words and sentences of one response and keeps every
command in its order. Bounded: speech over the limit is shed, and so many elements of other kinds behind that the limit is
reached mean a client that is lost.
"""

from collections import deque

import attrs

from engine.elements import OutCommand, OutputElement, OutSpeech, OutText, OutToken, ResponseStatus, SpeechCut
from engine.errors import ErrorCode, RemoteError, Whose
from engine.protocol.hearing import Hearing

BYTES_PER_SAMPLE = 2


class OutboxFullError(RemoteError):
    """The client is so far behind that commands would have to be dropped: it has to be closed."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.SLOW_CLIENT, "The client reads too slowly and was given up.", whose=Whose.CLIENT)


def speech_ms(element: OutSpeech) -> float:
    """The length of a speech element's audio."""
    return len(element.data) / BYTES_PER_SAMPLE * 1000 / element.sample_rate


@attrs.define(eq=False)
class Outbox:
    """A queue of output elements; `hearing` learns what was queued and what was sent."""

    hearing: Hearing
    max_speech_ms: float
    max_elements: int
    _queue: deque[OutputElement] = attrs.field(factory=deque[OutputElement], init=False)
    _speech_ms: float = attrs.field(default=0.0, init=False)
    _others: int = attrs.field(default=0, init=False)
    _shedding: set[str] = attrs.field(factory=set[str], init=False)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def unsent_speech_ms(self) -> float:
        return self._speech_ms

    def put(self, element: OutputElement) -> bool:
        """Queue an element. False when it was speech and had to be shed: once over the limit, a response's further speech is.

        Raises:
            OutboxFullError: too many elements other than speech are waiting.
        """
        if isinstance(element, OutSpeech):
            return self._put_speech(element)
        if self._others >= self.max_elements:
            raise OutboxFullError
        if isinstance(element, OutText):
            self.hearing.sentence_queued(element.response_id, element.text, element.speech_ms)
        self._others += 1
        self._queue.append(element)
        return True

    def _put_speech(self, element: OutSpeech) -> bool:
        ms = speech_ms(element)
        shed = ms > 0 and (element.response_id in self._shedding or self._speech_ms + ms > self.max_speech_ms)
        if shed:
            self._shedding.add(element.response_id)
            if not element.is_last:
                return False
            element = attrs.evolve(element, data=b"")  # the mark of the end is no speech, and is kept
            ms = 0.0
        if element.is_last:
            self._shedding.discard(element.response_id)
        self.hearing.speech_queued(element.response_id, ms, element.text)
        self._speech_ms += ms
        self._queue.append(element)
        return not shed

    def take(self, now: float) -> OutputElement | None:
        """The next element to send, None when there is none. Call it when the socket can take it: it counts as sent."""
        if not self._queue:
            return None
        element = self._queue.popleft()
        if isinstance(element, OutSpeech):
            ms = speech_ms(element)
            self._speech_ms = max(0.0, self._speech_ms - ms)
            if ms:
                self.hearing.speech_sent(element.response_id, ms, now)
        else:
            self._others -= 1
            if isinstance(element, OutText):
                self.hearing.sentence_sent(element.response_id)
        return element

    def cut_response(self, response_id: str, turn_id: str) -> float:
        """Take back the unsent speech, tokens and sentences of a response; milliseconds of speech that will never be sent.

        A `SpeechCut` stands where the first of it stood, or at the end, so that an open run is closed before anything
        else is said. Its `response-end`, when that is still waiting too, becomes a cancelled one: the client will not hear the
        end of it.
        """
        kept: deque[OutputElement] = deque()
        dropped_ms = 0.0
        cut = SpeechCut(turn_id, response_id)
        is_cut = is_short = False
        for element in self._queue:
            match element:
                case OutSpeech() if element.response_id == response_id:
                    is_short = True
                    dropped_ms += speech_ms(element)
                    if not is_cut:
                        kept.append(cut)
                        is_cut = True
                case OutToken() | OutText() if element.response_id == response_id:
                    is_short = True
                    self._others -= 1
                case OutCommand(name="response-end") if (
                    is_short and element.parameters.get("responseId") == response_id
                ):
                    kept.append(_cancelled(element))
                case _:
                    kept.append(element)
        if not is_cut:
            kept.append(cut)
        self._others += 1
        self._queue = kept
        self._speech_ms = max(0.0, self._speech_ms - dropped_ms)
        self._shedding.discard(response_id)
        if dropped_ms:
            self.hearing.speech_shed(response_id, dropped_ms)
        return dropped_ms


def _cancelled(command: OutCommand) -> OutCommand:
    return attrs.evolve(command, parameters={**command.parameters, "status": ResponseStatus.CANCELLED.value})
