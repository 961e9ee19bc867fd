"""What operators measure: an `Observer` that counts, and the text that Prometheus reads at `/metrics` (SPEC T5).

    metrics = make_metrics()
    body, content_type = await metrics.exposition()

The numbers are kept by Prometheus's own client: in a registry of each `Metrics`, or, in the workers of a server, in files that all
of them sum (`engine.observe.processes`). Label values that come from outside (names of tools, providers, error codes) are bounded
by their projects and by the code, and capped all the same, in each process.

To count costs 0.5 µs, to observe a time 1.2 µs and a span 2.2 µs; in files 1.2, 2.5 and 3.4 µs. A thousand lines of text take 7 ms
to make, and the sum of eight processes 25 ms: that is done in a thread, in which it makes the loop late by a third of what it would
otherwise (`python -m tests.engine.observe.costs`; the lowest of many rounds, on two busy processors). A frame of audio touches no
metric. Everything here but `text` is called in the thread of the loop.
"""

import os
import resource
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import prometheus_client
import trio
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from engine.errors import ConfigurationError
from engine.observation import Happening, Observer, Outcome, Span, SpanKind
from engine.observe.lateness import LatenessMeter, watch_lateness
from engine.observe.processes import given_directory, locked, registry_of_all
from engine.observe.steps import StepSearch
from engine.protocol.promises import STREAM_PROMISES
from engine.store.documents import SessionDocument, SteeringRecord, TurnDocument

SAMPLE_SECONDS = 1.0
"""How old a gauge that is asked for may be when another process gives it out."""
OPEN_SPANS = 256
"""Of one session, whose begin is remembered: far more than run at once."""

OTHER = "other"
"""The label value of what comes after the last that has room."""
VALUE_CHARACTERS = 60
"""The longest label value; the rest is cut off."""
PROVIDERS, OUTCOMES = 24, len(Outcome)
"""The most different values of these labels in one process."""
PREFIX = "souffleur_"

VOICE_SECONDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
"""What somebody waits for in a conversation: a pause of 200 ms is natural, one of a second is noticed, ten are a failure."""
STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""From a write to memory to the time limits of its callers."""
LOOP_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""From a quiet loop to one that nobody can talk through; 20 ms are a frame of audio."""
PLAN_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""From a plan that was written as the user began to speak to one that has missed much of the conversation."""
SESSION_SECONDS = (1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)

HAPPENINGS = {
    Happening.BARGE_IN: ("barge_ins_total", "Answers that the user cut off."),
    Happening.IDLE_RESPONSE_END: (
        "idle_response_ends_total",
        "Responses that were ended as their model fell silent.",
    ),
    Happening.SPEECH_SHED: (
        "speech_shed_total",
        "Responses whose speech was cut short, as the client was too far behind.",
    ),
    Happening.TURN_UNSAVED: (
        "turns_unsaved_total",
        "Turns acknowledged before they were durable; they are tried again.",
    ),
    Happening.TURN_LOST: ("turns_lost_total", "Turns that could not be saved."),
    Happening.STORE_FAILED: ("store_failures_total", "Writes that had to be tried again."),
    Happening.TAKEN_OVER: ("takeovers_total", "Sessions that another connection took over."),
    Happening.REVOKED: ("revocations_total", "Sessions ended as their credentials were revoked."),
    Happening.FORCE_CLOSED: (
        "force_closed_total",
        "Sessions whose output had to be closed after their input had ended.",
    ),
    Happening.LINK_REMOVED: ("links_removed_total", "Links that a speaking model said and nobody had seen."),
    Happening.SLOW_CLIENT: ("slow_clients_total", "Clients given up, as they read too slowly."),
    Happening.RECOVERABLE_ERROR: ("recoverable_errors_total", "Errors of providers that a conversation survived."),
}
"""The counters of what happens."""

ReadLine = Callable[[], tuple[int, float]]
"""How many elements wait to be sent on a line, and how many seconds of speech are among them."""

M = TypeVar("M", Counter, Gauge, Histogram)

_client: Any = prometheus_client
"""Where it has no types."""


def make_metrics() -> "Metrics":
    """The metrics of this process. Where it is one of several (`metrics_directory`), it must have only one such object, and the
    metrics of all of them are summed.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    _client.disable_created_metrics()  # else each counter and histogram has its date of birth beside it
    directory = given_directory()
    if directory is None:
        return Metrics()
    try:
        with locked(directory):  # a file that is not complete yet cannot be read
            return Metrics(directory)
    except OSError as exc:
        raise ConfigurationError(f"the metrics directory {directory} cannot be used: {exc.strerror}") from exc


