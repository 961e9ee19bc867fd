"""The command line of `scripts/bench`: one row of the table after the other, each with processes of its own."""

import argparse
import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson
import trio

from bench_parts import core, load, server
from bench_parts.conversation import PATTERN_SECONDS
from bench_parts.figures import Case, Figures, figures, profile_text, table
from bench_parts.load import WARM_SECONDS
from bench_parts.worker import MachineClock, Report, WorkerError, open_worker

DONE, FAILED = 0, 1
ROLES = {"server": server.run, "load": load.run, "core": core.run}
"""What this program is when it is started by itself; the options follow as JSON."""
PROGRAM = Path(__file__).resolve().parents[1] / "bench"
SETTLE_SECONDS = 3.0
"""From the last session's start to the begin of the measuring."""
PACKAGES = ("trio", "hypercorn", "wsproto", "numpy", "orjson", "attrs")
MARGIN_SECONDS = 60
"""What starting may take on a busy machine; the server keeps room for its notes so much longer than is measured."""


async def measure(case: Case, options: argparse.Namespace) -> tuple[Figures, Report | None]:
    """One run of one row. Gives its figures, and the profile when one was asked for.

    Raises:
        WorkerError: a process failed, or the conversations were not what they should be.
    """
    total = int(WARM_SECONDS + options.settle + options.seconds) + MARGIN_SECONDS
    of_server = {
        "sessions": case.sessions,
        "lead_seconds": options.settle + min(1.0, options.seconds / 2),
        "total_seconds": total,
        "profile": options.profile,
    }
    async with open_worker(PROGRAM, "server", of_server) as (serving, address):
        of_load = {"port": address["port"], "sessions": case.sessions, "rate": case.rate, "wire": options.wire}
        async with open_worker(PROGRAM, "load", of_load) as (loading, _):
            await loading.ask("warm")
            await serving.ask("baseline")
            await loading.ask("connect")
            await trio.sleep(options.settle)
            await serving.ask("begin")
            await loading.ask("begin")
            before = MachineClock.now()
            await trio.sleep(options.seconds)
            after = MachineClock.now()
            heard = await loading.ask("end")
            used = await serving.ask("end")
            ended = await loading.ask("leave")
    if ended["errors"]:
        raise WorkerError(f"{case}: the conversations went wrong: {', '.join(ended['errors'][:5])}")
    return figures(case.sessions, heard, used, before, after), used["profile"]


async def bench_core(options: argparse.Namespace) -> None:
    for rate in options.rates:
        rounds: list[float] = []
        for _ in range(options.runs):
            async with open_worker(PROGRAM, "core", {"rate": rate}) as (_, found):
                rounds += found["microseconds"]
        lowest, median = min(rounds), statistics.median(rounds)
        print(f"{rate} Hz: {lowest:.1f} µs for a frame in and a frame out; median of {len(rounds)} rounds {median:.1f}")


async def bench(options: argparse.Namespace) -> None:
    results: list[tuple[Case, list[Figures]]] = []
    for rate in options.rates:
        results.extend((Case(rate, sessions), []) for sessions in options.sessions)
    for run in range(
        options.runs
    ):  # the rows take turns, so that a busy minute of the machine does not fall on one alone
        for case, runs in results:
            print(f"run {run + 1} of {options.runs}: {case}", file=sys.stderr, flush=True)
            found, profile = await measure(case, options)
            runs.append(found)
            if profile is not None:
                print(f"\nwhere the time went with {case}:", profile_text(profile), sep="\n")
    print()
    print(table(results), flush=True)


def machine() -> str:
    """What was measured on, and with what."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return (
        f"{model}, {os.cpu_count()} processors, {memory:.0f} GiB, {platform.system()} {platform.release()}\n"
        f"{platform.python_implementation()} {platform.python_version()}, {versions}"
    )


def numbers(text: str) -> list[int]:
    found = [int(part) for part in text.split(",")]
    if not all(value > 0 for value in found):
        raise ValueError
    return found


def run(arguments: Sequence[str], description: str) -> int:
    """Measure and print, or be one of the processes that do the work; returns the exit code."""
    if arguments and arguments[0] in ROLES:
        trio.run(ROLES[arguments[0]], orjson.loads(arguments[1]))
        return DONE
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=numbers, default="1,10,50", help="how many at once (default %(default)s)")
    parser.add_argument("--rates", type=numbers, default="16000,24000", help="Hz of the client (default %(default)s)")
    parser.add_argument("--wire", choices=["binary", "json"], default="binary", help="(default %(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float(PATTERN_SECONDS),
        help="of measuring for each row (default %(default)g, once through the conversation's pattern)",
    )
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds before it (default %(default)g)")
    parser.add_argument("--runs", type=int, default=1, help="of each row (default %(default)s)")
    parser.add_argument("--profile", action="store_true", help="say where the server's time goes")
    parser.add_argument("--core", action="store_true", help="only the engine's core, without sockets")
    try:
        options = parser.parse_args(arguments)
        print(machine())
        print("scripts/bench " + shlex.join(arguments), flush=True)
        trio.run(bench_core if options.core else bench, options)
    except WorkerError as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return FAILED
    return DONE
