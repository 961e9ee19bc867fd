"""The engine's core by itself: a frame from the door's hands to the model, and the frame that answers it back to them.

No socket is in it, so that it takes little time and its lowest round is what the code takes when nothing disturbs it: two
states of the code can be compared on a machine that is too busy for latencies. Each frame waits for the one before.
"""

import gc
import tempfile
import time
from functools import partial
from pathlib import Path

import attrs
import trio
import trio.testing

from bench_parts.conversation import FRAME_MS, MODEL_RATE, Part, session_id
from bench_parts.model import PROVIDER, PassThroughModel, PassThroughProperties
from bench_parts.notes import Notes
from bench_parts.setting import BenchCatalog, BenchManager
from bench_parts.worker import Options, answer
from engine.boundary import Keep
from engine.capsule.keeper import Capsules
from engine.composition import real_environment
from engine.config import PipelineConfiguration, Settings
from engine.elements import InputAudio
from engine.pipeline.line import ClientLine, open_line
from engine.principal import Principal
from engine.protocol.wire import WireEncoder
from engine.session.services import Services
from engine.session.windowing import run_connection
from engine.store.memory import MemoryStore

ROUNDS = 30
FRAMES = 400
"""In a round: about 20 ms of work."""
WARM_FRAMES = 100
SETTLED_SECONDS = 0.1
WRITTEN_SECONDS = 0.01
"""For a chunk of a capsule to be on the disk: it counts for the round it belongs to."""


@attrs.define(eq=False)
class Hand:
    """What a door does with a line, less the socket."""

    line: ClientLine
    frame: bytes
    encoder: WireEncoder
    _taken: int = attrs.field(default=0, init=False)
    _woken: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def take(self) -> None:
        while (element := await self.line.take_output()) is not None:
            for frame in self.encoder.encode(element):
                if isinstance(frame, bytes):
                    self._taken += 1
                    self._woken.set()

    async def play(self, frames: int) -> None:
        """Give a frame and wait for its answer, so many times."""
        for number in range(self._taken + 1, self._taken + 1 + frames):
            await self.line.put_input(InputAudio(self.frame))
            while self._taken < number:
                self._woken = trio.Event()
                await self._woken.wait()


async def run(options: Options) -> None:
    """Answers with the microseconds of each round's frame: `microseconds`, and `kept` by the side of it where it is wanted.

    Options: `rate`, of the client; `record`: measure in turns a session that nobody keeps and one that is kept in a capsule.
    """
    with tempfile.TemporaryDirectory(prefix="souffleur-bench-") as directory:
        keeps: list[Keep | None] = [None, Capsules(Path(directory)).keep] if options["record"] else [None]
        rounds: list[list[float]] = [[] for _ in keeps]
        async with trio.open_nursery() as nursery:
            hands = [await _settled(nursery, number, options["rate"], keep) for number, keep in enumerate(keeps)]
            for hand in hands:
                await hand.play(WARM_FRAMES)
            gc.collect()
            gc.freeze()
            for _ in range(ROUNDS):
                for hand, found in zip(hands, rounds, strict=True):
                    before = time.process_time_ns()
                    await hand.play(FRAMES)
                    if options["record"]:
                        await trio.testing.wait_all_tasks_blocked(WRITTEN_SECONDS)
                    found.append((time.process_time_ns() - before) / FRAMES / 1000)
            nursery.cancel_scope.cancel(reason="all is measured")
    answer({"microseconds": rounds[0], "kept": rounds[-1]})


async def _settled(nursery: trio.Nursery, number: int, rate: int, keep: Keep | None) -> Hand:
    """A session that waits for frames."""
    settings = Settings()
    parts = (Part.AGENT,) * (1 + WARM_FRAMES + ROUNDS * FRAMES)
    services = Services(
        settings=settings,
        catalog=BenchCatalog(lambda _: PassThroughProperties()),
        store=MemoryStore(),
        environment=real_environment(),
        models={PROVIDER: PassThroughModel(Notes(0), 0.0, parts)},
        managers=[BenchManager()],
        keep=keep,
    )
    configuration = PipelineConfiguration(
        key=f"agent:{session_id(number)}",
        session_id=session_id(number),
        input_sample_rate=rate,
        output_sample_rate=MODEL_RATE,
        wire="binary",
    )
    line = open_line(configuration, settings)
    silence = bytes(2 * rate * FRAME_MS // 1000)
    hand = Hand(line, silence, WireEncoder(configuration.wire, configuration.output_encoding))
    nursery.start_soon(partial(run_connection, configuration, line, services, principal=Principal("bench")))
    nursery.start_soon(hand.take)
    await line.put_input(InputAudio(silence))  # a resampler holds part of a frame back: each completes the one before
    await trio.testing.wait_all_tasks_blocked(SETTLED_SECONDS)
    return hand
