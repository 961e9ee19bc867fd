"""Whatever comes, in whatever order: the turns never raise, never get stuck, and keep the rules a client relies on."""

import heapq
import itertools
from collections.abc import Callable
from functools import partial

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.elements import (
    EmotionalState,
    InstructionType,
    MultimodalInteraction,
    MultimodalKind,
    OnInterruption,
    OutCommand,
    OutputElement,
    OutTranscript,
    Partial,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechItem,
    Token,
    Transcript,
)
from engine.errors import ErrorCode
from engine.testing.invariants import check_stream, require
from engine.testing.scripted import final, interim, speech
from tests.engine.protocol.turns_bench import Bench

Step = Callable[[Bench, int], object]
"""Something that happens; the number is its place, so that no words are said twice."""


def wait(seconds: float) -> Step:
    return lambda bench, _: bench.advance(seconds)


def hear(element: RealtimeElement) -> Step:
    return lambda bench, _: bench.receive(element)


def hear_words(response_id: str) -> Step:
    return lambda bench, place: bench.receive(final(f"words {place}", response_id=response_id))


def hear_token(response_id: str) -> Step:
    return lambda bench, place: bench.receive(Token(f" word {place}.", response_id))


def hear_speech(response_id: str) -> Step:
    return hear(SpeechItem(speech(1000), 24000, response_id))


def call_tool(response_id: str, policy: OnInterruption) -> Step:
    return lambda bench, place: bench.call(f"c{place}", response_id, policy)


def type_words(is_echoed: bool) -> Step:
    def step(bench: Bench, place: int) -> None:
        bench.do(bench.machine.interrupt(interim(provider="Client"), bench.now))
        bench.machine.expect_answer(f"typed {place}", "Client", bench.now)
        if is_echoed:
            bench.receive(final(f"typed {place}", provider="Client"))

    return step


def settle_oldest(bench: Bench, _: int) -> None:
    if bench.calls:
        bench.settle(next(iter(bench.calls)))


def instruct(kind: InstructionType) -> Step:
    def step(bench: Bench, place: int) -> None:
        if not bench.machine.turn.is_cut:  # else its planning was cancelled
            instruction = RealtimeInstruction(f"do {place}", kind)
            bench.do(bench.machine.instructed(instruction, bench.machine.turn, bench.now))

    return step


def ask_for_speech(bench: Bench, _: int) -> None:
    bench.do(bench.machine.speech_asked(bench.machine.turn, bench.now))


RESPONSES = st.sampled_from(["r1", "r2", "r3", "r4"])
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(wait, st.sampled_from([0.05, 0.3, 1.0, 2.0, 5.0, 21.0])),
    st.just(hear(interim())),
    st.builds(hear_words, st.sampled_from(["", "r1", "r2", "r3"])),
    st.just(hear(final(" "))),
    st.builds(hear_token, RESPONSES),
    st.builds(hear_speech, RESPONSES),
    st.builds(hear, st.builds(ResponseEnd, RESPONSES, st.sampled_from(list(ResponseStatus)))),
    st.builds(call_tool, RESPONSES, st.sampled_from(list(OnInterruption))),
    st.just(settle_oldest),
    st.builds(hear, st.builds(EmotionalState, st.sampled_from(list(SpeakingState)))),
    st.just(hear(Partial("wor"))),
    st.just(hear(MultimodalInteraction(MultimodalKind.CARD, "menu"))),
    st.just(hear(RealtimeError(ErrorCode.INTERNAL, "Something went wrong."))),
    st.builds(type_words, st.booleans()),
    st.builds(instruct, st.sampled_from(list(InstructionType))),
    st.just(ask_for_speech),
)
EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True)
SAVES = st.sampled_from([0, 0.1, 3.0])
LEGS = st.sampled_from([0, 0.5, 5.0])


def perform(bench: Bench, steps: list[Step]) -> None:
    for place, step in enumerate(steps):
        step(bench, place)
    for call_id in list(bench.calls):
        bench.settle(call_id, error="stopped")


def told(bench: Bench) -> list[tuple[float, OutputElement]]:
    """What the client was told, from `ready` on."""
    return [(0.0, OutCommand("ready", {})), *bench.heard]


@EXAMPLES
@given(
    st.lists(STEPS, max_size=40),
    SAVES,
    LEGS,
    st.booleans(),
    st.sampled_from([ResponseStatus.CANCELLED, ResponseStatus.FAILED]),
    st.booleans(),
)
def test_anything_may_come(
    steps: list[Step], save: float, legs: float, sentences: bool, status: ResponseStatus, gone: bool
) -> None:
    """Random elements at random times, then the session is aborted: nothing is left open, and every rule was kept."""
    bench = Bench(legs, save, sentences)
    perform(bench, steps)
    bench.abort(status, client_is_gone=gone)
    require(check_stream(told(bench)))
    assert bench.exits() == list(dict.fromkeys(bench.exits()))


@EXAMPLES
@given(st.lists(STEPS, max_size=40), SAVES, LEGS)
def test_nothing_is_stuck_afterwards(steps: list[Step], save: float, legs: float) -> None:
    """After anything and some minutes of quiet, an utterance is answered as if nothing had been."""
    bench = Bench(legs, save)
    perform(bench, steps)
    bench.advance(600)
    bench.receive(interim(), final("the last words"), Token("The last answer.", "r9"), ResponseEnd("r9"))
    bench.advance(save)
    assert bench.texts()[-1] == "The last answer."
    bench.advance(10)
    assert bench.closed[-1].user_text == "the last words"
    assert not bench.machine.owes_speech or bench.machine.front.is_fresh
    bench.abort(ResponseStatus.CANCELLED)
    require(check_stream(told(bench)))


