"""What a client may rely on, judged as it goes by: the promises of the contract (TESTING.md) that its stream alone can break.

    promises = Promises(found.append)
    promises.take(element, now)     # each element, in the order in which it is sent
    promises.end()                  # when the stream is complete

One object for a connection. What it keeps does not grow with the conversation: what is open (turns, responses, calls), and the ids
of the last `memory` of each kind that have ended, so that what comes late is known for what it is. It knows nothing of the
engine's inside and raises nothing, whatever it is given.
"""

import re
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

from engine.elements import (
    OutCommand,
    OutError,
    OutEvaluation,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    SpeechCut,
)

STREAM_PROMISES = (
    "response-end",
    "exit",
    "barge-in",
    "turn-order",
    "turn-ids",
    "transcripts",
    "last-frame",
    "frames",
    "tools",
    "isolation",
    "queues",
    "superseded-plan",
    "goodbye",
    "session-end",
)
"""Those of the contract that are judged here, in its order. Of `queues`: that few things are open at a time."""

MAX_FRAME_MS = 100
"""The most audio in one frame to a client."""
GOODBYE_SECONDS = 150.0
"""The longest a session may go on behind its goodbye: the most speech that waits for a client, and the proof that it was heard."""
MEMORY = 256
"""How many turns, responses and calls are remembered after their end, and the most that may be open: far more than overlap."""


PASS_NUMBER = re.compile("[0-9]{1,9}")


@attrs.frozen
class Violation:
    """A promise that was broken. `index` is the place in the stream, its length for what was missing at the end.

    `message` is for tests: it may hold names and words of the conversation. The rest never does.
    """

    rule: str
    message: str
    index: int = 0
    at: float = 0.0
    turn_id: str = ""
    response_id: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.message} (element {self.index}, t = {self.at:g})"


T = TypeVar("T")


@attrs.define(eq=False)
class _Recent(Generic[T]):
    """The last ids that were added, with something about each."""

    most: int
    known: dict[str, T] = attrs.field(factory=dict[str, T])

    def add(self, new: str, about: T) -> None:
        self.known.pop(new, None)
        self.known[new] = about
        if len(self.known) > self.most:
            del self.known[next(iter(self.known))]


@attrs.define(eq=False)
class _Turn:
    number: int
    """In the order in which the turns of a session appear."""
    has_interim: bool = False
    has_final: bool = False
    emitted: bool = False
    """Something came of it that an `exit` has to acknowledge: words, an answer or a tool call. That a call of an earlier turn
    settles in it is none."""


@attrs.define(eq=False)
class _Response:
    turn_id: str
    has_speech: bool = False
    is_run_open: bool = False
    is_marked: bool = False
    """Its last frame was marked as such."""
    is_dead: bool = False
    """An interim transcript came, which cuts whatever was said before it."""


@attrs.define(eq=False)
class _Call:
    name: str
    turn_id: str


@attrs.define(eq=False)
class _Session:
    """What is known of the session that is open."""

    memory: int
    turns: dict[str, _Turn] = attrs.field(factory=dict[str, _Turn])
    """Those without an exit, in the order in which they appeared; of noises, which have none, the last."""
    emitted: dict[str, _Turn] = attrs.field(factory=dict[str, _Turn])
    """Those of them that need an exit."""
    exited: _Recent[int] = attrs.field(init=False)
    """With their numbers."""
    responses: dict[str, _Response] = attrs.field(factory=dict[str, _Response])
    """Those without an end."""
    ended: _Recent[str] = attrs.field(init=False)
    """With their turns."""
    calls: dict[str, _Call] = attrs.field(factory=dict[str, _Call])
    """Those that run."""
    settled: _Recent[str] = attrs.field(init=False)
    """With their names."""
    passes: _Recent[int] = attrs.field(init=False)
    """The newest planning pass over each turn."""
    count: int = 0
    """Of its turns, noises included."""
    newest_interim: int = 0
    """The number of the turn that the user has spoken in last."""
    goodbye_at: float | None = None

    def __attrs_post_init__(self) -> None:
        self.exited, self.passes = _Recent[int](self.memory), _Recent[int](self.memory)
        self.ended, self.settled = _Recent[str](self.memory), _Recent[str](self.memory)


