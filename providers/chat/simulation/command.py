"""The simulator as a process of its own."""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence

import attrs
import trio

from providers.chat.simulation.core import RateLimit
from providers.chat.simulation.faults import Faults
from providers.chat.simulation.script import ECHO, Pace, Script
from providers.chat.simulation.server import ChatSimulator, open_chat_simulator

FAULTS = ("refuse", "silence", "delay", "stall", "drop", "garbage", "error", "duplicate", "comment")
KEPT_RECORDS = 1000


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m providers.chat.simulator",
        description="Simulate OpenAI's chat completions. Prints the base URL it serves, and serves until it is stopped.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0, the default, takes a free one")
    parser.add_argument(
        "--script", metavar="MODULE:NAME", help="what is answered: a Script; the default says what it heard"
    )
    parser.add_argument("--key", action="append", help="an API key to accept; may be repeated; the default is any")
    parser.add_argument("--without-key", action="store_true", help="serve requests that have no key, too")
    parser.add_argument("--model", action="append", help="a model to know; may be repeated; the default is all")
    parser.add_argument("--accepted-after", type=float, default=0.0, metavar="S", help="seconds until the headers")
    parser.add_argument("--first-after", type=float, default=0.0, metavar="S", help="from there to the first token")
    parser.add_argument("--token-seconds", type=float, default=0.0, metavar="S", help="between two tokens")
    parser.add_argument("--jitter", type=float, default=0.0, metavar="P", help="of each wait, from 0 to 1")
    parser.add_argument("--requests-per-minute", type=int, metavar="N", help="refuse more than that")
    parser.add_argument("--records", action="store_true", help=f"keep the last {KEPT_RECORDS} requests in memory")
    faults = parser.add_argument_group("faults by chance", "probabilities from 0 to 1, for requests or events")
    faults.add_argument("--seed", type=int, help="the same seed gives the same faults and the same cuts of texts")
    for name in FAULTS:
        faults.add_argument(f"--{name}", type=float, default=0.0, metavar="P")
    return parser


def load_script(name: str) -> Script:
    """What `MODULE:NAME` names.

    Raises:
        ValueError: it is no script.
    """
    module, _, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ValueError(f"{name} cannot be loaded: {exc}") from exc
    if not isinstance(found, Script):
        raise ValueError(f"{name} is no script")
    return found


@attrs.frozen
class Serving:
    """A simulator, and where it is to be served."""

    simulator: ChatSimulator
    host: str
    port: int


def make_simulator(arguments: Sequence[str]) -> Serving:
    """What the arguments describe. Exits when they are wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    script = ECHO
    if options.script:
        try:
            script = load_script(options.script)
        except ValueError as exc:
            parser.error(str(exc))
    pace = Pace(options.accepted_after, options.first_after, options.token_seconds, options.jitter)
    if pace != Pace():
        script = attrs.evolve(script, pace=pace)
    if options.seed is not None:
        script = attrs.evolve(script, seed=options.seed)
    chances = {name: getattr(options, name) for name in FAULTS}
    simulator = ChatSimulator(
        script,
        keys=options.key,
        needs_key=not options.without_key,
        models=options.model,
        rate_limit=RateLimit(options.requests_per_minute) if options.requests_per_minute else None,
        faults=Faults(options.seed or 0, **chances) if any(chances.values()) else None,
        keeps=KEPT_RECORDS if options.records else 0,
        keeps_events=options.records,
    )
    return Serving(simulator, options.host, options.port)


async def serve(serving: Serving) -> None:
    """Serve until SIGINT or SIGTERM. They are waited for: a `KeyboardInterrupt` may strike where exceptions get lost, as in a finalizer."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_chat_simulator(serving.simulator, host=serving.host, port=serving.port) as simulator:
            sys.stdout.write(f"{simulator.base_url}\n")
            sys.stdout.flush()
            await anext(signals)


def main() -> None:
    trio.run(serve, make_simulator(sys.argv[1:]))
