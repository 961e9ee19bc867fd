"""The contract of a session: what is true of every conversation, whatever its user, its model, the network and the store do.

`INVARIANTS` names each promise. `check_record` holds a `SessionRecord`, all that is known of one connection, against all of them and
checks what the record has: a client that knows only what it was told fills in `heard` and leaves out the rest.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import attrs

from engine.elements import (
    InputElement,
    InputText,
    OutCommand,
    OutError,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    RealtimeElement,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeechItem,
    Token,
)
from engine.errors import ErrorCode
from engine.interfaces import Message
from engine.protocol.promises import Violation, turn_of
from engine.store.documents import MessageDocument, SessionDocument, SessionState, TurnDocument, UsageDocument
from engine.testing.invariants import Heard, check_lines, check_memory, check_stream, check_turns, require


@attrs.frozen
class Invariant:
    """One promise: its id, as violations name it, and the promise in a sentence."""

    id: str
    promise: str
    why: str
    """What a client may do because of it."""
    needs: tuple[str, ...]
    """Fields of a `SessionRecord`, besides what was heard, without which it is not judged; "stream": it is judged in what was heard
    alone too, as far as that shows."""


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "response-end",
        "Every response ends exactly once, and nothing of it follows its end.",
        "A player and a transcript know when an answer is whole.",
        ("stream",),
    ),
    Invariant(
        "exit",
        "A turn that emitted something has exactly one exit, a noise has none, and nothing of a turn follows its exit.",
        "What a client keeps of a turn can be put away at its exit; a noise leaves nothing to put away.",
        ("stream",),
    ),
    Invariant(
        "barge-in",
        "After the interim that cuts it nothing of a response is heard, and it does not end as completed.",
        "Whoever speaks is not talked over, and what is shown as cut was cut.",
        ("stream",),
    ),
    Invariant(
        "turn-order",
        "Nothing of a turn but its transcripts comes before the exit of the turn before it.",
        "Turns can be shown as they come, without being sorted.",
        ("stream",),
    ),
    Invariant(
        "turn-ids",
        "Whatever is of a turn says so, and a response belongs to one turn.",
        "What comes late finds the turn and the response that it belongs to.",
        ("stream",),
    ),
    Invariant(
        "transcripts",
        "A final transcript has exactly one interim before it, and what is stored is what was shown.",
        "An interim can be replaced in its place by its words, and the history shows the same words.",
        ("stream", "stored"),
    ),
    Invariant(
        "last-frame",
        "The last frame of speech is marked in a completed response, and in no other.",
        "A player knows an answer that was said to its end from one that was not.",
        ("stream",),
    ),
    Invariant(
        "frames",
        "A frame of speech holds whole samples, and at most 100 ms.",
        "Frames can be played as they are, and none holds up what follows.",
        ("stream",),
    ),
    Invariant(
        "tools",
        "A tool call starts once and settles once, for the client, for the model and in what is stored.",
        "A spinner that a call has started is stopped, once, and no model hears of a result twice.",
        ("stream", "settled", "stored"),
    ),
    Invariant(
        "text",
        "Text in is text out: a typed utterance is shown as it was typed, and the words of a complete answer are "
        "shown whole and in order, as tokens and as sentences; of a cut one a beginning is.",
        "What was typed and what was answered can be shown, searched and quoted.",
        ("sent", "said"),
    ),
    Invariant(
        "samples",
        "Samples in are samples out: of a complete answer all speech is sent, of a cut one no more than there was.",
        "Nothing of an answer is missing or said twice.",
        ("said",),
    ),
    Invariant(
        "memory",
        "The order of memory is the order of speaking, and it holds what was heard.",
        "The agent goes on from the conversation that was had, also after a reconnect.",
        ("stored",),
    ),
    Invariant(
        "heard",
        "What is stored as heard is how the answer begins.",
        "The agent does not take for said what was cut off.",
        ("stored",),
    ),
    Invariant(
        "stored-turns",
        "The turns stored are those the client has the exit of, once each, in that order, without a gap.",
        "What was acknowledged is there when a client comes back.",
        ("stored",),
    ),
    Invariant(
        "one-response",
        "At most one response is active at the provider.",
        "Two answers never speak at once, and none is paid for twice.",
        ("spans",),
    ),
    Invariant(
        "once",
        "A session is saved with its end once each time it is held (one that was taken over, by its next holder), "
        "has one usage record, and its disconnect hook runs once.",
        "Bills, histories and what an agent does at its end are right, also when a client vanishes.",
        ("saved", "usage", "disconnects"),
    ),
    Invariant(
        "left-running",
        "When a session has ended nothing of it runs and nothing is open, also when it was cancelled.",
        "A server that has had many sessions is as fast as a new one.",
        ("left_running",),
    ),
    Invariant(
        "bound",
        "A session that is to end does so within a bound.",
        "A client that leaves may come back at once, and a server can be stopped.",
        ("asked_to_end", "ended"),
    ),
    Invariant(
        "isolation",
        "Nothing of one session is in the next one of the same connection.",
        "Two people may use one device after the other.",
        ("stream",),
    ),
    Invariant(
        "queues",
        "Every queue has a bound, and keeps it.",
        "A client that is slow or floods harms itself only.",
        ("stream", "queues"),
    ),
    Invariant(
        "superseded-plan",
        "A plan that the user has overtaken, or a newer pass has replaced, injects nothing.",
        "What the agent is steered by belongs to what the user has said last.",
        ("stream", "instructed"),
    ),
    Invariant(
        "goodbye",
        "A goodbye ends the session, unless the user speaks.",
        "A client may hang up behind a goodbye, and a user may take it back by speaking.",
        ("stream",),
    ),
    Invariant(
        "answered",
        "Whoever speaks is answered, whatever went wrong before, as long as there is a session.",
        "Silence means that there is no session any more, and never that one is stuck.",
        ("unanswered",),
    ),
    Invariant(
        "session-end",
        "A session's last element is its session-end, and nothing comes outside a session.",
        "Whatever a client keeps of a session can be put away.",
        ("stream",),
    ),
)
"""In the order of the page that publishes them (TESTING.md)."""


@attrs.frozen
class Span:
    """A time during which a response was active at the provider; `ended` is None while it is."""

    id: str
    began: float
    ended: float | None = None


@attrs.frozen
class Queue:
    """The most that waited in a queue, and its bound."""

    most: float
    bound: float


@attrs.frozen
class StoredSession:
    """What is kept of one session."""

    turns: Sequence[TurnDocument]
    """In the order of their index; those of this connection's run."""
    messages: Sequence[Message]
    """The conversation as it is remembered at the end."""
    earlier: Sequence[TurnDocument] = ()
    """The turns of runs before, when the session was resumed."""
    lines: Sequence[MessageDocument] = ()
    """Of a conversation without turns: what was said, in the order in which it was stored, runs before included."""


