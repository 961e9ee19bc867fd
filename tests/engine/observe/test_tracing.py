"""Traces: a session's spans hang together, have exact times, and hold nothing of what was said."""

import json
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta

import attrs
import pytest
import trio
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode
from trio.testing import MockClock

from engine.elements import JsonObject
from engine.errors import ConfigurationError
from engine.interfaces import Context, Emit, PlanningManager, TurnInput
from engine.observation import Happening, Outcome, Span, SpanKind
from engine.observe.spans import OPEN_SPANS, STARTING_SESSIONS, TracingObserver, make_provider
from engine.observe.tracing import open_tracing
from engine.store.documents import SessionDocument, TimingLog, TurnDocument, TurnInputRecord
from engine.testing.scripted import ScriptedModel, answer, echo, final, interim
from engine.testing.stage import EPOCH, ScriptedManager, open_stage
from tests.cases.support import Tools
from tests.test_imports import imports, modules

SESSION = SessionDocument(
    id="s1", agent="barista", project_ref="demo", created_at=EPOCH, updated_at=EPOCH, user_name="Anna Nováková"
)
RUN = Span(SpanKind.SESSION, "s1", "barista", "s1")


@attrs.define
class Traced:
    """An observer, what it has exported, and a clock that starts at 0 at noon."""

    now: float = 0.0
    exporter: InMemorySpanExporter = attrs.field(factory=InMemorySpanExporter)
    observer: TracingObserver = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.observer = TracingObserver(provider.get_tracer("test"), self.wall, self.clock)

    def clock(self) -> float:
        return self.now

    def wall(self) -> int:
        return nanoseconds(self.clock())

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The exported spans by name."""
        spans = self.exporter.get_finished_spans()
        found = {span.name: span for span in spans}
        assert len(found) == len(spans)
        return found

    def span(self, span: Span, began: float, ended: float, outcome: Outcome = Outcome.OK) -> None:
        self.observer.began(span, began)
        self.observer.ended(span, ended, outcome)


class VirtualTraced(Traced):
    def clock(self) -> float:
        return trio.current_time()


def nanoseconds(at: float) -> int:
    return round((EPOCH + timedelta(seconds=at)).timestamp() * 1e9)


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """When it began and ended, as the engine's clock has it."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - nanoseconds(0)) / 1e9, (span.end_time - nanoseconds(0)) / 1e9


def parent(span: ReadableSpan, spans: dict[str, ReadableSpan]) -> str:
    """The name of a span's parent; "" for a root."""
    if span.parent is None:
        return ""
    (found,) = [name for name, each in spans.items() if context_of(each).span_id == span.parent.span_id]
    return found


