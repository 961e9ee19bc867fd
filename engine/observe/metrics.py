"""What operators measure: an `Observer` that counts, and the text that Prometheus reads at `/metrics` (SPEC T5).

    metrics = make_metrics(settings.metrics_directory)
    body, content_type = metrics.exposition()

The official client was measured first. Its way for several processes keeps a map of files that only grows, is chosen for the whole
process by an environment variable before the import, so that no two services have registries of their own, and cannot ask a
function for a gauge; and an observation costs 1.9 to 2.9 µs with it, against 0.3 to 0.6 here (`tests/engine/observe/costs.py`).
Snapshots would lose what a killed process had counted since the last one, and would let sums go back when two workers are
asked in turn, which Prometheus takes for a restart.

Everything here is called in the thread of the loop. A frame of audio touches no metric.
"""

import os
import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from engine.observation import Happening, Observer, Outcome, Span, SpanKind
from engine.observe.exposition import CONTENT_TYPE, expose
from engine.observe.families import (
    LOOP_SECONDS,
    SESSION_SECONDS,
    STORE_SECONDS,
    VOICE_SECONDS,
    Family,
    Kind,
    Label,
    Series,
    Totals,
)
from engine.observe.lateness import LatenessMeter, watch_lateness
from engine.observe.page import Page, entries
from engine.observe.steps import StepSearch
from engine.observe.workers import fold, most_bytes, open_page, read_others
from engine.store.documents import SessionDocument, TurnDocument

SAMPLE_SECONDS = 1.0
"""How old a gauge that is asked for may be when another process gives it out."""
OPEN_SPANS = 256
"""Of one session, whose begin is remembered: far more than run at once."""

_PROVIDER = Label("provider", 24)
_OUTCOME = Label("outcome", len(Outcome))

SESSIONS = Family(Kind.GAUGE, "sessions", "Sessions that run now.", (_PROVIDER,))
SESSIONS_OPENED = Family(Kind.COUNTER, "sessions_opened_total", "Sessions that began to run.", (_PROVIDER,))
SESSIONS_ENDED = Family(
    Kind.COUNTER,
    "sessions_ended_total",
    "Sessions that ended. Those of a killed process were opened and never ended.",
    (_PROVIDER, Label("state", 4)),
)
ACTIVE_SECONDS = Family(
    Kind.COUNTER, "session_active_seconds_total", "Active time of ended sessions, as in their usage.", (_PROVIDER,)
)
REFUSALS = Family(Kind.COUNTER, "refusals_total", "Who was not let in, by reason.", (Label("reason", 40),))
TURNS = Family(Kind.COUNTER, "turns_total", "Turns that ended.", (Label("input", 4), Label("interrupted", 2)))
TURN_STAGES = Family(
    Kind.HISTOGRAM,
    "turn_stage_seconds",
    "Stages of a turn: the final transcript after the last interim, of what was spoken; the first text and the first"
    " audio after the final transcript; the last text and the last audio after the first.",
    (Label("stage", 5),),
    VOICE_SECONDS,
)
SPANS = {
    SpanKind.SESSION: Family(Kind.HISTOGRAM, "session_seconds", "How long sessions ran.", (_OUTCOME,), SESSION_SECONDS),
    SpanKind.START: Family(
        Kind.HISTOGRAM, "start_seconds", "Parts of a session's start.", (Label("part", 16), _OUTCOME), VOICE_SECONDS
    ),
    SpanKind.TURN: Family(Kind.HISTOGRAM, "turn_seconds", "Whole turns.", (_OUTCOME,), VOICE_SECONDS),
    SpanKind.LEG: Family(
        Kind.HISTOGRAM, "leg_seconds", "Back-end work of turns.", (Label("leg", 16), _OUTCOME), VOICE_SECONDS
    ),
    SpanKind.TOOL: Family(Kind.HISTOGRAM, "tool_seconds", "Tool calls.", (Label("tool", 64), _OUTCOME), VOICE_SECONDS),
    SpanKind.FINISH: Family(
        Kind.HISTOGRAM, "finish_seconds", "Parts of a session's end.", (Label("part", 16), _OUTCOME), VOICE_SECONDS
    ),
}
"""Time by kind. Those of sessions and turns are named by their outcome alone."""
HAPPENINGS = {
    Happening.BARGE_IN: Family(Kind.COUNTER, "barge_ins_total", "Answers that the user cut off."),
    Happening.IDLE_RESPONSE_END: Family(
        Kind.COUNTER, "idle_response_ends_total", "Responses that were ended as their model fell silent."
    ),
    Happening.SPEECH_SHED: Family(
        Kind.COUNTER, "speech_shed_total", "Responses whose speech was cut short, as the client was too far behind."
    ),
    Happening.TURN_UNSAVED: Family(
        Kind.COUNTER, "turns_unsaved_total", "Turns acknowledged before they were durable; they are tried again."
    ),
    Happening.TURN_LOST: Family(Kind.COUNTER, "turns_lost_total", "Turns that could not be saved."),
    Happening.STORE_FAILED: Family(Kind.COUNTER, "store_failures_total", "Writes that had to be tried again."),
    Happening.TAKEN_OVER: Family(Kind.COUNTER, "takeovers_total", "Sessions that another connection took over."),
    Happening.REVOKED: Family(Kind.COUNTER, "revocations_total", "Sessions ended as their credentials were revoked."),
    Happening.FORCE_CLOSED: Family(
        Kind.COUNTER, "force_closed_total", "Sessions whose output had to be closed after their input had ended."
    ),
    Happening.SLOW_CLIENT: Family(Kind.COUNTER, "slow_clients_total", "Clients given up, as they read too slowly."),
    Happening.RECOVERABLE_ERROR: Family(
        Kind.COUNTER, "recoverable_errors_total", "Errors of providers that a conversation survived."
    ),
}
STORE = Family(
    Kind.HISTOGRAM,
    "store_seconds",
    "Operations of the store, by whether it could do them.",
    (Label("operation", 48), Label("outcome", 2)),
    STORE_SECONDS,
)
LATENESS = Family(
    Kind.HISTOGRAM, "loop_lateness_seconds", "How late a task wakes, looked at ten times a second.", (), LOOP_SECONDS
)
LONG_STEPS = Family(
    Kind.HISTOGRAM,
    "long_step_seconds",
    "Steps of a task that took longer than a frame lasts, of those looked at: all when the loop is late, else none.",
    (),
    LOOP_SECONDS,
)
LINES = Family(Kind.GAUGE, "lines", "Lines to clients that are open now.")
OUTBOX_ELEMENTS = Family(Kind.GAUGE, "outbox_elements", "Elements that wait to be sent to clients.")
UNSENT_SPEECH = Family(Kind.GAUGE, "unsent_speech_seconds", "Speech that waits to be sent to clients.")
MOST_UNSENT_SPEECH = Family(
    Kind.PEAK, "unsent_speech_most_seconds", "Speech that waits for the client that is furthest behind."
)
RESIDENT = Family(Kind.GAUGE, "resident_memory_bytes", "Resident memory of all processes.")
PROCESSOR = Family(Kind.COUNTER, "processor_seconds_total", "Processor time of all processes, user and system.")
WORKERS = Family(Kind.GAUGE, "workers", "Processes that serve.")

