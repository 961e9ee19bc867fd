"""A server with its load and its provider, each a process of its own, ready to be measured."""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

import attrs

from bench_parts.conversation import WARM_SECONDS
from bench_parts.figures import Case
from bench_parts.worker import Report, Worker, open_worker

SCRIPTED, OPENAI = "scripted", "openai"
PROGRAM = Path(__file__).resolve().parents[1] / "bench"
MARGIN_SECONDS = 60
"""What starting may take on a busy machine; the server keeps room for its notes so much longer than is measured."""


@attrs.frozen
class Side:
    serving: Worker
    loading: Worker
    simulators: list[Worker]

    async def begin(self) -> None:
        for worker in (*self.simulators, self.serving, self.loading):
            await worker.ask("begin")

    async def end(self) -> "Ended":
        """The time that is measured is over."""
        heard = await self.loading.ask("end")
        used = await self.serving.ask("end")
        return Ended(heard, used, [await worker.ask("end") for worker in self.simulators])


@attrs.frozen
class Ended:
    """What the processes have seen in the time that was measured."""

    heard: Report
    used: Report
    simulated: list[Report]

    @property
    def cpu_seconds(self) -> float:
        """Of all processes."""
        own: float = sum(each["user_seconds"] + each["system_seconds"] for each in (self.used, *self.simulated))
        clients: float = self.heard["cpu_seconds"]
        return own + clients


async def open_side(
    stack: AsyncExitStack, case: Case, options: argparse.Namespace, *, record: Path | None = None
) -> Side:
    """Start the processes and warm them up. They end with the stack. With `record`, a directory, they are measured twice, and the server
    keeps its sessions in there while it is told to.

    Raises:
        WorkerError: a process failed.
    """
    halves = 1 if record is None else 2
    common = {
        "sessions": case.sessions,
        "lead_seconds": options.settle + min(1.0, options.seconds / 2),
        "total_seconds": int(WARM_SECONDS + halves * (options.settle + options.seconds)) + MARGIN_SECONDS,
        "profile": options.profile,
        "record": None if record is None else str(record),
    }

    async def start(role: str, **given: object) -> tuple[Worker, Report]:
        return await stack.enter_async_context(open_worker(PROGRAM, role, {**common, **given}))

    of = options.simulators if options.model == OPENAI else 0
    simulators = [await start("simulator", which=which, of=of) for which in range(of)]
    urls = [ready["url"] for _, ready in simulators]
    serving, address = await start("relay" if case.is_relay else "server", simulators=urls)
    loading, _ = await start("load", port=address["port"], rate=case.rate, wire=options.wire)
    await loading.ask("warm")
    await serving.ask("baseline")
    return Side(serving, loading, [worker for worker, _ in simulators])
