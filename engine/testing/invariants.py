"""What has to be true of every conversation, however it went: rules over what one client was told, and over what was stored.

`check_stream` reads the output elements of a connection in the order in which they were sent (protocol page, section 2);
`check_turns` the stored turns, `check_memory` the conversation as prompts see it. Each returns what it found wrong, so that a test,
a simulation or a replay can say all of it at once; `require` makes a failure of it.

The rules know nothing of the engine's inside: they are what a client may rely on.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from engine.elements import (
    OutCommand,
    OutEmotion,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    SpeechCut,
)
from engine.interfaces import Message, Role
from engine.store.documents import TurnDocument

MAX_FRAME_MS = 100
"""The most audio in one frame to a client."""
TOOL_COMMANDS = frozenset({"tool-start", "tool-success", "tool-error"})

Heard = Sequence[tuple[float, OutputElement]]
"""What a client was told, each with its time in seconds."""


@attrs.frozen
class Violation:
    """A rule that was broken. `index` is the place in the stream, its length for what was missing at the end."""

    rule: str
    message: str
    index: int = 0
    at: float = 0.0

    def __str__(self) -> str:
        return f"{self.rule}: {self.message} (element {self.index}, t = {self.at:g})"


def require(violations: Iterable[Violation]) -> None:
    """Raises AssertionError with every violation, when there is one."""
    lines = [str(violation) for violation in violations]
    if lines:
        raise AssertionError("\n".join(lines))


@attrs.define(eq=False)
class _Turn:
    has_interim: bool = False
    has_final: bool = False
    is_exited: bool = False
    emitted: bool = False
    """Something came of it that an `exit` has to acknowledge: words, an answer or a tool call. That a call of an earlier turn
    settles in it is none."""
    responses: set[str] = attrs.field(factory=set[str])


@attrs.define(eq=False)
class _Response:
    turn_id: str
    status: str = ""
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
    is_settled: bool = False


@attrs.define(eq=False)
class _StreamRules:
    """One pass over a stream. A connection may hold several sessions; each begins anew."""

    has_turns: bool = True
    violations: list[Violation] = attrs.field(factory=list[Violation])
    index: int = 0
    now: float = 0.0
    turns: dict[str, _Turn] = attrs.field(factory=dict[str, _Turn])
    open_turns: dict[str, _Turn] = attrs.field(factory=dict[str, _Turn])
    """Those without an exit, in the order in which they appeared."""
    responses: dict[str, _Response] = attrs.field(factory=dict[str, _Response])
    alive: set[str] = attrs.field(factory=set[str])
    """The responses since the last interim."""
    calls: dict[str, _Call] = attrs.field(factory=dict[str, _Call])
    is_between: bool = True
    """No session is open: before the first `ready` and after each `session-end`."""

    def broken(self, rule: str, message: str) -> None:
        self.violations.append(Violation(rule, message, self.index, self.now))

    def take(self, element: OutputElement) -> None:
        match element:
            case OutCommand(name="ready"):
                self._begin_session()
            case OutCommand(name="session-end"):
                self._end_session()
            case OutError() | OutEvaluation():
                pass  # of no turn: they may come anywhere
            case OutCommand(turn_id=""):
                self._need_session(element.name)
            case _:
                self._need_session(type(element).__name__)
                self._take_of_turn(element)

    # sessions

    def _begin_session(self) -> None:
        if not self.is_between:
            self.broken("session-end", "a session begins before the one before it has ended")
        self._forget()
        self.is_between = False

    def _end_session(self) -> None:
        self.finish()
        self._forget()
        self.is_between = True

    def _forget(self) -> None:
        self.turns, self.open_turns, self.responses, self.calls = {}, {}, {}, {}
        self.alive = set()

    def _need_session(self, what: str) -> None:
        if self.is_between:
            self.broken("session-end", f"{what} outside a session: session-end is a session's last element")

    def finish(self) -> None:
        """What must be over when a session is."""
        for response_id, response in self.responses.items():
            if not response.status:
                self.broken("response-end", f"response {response_id} has none")
        for call_id, call in self.calls.items():
            if not call.is_settled:
                self.broken("tools", f"call {call_id} of {call.name} was started and never settled")
        for turn_id, turn in self.open_turns.items():
            if turn.emitted:
                self.broken("exit", f"turn {turn_id} has none")

    # turns

    def _take_of_turn(self, element: OutputElement) -> None:
        assert not isinstance(element, OutError | OutEvaluation)
        if isinstance(element, OutSpeech):
            self._check_frame(element)
        if not self.has_turns:
            return
        if isinstance(element, SpeechCut):
            response = self.responses.get(element.response_id)
            if response is None or not response.is_run_open:
                return  # nothing of it is open, so that no client is told
        turn_id = element.turn_id
        if not turn_id:
            self.broken("turn ids", f"{type(element).__name__} belongs to no turn")
        if turn_id not in self.turns:
            self.turns[turn_id] = self.open_turns[turn_id] = _Turn()
        turn = self.turns[turn_id]
        is_interim = isinstance(element, OutTranscript) and element.is_interim
        if turn.is_exited:
            self.broken("exit", f"{_name(element)} of turn {turn_id} after its exit")
        if not is_interim:
            self._check_order(element, turn_id)
        match element:
            case OutTranscript():
                self._take_transcript(element, turn)
            case OutToken() | OutText() | OutSpeech():
                self._take_content(element, turn)
            case SpeechCut():
                self.responses[element.response_id].is_run_open = False
            case OutCommand():
                self._take_command(element, turn)
            case OutPartial() | OutEmotion() | OutMultimodal():
                pass

    def _check_order(self, element: OutputElement, turn_id: str) -> None:
        """Between the interim of a new turn and the exit of the old one: commands of the old turn, and nothing else but its own
        final transcript, which a provider may bring late."""
        is_newer = False
        for other_id, other in self.open_turns.items():
            if other_id == turn_id:
                is_newer = True
            elif not is_newer and other.emitted:
                self.broken("turn order", f"{_name(element)} of turn {turn_id} before the exit of turn {other_id}")
            elif is_newer and other.has_interim and not isinstance(element, OutCommand | SpeechCut | OutTranscript):
                self.broken("barge-in", f"{_name(element)} of turn {turn_id} after the interim of turn {other_id}")

    def _take_transcript(self, transcript: OutTranscript, turn: _Turn) -> None:
        if not transcript.is_interim:
            if not turn.has_interim:
                self.broken("transcripts", f"a final without an interim in turn {transcript.turn_id}")
            if turn.has_final:
                self.broken("transcripts", f"a second final in turn {transcript.turn_id}")
            turn.has_final = turn.emitted = True
            return
        if turn.has_interim:
            self.broken("transcripts", f"a second interim in turn {transcript.turn_id}")
        if turn.emitted:
            self.broken("transcripts", f"the interim of turn {transcript.turn_id} does not open it")
        turn.has_interim = True
        for response_id in self.alive:
            self.responses[response_id].is_dead = True
        self.alive.clear()

    def _take_content(self, element: OutToken | OutText | OutSpeech, turn: _Turn) -> None:
        turn.emitted = True
        response_id = element.response_id
        response = self._response(response_id, element.turn_id, turn)
        if response.status:
            self.broken("response-end", f"{_name(element)} of response {response_id} after its end")
        if response.is_dead:
            self.broken("barge-in", f"{_name(element)} of response {response_id} after the interim that cut it")
        if isinstance(element, OutSpeech):
            self._take_speech(element, response)

    def _take_speech(self, speech: OutSpeech, response: _Response) -> None:
        if response.is_marked:
            self.broken("isLast", f"speech of response {speech.response_id} after its last")
        if speech.data and response.has_speech and not response.is_run_open:
            self.broken("barge-in", f"speech of response {speech.response_id} after it was cut")
        response.has_speech = response.has_speech or bool(speech.data)
        response.is_marked = speech.is_last
        response.is_run_open = not speech.is_last

    def _check_frame(self, speech: OutSpeech) -> None:
        if len(speech.data) % 2 or len(speech.data) / 2 * 1000 > MAX_FRAME_MS * speech.sample_rate:
            self.broken("frames", f"a frame of {len(speech.data)} bytes at {speech.sample_rate} Hz")

    def _response(self, response_id: str, turn_id: str, turn: _Turn) -> _Response:
        response = self.responses.get(response_id)
        if response is None:
            response = self.responses[response_id] = _Response(turn_id)
            turn.responses.add(response_id)
            self.alive.add(response_id)
        elif response.turn_id != turn_id:
            self.broken("turn ids", f"response {response_id} of turn {response.turn_id} goes on in turn {turn_id}")
        return response

    # commands

    def _take_command(self, command: OutCommand, turn: _Turn) -> None:
        if command.name == "response-end":
            self._take_response_end(command, turn)
        elif command.name in TOOL_COMMANDS:
            self._take_tool(command, turn)
        elif command.name == "exit":
            self._take_exit(command, turn)

    def _take_response_end(self, command: OutCommand, turn: _Turn) -> None:
        response_id, status = str(command.parameters["responseId"]), str(command.parameters["status"])
        turn.emitted = True
        response = self._response(response_id, command.turn_id, turn)
        if response.status:
            self.broken("response-end", f"response {response_id} ends twice")
        if response.is_dead and status != "cancelled":
            self.broken("barge-in", f"response {response_id} was cut and ends as {status}")
        if response.is_marked and status != "completed":
            self.broken("isLast", f"response {response_id} has a last frame and ends as {status}")
        if response.has_speech and not response.is_marked and status == "completed":
            self.broken("isLast", f"response {response_id} is complete and has no last frame")
        if response.is_run_open:
            self.broken("barge-in", f"response {response_id} ends while its run of speech is open")
        response.status = status

    def _take_tool(self, command: OutCommand, turn: _Turn) -> None:
        call_id, name = str(command.parameters["callId"]), str(command.parameters["name"])
        call = self.calls.get(call_id)
        if command.name == "tool-start":
            if call is not None:
                self.broken("tools", f"call {call_id} is started twice")
            self.calls[call_id] = _Call(name, command.turn_id)
            turn.emitted = True
        elif call is None:
            self.broken("tools", f"{command.name} of call {call_id}, which was not started")
        elif call.is_settled or call.name != name:
            self.broken("tools", f"{command.name} of call {call_id} ({name}) after it was settled as {call.name}")
        else:
            call.is_settled = True
            turn.emitted = turn.emitted or call.turn_id == command.turn_id

    def _take_exit(self, command: OutCommand, turn: _Turn) -> None:
        if not turn.emitted:
            self.broken("exit", f"turn {command.turn_id} emitted nothing")
        for response_id in turn.responses:
            if not self.responses[response_id].status:
                self.broken("response-end", f"turn {command.turn_id} exits before response {response_id} has ended")
        turn.is_exited = True
        self.open_turns.pop(command.turn_id, None)


def check_stream(heard: Heard, *, is_over: bool = True, has_turns: bool = True) -> list[Violation]:
    """What is wrong with a client's stream. `is_over`: it is complete, so that whatever was begun must have ended. Without turns,
    as with a model that speaks continuously, only the rules of sessions and frames hold.

    The rules: every response ends exactly once, with the status of what was sent, and nothing of it follows; after an interim
    comes nothing that was said before it; from there to the old turn's `exit` come only commands of the old turn, and after it
    nothing of that turn; a final has exactly one interim before it; a turn that emitted something has exactly one `exit`, an
    interim that led to nothing has none; a tool call starts once and settles once; the last frame of speech is marked in a
    completed response and in no other; a session's last element is `session-end`.
    """
    rules = _StreamRules(has_turns)
    for rules.index, (rules.now, element) in enumerate(heard):
        rules.take(element)
    rules.index = len(heard)
    if is_over:
        if not rules.is_between:
            rules.broken("session-end", "the stream ends without one")
        rules.finish()
    return rules.violations


def _name(element: OutputElement) -> str:
    return element.name if isinstance(element, OutCommand) else type(element).__name__


# --- what is stored ---------------------------------------------------------------------------------------------------


def check_turns(turns: Sequence[TurnDocument], heard: Heard = ()) -> list[Violation]:
    """What is wrong with the stored turns of one session, in the order of their index; `heard` is its client's whole stream.

    The rules: ids and indexes are used once and leave no gap; what was heard is how the text begins; every tool call is
    settled; the turns are those whose `exit` the client got, in that order, with the words the client saw.
    """
    violations: list[Violation] = []

    def broken(rule: str, message: str) -> None:
        violations.append(Violation(rule, message, len(heard)))

    for turn_id, count in Counter(turn.id for turn in turns).items():
        if count > 1:
            broken("stored turns", f"turn {turn_id} is stored {count} times")
    first = turns[0].index if turns else 0
    if [turn.index for turn in turns] != list(range(first, first + len(turns))):
        broken("stored turns", f"the indexes are {[turn.index for turn in turns]}")
    for turn in turns:
        for output in turn.output:
            words = output.heard.split()
            if output.text.split()[: len(words)] != words:
                broken("heard", f"turn {turn.id}: {output.heard!r} is not how {output.text!r} begins")
        for tool in turn.tools:
            if tool.error == UNFINISHED:
                broken("tools", f"turn {turn.id}: call {tool.call_id} is not settled")
    if heard:
        exits = [str(e.parameters["turnId"]) for _, e in heard if isinstance(e, OutCommand) and e.name == "exit"]
        if exits != [turn.id for turn in turns]:
            broken("stored turns", f"exits for {exits}, stored are {[turn.id for turn in turns]}")
        finals = {e.turn_id: e.text for _, e in heard if isinstance(e, OutTranscript) and not e.is_interim}
        for turn in turns:
            if turn.input.text and turn.input.text != finals.get(turn.id):
                broken("transcripts", f"turn {turn.id} stores {turn.input.text!r}, shown was {finals.get(turn.id)!r}")
    return violations


UNFINISHED = "The call did not finish."
"""What a stored call says that was never settled."""


def check_memory(messages: Sequence[Message], turns: Sequence[TurnDocument]) -> list[Violation]:
    """What is wrong with the conversation as it is remembered: it is the stored turns, in the order in which they were spoken,
    each the user's words and then what was heard of the answers. Older turns may have been forgotten."""
    expected: list[tuple[Role, str, str]] = []
    for turn in turns:
        if turn.input.text and turn.input.kind in {"speech", "text"}:
            expected.append((Role.USER, turn.input.text, turn.id))
        expected.extend((Role.ASSISTANT, output.heard, turn.id) for output in turn.output if output.heard.strip())
    said = [(m.role, m.text, m.turn_id) for m in messages if m.role is not Role.INSTRUCTION]
    if said == expected[max(0, len(expected) - len(said)) :]:
        return []
    return [Violation("memory", f"remembered is {said}, stored is {expected}")]
