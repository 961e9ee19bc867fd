"""What it costs to keep sessions in capsules: two servers in the same seconds with the same load, of which one keeps them, and then
the other one.

Whatever else the machine does hits both alike, and what one process takes more than another of the same program, which is more
than recording costs, is in both halves of the ratio and falls out.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from math import sqrt
from pathlib import Path

import attrs
import trio

from bench_parts.figures import Case, figures, markdown
from bench_parts.side import Side, open_side
from bench_parts.worker import MachineClock, Report, WorkerError

COLUMNS = ("client Hz", "sessions", "CPU ms/session-s", "kept", "ratio", "runs", "KiB/session-s", "lost", "others %")


@attrs.frozen
class Measured:
    """One run, in which each of the servers keeps its sessions for half of the time."""

    halves: tuple[tuple[float, float], tuple[float, float]]
    """Processor time in ms for each second of each session: of the one that kept nothing in that half, then of the other one."""
    kept_bytes: float
    """For each second of each session that is kept."""
    lost: int
    """Frames that did not come to the model, of both."""
    others: float
    """Percent of the machine that went to neither."""

    @property
    def plain(self) -> float:
        return statistics.mean(plain for plain, _ in self.halves)

    @property
    def kept(self) -> float:
        return statistics.mean(kept for _, kept in self.halves)

    @property
    def ratio(self) -> float:
        """The geometric mean of the halves': a server that takes more than the other one by itself is once above the line and once
        below it."""
        (plain, kept), (other_plain, other_kept) = self.halves
        return sqrt(kept / plain * other_kept / other_plain)


@attrs.define(eq=False)
class Pair:
    """A row of the table."""

    case: Case
    runs: list[Measured] = attrs.field(factory=list[Measured], init=False)


async def measure(case: Case, options: argparse.Namespace) -> tuple[Measured, Report | None]:
    """One run of one row. Gives the profile of a server while it kept its sessions, when one was asked for.

    Raises:
        WorkerError: a process failed, or the conversations were not what they should be.
    """
    with tempfile.TemporaryDirectory(prefix="souffleur-bench-") as name:
        directory = Path(name)
        async with AsyncExitStack() as stack:
            sides = [await open_side(stack, case, options, record=directory) for _ in range(2)]
            first = await _half(case, options, sides[0], sides[1], directory)
            second = await _half(case, options, sides[1], sides[0], directory)
    measured = Measured(
        halves=(first.used, second.used),
        kept_bytes=statistics.mean((first.kept_bytes, second.kept_bytes)),
        lost=first.lost + second.lost,
        others=statistics.mean((first.others, second.others)),
    )
    return measured, second.profile


@attrs.frozen
class _Half:
    """See `Measured`."""

    used: tuple[float, float]
    kept_bytes: float
    lost: int
    others: float
    profile: Report | None


async def _half(case: Case, options: argparse.Namespace, plain: Side, kept: Side, directory: Path) -> _Half:
    """New sessions on both servers, measured together."""
    sides = (plain, kept)
    await plain.serving.ask("pass")
    await kept.serving.ask("keep")
    for side in sides:
        await side.loading.ask("connect")
    await trio.sleep(options.settle)
    for side in sides:
        await side.begin()
    clock, size = MachineClock.now(), bytes_in(directory)
    before = [await side.serving.ask("used") for side in sides]
    await trio.sleep(options.seconds)
    after = [await side.serving.ask("used") for side in sides]
    size, ended_at = bytes_in(directory) - size, MachineClock.now()
    ended = [await side.end() for side in sides]
    left = [await side.loading.ask("leave") for side in sides]
    errors = [error for each in left for error in each["errors"]]
    if errors:
        raise WorkerError(f"{case}: the conversations went wrong: {', '.join(errors[:5])}")
    of_plain, of_kept = (used_between(*each, case.sessions) for each in zip(before, after, strict=True))
    seconds = (after[1]["at"] - before[1]["at"]) / 1e9
    total = ended_at.total - clock.total
    others = ended_at.busy - clock.busy - sum(each.cpu_seconds for each in ended)
    return _Half(
        used=(of_plain, of_kept),
        kept_bytes=size / seconds / case.sessions,
        lost=sum(figures(case.sessions, each.heard, each.used, each.simulated, clock, ended_at).lost for each in ended),
        others=max(0.0, others) / total * 100 if total else 0.0,
        profile=ended[1].used["profile"],
    )


def used_between(before: Report, after: Report, sessions: int) -> float:
    """Processor time in ms for each second of each session, from what a server had used."""
    seconds: float = (after["at"] - before["at"]) / 1e9
    used: float = after["cpu_seconds"] - before["cpu_seconds"]
    return used * 1e3 / seconds / sessions


def bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def table(pairs: Sequence[Pair]) -> str:
    """A table that a Markdown page can take as it is."""
    lines: list[list[str]] = [list(COLUMNS)]
    for pair in pairs:
        ratios = [run.ratio for run in pair.runs]
        lines.append(
            [
                str(pair.case.rate),
                str(pair.case.sessions),
                f"{statistics.median(run.plain for run in pair.runs):.2f}",
                f"{statistics.median(run.kept for run in pair.runs):.2f}",
                f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
                str(len(pair.runs)),
                f"{statistics.median(run.kept_bytes for run in pair.runs) / 1024:.1f}",
                str(sum(run.lost for run in pair.runs)),
                f"{statistics.median(run.others for run in pair.runs):.0f}",
            ]
        )
    return markdown(lines)