# --- a lawful model ---------------------------------------------------------------------------------------------------


@attrs.frozen
class Exchange:
    """An utterance and its answer; the next exchange's interim interrupts what is left of it."""

    how: str
    """Who brings the words: the model before its answer, the model after it (`late`), the engine, or the keyboard."""
    is_named: bool
    before: float
    """Seconds since the interim before."""
    words_after: float
    answer_after: float
    pieces: int
    between: float
    is_cancel_told: bool


TRANSCRIPT_SECONDS = 1.0
"""After the interruption of a turn, at the latest, its transcript has come."""
GAPS = st.sampled_from([0, 0, 0.05, 0.3, 1.0, 1.9, 2.5])
EXCHANGES = st.builds(
    Exchange,
    how=st.sampled_from(["model", "late", "engine", "typed"]),
    is_named=st.booleans(),
    before=st.sampled_from([0, 0.05, 0.3, 1.0, 4.0, 10.0, 25.0]),
    words_after=GAPS,
    answer_after=GAPS,
    pieces=st.integers(1, 3),
    between=GAPS,
    is_cancel_told=st.booleans(),
)


@attrs.define(eq=False)
class Script:
    """What happens when, and what has to come of it."""

    bench: Bench
    words: list[str] = attrs.field(factory=list[str])
    """The user's, in order."""
    answers: list[str] = attrs.field(factory=list[str])
    """Those that nobody interrupted."""
    _events: list[tuple[float, int, Callable[[], object]]] = attrs.field(
        factory=list[tuple[float, int, Callable[[], object]]]
    )
    _order: "itertools.count[int]" = attrs.field(factory=itertools.count)

    def at(self, time: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (time, next(self._order), event))

    def play(self) -> None:
        while self._events:
            time, _, event = heapq.heappop(self._events)
            self.bench.advance(max(0.0, time - self.bench.now))
            event()


def expect_answer(bench: Bench, text: str, provider: str) -> None:
    bench.machine.expect_answer(text, provider, bench.now)


def hear_user(bench: Bench, interim: Transcript, *, is_engines: bool) -> None:
    bench.do((bench.machine.interrupt if is_engines else bench.machine.receive)(interim, bench.now))


def script(bench: Bench, exchanges: list[Exchange]) -> Script:
    """The exchanges, each until the next one's interim."""
    script = Script(bench)
    begins = list(itertools.accumulate(exchange.before for exchange in exchanges))
    last_words = 0.0
    for number, (exchange, begin) in enumerate(zip(exchanges, begins, strict=True)):
        cut = begins[number + 1] if number + 1 < len(begins) else float("inf")
        response_id, text = f"r{number}", f"words {number}"
        provider = "Client" if exchange.how == "typed" else "Scripted"
        begins_at = partial(
            hear_user, bench, interim(provider=provider), is_engines=exchange.how in {"typed", "engine"}
        )
        script.at(begin, begins_at)
        words = max(begin + (0 if exchange.how == "typed" else exchange.words_after), last_words)
        start = words + exchange.answer_after
        end = start + exchange.pieces * exchange.between
        if exchange.how == "late":
            words, has_words = max(last_words, min(end + 0.3, cut + TRANSCRIPT_SECONDS)), True
        else:
            has_words = words < cut  # else the user went on speaking: it is one utterance
        if has_words:
            last_words = words
            script.words.append(text)
            if exchange.how in {"typed", "engine"}:
                script.at(words, partial(expect_answer, bench, text, provider))
            name = response_id if exchange.is_named and exchange.how != "late" else ""
            script.at(words, partial(bench.receive, final(text, provider=provider, response_id=name)))
        elif exchange.how != "late":
            continue
        for piece in range(exchange.pieces):
            time = start + piece * exchange.between
            if time < cut:
                elements = (Token(f" Part {number} {piece}.", response_id), SpeechItem(speech(500), 24000, response_id))
                script.at(time, partial(bench.receive, *elements))
        if end < cut:
            script.at(end, partial(bench.receive, ResponseEnd(response_id)))
            # Else it may have waited for exits and transcripts of earlier turns until it was cut.
            late = sum(earlier.how == "late" for earlier in exchanges[:number])
            if cut - end > bench.save_seconds * (number + 1) + TRANSCRIPT_SECONDS * late:
                script.answers += [f"Part {number} {piece}." for piece in range(exchange.pieces)]
        elif exchange.is_cancel_told and start < cut:
            script.at(cut, partial(bench.receive, ResponseEnd(response_id, ResponseStatus.CANCELLED)))
    return script


@EXAMPLES
@given(st.lists(EXCHANGES, min_size=1, max_size=8), SAVES, LEGS)
def test_a_lawful_model_is_heard(exchanges: list[Exchange], save: float, legs: float) -> None:
    """Every utterance is shown once and in order, every answer nobody interrupted is told whole, and the end finds nothing open."""
    bench = Bench(legs, save)
    play = script(bench, exchanges)
    play.play()
    bench.advance(60 + 21 * len(exchanges))
    assert [e.text for _, e in bench.heard if isinstance(e, OutTranscript) and not e.is_interim] == play.words
    told_words = " ".join(bench.texts())
    assert [part for part in play.answers if part not in told_words] == []
    bench.do(bench.machine.input_ended(bench.now))
    bench.do(bench.machine.recognition_over(bench.now, by_engine=True))
    bench.advance(10)
    assert bench.machine.is_done
    assert [turn.user_text for turn in bench.closed if turn.final is not None] == play.words
    bench.abort(ResponseStatus.CANCELLED)
    require(check_stream(told(bench)))