@attrs.define
class SessionRecord:
    """What is known of one connection. What is left out is not checked."""

    heard: Heard
    """What the client was told."""
    sent: Sequence[tuple[float, InputElement]] = ()
    """What the client sent."""
    said: Sequence[tuple[float, RealtimeElement]] = ()
    """What the model gave the engine."""
    instructed: Sequence[tuple[float, RealtimeInstruction]] = ()
    """The instructions the model was given."""
    settled: Sequence[str] = ()
    """The ids of the calls that the model was told the end of."""
    spans: Sequence[Span] = ()
    """The responses at the provider."""
    stored: Sequence[StoredSession] = ()
    """What was stored and remembered of the connection's sessions, in the order of their `ready`."""
    saved: Sequence[SessionDocument] | None = None
    """The session as it was saved, each time."""
    usage: Sequence[UsageDocument] | None = None
    disconnects: int | None = None
    """How often the disconnect hook ran."""
    left_running: Sequence[str] = ()
    """Names of what is still there after the end."""
    asked_to_end: float | None = None
    """When the session had to end, at the latest: the client left, or was gone."""
    ended: float | None = None
    bound_seconds: float = 45.0
    """From there to the end: the session-end timeout, and the clean-up."""
    unanswered: Sequence[str] = ()
    """Words of the user that have to be answered, and were not."""
    queues: Mapping[str, Queue] = attrs.field(factory=dict[str, Queue])
    has_tokens: bool = False
    """The client asked for tokens."""
    text_only: bool = False
    """The client wanted no speech."""
    has_turns: bool = True
    is_over: bool = True