FAMILIES = (
    SESSIONS,
    SESSIONS_OPENED,
    SESSIONS_ENDED,
    ACTIVE_SECONDS,
    REFUSALS,
    TURNS,
    TURN_STAGES,
    *SPANS.values(),
    *HAPPENINGS.values(),
    STORE,
    LATENESS,
    LONG_STEPS,
    LINES,
    OUTBOX_ELEMENTS,
    UNSENT_SPEECH,
    MOST_UNSENT_SPEECH,
    RESIDENT,
    PROCESSOR,
    WORKERS,
)

ReadLine = Callable[[], tuple[int, float]]
"""How many elements wait to be sent on a line, and how many seconds of speech are among them."""


def make_metrics(directory: Path | None = None) -> "Metrics":
    """The metrics of one process. With a directory, those of every process that was given the same are summed.

    Raises:
        ConfigurationError: the directory cannot be written, or is full.
    """
    if directory is None:
        return Metrics(Page.in_memory(most_bytes(FAMILIES)))
    page, name = open_page(directory, FAMILIES)
    return Metrics(page, directory, name)


def mark_worker_dead(directory: Path, pid: int) -> None:
    """Keep what a process had counted that has ended, and remove its file. For whoever started it, when it was waited for.

    What it said of now is left out from the moment of its death, whether this is called or not.
    """
    fold(directory, pid, FAMILIES)


