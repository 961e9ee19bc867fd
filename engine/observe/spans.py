"""An `Observer` that makes OpenTelemetry spans: a trace for each run of a session, and never a word of what was said in it.

    session            agent, provider, outcome
    ├─ start …         the parts of its start
    ├─ turn            input, interrupted, the timing log
    │  ├─ extraction
    │  ├─ planning
    │  └─ tool …
    └─ finish …        the parts of its end

What is counted in the metrics are events here, on the turn they fell in. This room imports OpenTelemetry; `engine.observe.tracing`
opens it only when it is wanted.
"""

import time
from collections.abc import Callable

import attrs
import trio
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span as TraceSpan
from opentelemetry.trace import StatusCode, Tracer, set_span_in_context

from engine.observation import Happening, Observer, Outcome, Span, SpanKind
from engine.store.documents import SessionDocument, TurnDocument

SERVICE = "souffleur"
"""The service's name when OTEL_SERVICE_NAME gives no other."""
OPEN_SPANS = 256
"""Of one session: far more than run at once. What begins beyond them is not traced."""
STARTING_SESSIONS = 256
"""Sessions whose start is remembered until they run; beyond them the oldest is forgotten."""

NAMES = {
    SpanKind.SESSION: "session",
    SpanKind.START: "start {}",
    SpanKind.TURN: "turn",
    SpanKind.LEG: "{}",
    SpanKind.TOOL: "tool {}",
    SpanKind.FINISH: "finish {}",
}

_Key = tuple[SpanKind, str]


@attrs.define(eq=False)
class _Start:
    """A session on the way: its parts so far. They are spans when it runs, or when one of them has failed."""

    began_at: float
    open: dict[str, tuple[Span, float]] = attrs.field(factory=dict[str, tuple[Span, float]])
    done: list[tuple[Span, float, float, Outcome]] = attrs.field(factory=list[tuple[Span, float, float, Outcome]])


@attrs.define(eq=False)
class _Trace:
    """A session that runs."""

    root: TraceSpan
    offset: int
    """Nanoseconds from Trio's clock to the world's."""
    open: dict[_Key, TraceSpan] = attrs.field(factory=dict[_Key, TraceSpan])
    turn_id: str = ""
    """The turn that began last."""

    def nanoseconds(self, at: float) -> int:
        return self.offset + round(at * 1e9)

    def turn(self, turn_id: str) -> TraceSpan:
        """The turn while it runs, else the session."""
        return self.open.get((SpanKind.TURN, turn_id), self.root)