def check_record(record: SessionRecord) -> list[Violation]:
    """Every promise that was broken in what is known of a connection. An empty list is a good one."""
    violations = check_stream(record.heard, is_over=record.is_over, has_turns=record.has_turns)
    for stored, part in zip(record.stored, sessions_of(record.heard), strict=False):
        lost = lost_turns(part)
        violations += check_turns(stored.turns, part if record.is_over else (), lost)
        if record.has_turns:
            kept = [message for message in stored.messages if message.turn_id not in lost]
            violations += check_memory(kept, [*stored.earlier, *stored.turns])
        else:
            violations += check_lines(stored.messages, stored.lines)
    return [
        *violations,
        *check_text(record),
        *check_samples(record),
        *check_settled(record.settled),
        *check_spans(record.spans),
        *check_once(record),
        *check_left(record),
        *check_queues(record.queues),
        *check_plans(record.heard, record.instructed),
    ]


def require_kept(violations: Sequence[Violation], breaks: Mapping[str, str]) -> None:
    """That every promise was kept but those that are broken on purpose (`breaks`, each with the reason), and those are broken.

    Raises:
        AssertionError: one was broken, or was not.
    """
    kept = breaks.keys() - {violation.rule for violation in violations}
    assert not kept, f"nothing has broken {', '.join(sorted(kept))}"
    require(violation for violation in violations if violation.rule not in breaks)


def sessions_of(heard: Heard) -> list[list[tuple[float, OutputElement]]]:
    """A connection's stream, session by session."""
    parts: list[list[tuple[float, OutputElement]]] = []
    for item in heard:
        _, element = item
        if isinstance(element, OutCommand) and element.name == "ready":
            parts.append([])
        if parts:
            parts[-1].append(item)
    return parts


def lost_turns(part: Heard) -> set[str]:
    """Turns of a session that was taken over whose `exit` says that they were not saved: a store refuses what comes late."""
    if not any(_is_taken_over(element) for _, element in part):
        return set()
    exits = [e.parameters for _, e in part if isinstance(e, OutCommand) and e.name == "exit"]
    return {str(each["turnId"]) for each in exits if each.get("saved") is False}


def _is_taken_over(element: OutputElement) -> bool:
    return isinstance(element, OutError) and element.code is ErrorCode.TAKEN_OVER


# --- text and samples -------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Answer:
    tokens: list[str] = attrs.field(factory=list[str])
    sentences: list[str] = attrs.field(factory=list[str])
    seconds: float = 0.0
    is_ended: bool = False
    """In a stream that was heard: with the status completed."""


