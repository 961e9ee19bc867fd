"""A simulation for people: a table that grows with the runs, and the whole of it as Markdown."""

from collections.abc import Sequence

from engine.simulate.report import Line, Report, RunReport, Whisper

COLUMNS = ("run", "seed", "turns", "ended by", "seconds", "first word", "cut", "whispers", "tools", "scores", "")
WIDTHS = (4, 6, 5, 12, 8, 10, 4, 8, 5, 0, 0)
"""Of all but the last two, which are as long as they are."""
NOTHING = "–"


def heading() -> str:
    return _laid_out(COLUMNS)


def row(run: RunReport) -> str:
    """One run in a line, and below it why it did not pass and what went wrong."""
    lines = [_laid_out(_cells(run))]
    lines += [f"      {failure}" for failure in run.failures]
    lines += [f"      {_fault(run, index)}" for index in range(len(run.errors))]
    lines += [f"      {side.key} warns: {warning}" for side in (run.agent, run.tester) for warning in side.warnings]
    lines += [
        f"      the speech of {side.key} stood still {side.stalls} times: it was not made in real time, and may be misunderstood"
        for side in (run.agent, run.tester)
        if side.stalls
    ]
    return "\n".join(lines)


def closing(report: Report) -> str:
    """The means, and how many passed."""
    means = report.means
    cells = (
        "mean",
        "",
        _number(means.turns, 1),
        "",
        _number(means.seconds, 1),
        _number(means.first_word, 2),
        _number(means.interruptions, 1),
        f"{_number(means.whispers_used, 1)}/{_number(means.whispers_given, 1)}",
        "",
        _scores(means.scores),
        "",
    )
    asked = "" if len(report.runs) == report.asked_runs else f" ({report.asked_runs} were asked for)"
    verdict = f"{report.passed} of {len(report.runs)} runs passed{asked}"
    return "\n".join([_laid_out(cells), "", f"{verdict}; {report.mode}, {report.clock} time"])


def spoken(line: Line) -> str:
    """A line of the conversation, as it is said."""
    return f"{line.side + ':':8}{line.text}{_status(line)}"


def markdown(report: Report) -> str:
    """Everything that is told to people: the table, then each conversation with what was whispered and judged."""
    parts = [f"# {report.agent} with {report.tester}", _markdown_table(report), closing(report).splitlines()[-1] + "."]
    for run in report.runs:
        parts += _markdown_run(run)
    return "\n\n".join(parts) + "\n"


def _cells(run: RunReport) -> tuple[str, ...]:
    words = run.agent.first_words
    scores = {verdict.name: verdict.score for verdict in run.evaluations if verdict.score is not None}
    return (
        str(run.index + 1),
        NOTHING if run.seed is None else str(run.seed),
        str(run.turns),
        run.ended.value,
        _number(run.seconds, 1),
        _number(sum(words) / len(words) if words else None, 2),
        str(len(run.interruptions)),
        f"{run.whispers_used}/{run.whispers_given}",
        str(len(run.tools)),
        _scores(scores),
        "passed" if run.passed else "FAILED",
    )


def _laid_out(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def _number(value: float | None, places: int) -> str:
    return NOTHING if value is None else f"{value:.{places}f}"


def _scores(scores: dict[str, float]) -> str:
    return " ".join(f"{name} {score:.2f}" for name, score in scores.items()) or NOTHING


def _fault(run: RunReport, index: int) -> str:
    fault = run.errors[index]
    whose = {"client": "the simulation", "provider": "a provider", "server": "this engine or its configuration"}
    return f"{fault.side} at {fault.at:.1f} s: {fault.message} ({fault.code}; at fault: {whose[fault.whose]})"


def _status(line: Line) -> str:
    return "" if line.status == "completed" else f" ({line.status})"


def _markdown_table(report: Report) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(_cells(run) for run in report.runs)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def _markdown_run(run: RunReport) -> list[str]:
    parts = [f"## Run {run.index + 1}: {'passed' if run.passed else 'failed'}"]
    if run.failures:
        parts.append("\n".join(f"- {_flat(failure)}" for failure in run.failures))
    parts.append("\n".join(_events(run)) or "Nothing was said.")
    parts.append(f"Ended by: {run.ended}. {_flat(run.end_reason)}".rstrip(". ") + ".")
    if run.evaluations:
        parts.append(
            "\n".join(
                f"- judge **{verdict.name}**: {_number(verdict.score, 2)} {_flat(' '.join(verdict.reasons))}".rstrip()
                for verdict in run.evaluations
            )
        )
    if run.errors:
        parts.append("\n".join(f"- error: {_flat(_fault(run, index))}" for index in range(len(run.errors))))
    return parts


def _events(run: RunReport) -> list[str]:
    """What was said, whispered and called, in its order; at the end the whispers that clients were not shown."""
    events = [
        (line.order, f"- {line.at:.1f} s **{line.side}**: {_flat(line.text)}{_status(line)}{_unheard(line)}")
        for line in run.transcript
    ]
    events += [
        (tool.order, f"- {tool.at:.1f} s *{tool.side}, {tool.owner}*: `{tool.name}` {tool.outcome}")
        for tool in run.tools
    ]
    last = max((order for order, _ in events), default=0) + 1
    events += [(last if whisper.order is None else whisper.order, f"- {_whisper(whisper)}") for whisper in run.steering]
    return [text for _, text in sorted(events, key=lambda event: event[0])]


def _unheard(line: Line) -> str:
    return "" if line.heard == line.text else f" (heard: {_flat(line.heard) or 'nothing'})"


def _whisper(whisper: Whisper) -> str:
    kind = whisper.instruction_type or "PLANNING"
    at = "" if whisper.at is None else f"{whisper.at:.1f} s "
    used = f" (spoken as {whisper.instruction_id})" if whisper.spoken_at is not None else ""
    return f"{at}*whisper, {kind}*: {_flat(whisper.text)}{used}"


def _flat(text: str) -> str:
    """On one line, so that it stays in its item of the list."""
    return " ".join(text.split())
