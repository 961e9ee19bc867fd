"""The process that is measured: the real application on a real socket, with a model that answers by itself."""

import gc
import logging
import os
import resource
import tempfile
from functools import partial
from pathlib import Path

import attrs
import trio

from bench_parts.conversation import FRAMES_PER_SECOND
from bench_parts.model import PROVIDER, Arrivals, BenchCatalog, BenchManager, PassThroughModel
from bench_parts.sampling import Sampler
from bench_parts.worker import Options, Report, answer, commands, watch_lateness
from engine.composition import real_environment
from engine.config import Settings
from engine.observe.steps import StepInstrument
from engine.session.services import Services
from engine.store.locate import open_store
from engine.transport.app import create_app
from engine.transport.server import run_server

HOST = "127.0.0.1"
TICK_SECONDS = 0.053
"""Between two looks at the loop's lateness: no multiple of a frame, so that they do not all fall on one session's frames. A
look costs about 20 µs, so all of them about 0.4 ms of a second, whatever the number of sessions."""
GRACE_SECONDS = 2.0


class StepCounter(logging.Handler):
    """Counts what the engine's own instrument has to say of steps that hold the loop for longer than a frame lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@attrs.define(eq=False)
class Meter:
    """What the process has used between `begin` and `end`."""

    arrivals: Arrivals
    sampler: Sampler | None
    steps: StepCounter
    late: list[float] = attrs.field(factory=list[float], init=False)
    _baseline: int = attrs.field(default=0, init=False)
    _usage: resource.struct_rusage = attrs.field(init=False)

    def baseline(self) -> Report:
        """Before the sessions come."""
        gc.collect()
        self._baseline = resident_bytes()
        return {}

    def begin(self) -> Report:
        gc.collect()
        self.late.clear()
        self.steps.count = 0
        if self.sampler is not None:
            self.sampler.start()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        return {}

    def end(self) -> Report:
        after, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        profile = self.sampler.stop() if self.sampler is not None else None
        late, long_steps = list(self.late), self.steps.count
        gc.collect()
        return {
            "user_seconds": after.ru_utime - before.ru_utime,
            "system_seconds": after.ru_stime - before.ru_stime,
            "resident_bytes": resident_bytes() - self._baseline,
            "late": late,
            "long_steps": long_steps,
            "arrivals": self.arrivals.rows(),
            "profile": profile,
        }


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def run(options: Options) -> None:
    """Serve until told to stop. Options: `sessions`, `lead_seconds`, `total_seconds` (an upper bound), `profile`."""
    settings = Settings(max_sessions=options["sessions"] + 1)
    arrivals = Arrivals((options["sessions"] + 1) * FRAMES_PER_SECOND * options["total_seconds"])
    meter = Meter(arrivals, Sampler() if options["profile"] else None, StepCounter())
    log = logging.getLogger("engine.observe.steps")
    log.addHandler(meter.steps)
    log.propagate = False
    with tempfile.TemporaryDirectory(prefix="souffleur-bench-") as directory:
        async with open_store(f"sqlite:{directory}/bench.db") as store:
            services = Services(
                settings=settings,
                catalog=BenchCatalog(),
                store=store,
                environment=real_environment(),
                models={PROVIDER: PassThroughModel(arrivals, options["lead_seconds"])},
                managers=[BenchManager()],
            )
            async with trio.open_nursery() as nursery:
                serve = partial(
                    run_server, create_app(services), HOST, 0, settings=settings, graceful_seconds=GRACE_SECONDS
                )
                address = await nursery.start(serve, name="server")
                gc.collect()  # as `souffleur serve` does
                gc.freeze()
                trio.lowlevel.add_instrument(StepInstrument())
                nursery.start_soon(watch_lateness, TICK_SECONDS, trio.current_time, meter.late, name="lateness")
                answer({"port": address.port})
                await _obey(meter)
                nursery.cancel_scope.cancel(reason="all is measured")


async def _obey(meter: Meter) -> None:
    lines = commands()
    while line := await lines.next():
        match line.strip():
            case b"baseline":
                answer(meter.baseline())
            case b"begin":
                answer(meter.begin())
            case b"end":
                answer(meter.end())
            case _:
                return