def _heard_answers(heard: Heard, known: Collection[str]) -> dict[str, _Answer]:
    """By response of the model. One that fell silent may have been ended as idle and be carried on under another id, which the
    model does not know."""
    answers: dict[str, _Answer] = {}
    carried_on: dict[str, str] = {}
    idle = ""

    def of(response_id: str) -> _Answer:
        if response_id not in known:
            response_id = carried_on.setdefault(response_id, idle)
        if response_id not in answers:
            answers[response_id] = _Answer()
        return answers[response_id]

    for _, element in heard:
        match element:
            case OutSpeech():  # first, as most elements are such
                of(element.response_id).seconds += len(element.data) / 2 / element.sample_rate
            case OutToken():
                of(element.response_id).tokens.append(element.text)
            case OutText():
                of(element.response_id).sentences.append(element.text)
            case OutCommand(name="response-end"):
                response_id, status = str(element.parameters["responseId"]), element.parameters["status"]
                of(response_id).is_ended = status == ResponseStatus.COMPLETED
                if status == ResponseStatus.IDLE:
                    idle = carried_on.get(response_id, response_id)
            case _:
                pass
    return answers


def _said_answers(said: Sequence[tuple[float, RealtimeElement]]) -> dict[str, _Answer]:
    answers: dict[str, _Answer] = {}
    for _, element in said:
        if isinstance(element, Token | SpeechItem | ResponseEnd):
            if element.response_id not in answers:
                answers[element.response_id] = _Answer()
            if isinstance(element, Token):
                answers[element.response_id].tokens.append(element.text)
            elif isinstance(element, SpeechItem):
                answers[element.response_id].seconds += len(element.data) / 2 / element.sample_rate
    return answers


def check_text(record: SessionRecord) -> list[Violation]:
    """Text in is text out, both ways."""
    violations: list[Violation] = []
    end = len(record.heard)
    if record.sent:
        typed = {element.text.strip() for _, element in record.sent if isinstance(element, InputText)}
        for index, (at, element) in enumerate(record.heard):
            is_typed = isinstance(element, OutTranscript) and element.provider == "Client" and not element.is_interim
            if isinstance(element, OutTranscript) and is_typed and element.text.strip() not in typed:
                violations.append(Violation("text", f"{element.text!r} was never typed", index, at))
    if not record.said:
        return violations
    said = _said_answers(record.said)
    for response_id, heard in _heard_answers(record.heard, said).items():
        words = "".join(said[response_id].tokens) if response_id in said else ""
        for kind, shown in (("tokens", heard.tokens), ("sentences", heard.sentences)):
            if kind == "tokens" and not record.has_tokens:
                continue
            whole, part = _letters(words), _letters("".join(shown))
            if (heard.is_ended and part != whole) or not whole.startswith(part):
                violations.append(Violation("text", f"{response_id} was {words!r}, its {kind} are {shown}", end))
    return violations


def _letters(text: str) -> str:
    """Without what stands between words: sentences are shown without it."""
    return "".join(text.split())


SAMPLE_TOLERANCE = 0.001
"""Seconds by which a resampled answer may differ."""


def check_samples(record: SessionRecord) -> list[Violation]:
    """Samples in are samples out."""
    if not record.said or record.text_only:
        return []
    violations: list[Violation] = []
    said = _said_answers(record.said)
    for response_id, heard in _heard_answers(record.heard, said).items():
        seconds = said[response_id].seconds if response_id in said else 0.0
        is_short = heard.is_ended and heard.seconds < seconds - SAMPLE_TOLERANCE and not _was_shed(record.heard)
        if is_short or heard.seconds > seconds + SAMPLE_TOLERANCE:
            message = f"{response_id} was {seconds:g} s of speech, {heard.seconds:g} s of it were sent"
            violations.append(Violation("samples", message, len(record.heard)))
    return violations


def _was_shed(heard: Heard) -> bool:
    """The client was told that speech had to be left out, as it is so far behind."""
    return any(isinstance(element, OutError) and element.code == "slow_client" for _, element in heard)


# --- the provider -----------------------------------------------------------------------------------------------------


def check_settled(settled: Sequence[str]) -> list[Violation]:
    """The model is told once how a call ended."""
    return [
        Violation("tools", f"the model was told {count} times how call {call_id} ended")
        for call_id, count in Counter(settled).items()
        if count > 1
    ]


