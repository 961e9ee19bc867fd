"""What the player renders, sample by sample: gapless, counted, and silent within one call after a cut."""

import json
from typing import Any

import pytest

from tests.browser.devtools import Page

pytestmark = pytest.mark.browser

QUANTUM = 128

RENDER = """
(async () => {
  const { SpeechQueue } = await import("/speech-queue.js");
  const { rate, orders } = ARGUMENTS;
  const queue = new SpeechQueue(rate);
  const output = [];
  const events = [];
  for (const [order, ...rest] of orders) {
    if (order === "push") queue.push(rest[0], Int16Array.from(rest[1]), rest[2]);
    else if (order === "end") queue.end(rest[0]);
    else if (order === "cut") queue.cut();
    else for (let i = 0; i < rest[0]; i += 1) {
      const block = new Float32Array(128);
      queue.render(block);
      output.push(...block.map((sample) => Math.round(sample * 32768)));
    }
    events.push(...queue.events.splice(0));
  }
  return { output, events, counters: queue.counters };
})()
"""


async def render(rules: Page, *orders: tuple[Any, ...], rate: int = 24000) -> dict[str, Any]:
    result: dict[str, Any] = await rules.evaluate(
        RENDER.replace("ARGUMENTS", json.dumps({"rate": rate, "orders": orders}))
    )
    return result


def ramp(count: int, start: int = 1) -> list[int]:
    return [(start + i) % 30000 + 1 for i in range(count)]


async def test_chunks_join_without_a_gap(rules: Page) -> None:
    samples = ramp(3000)
    chunks = [samples[:7], samples[7:1000], samples[1000:2999], samples[2999:]]
    heard = await render(rules, *(("push", "r1", chunk, 24000) for chunk in chunks), ("end", "r1"), ("render", 25))
    assert heard["output"] == [*samples, *[0] * (25 * QUANTUM - 3000)]
    assert heard["events"] == [{"kind": "start", "id": "r1", "ms": 0}, {"kind": "end", "id": "r1", "ms": 125}]


async def test_playing_waits_for_a_head_start_or_the_end(rules: Page) -> None:
    short = ramp(480)
    heard = await render(rules, ("push", "r1", short, 24000), ("render", 4), ("end", "r1"), ("render", 4))
    assert heard["output"] == [*[0] * (4 * QUANTUM), *short, *[0] * (4 * QUANTUM - 480)]


async def test_a_cut_fades_within_one_call_and_forgets_the_rest(rules: Page) -> None:
    heard = await render(rules, ("push", "r1", [20000] * 24000, 24000), ("render", 10), ("cut",), ("render", 100))
    fade = heard["output"][10 * QUANTUM : 11 * QUANTUM]
    assert fade == sorted(fade, reverse=True)
    assert fade[-1] == 0
    assert set(heard["output"][11 * QUANTUM :]) == {0}
    assert heard["events"][-1] == {"kind": "cut", "id": "r1", "ms": 53}
    assert heard["counters"]["soundAfterCut"] == 1
    assert heard["counters"]["rendered"] == 10 * QUANTUM


async def test_a_new_answer_plays_after_a_cut(rules: Page) -> None:
    heard = await render(
        rules,
        ("push", "r1", ramp(9600), 24000),
        ("render", 2),
        ("cut",),
        ("push", "r2", ramp(1500), 24000),
        ("end", "r2"),
        ("render", 14),
    )
    assert heard["output"][3 * QUANTUM :][:1500] == ramp(1500)
    assert [(event["kind"], event["id"]) for event in heard["events"]] == [
        ("start", "r1"),
        ("cut", "r1"),
        ("start", "r2"),
        ("end", "r2"),
    ]


async def test_progress_is_told_every_quarter_second(rules: Page) -> None:
    heard = await render(rules, ("push", "r1", ramp(24000), 24000), ("end", "r1"), ("render", 190))
    assert [event["ms"] for event in heard["events"] if event["kind"] == "progress"] == [251, 501, 752]


async def test_a_starved_run_resumes_and_counts_on(rules: Page) -> None:
    heard = await render(
        rules,
        ("push", "r1", ramp(2400), 24000),
        ("render", 30),
        ("push", "r1", ramp(480), 24000),
        ("render", 5),
        ("push", "r1", ramp(1200), 24000),
        ("render", 20),
        ("end", "r1"),
    )
    assert [(event["kind"], event["ms"]) for event in heard["events"]] == [
        ("start", 0),
        ("starved", 100),
        ("starved", 170),
        ("end", 170),
    ]
    assert heard["counters"]["underruns"] == 2


@pytest.mark.parametrize("rate", [48000, 44100, 16000])
async def test_another_rate_keeps_time_and_pitch(rules: Page, rate: int) -> None:
    """One second of a rising line at 24 kHz is one second of the same line at any rate, across chunk borders."""
    line = list(range(24000))
    pushes = [("push", "r1", line[i : i + 2400], 24000) for i in range(0, 24000, 2400)]
    heard = await render(rules, *pushes, ("end", "r1"), ("render", rate // QUANTUM + 3), rate=rate)
    expected = [i * 24000 / rate for i in range(rate)]
    assert heard["counters"]["rendered"] == pytest.approx(rate, abs=1)
    worst = max(abs(got - want) for got, want in zip(heard["output"], expected, strict=False) if want < 23999)
    assert worst <= 1
    assert heard["events"][-1] == {"kind": "end", "id": "r1", "ms": 1000}
