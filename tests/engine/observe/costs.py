"""What observing costs: `python -m tests.engine.observe.costs`. Nothing is judged; take it on a quiet machine.

Each figure is the lowest of many rounds, which is what the code takes when nothing disturbs it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from engine.observation import Happening, Observer, Span, SpanKind
from engine.observe.metrics import Metrics, make_metrics
from engine.observe.steps import StepInstrument, StepSearch
from engine.observe.store_meter import measured_store
from engine.store.contract import Store
from engine.store.memory import MemoryStore

ROUNDS = 15

OFFICIAL = """
import time
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
import os, sys

registry = CollectorRegistry()
counter = Counter("calls_total", "Calls.", ["tool", "outcome"], registry=registry)
histogram = Histogram("call_seconds", "Calls.", ["tool"], buckets=[x / 10 for x in range(1, 15)], registry=registry)
for number in range(40):
    histogram.labels(f"tool {number}").observe(0.1)

def lowest(function, times):
    best = 1e9
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(times):
            function()
        best = min(best, (time.perf_counter() - began) / times)
    return best

shown = registry
if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
    shown = CollectorRegistry()
    MultiProcessCollector(shown)
count = lowest(lambda: counter.labels("order", "ok").inc(), 10000)
observe = lowest(lambda: histogram.labels("order").observe(0.3), 10000)
text = lowest(lambda: generate_latest(shown), 20)
print(f"{count * 1e6:.2f} us to count, {observe * 1e6:.2f} us to observe, "
      f"{text * 1e3:.1f} ms for {len(generate_latest(shown).splitlines())} lines")
"""


def lowest(function: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(times):
            function()
        best = min(best, (time.perf_counter() - began) / times)
    return best


def cost_of_metrics(metrics: Metrics) -> str:
    span = Span(SpanKind.TOOL, "c1", "order", "s1")

    def measure_span() -> None:
        metrics.began(span, 0.0)
        metrics.ended(span, 0.3)

    count = lowest(lambda: metrics.happened(Happening.BARGE_IN), 10_000)
    observe = lowest(lambda: metrics.store_took("append_turns", 0.003, ok=True), 10_000)
    spans = lowest(measure_span, 10_000)
    for number in range(40):
        metrics.store_took(f"operation {number}", 0.003, ok=True)
    text = lowest(metrics.exposition, 20)
    lines = len(metrics.exposition()[0].splitlines())
    return (
        f"{count * 1e6:.2f} us to count, {observe * 1e6:.2f} us to observe, {spans * 1e6:.2f} us for a span, "
        f"{text * 1e3:.1f} ms for {lines} lines"
    )


async def steps(number: int) -> None:
    for _ in range(number):
        await trio.lowlevel.checkpoint()


async def cost_of_a_step(instrument: trio.abc.Instrument | None, width: int) -> float:
    """Microseconds of a step, when so many are made between two waits."""
    if instrument is not None:
        trio.lowlevel.add_instrument(instrument)
    best, number = float("inf"), 20_000 // width
    for _ in range(ROUNDS):
        began = time.process_time()
        async with trio.open_nursery() as nursery:
            for _ in range(width):
                nursery.start_soon(steps, number)
        best = min(best, (time.process_time() - began) / (number * width))
    return best * 1e6


async def cost_of_the_store() -> float:
    """Microseconds that measuring adds to an operation."""

    async def per_call(store: Store) -> float:
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            for _ in range(2000):
                await store.check()
            best = min(best, (time.process_time() - began) / 2000)
        return best * 1e6

    plain = MemoryStore()
    return await per_call(measured_store(plain, Observer())) - await per_call(plain)


def say(what: str, found: str) -> None:
    sys.stdout.write(f"{what}: {found}\n")
    sys.stdout.flush()


def main() -> None:
    say("in memory", cost_of_metrics(make_metrics()))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        others = [make_metrics(path) for _ in range(7)]
        for other in others:
            cost_of_metrics(other)
        metrics = make_metrics(path)
        say("of eight processes", cost_of_metrics(metrics))
        for each in (metrics, *others):
            each.close()
    for name, variables in {"official client": {}, "its several processes": {"PROMETHEUS_MULTIPROC_DIR": ""}}.items():
        with tempfile.TemporaryDirectory() as directory:
            environment = os.environ | dict.fromkeys(variables, directory)
            done = subprocess.run([sys.executable, "-c", OFFICIAL], env=environment, stdout=subprocess.PIPE, check=True)
            say(name, done.stdout.decode().strip())
    for width in (1, 3, 20):
        plain = trio.run(cost_of_a_step, None, width)
        watched = trio.run(cost_of_a_step, StepInstrument(limit=60), width)
        say(f"a step, {width} to a wait", f"{plain:.2f} us; {watched - plain:+.2f} while it is looked at")
    search = StepSearch()
    say("being told that the loop is in time", f"{lowest(lambda: search.loop_was_late(0.0), 10_000) * 1e6:.2f} us")
    say("measuring an operation of the store", f"{trio.run(cost_of_the_store):.2f} us")


if __name__ == "__main__":
    main()