def check_spans(spans: Sequence[Span]) -> list[Violation]:
    """At most one response is active at a time; one may begin at the instant when another ends."""
    violations: list[Violation] = []
    active: Span | None = None
    for span in sorted(spans, key=lambda each: each.began):
        if active is not None and (active.ended is None or span.began < active.ended):
            violations.append(Violation("one-response", f"{span.id} began while {active.id} was active", 0, span.began))
        if active is None or active.ended is None or span.ended is None or span.ended > active.ended:
            active = span
    return violations


# --- the end ----------------------------------------------------------------------------------------------------------


def check_once(record: SessionRecord) -> list[Violation]:
    """What is done once per session, is: saved with an end, one usage record, one disconnect hook."""
    violations: list[Violation] = []
    end = len(record.heard)
    sessions = [e for _, e in record.heard if isinstance(e, OutCommand) and e.name == "ready"]
    count = len(sessions)
    if record.saved is not None:
        distinct: list[SessionDocument] = []
        for session in record.saved:  # the same again, as when the answer of the store was lost, is one
            if session not in distinct:
                distinct.append(session)
        ended = [_run(session) for session in distinct if session.state is not SessionState.OPEN]
        open_ones = {_run(session) for session in record.saved} - set(ended)
        taken_over = sum(_is_taken_over(element) for _, element in record.heard)
        if len(ended) < count - taken_over or len(set(ended)) != len(ended) or open_ones:
            message = f"{count} sessions, saved with an end are {ended}, open are {sorted(open_ones)}"
            violations.append(Violation("once", message, end))
    if record.usage is not None and len({usage.id for usage in record.usage}) != count:
        violations.append(Violation("once", f"{count} sessions, {len(record.usage)} usage records", end))
    if record.disconnects is not None and record.disconnects != count:
        violations.append(Violation("once", f"{count} sessions, {record.disconnects} disconnect hooks", end))
    return violations


def _run(session: SessionDocument) -> tuple[str, int]:
    """A session that is resumed is held anew, and saved anew."""
    return session.id, session.fence


def check_left(record: SessionRecord) -> list[Violation]:
    """Nothing is left running after the end, which comes in time, and nobody is left alone before it."""
    end = len(record.heard)
    violations = [Violation("left-running", f"{name} outlived the session", end) for name in record.left_running]
    violations += [Violation("answered", f"{words!r} were not", end) for words in record.unanswered]
    if record.asked_to_end is not None:
        if record.ended is None:
            violations.append(Violation("bound", "it has not ended", end, record.asked_to_end))
        elif record.ended - record.asked_to_end > record.bound_seconds:
            seconds = record.ended - record.asked_to_end
            violations.append(Violation("bound", f"it took {seconds:g} s to end", end, record.ended))
    return violations


# --- what may never be --------------------------------------------------------------------------------------------------


def check_queues(queues: Mapping[str, Queue]) -> list[Violation]:
    """Every queue keeps its bound."""
    return [
        Violation("queues", f"{queue.most:g} waited in {name}, which holds {queue.bound:g}")
        for name, queue in queues.items()
        if queue.most > queue.bound
    ]


def check_plans(heard: Heard, instructed: Sequence[tuple[float, RealtimeInstruction]]) -> list[Violation]:
    """What the model is told of a plan is of the turn the user is in."""
    overtaken_at: dict[str, float] = {}
    seen: set[str] = set()
    for at, element in heard:
        if isinstance(element, OutTranscript) and element.is_interim:
            for turn_id in seen - {element.turn_id}:
                overtaken_at.setdefault(turn_id, at)
        if turn_of(element):
            seen.add(turn_of(element))
    return [
        Violation(
            "superseded-plan",
            f"the model got an instruction of turn {instruction.turn_id}, which the user has overtaken",
            len(heard),
            at,
            instruction.turn_id,
        )
        for at, instruction in instructed
        if at > overtaken_at.get(instruction.turn_id, at)
    ]
