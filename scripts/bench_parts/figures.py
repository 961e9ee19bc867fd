"""From what two processes have noted to the numbers of a table."""

import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence

import attrs

from bench_parts.conversation import MODEL_RATE
from bench_parts.notes import Notes
from bench_parts.worker import MachineClock, Report

NOTHING = "-"
FEW_SESSIONS = 10
"""Below it the memory of a session cannot be told from the allocator's whims."""
BYTES_PER_MS = 2 * MODEL_RATE // 1000
MARGIN_NS = 500_000_000
"""What is sent in the end of the time that is measured may not have come by its end."""
BARGE_IN_NS = 2_000_000_000
"""What a client is told later than this after a word is not that word."""


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest of the values that so many percent of them do not exceed; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * percent // 100) - 1))]


@attrs.frozen
class Up:
    """What became of the frames that the clients sent in the time that was measured."""

    latencies: list[float]
    """Milliseconds from a client's sending a frame to the provider's, or model's, having the first sample of it."""
    held_ms: list[float]
    """Of each of them, the part that was still to come by then: a resampler holds it back until the next frame."""
    lost: int
    """Frames that never came, in all time before the last `MARGIN_NS`."""


def up(load: Report, notes: Sequence[Report]) -> Up:
    """By the levels that the frames have, which tell one from the next after any resampling."""
    arrived: dict[int, tuple[list[int], list[int], list[int]]] = {}
    for rows in (one["arrivals"] for one in notes):
        for at in range(0, len(rows), Notes.FIELDS):
            found = arrived.setdefault(rows[at], ([], [], []))
            for column, value in zip(found, rows[at + 1 : at + Notes.FIELDS], strict=True):
                column.append(value)
    latencies: list[float] = []
    held: list[float] = []
    lost = 0
    for session, sent in enumerate(load["sent"]):
        times, newest, missing = arrived.get(session, ([], [], []))
        for number, at in enumerate(sent):
            if not load["begin"] <= at < load["end"]:
                continue
            row = bisect_left(newest, number)
            if row < len(times):
                latencies.append((times[row] - at) / 1e6)
                held.append(max(0, missing[row]) / BYTES_PER_MS)
            elif at < load["end"] - MARGIN_NS:
                lost += 1
    return Up(latencies, held, lost)


@attrs.frozen
class BargeIns:
    """What became of the provider's, or model's, words that the user has begun to speak while the agent was speaking."""

    told: list[float]
    """Milliseconds from its word to the client's having it."""
    last_frame: list[float]
    """Milliseconds from its word to the last frame of the answer at the client; 0 where none came after it."""
    missing: int
    """Words that no client had."""


def barge_ins(load: Report, notes: Sequence[Report]) -> BargeIns:
    found = BargeIns([], [], 0)
    missing = 0
    for cuts in (one["cuts"] for one in notes):
        for session, at in zip(cuts[::2], cuts[1::2], strict=True):
            if session >= len(load["interruptions"]) or not load["begin"] <= at < load["end"] - MARGIN_NS:
                continue
            rows = load["interruptions"][session]
            told, last = rows[::2], rows[1::2]
            row = bisect_left(told, at)
            if row == len(told) or told[row] - at > BARGE_IN_NS:
                missing += 1
                continue
            found.told.append((told[row] - at) / 1e6)
            found.last_frame.append(max(0, last[row] - at) / 1e6)
    return attrs.evolve(found, missing=missing)


@attrs.frozen
class Case:
    """One row of the table. What is measured is the engine, or the bare relay."""

    rate: int
    sessions: int
    is_relay: bool = False

    def __str__(self) -> str:
        return f"{self.sessions} sessions at {self.rate} Hz{', relay' if self.is_relay else ''}"


Values = tuple[float | None, ...]


@attrs.frozen
class Figures:
    """What one run of a case gave; times in ms, None where nothing happened that could be measured."""

    cpu: float
    cpu_system: float
    up: Values
    held: Values
    lost: int
    down: Values
    barge_in: Values
    last_frame: Values
    barge_ins: int
    barge_ins_missing: int
    late_frames: int
    late_ms: float
    memory_kib: float
    loop: Values
    long_steps: int
    turns: int
    unsaved: int
    client_cpu: float
    client_late: float | None
    simulator_cpu: float | None
    simulator_late: float | None
    others: float
    """Of the machine's processors, the share that none of the processes used and that was not idle, in percent."""


