"""The simulator as a process of its own."""

import argparse
import importlib
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import attrs
import trio

from providers.openai.simulation.faults import Faults
from providers.openai.simulation.script import ECHO, Pace, Script
from providers.openai.simulation.server import Scripts, Simulator, open_simulator

FAULTS = ("delay", "stall", "drop", "duplicate", "reorder", "unknown")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m providers.openai.simulator",
        description="Simulate the OpenAI Realtime API. Prints the URL it serves at, and serves until it is stopped.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0, the default, takes a free one")
    parser.add_argument(
        "--script",
        metavar="MODULE:NAME",
        help="what happens: a Script, a sequence of them, or a function of a connection's number; the default echoes",
    )
    parser.add_argument("--key", action="append", help="an API key to accept; may be repeated; the default is any")
    parser.add_argument("--token", action="append", help="an Entra token to accept on Azure's paths; may be repeated")
    parser.add_argument("--delta-ms", type=int, default=200, help="audio in a delta, without --script (%(default)s)")
    parser.add_argument("--audio-speed", type=float, help="seconds of audio in a second, without --script; all at once")
    parser.add_argument("--token-seconds", type=float, default=0.0, help="between pieces of text, without --script")
    parser.add_argument("--records", action="store_true", help="keep all messages and audio in memory")
    faults = parser.add_argument_group("faults by chance", "probabilities for every event, from 0 to 1")
    faults.add_argument("--seed", type=int, default=0, help="the same seed gives the same faults (%(default)s)")
    for name in FAULTS:
        faults.add_argument(f"--{name}", type=float, default=0.0, metavar="P")
    return parser


def load_script(name: str) -> Scripts:
    """What `MODULE:NAME` names.

    Raises:
        ValueError: it names nothing of use.
    """
    module, _, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ValueError(f"{name} cannot be loaded: {exc}") from exc
    if isinstance(found, Script):
        return found
    if isinstance(found, list | tuple):
        scripts = [one for one in cast("Sequence[object]", found) if isinstance(one, Script)]
        if scripts and len(scripts) == len(cast("Sequence[object]", found)):
            return scripts
    elif callable(found):
        return partial(_call, cast("Callable[[int], object]", found))
    raise ValueError(f"{name} is no script")


def _call(make: Callable[[int], object], number: int) -> Script:
    script = make(number)
    if not isinstance(script, Script):
        raise TypeError(f"{make} made no script")
    return script


@attrs.frozen
class Serving:
    """A simulator, and where it is to be served."""

    simulator: Simulator
    host: str
    port: int


def make_simulator(arguments: Sequence[str]) -> Serving:
    """What the arguments describe. Exits when they are wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    pace = Pace(options.token_seconds, audio_speed=options.audio_speed, delta_ms=options.delta_ms)
    scripts: Scripts = attrs.evolve(ECHO, pace=pace)
    if options.script:
        try:
            scripts = load_script(options.script)
        except ValueError as exc:
            parser.error(str(exc))
    chances = {name: getattr(options, name) for name in FAULTS}
    simulator = Simulator(
        scripts,
        keys=options.key,
        tokens=options.token,
        faults=Faults(options.seed, **chances) if any(chances.values()) else None,
        keeps_records=options.records,
        keeps_audio=options.records,
    )
    return Serving(simulator, options.host, options.port)


async def serve(serving: Serving) -> None:
    """Serve until SIGINT or SIGTERM. They are waited for: a `KeyboardInterrupt` may strike where exceptions get lost, as in a finalizer."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_simulator(serving.simulator, host=serving.host, port=serving.port) as simulator:
            sys.stdout.write(f"{simulator.url}\n")
            sys.stdout.flush()
            await anext(signals)


def main() -> None:
    trio.run(serve, make_simulator(sys.argv[1:]))