def context_of(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def test_a_session_with_its_parts() -> None:
    traced = Traced()
    observer = traced.observer
    traced.span(Span(SpanKind.START, "history", "history", "s1"), 1.0, 1.5)
    traced.span(Span(SpanKind.START, "prompt", "prompt", "s1"), 1.0, 2.0)
    observer.began(RUN, 2.0)
    observer.session_opened(SESSION, "OpenAI")
    turn = Span(SpanKind.TURN, "t1", "turn", "s1", "t1")
    observer.began(turn, 3.0)
    traced.span(Span(SpanKind.LEG, "t1 planning", "planning", "s1", "t1"), 4.0, 4.75, Outcome.CANCELLED)
    traced.span(Span(SpanKind.TOOL, "c1", "order", "s1", "t1"), 4.25, 4.5, Outcome.FAILED)
    traced.now = 4.8
    observer.happened(Happening.BARGE_IN, "s1")
    record = TurnInputRecord(text="two coffees", kind="speech")
    document = TurnDocument(
        id="t1", session_id="s1", index=3, started_at=EPOCH, input=record, timing=TimingLog(first_audio=900)
    )
    observer.turn_ended(SESSION, document)
    observer.ended(turn, 5.0)
    traced.span(Span(SpanKind.TOOL, "c2", "pay", "s1", "t1"), 5.5, 6.0)  # after its turn
    traced.span(Span(SpanKind.FINISH, "saving", "saving", "s1"), 6.0, 6.5)
    observer.session_closed(SESSION, "OpenAI", 4.5)
    observer.ended(RUN, 7.0)

    spans = traced.spans
    assert {name: (seconds(span), parent(span, spans)) for name, span in spans.items()} == {
        "session": ((1.0, 7.0), ""),
        "start history": ((1.0, 1.5), "session"),
        "start prompt": ((1.0, 2.0), "session"),
        "turn": ((3.0, 5.0), "session"),
        "planning": ((4.0, 4.75), "turn"),
        "tool order": ((4.25, 4.5), "turn"),
        "tool pay": ((5.5, 6.0), "session"),
        "finish saving": ((6.0, 6.5), "session"),
    }
    assert len({context_of(span).trace_id for span in spans.values()}) == 1
    assert dict(spans["session"].attributes or {}) == {
        "souffleur.session.id": "s1",
        "souffleur.agent": "barista",
        "souffleur.project": "demo",
        "souffleur.provider": "OpenAI",
        "souffleur.test_mode": False,
        "souffleur.state": "OPEN",
        "souffleur.active_seconds": 4.5,
        "souffleur.outcome": "ok",
    }
    assert dict(spans["turn"].attributes or {}) == {
        "souffleur.session.id": "s1",
        "souffleur.turn.id": "t1",
        "souffleur.turn.index": 3,
        "souffleur.turn.input": "speech",
        "souffleur.turn.interrupted": False,
        "souffleur.turn.first_audio_ms": 900,
        "souffleur.outcome": "ok",
    }
    outcomes = {name: (span.attributes or {})["souffleur.outcome"] for name, span in spans.items()}
    assert (outcomes["planning"], outcomes["tool order"]) == ("cancelled", "failed")
    assert [name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR] == ["tool order"]
    (event,) = spans["turn"].events
    assert (event.name, event.timestamp) == ("barge_in", nanoseconds(4.8))


def test_a_session_that_did_not_come_to_run() -> None:
    traced = Traced()
    traced.span(Span(SpanKind.START, "manager", "manager", "s1"), 1.0, 1.5)
    traced.span(Span(SpanKind.START, "prompt", "prompt", "s1"), 1.5, 31.0, Outcome.CANCELLED)
    spans = traced.spans
    assert seconds(spans["session"]) == (1.0, 31.0)
    assert (spans["session"].attributes or {})["souffleur.outcome"] == "cancelled"
    assert {parent(spans[name], spans) for name in ("start manager", "start prompt")} == {"session"}


def test_a_part_of_the_start_that_is_still_at_it_when_the_session_runs() -> None:
    traced = Traced()
    part = Span(SpanKind.START, "provider", "provider", "s1")
    traced.observer.began(part, 1.0)
    traced.observer.began(RUN, 2.0)
    traced.observer.ended(part, 3.0)
    traced.observer.ended(RUN, 4.0)
    spans = traced.spans
    assert seconds(spans["start provider"]) == (1.0, 3.0)
    assert parent(spans["start provider"], spans) == "session"


def test_two_sessions_are_two_traces() -> None:
    traced = Traced()
    for session_id in ("a", "b"):
        traced.observer.began(Span(SpanKind.SESSION, session_id, "", session_id), 0.0)
    for session_id in ("a", "b"):
        traced.span(Span(SpanKind.TURN, "t1", "turn", session_id, "t1"), 1.0, 2.0)
        traced.observer.ended(Span(SpanKind.SESSION, session_id, "", session_id), 3.0)
    spans = traced.exporter.get_finished_spans()
    by_session = {
        session_id: {context_of(span).trace_id for span in spans if session_id in (span.attributes or {}).values()}
        for session_id in ("a", "b")
    }
    assert len(by_session["a"]) == len(by_session["b"]) == 1
    assert by_session["a"] != by_session["b"]


def test_open_spans_are_bounded_and_end_with_their_session() -> None:
    traced = Traced()
    traced.observer.began(RUN, 0.0)
    for number in range(2 * OPEN_SPANS):
        traced.observer.began(Span(SpanKind.TOOL, f"c{number}", "order", "s1"), 1.0)
    traced.observer.ended(RUN, 5.0)
    spans = traced.exporter.get_finished_spans()
    assert len(spans) == OPEN_SPANS + 1
    assert {seconds(span)[1] for span in spans} == {5.0}


def test_starts_that_come_to_nothing_are_forgotten() -> None:
    traced = Traced()
    for number in range(2 * STARTING_SESSIONS):
        traced.span(Span(SpanKind.START, "manager", "manager", f"s{number}"), 0.0, 1.0)
    assert len(traced.observer._starts) == STARTING_SESSIONS  # pyright: ignore[reportPrivateUsage] - what is left is the point


def test_what_belongs_to_no_session_is_left_out() -> None:
    traced, document = Traced(), TurnDocument(id="t1", session_id="s1", index=0, started_at=EPOCH)
    traced.observer.happened(Happening.STORE_FAILED)
    traced.observer.refused("quota")
    traced.observer.turn_ended(SESSION, document)
    traced.observer.session_opened(SESSION, "OpenAI")
    traced.observer.session_closed(SESSION, "OpenAI", 0.0)
    traced.observer.ended(RUN, 1.0)
    traced.span(Span(SpanKind.TURN, "t1", "turn", "s1", "t1"), 1.0, 2.0)
    assert traced.spans == {}


# --- a conversation


class Planner(PlanningManager):
    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        await trio.sleep(1.25)


async def order(arguments: JsonObject) -> str:
    await trio.sleep(0.75)
    return "resultmark"


async def test_a_conversation_in_virtual_time(autojump_clock: MockClock) -> None:
    traced = VirtualTraced()
    manager = ScriptedManager(tool_box=Tools({"order": order}), planner=Planner(), extraction_seconds=0.5)
    async with open_stage(model=ScriptedModel(echo), manager=manager, observer=traced.observer) as stage:
        session = stage.model.session
        await trio.sleep(10)
        session.say(interim(), final("spokenmark"))
        session.call_tool("c1", "order", json.dumps({"what": "argumentmark"}), "r1")
        await trio.sleep(1)
        answer(session, "The answermark.", "r1")
        await stage.client.wait_for_command("exit")
        await trio.sleep(10)
        stage.client.end()
        await stage.over.wait()
    spans = traced.spans
    assert {name: seconds(span) for name, span in spans.items() if seconds(span)[1] > seconds(span)[0]} == {
        "session": (0.0, 22.25),
        "turn": (10.0, 12.25),
        "tool order": (10.0, 10.75),
        "extraction": (11.0, 11.5),
        "planning": (11.0, 12.25),
    }
    assert {parent(spans[name], spans) for name in ("extraction", "planning", "tool order")} == {"turn"}
    for span in spans.values():
        text = span.to_json()
        assert [mark for mark in ("spokenmark", "argumentmark", "resultmark", "answermark") if mark in text] == []


# --- the exporter


class StuckExporter(SpanExporter):
    """A collector that does not answer."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.exported: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.released.wait(10)
        self.exported += [span.name for span in spans]
        return SpanExportResult.SUCCESS


async def test_the_last_spans_are_sent() -> None:
    exporter = InMemorySpanExporter()
    async with open_tracing(exporter) as observer:
        observer.began(RUN, trio.current_time())
        observer.ended(RUN, trio.current_time())
    assert [span.name for span in exporter.get_finished_spans()] == ["session"]


async def test_a_collector_that_does_not_answer_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    exporter = StuckExporter()
    began = trio.current_time()
    async with open_tracing(exporter, shutdown_seconds=0.05) as observer:
        observer.began(RUN, trio.current_time())
        observer.ended(RUN, trio.current_time())
    assert trio.current_time() - began < 5
    assert "the last spans could not be sent in 0.05 s and are lost" in caplog.text
    exporter.released.set()


async def test_opentelemetry_need_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "engine.observe.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigurationError, match='the extra "otel"'):
        async with open_tracing():
            pass


def test_opentelemetry_is_imported_in_its_own_room_only() -> None:
    engine = {module: path for module, path in modules().items() if module.startswith("engine")}
    importing = {module for module, path in engine.items() if any(map(is_opentelemetry, imports(path)))}
    assert importing == {"engine.observe.spans", "engine.observe.tracing"}  # the latter for its types


def is_opentelemetry(name: str) -> bool:
    return name.partition(".")[0] == "opentelemetry"


async def test_the_standard_variables_say_where_spans_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "front-desk")
    assert OTLPSpanExporter()._endpoint == "http://collector.example:4318/v1/traces"  # pyright: ignore[reportPrivateUsage] - there is no other way to ask
    provider = make_provider(InMemorySpanExporter())
    assert provider.resource.attributes["service.name"] == "front-desk"
    monkeypatch.delenv("OTEL_SERVICE_NAME")
    other = make_provider(InMemorySpanExporter())
    assert other.resource.attributes["service.name"] == "souffleur"
    provider.shutdown()
    other.shutdown()
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1000000")  # more than the queue holds
    with pytest.raises(ConfigurationError, match="OTEL_ variables"):
        async with open_tracing(InMemorySpanExporter()):
            pass
