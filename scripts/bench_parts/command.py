"""The command line of `scripts/bench`: one row of the table after the other, each with processes of its own."""

import argparse
import importlib
import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import trio

from bench_parts import recording
from bench_parts.conversation import PATTERN_SECONDS
from bench_parts.figures import Case, Figures, Row, figures, profile_text, table
from bench_parts.side import OPENAI, PROGRAM, SCRIPTED, open_side
from bench_parts.worker import MachineClock, Report, WorkerError, open_worker

DONE, FAILED = 0, 1
ROLES = ("server", "relay", "simulator", "load", "core")
"""What this program is when it is started by itself, with its options as JSON: the module of that name, and no more than it needs."""
"""What this program is when it is started by itself, with its options as JSON: the module of that name, and no more than it needs."""
SETTLE_SECONDS = 3.0
"""From the last session's start to the begin of the measuring."""
PACKAGES = ("trio", "hypercorn", "wsproto", "trio-websocket", "numpy", "orjson", "attrs")


async def measure(case: Case, options: argparse.Namespace) -> tuple[Figures, Report | None]:
    """One run of one row. Gives its figures, and the profile of its server when it was asked for.

    Raises:
        WorkerError: a process failed, or the conversations were not what they should be.
    """
    async with AsyncExitStack() as stack:
        side = await open_side(stack, case, options)
        await side.loading.ask("connect")
        await trio.sleep(options.settle)
        await side.begin()
        before = MachineClock.now()
        await trio.sleep(options.seconds)
        after = MachineClock.now()
        ended = await side.end()
        left = await side.loading.ask("leave")
    if left["errors"]:
        raise WorkerError(f"{case}: the conversations went wrong: {', '.join(left['errors'][:5])}")
    found = figures(case.sessions, ended.heard, ended.used, ended.simulated, before, after)
    return found, ended.used["profile"]


async def bench_core(options: argparse.Namespace) -> None:
    for rate in options.rates:
        rounds: list[float] = []
        kept: list[float] = []
        for _ in range(options.runs):
            async with open_worker(PROGRAM, "core", {"rate": rate, "record": options.record}) as (_, found):
                rounds += found["microseconds"]
                kept += found["kept"]
        lowest, median = min(rounds), statistics.median(rounds)
        print(f"{rate} Hz: {lowest:.1f} µs for a frame in and a frame out; median of {len(rounds)} rounds {median:.1f}")
        if options.record:
            more = [after - before for before, after in zip(rounds, kept, strict=True)]
            middle = f"median {statistics.median(more):.1f} ({min(more):.1f} to {max(more):.1f})"
            print(
                f"{rate} Hz: {min(kept):.1f} µs when they are kept, {min(kept) - lowest:.1f} more; round by round {middle}"
            )


async def bench(options: argparse.Namespace) -> None:
    """Raises WorkerError when runs went wrong, behind the table of all others."""
    pairs: list[tuple[Row, Row | None]] = []
    for rate in options.rates:
        for sessions in options.sessions:
            relay = Row(Case(rate, sessions, is_relay=True)) if options.relay else None
            pairs.append((Row(Case(rate, sessions)), relay))
    failures = 0

    async def try_to(row: Row, run: int) -> Figures | None:
        nonlocal failures
        print(f"run {run + 1} of {options.runs}: {row.case}", file=sys.stderr, flush=True)
        try:
            found, profile = await measure(row.case, options)
        except WorkerError as error:
            failures += 1
            print(f"bench: {error}", file=sys.stderr)
            return None
        row.runs.append(found)
        if profile is not None:
            print(f"\nwhere the time went with {row.case}:", profile_text(profile), sep="\n")
        return found

    # The rows take turns, so that a busy minute of the machine does not fall on one alone.
    for run in range(options.runs):
        for row, relay in pairs:
            found = await try_to(row, run)
            beside = await try_to(relay, run) if relay is not None else None
            if found is not None and beside is not None:
                row.compare(found, beside)
    rows = [row for pair in pairs for row in pair if row is not None and row.runs]
    print()
    print(table(rows, with_ratio=options.relay), flush=True)
    if failures:
        raise WorkerError(f"{failures} of the runs went wrong, as said above, and are not in the table")


async def bench_recording(options: argparse.Namespace) -> None:
    """Raises WorkerError when runs went wrong, behind the table of all others."""
    pairs = [recording.Pair(Case(rate, sessions)) for rate in options.rates for sessions in options.sessions]
    failures = 0
    for run in range(options.runs):
        for pair in pairs:
            print(f"run {run + 1} of {options.runs}: {pair.case}", file=sys.stderr, flush=True)
            try:
                found, profile = await recording.measure(pair.case, options)
            except WorkerError as error:
                failures += 1
                print(f"bench: {error}", file=sys.stderr)
                continue
            pair.runs.append(found)
            if profile is not None:
                print(f"\nwhere the time went with {pair.case}, kept:", profile_text(profile), sep="\n")
    print()
    print(recording.table([pair for pair in pairs if pair.runs]), flush=True)
    if failures:
        raise WorkerError(f"{failures} of the runs went wrong, as said above, and are not in the table")


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
        role = importlib.import_module(f"bench_parts.{arguments[0]}")
        trio.run(role.run, orjson.loads(arguments[1]))
        return DONE
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=numbers, default="1,10,50", help="how many at once (default %(default)s)")
    parser.add_argument("--rates", type=numbers, default="16000,24000", help="Hz of the client (default %(default)s)")
    parser.add_argument("--model", choices=[SCRIPTED, OPENAI], default=SCRIPTED, help="(default %(default)s)")
    parser.add_argument("--simulators", type=int, default=1, help="processes of the provider's (default %(default)s)")
    parser.add_argument("--relay", action="store_true", help="measure a bare relay beside each, too")
    parser.add_argument(
        "--record", action="store_true", help="measure what it costs to keep the sessions, and only that"
    )
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
        if options.relay and (options.model != OPENAI or options.wire != "binary"):
            parser.error(f"--relay needs --model {OPENAI} and --wire binary")
        if options.record and options.relay:
            parser.error("--record measures two servers and no relay")
        if options.simulators < 1:
            parser.error("--simulators is at least 1")
        print(machine())
        print("scripts/bench " + shlex.join(arguments), flush=True)
        trio.run(bench_core if options.core else bench_recording if options.record else bench, options)
    except WorkerError as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return FAILED
    return DONE