@attrs.define(eq=False)
class Row:
    """A row of the table: the runs of one case."""

    case: Case
    runs: list[Figures] = attrs.field(factory=list[Figures], init=False)
    ratios: list[float] = attrs.field(factory=list[float], init=False)
    """Processor time of the engine as a multiple of that of the relay that ran right behind it."""

    def compare(self, engine: Figures, relay: Figures) -> None:
        """Where frames were lost the machine, or the server, had more to do than it could: that is no measure."""
        if not engine.lost and not relay.lost:
            self.ratios.append(engine.cpu / relay.cpu)


PERCENTS = (50.0, 95.0, 99.0)


def _cpu_of(process: Report, sessions: int) -> float:
    """Milliseconds for each second of each session, of this process's own time of measuring."""
    used: float = process["user_seconds"] + process["system_seconds"]
    seconds: float = process["seconds"]
    return used * 1e3 / seconds / sessions


def figures(
    sessions: int, load: Report, server: Report, simulators: Sequence[Report], before: MachineClock, after: MachineClock
) -> Figures:
    notes = [process["notes"] for process in (server, *simulators) if process["notes"] is not None]
    seconds = (load["end"] - load["begin"]) / 1e9
    machine = after.total - before.total
    ours = sum(process["user_seconds"] + process["system_seconds"] for process in (server, *simulators))
    others = after.busy - before.busy - ours - load["cpu_seconds"]
    down = [value / 1e6 for value in load["down"]]
    late = [value * 1e3 for value in server["late"]]
    sent, cut = up(load, notes), barge_ins(load, notes)
    simulators_late = [percentile([value * 1e3 for value in each["late"]], 99.0) for each in simulators]

    def of(values: Sequence[float], *percents: float) -> Values:
        return tuple(percentile(values, percent) for percent in percents)

    return Figures(
        cpu=_cpu_of(server, sessions),
        cpu_system=server["system_seconds"] * 1e3 / server["seconds"] / sessions,
        up=of(sent.latencies, *PERCENTS),
        held=of(sent.held_ms, 50.0),
        lost=sent.lost,
        down=of(down, *PERCENTS),
        barge_in=of(cut.told, 50.0, 99.0),
        last_frame=of(cut.last_frame, 50.0, 99.0),
        barge_ins=len(cut.told),
        barge_ins_missing=cut.missing,
        late_frames=len(load["late"]),
        late_ms=sum(load["late"]),
        memory_kib=server["resident_bytes"] / 1024 / sessions,
        loop=of(late, 50.0, 99.0, 100.0),
        long_steps=server["long_steps"],
        turns=sum(load["exits"]),
        unsaved=len(load["exits"]) - sum(load["exits"]),
        client_cpu=load["cpu_seconds"] * 1e3 / seconds / sessions,
        client_late=percentile([value / 1e6 for value in load["own_lateness"]], 99.0),
        simulator_cpu=sum(_cpu_of(each, sessions) for each in simulators) if simulators else None,
        simulator_late=max((value for value in simulators_late if value is not None), default=None),
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


def _medians(runs: Sequence[Figures], field: Callable[[Figures], Values]) -> str:
    columns = zip(*map(field, runs), strict=True)
    return " / ".join(number(_middle(column), 2) for column in columns)


def _sum(runs: Sequence[Figures], field: Callable[[Figures], float]) -> str:
    return f"{sum(map(field, runs)):g}"


def _cpu(runs: Sequence[Figures]) -> str:
    values = [run.cpu for run in runs]
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return number(statistics.median(values), 2) + spread


def _barge_ins(runs: Sequence[Figures]) -> str:
    missing = sum(run.barge_ins_missing for run in runs)
    found = sum(run.barge_ins for run in runs)
    return f"{found} of {found + missing}" if missing else f"{found}"


def _engine_only(field: Callable[[Figures], float]) -> "Cell":
    """The relay has nothing of the kind."""
    return lambda case, runs: NOTHING if case.is_relay else _sum(runs, field)


Cell = Callable[[Case, Sequence[Figures]], str]
RATIO = "server/relay"

COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("client Hz", lambda case, _: str(case.rate)),
    ("sessions", lambda case, _: str(case.sessions)),
    ("server", lambda case, _: "relay" if case.is_relay else "engine"),
    ("CPU ms/session-s", lambda _, runs: _cpu(runs)),
    ("of it system", lambda _, runs: number(_median(runs, lambda run: run.cpu_system), 2)),
    ("up p50 / p95 / p99", lambda _, runs: _medians(runs, lambda run: run.up)),
    ("held back", lambda _, runs: _medians(runs, lambda run: run.held)),
    ("lost", lambda _, runs: _sum(runs, lambda run: run.lost)),
    ("down p50 / p95 / p99", lambda _, runs: _medians(runs, lambda run: run.down)),
    ("barge-in p50 / p99", lambda _, runs: _medians(runs, lambda run: run.barge_in)),
    ("last frame p50 / p99", lambda _, runs: _medians(runs, lambda run: run.last_frame)),
    ("barge-ins", lambda _, runs: _barge_ins(runs)),
    ("late frames", lambda _, runs: _sum(runs, lambda run: run.late_frames)),
    ("late ms", lambda _, runs: _sum(runs, lambda run: run.late_ms)),
    (
        "KiB/session",
        lambda case, runs: (
            NOTHING if case.sessions < FEW_SESSIONS else number(_median(runs, lambda run: run.memory_kib), 0)
        ),
    ),
    ("loop late p50 / p99 / max", lambda _, runs: _medians(runs, lambda run: run.loop)),
    ("steps > 20 ms", _engine_only(lambda run: run.long_steps)),
    ("turns saved", _engine_only(lambda run: run.turns)),
    ("not in time", _engine_only(lambda run: run.unsaved)),
    ("client CPU", lambda _, runs: number(_median(runs, lambda run: run.client_cpu), 2)),
    ("server/client", lambda _, runs: number(_median(runs, lambda run: run.cpu / run.client_cpu), 2)),
    ("client late p99", lambda _, runs: number(_median(runs, lambda run: run.client_late), 2)),
    ("simulator CPU", lambda _, runs: number(_median(runs, lambda run: run.simulator_cpu), 2)),
    ("simulator late p99", lambda _, runs: number(_median(runs, lambda run: run.simulator_late), 2)),
    ("others %", lambda _, runs: number(_median(runs, lambda run: run.others), 0)),
)


