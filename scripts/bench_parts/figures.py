"""From what two processes have noted to the numbers of a table."""

import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence

import attrs

from bench_parts.conversation import FRAME_MS, MODEL_RATE
from bench_parts.worker import MachineClock, Report

NOTHING = "-"
FEW_SESSIONS = 10
"""Below it the memory of a session cannot be told from the allocator's whims."""


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest of the values that so many percent of them do not exceed; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * percent // 100) - 1))]


def up_latencies(load: Report, server: Report) -> list[float]:
    """Milliseconds from a client's sending a frame to the model's having the first sample of it.

    Found by counting: a frame has reached the model when more audio has than the frames before it hold. That needs no stamp,
    which resampling would not leave readable. What the resampler holds back of a frame, under 1 ms, comes on top.
    """
    arrived: dict[int, tuple[list[int], list[int]]] = {}
    rows = server["arrivals"]
    for at in range(0, len(rows), 3):
        totals, times = arrived.setdefault(rows[at], ([], []))
        totals.append(rows[at + 2])
        times.append(rows[at + 1])
    frame_bytes = 2 * MODEL_RATE * FRAME_MS // 1000
    latencies: list[float] = []
    for session, sent in enumerate(load["sent"]):
        totals, times = arrived.get(session, ([], []))
        for number, at in enumerate(sent):
            if not load["begin"] <= at < load["end"]:
                continue
            found = bisect_right(totals, number * frame_bytes)
            if found < len(times):
                latencies.append((times[found] - at) / 1e6)
    return latencies


@attrs.frozen
class Case:
    """One row of the table."""

    rate: int
    sessions: int

    def __str__(self) -> str:
        return f"{self.sessions} sessions at {self.rate} Hz"


@attrs.frozen
class Figures:
    """What one run of a case gave; times in ms, None where nothing happened that could be measured."""

    cpu: float
    cpu_system: float
    up: tuple[float | None, ...]
    down: tuple[float | None, ...]
    barge_in: tuple[float | None, ...]
    barge_ins: int
    late_frames: int
    late_ms: float
    memory_kib: float
    loop: tuple[float | None, ...]
    long_steps: int
    turns: int
    unsaved: int
    client_cpu: float
    client_late: float | None
    others: float
    """Of the machine's processors, the share that neither process used and that was not idle, in percent."""


PERCENTS = (50.0, 95.0, 99.0)


def figures(sessions: int, load: Report, server: Report, before: MachineClock, after: MachineClock) -> Figures:
    session_seconds = (load["end"] - load["begin"]) / 1e9 * sessions
    cpu = server["user_seconds"] + server["system_seconds"]
    machine = after.total - before.total
    others = after.busy - before.busy - cpu - load["cpu_seconds"]
    barge_in = [value / 1e6 for value in load["barge_in"]]
    down = [value / 1e6 for value in load["down"]]
    late = [value * 1e3 for value in server["late"]]
    up = up_latencies(load, server)

    def of(values: Sequence[float], *percents: float) -> tuple[float | None, ...]:
        return tuple(percentile(values, percent) for percent in percents)

    return Figures(
        cpu=cpu * 1e3 / session_seconds,
        cpu_system=server["system_seconds"] * 1e3 / session_seconds,
        up=of(up, *PERCENTS),
        down=of(down, *PERCENTS),
        barge_in=of(barge_in, 50.0, 99.0),
        barge_ins=len(barge_in),
        late_frames=len(load["late"]),
        late_ms=sum(load["late"]),
        memory_kib=server["resident_bytes"] / 1024 / sessions,
        loop=of(late, 50.0, 99.0, 100.0),
        long_steps=server["long_steps"],
        turns=sum(load["exits"]),
        unsaved=len(load["exits"]) - sum(load["exits"]),
        client_cpu=load["cpu_seconds"] * 1e3 / session_seconds,
        client_late=percentile([value / 1e6 for value in load["own_lateness"]], 99.0),
        others=max(0.0, others) / machine * 100 if machine else 0.0,
    )


# --- the table -------------------------------------------------------------------------------------------------------