@attrs.define(eq=False)
class Promises:
    """Judges the stream of one connection. A connection may hold several sessions; each begins anew.

    Without turns, as with a model that speaks continuously, only what is said of sessions, frames, plans and goodbyes holds.
    `has_turns` may be set at any time, and holds from the next `ready`.
    """

    tell: Callable[[Violation], object]
    """Called with each violation, at once."""
    has_turns: bool = True
    memory: int = MEMORY
    index: int = attrs.field(default=-1, init=False)
    now: float = attrs.field(default=0.0, init=False)
    _session: _Session = attrs.field(init=False)
    _earlier: _Recent[int] = attrs.field(init=False)
    """Turns of sessions before this one."""
    _judges_turns: bool = attrs.field(init=False)
    _is_between: bool = attrs.field(default=True, init=False)
    """No session is open: before the first `ready` and after each `session-end`."""
    _turn_id: str = attrs.field(default="", init=False)
    _response_id: str = attrs.field(default="", init=False)
    """What is being judged."""
    _run: _Response | None = attrs.field(default=None, init=False)
    """The response whose speech came last, as long as more of it may follow."""

    def __attrs_post_init__(self) -> None:
        self._session, self._earlier = _Session(self.memory), _Recent[int](self.memory)
        self._judges_turns = self.has_turns

    def take(self, element: OutputElement, now: float) -> None:
        """The next element of the stream, sent at `now` (seconds)."""
        self.index += 1
        self.now = now
        if isinstance(element, OutSpeech) and self._goes_on(element):
            return
        self._run = None
        self._turn_id = turn_of(element)
        self._response_id = response_of(element)
        self._check_goodbye(element)
        match element:
            case OutCommand(name="ready"):
                self._begin_session()
            case OutCommand(name="session-end"):
                self._finish()
                self._forget()
                self._is_between = True
            case OutError() | OutEvaluation():
                pass  # of no turn: they may come anywhere
            case OutCommand(turn_id=""):
                self._need_session(element.name)
                self._take_plan(element)
            case _:
                self._need_session(type(element).__name__)
                self._take_of_turn(element)

    def end(self) -> None:
        """The stream is complete: whatever was begun must have ended."""
        self.index += 1
        if not self._is_between:
            self._broken("session-end", "the stream ends without one", "", "")
        self._finish()

    def _broken(self, rule: str, message: str, turn_id: str | None = None, response_id: str | None = None) -> None:
        turn_id = self._turn_id if turn_id is None else turn_id
        response_id = self._response_id if response_id is None else response_id
        self.tell(Violation(rule, message, self.index, self.now, turn_id, response_id))

    def _goes_on(self, speech: OutSpeech) -> bool:
        """Whether this is one more frame of a run of speech that nothing else came into: most elements are, so it is quick."""
        run = self._run
        return (
            run is not None
            and speech.response_id == self._response_id
            and speech.turn_id == self._turn_id
            and not speech.is_last
            and _is_frame(speech)
            and self._session.goodbye_at is None
        )

    # --- sessions

    def _begin_session(self) -> None:
        if not self._is_between:
            self._broken("session-end", "a session begins before the one before it has ended")
        self._forget()
        self._is_between = False
        self._judges_turns = self.has_turns

    def _forget(self) -> None:
        for turn_id in (*self._session.exited.known, *self._session.turns):
            self._earlier.add(turn_id, 0)
        self._session = _Session(self.memory)

    def _need_session(self, what: str) -> None:
        if self._is_between:
            self._broken("session-end", f"{what} outside a session: session-end is a session's last element")

    def _finish(self) -> None:
        """What must be over when a session is."""
        session = self._session
        for response_id, response in session.responses.items():
            self._broken("response-end", f"response {response_id} has none", response.turn_id, response_id)
        for call_id, call in session.calls.items():
            self._broken("tools", f"call {call_id} of {call.name} was started and never settled", call.turn_id, "")
        for turn_id in session.emitted:
            self._broken("exit", f"turn {turn_id} has none", turn_id, "")

    def _check_goodbye(self, element: OutputElement) -> None:
        """Behind `sessionShouldEnd` the session ends within `GOODBYE_SECONDS`, unless the user speaks."""
        session = self._session
        if session.goodbye_at is not None:
            if isinstance(element, OutTranscript):
                session.goodbye_at = None
            elif self.now - session.goodbye_at > GOODBYE_SECONDS:
                seconds = self.now - session.goodbye_at
                self._broken("goodbye", f"the session goes on {seconds:g} s behind its goodbye")
                session.goodbye_at = None
        if isinstance(element, OutCommand) and element.name == "sessionShouldEnd":
            session.goodbye_at = self.now

    def _has_room(self, kind: str, count: int) -> bool:
        """Whether one more may be open. If not that is told, and what is open is forgotten: more would have to be kept."""
        if count < self.memory:
            return True
        self._broken("queues", f"more than {count} {kind} are open")
        return False

    # --- turns

    def _take_of_turn(self, element: OutputElement) -> None:
        session, turn_id = self._session, self._turn_id
        if isinstance(element, OutSpeech) and not _is_frame(element):
            self._broken("frames", f"a frame of {len(element.data)} bytes at {element.sample_rate} Hz")
        if isinstance(element, SpeechCut) and self._judges_turns:
            response = session.responses.get(element.response_id)
            if response is None or not response.is_run_open:
                return  # nothing of it is open, so that no client is told
        if not turn_id and self._judges_turns:
            self._broken("turn-ids", f"{type(element).__name__} belongs to no turn")
        turn = self._turn(element, turn_id)
        if isinstance(element, OutCommand):
            self._take_plan(element)
        if not self._judges_turns:
            return
        if not (isinstance(element, OutTranscript) and element.is_interim):
            self._check_order(element, turn)
        match element:
            case OutTranscript():
                self._take_transcript(element, turn)
            case OutToken() | OutText() | OutSpeech():
                self._take_content(element, turn)
            case SpeechCut():
                session.responses[element.response_id].is_run_open = False
            case OutCommand():
                self._take_command(element, turn)
            case _:
                pass  # partials, emotions and cards have no more rules

    def _turn(self, element: OutputElement, turn_id: str) -> _Turn:
        session = self._session
        turn = session.turns.get(turn_id)
        if turn is not None:
            return turn
        number = session.exited.known.get(turn_id)
        if number is not None:
            self._broken("exit", f"{_name(element)} of turn {turn_id} after its exit")
            return _Turn(number)  # what comes of it is judged by itself, and needs no second exit
        if turn_id in self._earlier.known:
            self._broken("isolation", f"{_name(element)} of turn {turn_id} of a session before")
        if len(session.turns) >= self.memory:
            self._forget_noise()
        session.count += 1
        turn = session.turns[turn_id] = _Turn(session.count)
        return turn

    def _forget_noise(self) -> None:
        session = self._session
        for turn_id, turn in session.turns.items():
            if not turn.emitted:
                del session.turns[turn_id]
                return
        self._has_room("turns", len(session.turns))
        session.turns.clear()
        session.emitted.clear()

    def _emits(self, turn: _Turn, turn_id: str) -> None:
        if not turn.emitted:
            turn.emitted = True
            if self._session.turns.get(turn_id) is turn:
                self._session.emitted[turn_id] = turn

    def _check_order(self, element: OutputElement, turn: _Turn) -> None:
        """Between the interim of a new turn and the exit of the old one: commands of the old turn, and nothing else but its own
        final transcript, which a provider may bring late."""
        session, turn_id = self._session, self._turn_id
        for other_id, other in session.emitted.items():
            if other.number < turn.number:
                self._broken("turn-order", f"{_name(element)} of turn {turn_id} before the exit of turn {other_id}")
        if turn.number < session.newest_interim and not isinstance(element, OutCommand | SpeechCut | OutTranscript):
            self._broken("barge-in", f"{_name(element)} of turn {turn_id} after the interim of a later turn")

    def _take_transcript(self, transcript: OutTranscript, turn: _Turn) -> None:
        turn_id = transcript.turn_id
        if not transcript.is_interim:
            if not turn.has_interim:
                self._broken("transcripts", f"a final without an interim in turn {turn_id}")
            if turn.has_final:
                self._broken("transcripts", f"a second final in turn {turn_id}")
            turn.has_final = True
            self._emits(turn, turn_id)
            return
        if turn.has_interim:
            self._broken("transcripts", f"a second interim in turn {turn_id}")
        if turn.emitted:
            self._broken("transcripts", f"the interim of turn {turn_id} does not open it")
        turn.has_interim = True
        self._session.newest_interim = max(self._session.newest_interim, turn.number)
        for response in self._session.responses.values():
            response.is_dead = True

    # --- responses

    def _take_content(self, element: OutToken | OutText | OutSpeech, turn: _Turn) -> None:
        self._emits(turn, element.turn_id)
        response = self._response(element.response_id, element.turn_id)
        if response is None:
            self._broken("response-end", f"{_name(element)} of response {element.response_id} after its end")
            return
        if response.is_dead:
            self._broken(
                "barge-in", f"{_name(element)} of response {element.response_id} after the interim that cut it"
            )
        if isinstance(element, OutSpeech):
            self._take_speech(element, response)
            if response.is_run_open and not response.is_dead and turn.number >= self._session.newest_interim:
                self._run = response

    def _take_speech(self, speech: OutSpeech, response: _Response) -> None:
        if response.is_marked:
            self._broken("last-frame", f"speech of response {speech.response_id} after its last")
        if speech.data and response.has_speech and not response.is_run_open:
            self._broken("barge-in", f"speech of response {speech.response_id} after it was cut")
        response.has_speech = response.has_speech or bool(speech.data)
        response.is_marked = speech.is_last
        response.is_run_open = not speech.is_last

    def _response(self, response_id: str, turn_id: str) -> _Response | None:
        """None for one that has ended."""
        session = self._session
        response = session.responses.get(response_id)
        known_turn = response.turn_id if response is not None else session.ended.known.get(response_id)
        if known_turn is not None:
            if known_turn != turn_id:
                self._broken("turn-ids", f"response {response_id} of turn {known_turn} goes on in turn {turn_id}")
            return response
        if not self._has_room("responses", len(session.responses)):
            session.responses.clear()
        response = session.responses[response_id] = _Response(turn_id)
        return response

    def _take_response_end(self, command: OutCommand, turn: _Turn) -> None:
        response_id, status = self._response_id, str(command.parameters.get("status"))
        self._emits(turn, command.turn_id)
        response = self._response(response_id, command.turn_id)
        if response is None:
            self._broken("response-end", f"response {response_id} ends twice")
            return
        if response.is_dead and status != "cancelled":
            self._broken("barge-in", f"response {response_id} was cut and ends as {status}")
        if response.is_marked and status != "completed":
            self._broken("last-frame", f"response {response_id} has a last frame and ends as {status}")
        if response.has_speech and not response.is_marked and status == "completed":
            self._broken("last-frame", f"response {response_id} is complete and has no last frame")
        if response.is_run_open:
            self._broken("barge-in", f"response {response_id} ends while its run of speech is open")
        del self._session.responses[response_id]
        self._session.ended.add(response_id, command.turn_id)

    # --- commands

    def _take_command(self, command: OutCommand, turn: _Turn) -> None:
        match command.name:
            case "response-end":
                self._take_response_end(command, turn)
            case "tool-start":
                self._take_tool_start(command, turn)
            case "tool-success" | "tool-error":
                self._take_tool_end(command, turn)
            case "exit":
                self._take_exit(command, turn)
            case _:
                pass

    def _take_tool_start(self, command: OutCommand, turn: _Turn) -> None:
        session, (call_id, name) = self._session, _call_of(command)
        if call_id in session.calls or call_id in session.settled.known:
            self._broken("tools", f"call {call_id} is started twice")
        elif not self._has_room("calls", len(session.calls)):
            session.calls.clear()
        session.calls[call_id] = _Call(name, command.turn_id)
        self._emits(turn, command.turn_id)

    def _take_tool_end(self, command: OutCommand, turn: _Turn) -> None:
        session, (call_id, name) = self._session, _call_of(command)
        call = session.calls.pop(call_id, None)
        started = call.name if call is not None else session.settled.known.get(call_id)
        if started is None:
            self._broken("tools", f"{command.name} of call {call_id}, which was not started")
            return
        if call is None:
            self._broken("tools", f"{command.name} of call {call_id} ({name}), which was settled")
        elif started != name:
            self._broken("tools", f"{command.name} of call {call_id} ({name}), which was started as {started}")
        elif call.turn_id == command.turn_id:
            self._emits(turn, command.turn_id)
        session.settled.add(call_id, started)

    def _take_exit(self, command: OutCommand, turn: _Turn) -> None:
        session, turn_id = self._session, command.turn_id
        if not turn.emitted:
            self._broken("exit", f"turn {turn_id} emitted nothing")
        for response_id, response in session.responses.items():
            if response.turn_id == turn_id:
                message = f"turn {turn_id} exits before response {response_id} has ended"
                self._broken("response-end", message, turn_id, response_id)
        session.turns.pop(turn_id, None)
        session.emitted.pop(turn_id, None)
        session.exited.add(turn_id, turn.number)

    # --- plans

    def _take_plan(self, command: OutCommand) -> None:
        """What planning whispers is of the turn the user is in, and of the newest pass over it."""
        if command.name not in {"planning-pass", "realtime-instruction"}:
            return
        session = self._session
        turn_id, _, digits = str(command.parameters.get("passId", "")).rpartition("/")
        number = int(digits) if PASS_NUMBER.fullmatch(digits) else 0
        newest = session.passes.known.get(turn_id, 0)
        if command.name == "planning-pass":
            session.passes.add(turn_id, max(newest, number))
            return
        if self._turn_id and self._is_overtaken(self._turn_id):
            self._broken("superseded-plan", f"an instruction of turn {self._turn_id}, which the user has overtaken")
        elif number and number < newest:
            message = f"an instruction of pass {number} over {turn_id}, of which pass {newest} has begun"
            self._broken("superseded-plan", message)

    def _is_overtaken(self, turn_id: str) -> bool:
        turn = self._session.turns.get(turn_id)
        number = turn.number if turn is not None else self._session.exited.known[turn_id]
        return number < self._session.newest_interim


def turn_of(element: OutputElement) -> str:
    """The turn an element says it is of; "" for none."""
    return "" if isinstance(element, OutError | OutEvaluation) else element.turn_id


def response_of(element: OutputElement) -> str:
    """The response an element is of; "" for none."""
    if isinstance(element, OutSpeech | OutText | OutToken | SpeechCut):
        return element.response_id
    return str(element.parameters.get("responseId", "")) if isinstance(element, OutCommand) else ""


def _call_of(command: OutCommand) -> tuple[str, str]:
    return str(command.parameters.get("callId")), str(command.parameters.get("name"))


def _is_frame(speech: OutSpeech) -> bool:
    """Whole samples, and few enough of them: the rate is samples per second, and a sample has 2 bytes."""
    size = len(speech.data)
    return not size % 2 and size * 500 <= MAX_FRAME_MS * speech.sample_rate


def _name(element: OutputElement) -> str:
    return element.name if isinstance(element, OutCommand) else type(element).__name__