def table(rows: Sequence[Row], *, with_ratio: bool) -> str:
    """A table that a Markdown page can take as it is; each cell is the median of the runs, counts are their sums."""
    lines = [[title for title, _ in COLUMNS], *([cell(row.case, row.runs) for _, cell in COLUMNS] for row in rows)]
    if with_ratio:
        for line, cell in zip(lines, [RATIO, *(number(_middle(row.ratios), 2) for row in rows)], strict=True):
            line.append(cell)
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table of cells; the first line is its head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    printed = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    printed.insert(1, "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    return "\n".join(printed)


# --- the profile -----------------------------------------------------------------------------------------------------

TOP_FUNCTIONS = 40
TOP_OWNERS = 30
TOP_OF_ROOM = 6


def profile_text(profile: Report) -> str:
    """Shares of the process's time: by room with its functions, by task, by function, and by the function of ours it was spent
    for."""
    samples = profile["samples"] or 1
    functions: list[tuple[str, str, int]] = profile["functions"]

    def share(count: int) -> str:
        return f"{count * 100 / samples:5.1f} %"

    def part(title: str, rows: Sequence[tuple[str, int]]) -> list[str]:
        return ["", title, *(f"  {share(count)}  {name}" for name, count in rows)]

    rooms = ["", "by room of the code that ran, each with its functions"]
    for room, count in profile["rooms"]:
        rooms.append(f"  {share(count)}  {room}")
        own = [(name, taken) for where, name, taken in functions if where == room][:TOP_OF_ROOM]
        rooms += [f"      {share(taken)}  {name}" for name, taken in own if taken * 200 >= samples]
    owners = [(f"{room}: {name}" if room else name, count) for room, name, count in profile["owners"][:TOP_OWNERS]]
    lines = [
        f"{profile['samples']} samples",
        *rooms,
        *part("by task", profile["tasks"]),
        *part("by function that ran", [(f"{room}: {name}", count) for room, name, count in functions[:TOP_FUNCTIONS]]),
        *part("by innermost function of ours, libraries' work counted for who called them", owners),
    ]
    return "\n".join(lines)