def number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _median(runs: Sequence[Figures], field: Callable[[Figures], float | None]) -> float | None:
    return _middle(list(map(field, runs)))


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _medians(runs: Sequence[Figures], field: Callable[[Figures], tuple[float | None, ...]]) -> str:
    columns = zip(*map(field, runs), strict=True)
    return " / ".join(number(_middle(column), 2) for column in columns)


def _sum(runs: Sequence[Figures], field: Callable[[Figures], float]) -> str:
    return f"{sum(map(field, runs)):g}"


def _cpu(runs: Sequence[Figures]) -> str:
    values = [run.cpu for run in runs]
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return number(statistics.median(values), 2) + spread


Cell = Callable[[Case, Sequence[Figures]], str]

COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("client Hz", lambda case, _: str(case.rate)),
    ("sessions", lambda case, _: str(case.sessions)),
    ("CPU ms/session-s", lambda _, runs: _cpu(runs)),
    ("of it system", lambda _, runs: number(_median(runs, lambda run: run.cpu_system), 2)),
    ("up p50 / p95 / p99", lambda _, runs: _medians(runs, lambda run: run.up)),
    ("down p50 / p95 / p99", lambda _, runs: _medians(runs, lambda run: run.down)),
    ("barge-in p50 / p99", lambda _, runs: _medians(runs, lambda run: run.barge_in)),
    ("barge-ins", lambda _, runs: _sum(runs, lambda run: run.barge_ins)),
    ("late frames", lambda _, runs: _sum(runs, lambda run: run.late_frames)),
    ("late ms", lambda _, runs: _sum(runs, lambda run: run.late_ms)),
    (
        "KiB/session",
        lambda case, runs: (
            NOTHING if case.sessions < FEW_SESSIONS else number(_median(runs, lambda run: run.memory_kib), 0)
        ),
    ),
    ("loop late p50 / p99 / max", lambda _, runs: _medians(runs, lambda run: run.loop)),
    ("steps > 20 ms", lambda _, runs: _sum(runs, lambda run: run.long_steps)),
    ("turns saved", lambda _, runs: _sum(runs, lambda run: run.turns)),
    ("not in time", lambda _, runs: _sum(runs, lambda run: run.unsaved)),
    ("client CPU", lambda _, runs: number(_median(runs, lambda run: run.client_cpu), 2)),
    ("server/client", lambda _, runs: number(_median(runs, lambda run: run.cpu / run.client_cpu), 2)),
    ("client late p99", lambda _, runs: number(_median(runs, lambda run: run.client_late), 2)),
    ("others %", lambda _, runs: number(_median(runs, lambda run: run.others), 0)),
)


def table(results: Sequence[tuple[Case, Sequence[Figures]]]) -> str:
    """A table that a Markdown page can take as it is; each cell is the median of the runs, counts are their sums."""
    rows = [[title for title, _ in COLUMNS]]
    rows += [[cell(case, runs) for _, cell in COLUMNS] for case, runs in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(lines)


# --- the profile -----------------------------------------------------------------------------------------------------

TOP_FUNCTIONS = 40
TOP_OWNERS = 30


def profile_text(profile: Report) -> str:
    """Shares of the process's time: by room, by task, by function, and by the engine's function it was spent for."""
    samples = profile["samples"] or 1

    def share(count: int) -> str:
        return f"{count * 100 / samples:5.1f} %"

    def part(title: str, rows: list[tuple[str, int]]) -> list[str]:
        return ["", title, *(f"  {share(count)}  {name}" for name, count in rows)]

    functions = [(f"{room}: {name}", count) for room, name, count in profile["functions"][:TOP_FUNCTIONS]]
    owners = [(f"{room}: {name}" if room else name, count) for room, name, count in profile["owners"][:TOP_OWNERS]]
    lines = [
        f"{profile['samples']} samples",
        *part("by room of the code that ran", profile["rooms"]),
        *part("by task", profile["tasks"]),
        *part("by function that ran", functions),
        *part("by innermost function of ours, libraries' work counted for who called them", owners),
    ]
    return "\n".join(lines)
