"""The process that is measured: the real application on a real socket, with the model that was asked for.

It is put together as `souffleur serve` does it, metrics and the watch of the loop included, less the project's files.
"""

import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from bench_parts.conversation import session_id
from bench_parts.meter import Meter
from bench_parts.model import PassThroughModel, PassThroughProperties
from bench_parts.notes import Notes
from bench_parts.sampling import Sampler
from bench_parts.setting import BenchCatalog, BenchManager
from bench_parts.worker import Options
from engine.boundary import PASSES, Boundary, Keep
from engine.capsule.keeper import Capsules
from engine.composition import real_environment
from engine.config import RealtimeProperties, Settings
from engine.interfaces import RealtimeModel
from engine.observe.lateness import LatenessMeter, watch_lateness
from engine.observe.metrics import make_metrics
from engine.observe.steps import StepSearch
from engine.observe.store_meter import measured_store
from engine.session.services import Services
from engine.store.locate import open_store
from engine.testing.schedule import passes_counted
from engine.transport.app import create_app
from engine.transport.server import run_server

HOST = "127.0.0.1"
GRACE_SECONDS = 2.0
KEY_NAME = "SOUFFLEUR_BENCH_KEY"
"""The environment variable that holds the key for the simulators, who take any."""


def openai_properties(simulators: list[str], number: int) -> RealtimeProperties:
    """The settings of a session that goes to its simulator; it says by the model's name which one it is."""
    from providers.openai.properties import (
        OpenAIProperties,
    )  # the scripted model is measured without the provider's imports

    url = simulators[number % len(simulators)]
    return OpenAIProperties(base_url=f"{url}/v1/realtime", api_key=f"env:{KEY_NAME}", model=session_id(number))


def openai_model() -> RealtimeModel:
    from providers.openai.model import OpenAIRealtimeModel

    return OpenAIRealtimeModel()


@attrs.define(eq=False)
class Keeping:
    """Keeps the sessions that come, as `souffleur serve --record` does, passes of the loop counted, or keeps none."""

    keep: Keep
    _counting: ExitStack | None = attrs.field(default=None, init=False)

    def begin(self) -> None:
        if self._counting is None:
            self._counting = ExitStack()
            self._counting.enter_context(passes_counted(0))

    def stop(self) -> None:
        if self._counting is not None:
            self._counting.close()
            self._counting = None

    @asynccontextmanager
    async def open(self, about: Mapping[str, Any]) -> AsyncGenerator[Boundary]:
        if self._counting is None:
            yield PASSES
            return
        async with self.keep(about) as boundary:
            yield boundary


async def run(options: Options) -> None:
    """Serve until told to stop.

    Options: `sessions`, `lead_seconds`, `total_seconds` (an upper bound), `profile`, `simulators` (the URLs of those of the
    provider; the scripted model when there are none), `record` (a directory for the capsules of sessions that come
    while it is told to keep them, or None).
    """
    simulators: list[str] = options["simulators"]
    model: RealtimeModel
    if simulators:
        os.environ[KEY_NAME] = "any"
        notes, model = None, openai_model()
        catalog = BenchCatalog(partial(openai_properties, simulators))
    else:
        notes = Notes.for_run(options)
        model, catalog = (
            PassThroughModel(notes, options["lead_seconds"]),
            BenchCatalog(lambda _: PassThroughProperties()),
        )
    settings = Settings(max_sessions=options["sessions"] + 1)
    meter = Meter(notes, Sampler() if options["profile"] else None)
    metrics = make_metrics()
    logging.getLogger("engine.observe.steps").disabled = True  # they are counted, and on a busy machine there are many

    def tell_step(seconds: float) -> None:
        metrics.step_was_long(seconds)
        meter.long_steps += 1

    search = StepSearch(tell_step)

    def tell_lateness(seconds: float) -> None:
        metrics.loop_was_late(seconds)
        search.loop_was_late(seconds)

    keeping = None if options["record"] is None else Keeping(Capsules(Path(options["record"])).keep)
    with tempfile.TemporaryDirectory(prefix="souffleur-bench-") as directory:
        async with open_store(f"sqlite:{directory}/bench.db") as store:
            services = Services(
                settings=settings,
                catalog=catalog,
                store=measured_store(store, metrics),
                environment=real_environment(),
                models={model.name: model},
                managers=[BenchManager()],
                observer=metrics,
                keep=keeping and keeping.open,
            )
            async with trio.open_nursery() as nursery:
                serve = partial(
                    run_server,
                    create_app(services, metrics=metrics),
                    HOST,
                    0,
                    settings=settings,
                    graceful_seconds=GRACE_SECONDS,
                )
                address = await nursery.start(serve, name="server")
                nursery.start_soon(watch_lateness, LatenessMeter(), tell_lateness, name="watch: process")
                words = None if keeping is None else {b"keep": keeping.begin, b"pass": keeping.stop}
                await meter.serve({"port": address.port}, words)
                nursery.cancel_scope.cancel(reason="all is measured")
