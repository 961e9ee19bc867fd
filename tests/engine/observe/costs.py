"""What observing costs: `python -m tests.engine.observe.costs`. Nothing is judged; take it on a quiet machine.

Each figure is the lowest of many rounds, which is what the code takes when nothing disturbs it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import trio

from engine.observation import Happening, Observer, Span, SpanKind
from engine.observe.metrics import Metrics, make_metrics
from engine.observe.processes import DIRECTORY, metrics_directory
from engine.observe.steps import StepInstrument, StepSearch
from engine.observe.store_meter import measured_store
from engine.store.contract import Store
from engine.store.memory import MemoryStore

ROUNDS = 15

PROCESSES = 8
FILL = "from tests.engine.observe.costs import *; fill(make_metrics())"
MEASURE = "from tests.engine.observe.costs import *; print(cost_of_metrics(make_metrics()))"
"""For other processes: in this one the client does not count in files."""


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

    counting = lowest(lambda: metrics.happened(Happening.BARGE_IN), 10_000)
    observing = lowest(lambda: metrics.store_took("append_turns", 0.003, ok=True), 10_000)
    spans = lowest(measure_span, 10_000)
    sampling = lowest(metrics.sample, 1_000)
    fill(metrics)
    text = lowest(metrics.text, 10)
    return (
        f"{counting * 1e6:.2f} us to count, {observing * 1e6:.2f} us to observe, {spans * 1e6:.2f} us for a span, "
        f"{sampling * 1e6:.0f} us to ask, {text * 1e3:.1f} ms for {len(metrics.text().splitlines())} lines"
    )


def fill(metrics: Metrics) -> None:
    """Series as a busy server has them: forty operations of the store, and ten tools."""
    for number in range(40):
        metrics.store_took(f"operation {number}", 0.003, ok=True)
    for number in range(10):
        span = Span(SpanKind.TOOL, "c1", f"tool {number}", "s1")
        metrics.began(span, 0.0)
        metrics.ended(span, 0.3)


def cost_in_processes() -> str:
    """The same in the last of several processes, which gives out what all have counted."""
    with metrics_directory() as directory:
        environment = os.environ | {DIRECTORY: str(directory)}
        for _ in range(PROCESSES - 1):
            subprocess.run([sys.executable, "-c", FILL], env=environment, check=True)
        done = subprocess.run([sys.executable, "-c", MEASURE], env=environment, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().strip()


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
    say("metrics of one process", cost_of_metrics(make_metrics()))
    say(f"metrics of {PROCESSES} processes", cost_in_processes())
    for width in (1, 3, 20):
        plain = trio.run(cost_of_a_step, None, width)
        watched = trio.run(cost_of_a_step, StepInstrument(limit=60), width)
        say(f"a step, {width} to a wait", f"{plain:.2f} us; {watched - plain:+.2f} while it is looked at")
    search = StepSearch()
    say("being told that the loop is in time", f"{lowest(lambda: search.loop_was_late(0.0), 10_000) * 1e6:.2f} us")
    say("measuring an operation of the store", f"{trio.run(cost_of_the_store):.2f} us")


if __name__ == "__main__":
    main()