class Series(Generic[M]):
    """The series of a metric; if it has labels, they are at most so many."""

    def __init__(self, metric: M, *limits: int) -> None:
        """`limits`: the most different values of each label, not counting `other`."""
        self._metric: M = metric
        self._limits = limits
        self._known = [set[str]() for _ in limits]
        self._found: dict[tuple[str, ...], M] = {} if limits else {(): metric}

    def of(self, *labels: str) -> M:
        """The one with these label values, in the order of the metric's labels."""
        found = self._found.get(labels)
        return self._find(labels) if found is None else found

    def _find(self, labels: tuple[str, ...]) -> M:
        """The slow way: the first time, or when the label values have to be counted as others."""
        clean = (value[:VALUE_CHARACTERS].encode(errors="replace").decode() for value in labels)
        admitted = tuple(
            value if _has_room(value, known, limit) else OTHER
            for value, known, limit in zip(clean, self._known, self._limits, strict=True)
        )
        found = self._found.get(admitted)
        if found is None:
            found = self._found[admitted] = self._metric.labels(*admitted)
        return found


def _has_room(value: str, known: set[str], limit: int) -> bool:
    if value in known or value == OTHER:
        return True
    if len(known) >= limit:
        return False
    known.add(value)
    return True


class Metrics(Observer):
    """Counts. Made by `make_metrics`."""

    def __init__(self, directory: Path | None = None) -> None:
        """`directory`: where all processes count. Raises OSError when it cannot be written."""
        self.directory = directory
        self._began = dict[str, dict[tuple[SpanKind, str], float]]()
        """By session: when its open spans began."""
        self._watched = dict[object, ReadLine]()
        self._processor_seconds = 0.0
        """Of those counted."""

        registry = CollectorRegistry()
        self._shown = registry if directory is None else registry_of_all(directory)
        self._reading = trio.CapacityLimiter(1)

        def counter(name: str, text: str, **limits: int) -> Series[Counter]:
            return Series(Counter(PREFIX + name, text, limits, registry=registry), *limits.values())

        def gauge(name: str, text: str, *, peak: bool = False, **limits: int) -> Series[Gauge]:
            """What is now: the sum over the processes that live, or the highest of them."""
            mode: Literal["livemax", "livesum"] = "livemax" if peak else "livesum"
            metric = Gauge(PREFIX + name, text, limits, registry=registry, multiprocess_mode=mode)
            return Series(metric, *limits.values())

        def histogram(name: str, text: str, buckets: Sequence[float], **limits: int) -> Series[Histogram]:
            metric = Histogram(PREFIX + name, text, limits, registry=registry, buckets=buckets)
            return Series(metric, *limits.values())

        self._sessions = gauge("sessions", "Sessions that run now.", provider=PROVIDERS)
        self._sessions_opened = counter("sessions_opened_total", "Sessions that began to run.", provider=PROVIDERS)
        self._sessions_ended = counter(
            "sessions_ended_total",
            "Sessions that ended. Those of a killed process were opened and never ended.",
            provider=PROVIDERS,
            state=4,
        )
        self._active_seconds = counter(
            "session_active_seconds_total", "Active time of ended sessions, as in their usage.", provider=PROVIDERS
        )
        self._refusals = counter("refusals_total", "Who was not let in, by reason.", reason=40)
        self._turns = counter("turns_total", "Turns that ended.", input=4, interrupted=2)
        self._stages = histogram(
            "turn_stage_seconds",
            "Stages of a turn: the final transcript after the last interim, of what was spoken; the first text and the"
            " first audio after the final transcript; the last text and the last audio after the first.",
            VOICE_SECONDS,
            stage=5,
        )
        self._spans = {
            SpanKind.SESSION: histogram("session_seconds", "How long sessions ran.", SESSION_SECONDS, outcome=OUTCOMES),
            SpanKind.START: histogram(
                "start_seconds", "Parts of a session's start.", VOICE_SECONDS, part=16, outcome=OUTCOMES
            ),
            SpanKind.TURN: histogram("turn_seconds", "Whole turns.", VOICE_SECONDS, outcome=OUTCOMES),
            SpanKind.LEG: histogram("leg_seconds", "Back-end work of turns.", VOICE_SECONDS, leg=16, outcome=OUTCOMES),
            SpanKind.TOOL: histogram("tool_seconds", "Tool calls.", VOICE_SECONDS, tool=64, outcome=OUTCOMES),
            SpanKind.FINISH: histogram(
                "finish_seconds", "Parts of a session's end.", VOICE_SECONDS, part=16, outcome=OUTCOMES
            ),
        }
        """Time by kind. Those of sessions and turns are named by their outcome alone."""
        self._instructions = counter(
            "instructions_total", "Instructions of planning, by what became of them, of sessions that ended.", outcome=4
        )
        self._passes = counter(
            "planning_passes_total",
            "Planning passes of sessions that ended: they wrote their plan, were cancelled, or failed or ran out of time.",
            outcome=3,
        )
        self._staleness = histogram(
            "plan_staleness_seconds",
            "How old the plan was when responses began: the mean of each session that ended.",
            PLAN_SECONDS,
        )
        self._happenings = {what: counter(name, text) for what, (name, text) in HAPPENINGS.items()}
        self._store = histogram(
            "store_seconds",
            "Operations of the store, by whether it could do them.",
            STORE_SECONDS,
            operation=48,
            outcome=2,
        )
        self._contract_sessions = counter("contract_sessions_total", "Sessions that were held against the contract.")
        self._contract_violations = counter(
            "contract_violations_total",
            "Promises of the contract that were broken, by promise, of those sessions; each once in a session.",
            rule=len(STREAM_PROMISES),
        )
        self._lateness = histogram(
            "loop_lateness_seconds", "How late a task wakes, looked at ten times a second.", LOOP_SECONDS
        )
        self._long_steps = histogram(
            "long_step_seconds",
            "Steps of a task that took longer than a frame lasts, of those looked at: all when the loop is late, else none.",
            LOOP_SECONDS,
        )
        self._lines = gauge("lines", "Lines to clients that are open now.")
        self._outbox_elements = gauge("outbox_elements", "Elements that wait to be sent to clients.")
        self._unsent_speech = gauge("unsent_speech_seconds", "Speech that waits to be sent to clients.")
        self._most_unsent_speech = gauge(
            "unsent_speech_most_seconds", "Speech that waits for the client that is furthest behind.", peak=True
        )
        self._resident = gauge("resident_memory_bytes", "Resident memory of all processes.")
        self._processor = counter("processor_seconds_total", "Processor time of all processes, user and system.")
        self._tasks = gauge("tasks", "Tasks that live. Those of a connection and of its sessions end with it.")
        self._workers = gauge("workers", "Processes that serve.")
        self.sample()

    # --- what is told

    def session_opened(self, session: SessionDocument, provider: str) -> None:
        self._sessions.of(provider).inc()
        self._sessions_opened.of(provider).inc()

    def session_closed(self, session: SessionDocument, provider: str, active_seconds: float) -> None:
        self._sessions.of(provider).dec()
        self._sessions_ended.of(provider, session.state.value).inc()
        self._active_seconds.of(provider).inc(active_seconds)

    def session_steered(self, session: SessionDocument, run: SteeringRecord) -> None:
        self._instructions.of("spoken").inc(run.spoken)
        self._instructions.of("used").inc(run.used)
        self._instructions.of("superseded").inc(run.superseded)
        self._instructions.of("unused").inc(run.unused)
        self._passes.of("planned").inc(run.planned_passes)
        self._passes.of("cancelled").inc(run.cancelled_passes)
        self._passes.of("failed").inc(run.passes - run.planned_passes - run.cancelled_passes)
        if run.plan_staleness_seconds.mean is not None:
            self._staleness.of().observe(run.plan_staleness_seconds.mean)

    def refused(self, code: str) -> None:
        self._refusals.of(code).inc()

    def turn_ended(self, session: SessionDocument, turn: TurnDocument) -> None:
        self._turns.of(turn.input.kind, "true" if turn.interrupted else "false").inc()
        for stage, seconds in stages_of(turn):
            self._stages.of(stage).observe(seconds)

    def happened(self, what: Happening, session_id: str = "") -> None:
        self._happenings[what].of().inc()

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
            self._spans[span.kind].of(*names, outcome.value).observe(max(0.0, at - began))

    def store_took(self, operation: str, seconds: float, *, ok: bool) -> None:
        outcome = Outcome.OK if ok else Outcome.FAILED
        self._store.of(operation, outcome.value).observe(seconds)

    def contract_judged(self) -> None:
        self._contract_sessions.of().inc()

    def contract_broken(self, rule: str) -> None:
        self._contract_violations.of(rule).inc()

    # --- what is looked at

    def loop_was_late(self, seconds: float) -> None:
        """A look at the loop, by `watch_lateness`."""
        self._lateness.of().observe(max(0.0, seconds))

    def step_was_long(self, seconds: float) -> None:
        """A step that was found by a `StepSearch`."""
        self._long_steps.of().observe(seconds)

    @contextmanager
    def watching_line(self, read: ReadLine) -> Generator[None]:
        """Ask a line how much waits on it, as long as the context lasts."""
        mark = object()
        self._watched[mark] = read
        try:
            yield
        finally:
            del self._watched[mark]

    def sample(self) -> None:
        """Bring up to date what is not told but asked for."""
        waiting = [read() for read in self._watched.values()]
        self._lines.of().set(len(waiting))
        self._outbox_elements.of().set(sum(elements for elements, _ in waiting))
        self._unsent_speech.of().set(sum(seconds for _, seconds in waiting))
        self._most_unsent_speech.of().set(max((seconds for _, seconds in waiting), default=0.0))
        self._resident.of().set(resident_bytes())
        self._tasks.of().set(trio.lowlevel.current_statistics().tasks_living if trio.lowlevel.in_trio_run() else 0)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        seconds = usage.ru_utime + usage.ru_stime
        self._processor.of().inc(seconds - self._processor_seconds)
        self._processor_seconds = seconds
        self._workers.of().set(1)

    # --- what is given out

    async def exposition(self) -> tuple[bytes, str]:
        """All metrics of all processes as Prometheus reads them, and the content type. They are read in a thread, one reader at a
        time, as that takes longer than a frame of audio lasts.

        Raises:
            OSError: the directory is gone.
        """
        self.sample()
        text = await trio.to_thread.run_sync(self.text, limiter=self._reading, abandon_on_cancel=True)
        return text, CONTENT_TYPE_PLAIN_0_0_4

    def text(self) -> bytes:
        """All metrics of all processes as they are now; what is asked for is as old as the last `sample`. Raises OSError as above."""
        with nullcontext() if self.directory is None else locked(self.directory, shared=True):
            return generate_latest(self._shown)


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