@attrs.define(eq=False)
class Metrics(Observer):
    """Counts. Made by `make_metrics`."""

    page: Page
    directory: Path | None = None
    name: str = ""
    """Of the page's file."""
    _series: dict[Family, Series] = attrs.field(factory=dict[Family, Series], init=False)
    _began: dict[str, dict[tuple[SpanKind, str], float]] = attrs.field(
        factory=dict[str, dict[tuple[SpanKind, str], float]], init=False
    )
    """By session: when its open spans began."""
    _lines: dict[object, ReadLine] = attrs.field(factory=dict[object, ReadLine], init=False)

    def __attrs_post_init__(self) -> None:
        self._series = {family: Series(family, self.page) for family in FAMILIES}
        self.sample()

    # --- what is told

    def session_opened(self, session: SessionDocument, provider: str) -> None:
        self._series[SESSIONS].add(1, provider)
        self._series[SESSIONS_OPENED].add(1, provider)

    def session_closed(self, session: SessionDocument, provider: str, active_seconds: float) -> None:
        self._series[SESSIONS].add(-1, provider)
        self._series[SESSIONS_ENDED].add(1, provider, session.state.value)
        self._series[ACTIVE_SECONDS].add(active_seconds, provider)

    def refused(self, code: str) -> None:
        self._series[REFUSALS].add(1, code)

    def turn_ended(self, session: SessionDocument, turn: TurnDocument) -> None:
        self._series[TURNS].add(1, turn.input.kind, "true" if turn.interrupted else "false")
        stages = self._series[TURN_STAGES]
        for stage, seconds in stages_of(turn):
            stages.observe(seconds, stage)

    def happened(self, what: Happening, session_id: str = "") -> None:
        self._series[HAPPENINGS[what]].add(1)

    def began(self, span: Span, at: float) -> None:
        spans = self._began.setdefault(span.session_id, {})
        if len(spans) < OPEN_SPANS:
            spans[span.kind, span.id] = at

    def ended(self, span: Span, at: float, outcome: Outcome = Outcome.OK) -> None:
        spans = self._began.get(span.session_id, {})
        began = spans.pop((span.kind, span.id), None)
        if not spans or span.kind is SpanKind.SESSION:
            self._began.pop(span.session_id, None)
        if began is not None:
            names = () if span.kind in (SpanKind.SESSION, SpanKind.TURN) else (span.name,)
            self._series[SPANS[span.kind]].observe(max(0.0, at - began), *names, outcome.value)

    def store_took(self, operation: str, seconds: float, *, ok: bool) -> None:
        outcome = Outcome.OK if ok else Outcome.FAILED
        self._series[STORE].observe(seconds, operation, outcome.value)

    # --- what is looked at

    def loop_was_late(self, seconds: float) -> None:
        """A look at the loop, by `watch_lateness`."""
        self._series[LATENESS].observe(max(0.0, seconds))

    def step_was_long(self, seconds: float) -> None:
        """A step that was found by a `StepSearch`."""
        self._series[LONG_STEPS].observe(seconds)

    @contextmanager
    def watching_line(self, read: ReadLine) -> Generator[None]:
        """Ask a line how much waits on it whenever the metrics are given out, as long as the context lasts."""
        mark = object()
        self._lines[mark] = read
        try:
            yield
        finally:
            del self._lines[mark]

    def sample(self) -> None:
        """Bring up to date what is not told but asked for."""
        waiting = [read() for read in self._lines.values()]
        self._series[LINES].set(len(waiting))
        self._series[OUTBOX_ELEMENTS].set(sum(elements for elements, _ in waiting))
        self._series[UNSENT_SPEECH].set(sum(seconds for _, seconds in waiting))
        self._series[MOST_UNSENT_SPEECH].set(max((seconds for _, seconds in waiting), default=0.0))
        self._series[RESIDENT].set(resident_bytes())
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._series[PROCESSOR].set(usage.ru_utime + usage.ru_stime)
        self._series[WORKERS].set(1)

    # --- what is given out

    def exposition(self) -> tuple[bytes, str]:
        """All metrics of all processes as Prometheus reads them, and the content type. Takes a few milliseconds at most."""
        self.sample()
        totals = Totals(FAMILIES) if self.directory is None else read_others(self.directory, self.name, FAMILIES)
        totals.take(entries(self.page.content()), lives=True)
        return expose(totals), CONTENT_TYPE

    def close(self) -> None:
        """The end of this process's metrics: what they say of now is left out from here on. The file stays until it is marked as dead."""
        self.page.close()


async def watch_process(metrics: Metrics, meter: LatenessMeter) -> None:
    """Look at this process as long as it serves: how late its loop is, who holds it, and what is asked for rather than told."""
    search = StepSearch(metrics.step_was_long)

    def tell(seconds: float) -> None:
        metrics.loop_was_late(seconds)
        search.loop_was_late(seconds)

    try:
        async with trio.open_nursery() as nursery:
            if metrics.directory is not None:  # else it is looked at when it is given out
                nursery.start_soon(_keep_sampled, metrics, name="watch: samples")
            await watch_lateness(meter, tell)
    finally:
        search.stop()


async def _keep_sampled(metrics: Metrics) -> None:
    while True:
        metrics.sample()
        await trio.sleep(SAMPLE_SECONDS)


def stages_of(turn: TurnDocument) -> list[tuple[str, float]]:
    """The stages that a turn had, with their seconds. What came before what it follows took no time."""
    timing, is_spoken = turn.timing, turn.input.kind == "speech"
    stages = (
        ("final_transcript", timing.last_interim if is_spoken else None, timing.final_transcript),
        ("first_text", timing.final_transcript, timing.first_text),
        ("first_audio", timing.final_transcript, timing.first_audio),
        ("last_text", timing.first_text, timing.last_text),
        ("last_audio", timing.first_audio, timing.last_audio),
    )
    return [
        (stage, max(0, end - start) / 1000) for stage, start, end in stages if start is not None and end is not None
    ]


def resident_bytes() -> int:
    """The memory this process holds; where the system does not say it, the most it has ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
