"""Metrics: what is told is counted, under names and in a form that Prometheus's own parser understands."""

import itertools
import math
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.observation import Happening, Outcome, Span, SpanKind
from engine.observe.exposition import expose
from engine.observe.families import OTHER, VALUE_CHARACTERS, Family, Kind, Label, Series, Totals
from engine.observe.metrics import FAMILIES, HAPPENINGS, SPANS, Metrics, make_metrics, stages_of
from engine.observe.page import HEADER, Page, entries
from engine.store.contract import Store
from engine.store.documents import SessionDocument, SessionState, TimingLog, TurnDocument, TurnInputRecord

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SESSION = SessionDocument(id="s1", created_at=NOW, updated_at=NOW)

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: bytes) -> Samples:
    """Every sample by its name and labels."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics.exposition()[0]).get((f"souffleur_{name}", frozenset(labels.items())))


def turn(**timing: int) -> TurnDocument:
    return TurnDocument(
        id="t1",
        session_id="s1",
        index=0,
        started_at=NOW,
        input=TurnInputRecord(text="two coffees", kind="speech"),
        timing=TimingLog(**timing),
    )


def test_sessions() -> None:
    metrics = make_metrics()
    for _ in range(3):
        metrics.session_opened(SESSION, "OpenAI")
    metrics.session_opened(SESSION, "Internal")
    closed = SESSION.model_copy(update={"state": SessionState.CLOSED})
    metrics.session_closed(closed, "OpenAI", 12.5)
    assert value(metrics, "sessions", provider="OpenAI") == 2
    assert value(metrics, "sessions", provider="Internal") == 1
    assert value(metrics, "sessions_opened_total", provider="OpenAI") == 3
    assert value(metrics, "sessions_ended_total", provider="OpenAI", state="CLOSED") == 1
    assert value(metrics, "session_active_seconds_total", provider="OpenAI") == 12.5


def test_refusals() -> None:
    metrics = make_metrics()
    metrics.refused("too_busy")
    metrics.refused("too_busy")
    assert value(metrics, "refusals_total", reason="too_busy") == 2


@pytest.mark.parametrize("what", Happening)
def test_happenings(what: Happening) -> None:
    metrics = make_metrics()
    name = HAPPENINGS[what].short_name
    assert value(metrics, name) == 0  # shown before the first
    metrics.happened(what, "s1")
    assert value(metrics, name) == 1


def test_a_turn_and_its_stages() -> None:
    metrics = make_metrics()
    metrics.turn_ended(
        SESSION, turn(last_interim=900, final_transcript=1200, first_text=1600, last_text=3000, first_audio=2100)
    )
    assert value(metrics, "turns_total", input="speech", interrupted="false") == 1
    for stage, seconds in {"final_transcript": 0.3, "first_text": 0.4, "first_audio": 0.9, "last_text": 1.4}.items():
        assert value(metrics, "turn_stage_seconds_sum", stage=stage) == pytest.approx(seconds)
        assert value(metrics, "turn_stage_seconds_count", stage=stage) == 1
    assert value(metrics, "turn_stage_seconds_count", stage="last_audio") is None
    assert value(metrics, "turn_stage_seconds_bucket", stage="first_audio", le="0.75") == 0
    assert value(metrics, "turn_stage_seconds_bucket", stage="first_audio", le="1") == 1
    assert value(metrics, "turn_stage_seconds_bucket", stage="first_audio", le="+Inf") == 1


def test_an_answer_that_came_before_its_transcript_took_no_time() -> None:
    document = turn(final_transcript=1000, first_text=800, last_text=800)
    assert stages_of(document) == [("first_text", 0.0), ("last_text", 0.0)]


def test_what_was_typed_did_not_have_to_be_recognized() -> None:
    document = turn(last_interim=500, final_transcript=1000, first_text=1250)
    typed = document.model_copy(update={"input": TurnInputRecord(text="two coffees", kind="text")})
    assert stages_of(document) == [("final_transcript", 0.5), ("first_text", 0.25)]
    assert stages_of(typed) == [("first_text", 0.25)]


@pytest.mark.parametrize("kind", SpanKind)
def test_spans(kind: SpanKind) -> None:
    metrics = make_metrics()
    span = Span(kind, "1", "planning", "s1")
    metrics.began(span, 10.0)
    metrics.began(Span(kind, "1", "planning", "s2"), 11.0)  # another session's has the same id
    metrics.ended(span, 12.5, Outcome.FAILED)
    metrics.ended(span, 13.0)  # once only
    family = SPANS[kind]
    labels = {"outcome": "failed"}
    if len(family.labels) == 2:
        labels[family.labels[0].name] = "planning"
    assert value(metrics, f"{family.short_name}_sum", **labels) == 2.5
    assert value(metrics, f"{family.short_name}_count", **labels) == 1


def test_no_span_is_kept_longer_than_its_session() -> None:
    metrics = make_metrics()
    session = Span(SpanKind.SESSION, "s1", "barista", "s1")
    metrics.began(session, 0.0)
    for number in range(1000):
        metrics.began(Span(SpanKind.TURN, str(number), "turn", "s1"), 1.0)  # none of them ends
    metrics.ended(session, 5.0)
    late = Span(SpanKind.TURN, "0", "turn", "s1")
    metrics.ended(late, 6.0)
    assert value(metrics, "session_seconds_sum", outcome="ok") == 5.0
    assert value(metrics, "turn_seconds_count", outcome="ok") is None
    refused = Span(SpanKind.START, "history", "history", "s2")
    metrics.began(refused, 7.0)
    metrics.ended(refused, 7.5, Outcome.CANCELLED)
    assert not metrics._began  # pyright: ignore[reportPrivateUsage] - what is left is the point


def test_the_store() -> None:
    metrics = make_metrics()
    metrics.store_took("append_turns", 0.002, ok=True)
    metrics.store_took("append_turns", 3.0, ok=False)
    assert value(metrics, "store_seconds_count", operation="append_turns", outcome="ok") == 1
    assert value(metrics, "store_seconds_sum", operation="append_turns", outcome="failed") == 3.0


def test_every_operation_of_the_store_has_room() -> None:
    metrics = make_metrics()
    for name in Store.__abstractmethods__:
        metrics.store_took(name, 0.001, ok=True)
    assert value(metrics, "store_seconds_count", operation=OTHER, outcome="ok") is None


def test_the_loop() -> None:
    metrics = make_metrics()
    metrics.loop_was_late(0.0004)
    metrics.loop_was_late(-0.1)  # a clock that went back is no lateness
    metrics.step_was_long(0.03)
    assert value(metrics, "loop_lateness_seconds_sum") == 0.0004
    assert value(metrics, "loop_lateness_seconds_bucket", le="0.0005") == 2
    assert value(metrics, "long_step_seconds_bucket", le="0.02") == 0
    assert value(metrics, "long_step_seconds_bucket", le="0.05") == 1


def test_lines_are_asked_when_metrics_are_given_out() -> None:
    metrics, waiting = make_metrics(), [(3, 1.5), (4, 20.0)]
    with metrics.watching_line(lambda: waiting[0]), metrics.watching_line(lambda: waiting[1]):
        assert value(metrics, "lines") == 2
        assert value(metrics, "outbox_elements") == 7
        assert value(metrics, "unsent_speech_seconds") == 21.5
        assert value(metrics, "unsent_speech_most_seconds") == 20.0
        waiting[1] = (0, 0.0)
        assert value(metrics, "outbox_elements") == 3
    assert value(metrics, "lines") == 0
    assert value(metrics, "unsent_speech_most_seconds") == 0


def test_the_process() -> None:
    metrics = make_metrics()
    assert (value(metrics, "resident_memory_bytes") or 0) > 10e6
    assert (value(metrics, "processor_seconds_total") or 0) > 0
    assert value(metrics, "workers") == 1


def test_metrics_share_nothing() -> None:
    first, second = make_metrics(), make_metrics()
    first.refused("quota")
    assert value(second, "refusals_total", reason="quota") is None


def test_names_are_as_prometheus_wants_them() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert family.name.endswith("_seconds") or family.kind is not Kind.HISTOGRAM
        assert list(family.buckets) == sorted(family.buckets)
        assert bool(family.buckets) == (family.kind is Kind.HISTOGRAM)


# --- label values from outside


COUNT = Family(Kind.COUNTER, "calls_total", "Calls.", (Label("tool", 2), Label("outcome", 1)))


def totals(*pages: Page, families: tuple[Family, ...] = (COUNT,)) -> Totals:
    sums = Totals(families)
    for page in pages:
        sums.take(entries(page.content()), lives=True)
    return sums


def test_label_values_are_bounded() -> None:
    page = Page.in_memory(1 << 16)
    series = Series(COUNT, page)
    for number in range(1000):
        series.add(1, f"tool {number}", "ok")
    assert totals(page).series["calls_total"] == {
        ("tool 0", "ok"): [1.0],
        ("tool 1", "ok"): [1.0],
        (OTHER, "ok"): [998.0],
    }


def test_label_values_stay_bounded_when_pages_are_summed() -> None:
    pages = [Page.in_memory(1 << 16) for _ in range(10)]
    for number, page in enumerate(pages):
        Series(COUNT, page).add(1, f"tool {number}", "ok")
    assert totals(*pages).series["calls_total"] == {
        ("tool 0", "ok"): [1.0],
        ("tool 1", "ok"): [1.0],
        (OTHER, "ok"): [8.0],
    }


@pytest.mark.parametrize("character", ["\0", "☕", "😀", "é"])
def test_there_is_room_for_all_series_there_can_be(character: str) -> None:
    page = Page.in_memory(HEADER.size + sum(family.most_bytes for family in FAMILIES))

    def values(label: Label) -> list[str]:
        return [f"{number}".rjust(VALUE_CHARACTERS, character) for number in range(label.limit + 2)]

    for family in FAMILIES:
        series = Series(family, page)
        for labels in itertools.product(*(values(label) for label in family.labels)):
            series.add(1, *labels)


def test_label_values_are_escaped() -> None:
    odd = 'a "quoted"\\ name\nof two lines \ud800' + "x" * 100
    page = Page.in_memory(1 << 16)
    Series(COUNT, page).add(2, odd, "ok")
    ((_, labels),) = samples(expose(totals(page)))
    found = dict(labels)["tool"]
    assert found == odd[:VALUE_CHARACTERS].replace("\ud800", "?")


def test_numbers_keep_their_value() -> None:
    gauge = Family(Kind.GAUGE, "level", "A level.")
    for number in (0.1, 1e17, -3.0, 123456789.5, 1 / 3, math.pi * 1e-9):
        page = Page.in_memory(4096)
        Series(gauge, page).set(number)
        assert list(samples(expose(totals(page, families=(gauge,)))).values()) == [number]