@attrs.define(eq=False)
class TracingObserver(Observer):
    """Told in the thread of the loop; an exporter that is slow keeps nobody waiting."""

    tracer: Tracer
    wall_nanoseconds: Callable[[], int] = time.time_ns
    clock: Callable[[], float] = trio.current_time
    _starts: dict[str, _Start] = attrs.field(factory=dict[str, _Start], init=False)
    _traces: dict[str, _Trace] = attrs.field(factory=dict[str, _Trace], init=False)
    """Both by session."""

    # --- what is told

    def began(self, span: Span, at: float) -> None:
        trace = self._traces.get(span.session_id)
        if span.kind is SpanKind.SESSION:
            self._open(span, at)
        elif trace is not None:
            if len(trace.open) < OPEN_SPANS:
                self._begin(trace, span, at)
        elif span.kind is SpanKind.START:
            start = self._starts.setdefault(span.session_id, _Start(at))
            start.open[span.id] = (span, at)
            if len(self._starts) > STARTING_SESSIONS:
                del self._starts[next(iter(self._starts))]

    def ended(self, span: Span, at: float, outcome: Outcome = Outcome.OK) -> None:
        trace = self._traces.get(span.session_id)
        if span.kind is SpanKind.SESSION:
            self._close(span.session_id, at, outcome)
        elif trace is not None:
            found = trace.open.pop((span.kind, span.id), None)
            if found is not None:
                _end(found, trace.nanoseconds(at), outcome)
        elif span.session_id in self._starts:
            start = self._starts[span.session_id]
            _, began = start.open.pop(span.id, (span, at))
            start.done.append((span, began, at, outcome))
            if outcome is not Outcome.OK:  # this session will not run
                self._open(Span(SpanKind.SESSION, span.session_id, "", span.session_id), start.began_at)
                self._close(span.session_id, at, outcome)

    def session_opened(self, session: SessionDocument, provider: str) -> None:
        trace = self._traces.get(session.id)
        if trace is not None:
            trace.root.set_attributes(
                {
                    "souffleur.agent": session.agent,
                    "souffleur.project": session.project_ref,
                    "souffleur.provider": provider,
                    "souffleur.test_mode": session.test_mode,
                }
            )

    def session_closed(self, session: SessionDocument, provider: str, active_seconds: float) -> None:
        trace = self._traces.get(session.id)
        if trace is not None:
            trace.root.set_attributes(
                {"souffleur.state": session.state.value, "souffleur.active_seconds": active_seconds}
            )

    def turn_ended(self, session: SessionDocument, turn: TurnDocument) -> None:
        trace = self._traces.get(session.id)
        found = trace.open.get((SpanKind.TURN, turn.id)) if trace is not None else None
        if found is not None:
            times = turn.timing.model_dump(exclude_none=True)
            found.set_attributes(
                {
                    "souffleur.turn.index": turn.index,
                    "souffleur.turn.input": turn.input.kind,
                    "souffleur.turn.interrupted": turn.interrupted,
                    **{f"souffleur.turn.{name}_ms": ms for name, ms in times.items()},
                }
            )

    def happened(self, what: Happening, session_id: str = "") -> None:
        trace = self._traces.get(session_id)
        if trace is not None:
            trace.turn(trace.turn_id).add_event(what.value, timestamp=trace.nanoseconds(self.clock()))

    # --- spans

    def _open(self, span: Span, at: float) -> None:
        """A session's trace, which begins with the first part of its start."""
        start = self._starts.pop(span.session_id, None) or _Start(at)
        offset = self.wall_nanoseconds() - round(self.clock() * 1e9)
        began = offset + round(min(at, start.began_at) * 1e9)
        root = self.tracer.start_span(
            NAMES[SpanKind.SESSION],
            Context(),
            attributes={"souffleur.session.id": span.session_id},
            start_time=began,
        )
        trace = self._traces[span.session_id] = _Trace(root, offset)
        for part, part_began, part_ended, outcome in start.done:
            _end(self._start_span(trace, part, part_began), trace.nanoseconds(part_ended), outcome)
        for part, part_began in start.open.values():
            self._begin(trace, part, part_began)

    def _close(self, session_id: str, at: float, outcome: Outcome) -> None:
        """What is still open ends with its session."""
        trace = self._traces.pop(session_id, None)
        if trace is not None:
            for span in trace.open.values():
                _end(span, trace.nanoseconds(at), Outcome.CANCELLED)
            _end(trace.root, trace.nanoseconds(at), outcome)

    def _begin(self, trace: _Trace, span: Span, at: float) -> None:
        trace.open[span.kind, span.id] = self._start_span(trace, span, at)
        if span.kind is SpanKind.TURN:
            trace.turn_id = span.id

    def _start_span(self, trace: _Trace, span: Span, at: float) -> TraceSpan:
        parent = trace.turn(span.turn_id) if span.kind in (SpanKind.LEG, SpanKind.TOOL) else trace.root
        attributes = {"souffleur.session.id": span.session_id}
        if span.turn_id:
            attributes["souffleur.turn.id"] = span.turn_id
        return self.tracer.start_span(
            NAMES[span.kind].format(span.name),
            set_span_in_context(parent, Context()),
            attributes=attributes,
            start_time=trace.nanoseconds(at),
        )


def _end(span: TraceSpan, nanoseconds: int, outcome: Outcome) -> None:
    span.set_attribute("souffleur.outcome", outcome.value)
    if outcome is Outcome.FAILED:
        span.set_status(StatusCode.ERROR)
    span.end(nanoseconds)


def make_provider(exporter: SpanExporter | None = None) -> TracerProvider:
    """Sends spans in batches, by a thread of its own, to `exporter` or to where the environment says.

    Raises:
        ValueError: a variable makes no sense.
    """
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):  # the variable is not set
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
    return provider
