"""Metrics: what is told is counted, under names and in a form that Prometheus's own parser understands."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from engine.observation import Happening, Outcome, Span, SpanKind
from engine.observe.metrics import HAPPENINGS, OTHER, VALUE_CHARACTERS, Metrics, make_metrics, stages_of
from engine.protocol.promises import STREAM_PROMISES
from engine.store.contract import Store
from engine.store.documents import (
    SessionDocument,
    SessionState,
    Staleness,
    SteeringRecord,
    TimingLog,
    TurnDocument,
    TurnInputRecord,
)

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
    metrics.sample()
    return samples(metrics.text()).get((f"souffleur_{name}", frozenset(labels.items())))


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


def test_steering() -> None:
    metrics = make_metrics()
    run = SteeringRecord(
        instructions=8, spoken=1, used=4, superseded=1, unused=2, passes=4, planned_passes=2, cancelled_passes=1
    )
    metrics.session_steered(SESSION, run)
    metrics.session_steered(SESSION, run.model_copy(update={"plan_staleness_seconds": Staleness(mean=7.5, max=9)}))
    for outcome, count in {"spoken": 1, "used": 4, "superseded": 1, "unused": 2}.items():
        assert value(metrics, "instructions_total", outcome=outcome) == 2 * count
    for outcome, count in {"planned": 2, "cancelled": 1, "failed": 1}.items():
        assert value(metrics, "planning_passes_total", outcome=outcome) == 2 * count
    assert value(metrics, "plan_staleness_seconds_count") == 1
    assert value(metrics, "plan_staleness_seconds_sum") == 7.5


def test_the_contract() -> None:
    metrics = make_metrics()
    assert value(metrics, "contract_sessions_total") == 0  # shown before the first
    metrics.contract_judged()
    metrics.contract_judged()
    metrics.contract_broken("exit")
    assert value(metrics, "contract_sessions_total") == 2
    assert value(metrics, "contract_violations_total", rule="exit") == 1
    for rule in STREAM_PROMISES:
        metrics.contract_broken(rule)
    assert value(metrics, "contract_violations_total", rule="session-end") == 1, "each has room"


def test_refusals() -> None:
    metrics = make_metrics()
    metrics.refused("too_busy")
    metrics.refused("too_busy")
    assert value(metrics, "refusals_total", reason="too_busy") == 2


@pytest.mark.parametrize("what", Happening)
def test_happenings(what: Happening) -> None:
    metrics = make_metrics()
    name, _ = HAPPENINGS[what]
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
    assert value(metrics, "turn_stage_seconds_bucket", stage="first_audio", le="1.0") == 1
    assert value(metrics, "turn_stage_seconds_bucket", stage="first_audio", le="+Inf") == 1


def test_an_answer_that_came_before_its_transcript_took_no_time() -> None:
    document = turn(final_transcript=1000, first_text=800, last_text=800)
    assert stages_of(document) == [("first_text", 0.0), ("last_text", 0.0)]


def test_what_was_typed_did_not_have_to_be_recognized() -> None:
    document = turn(last_interim=500, final_transcript=1000, first_text=1250)
    typed = document.model_copy(update={"input": TurnInputRecord(text="two coffees", kind="text")})
    assert stages_of(document) == [("final_transcript", 0.5), ("first_text", 0.25)]
    assert stages_of(typed) == [("first_text", 0.25)]


NAMES = {SpanKind.START: "part", SpanKind.LEG: "leg", SpanKind.TOOL: "tool", SpanKind.FINISH: "part"}
"""The labels of spans that are not named by their outcome alone."""


@pytest.mark.parametrize("kind", SpanKind)
def test_spans(kind: SpanKind) -> None:
    metrics = make_metrics()
    span = Span(kind, "1", "planning", "s1")
    metrics.began(span, 10.0)
    metrics.began(Span(kind, "1", "planning", "s2"), 11.0)  # another session's has the same id
    metrics.ended(span, 12.5, Outcome.FAILED)
    metrics.ended(span, 13.0)  # once only
    labels = {"outcome": "failed"}
    if kind in NAMES:
        labels[NAMES[kind]] = "planning"
    assert value(metrics, f"{kind.value}_seconds_sum", **labels) == 2.5
    assert value(metrics, f"{kind.value}_seconds_count", **labels) == 1


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


async def test_what_is_given_out() -> None:
    metrics = make_metrics()
    metrics.refused("quota")
    with metrics.watching_line(lambda: (3, 1.5)):
        text, content_type = await metrics.exposition()
    found = samples(text)
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert found["souffleur_refusals_total", frozenset({("reason", "quota")})] == 1
    assert found["souffleur_outbox_elements", frozenset()] == 3


def test_the_process() -> None:
    metrics = make_metrics()
    assert (value(metrics, "resident_memory_bytes") or 0) > 10e6
    assert (value(metrics, "processor_seconds_total") or 0) > 0
    assert value(metrics, "workers") == 1
    assert value(metrics, "tasks") == 0  # outside of Trio there are none


async def test_the_tasks() -> None:
    metrics = make_metrics()
    before = value(metrics, "tasks")
    assert before
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        metrics.sample()
        assert value(metrics, "tasks") == before + 1
        nursery.cancel_scope.cancel()
    metrics.sample()
    assert value(metrics, "tasks") == before


def test_metrics_share_nothing() -> None:
    first, second = make_metrics(), make_metrics()
    first.refused("quota")
    assert value(second, "refusals_total", reason="quota") is None


NAMES_OF = {
    "counter": "sessions_opened sessions_ended session_active_seconds refusals turns processor_seconds barge_ins"
    " idle_response_ends speech_shed turns_unsaved turns_lost store_failures takeovers revocations force_closed"
    " slow_clients recoverable_errors instructions links_removed planning_passes"
    " contract_sessions contract_violations",
    "gauge": "sessions lines outbox_elements unsent_speech_seconds unsent_speech_most_seconds resident_memory_bytes tasks workers",
    "histogram": "turn_stage_seconds session_seconds start_seconds turn_seconds leg_seconds tool_seconds finish_seconds"
    " store_seconds loop_lateness_seconds long_step_seconds plan_staleness_seconds",
}
"""What dashboards are made of. Those of counters have `_total` behind them."""


def test_names_are_as_prometheus_wants_them() -> None:
    families = list(text_string_to_metric_families(counting_everything().text().decode()))
    assert {family.type for family in families} == NAMES_OF.keys()
    for kind, names in NAMES_OF.items():
        found = [family.name.removeprefix("souffleur_") for family in families if family.type == kind]
        assert sorted(found) == sorted(names.split())
    for family in families:
        assert family.documentation.endswith(".")
        assert {sample.name.endswith("_total") for sample in family.samples} == {family.type == "counter"}


def counting_everything() -> Metrics:
    """Each metric has at least one series."""
    metrics = make_metrics()
    metrics.session_opened(SESSION, "OpenAI")
    metrics.session_closed(SESSION, "OpenAI", 1.0)
    metrics.session_steered(SESSION, SteeringRecord(plan_staleness_seconds=Staleness(mean=1.0, max=1.0)))
    metrics.refused("quota")
    metrics.turn_ended(SESSION, turn(final_transcript=1000, first_text=1200))
    for kind in SpanKind:
        metrics.began(Span(kind, "1", "planning", "s1"), 0.0)
        metrics.ended(Span(kind, "1", "planning", "s1"), 1.0)
    metrics.store_took("check", 0.1, ok=True)
    metrics.contract_judged()
    metrics.contract_broken("exit")
    return metrics


# --- label values from outside


def test_label_values_are_bounded() -> None:
    metrics = make_metrics()
    for number in range(1000):
        metrics.refused(f"reason {number}")
    metrics.refused("reason 7")
    metrics.refused(OTHER)
    reasons = {
        dict(labels)["reason"]: number
        for (name, labels), number in samples(metrics.text()).items()
        if name == "souffleur_refusals_total"
    }
    assert reasons == {f"reason {number}": 1 + (number == 7) for number in range(40)} | {OTHER: 961}


def test_each_label_is_bounded() -> None:
    metrics = make_metrics()
    for number in range(100):
        metrics.began(Span(SpanKind.TOOL, "1", f"tool {number}", "s1"), 0.0)
        metrics.ended(Span(SpanKind.TOOL, "1", f"tool {number}", "s1"), 1.0, list(Outcome)[number % 3])
    counts = {
        (dict(labels)["tool"], dict(labels)["outcome"]): number
        for (name, labels), number in samples(metrics.text()).items()
        if name == "souffleur_tool_seconds_count"
    }
    outcomes = list(Outcome)
    known = {(f"tool {number}", outcomes[number % 3]): 1 for number in range(64)}
    assert counts == known | {(OTHER, outcome): 12 for outcome in outcomes}


def test_label_values_are_escaped() -> None:
    odd = 'a "quoted"\\ name\nof two lines \ud800' + "x" * 100
    metrics = make_metrics()
    metrics.refused(odd)
    assert value(metrics, "refusals_total", reason=odd[:VALUE_CHARACTERS].replace("\ud800", "?")) == 1
