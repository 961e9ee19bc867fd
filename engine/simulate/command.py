"""The command: what is printed while runs go by, and the file that is written."""

from collections.abc import Callable
from pathlib import Path

from engine.errors import ConfigurationError
from engine.simulate import table
from engine.simulate.conduct import OpenServices, Order, simulate
from engine.simulate.report import Line, Report


def simulate_and_tell(
    order: Order, open_services: OpenServices, file: Path | None, *, shows: bool, say: Callable[[str], None]
) -> bool:
    """Run them, print a row for each and the means, keep the file up to date. True when all that were asked for passed.

    Raises:
        WrongUsageError: there is no such agent, or the tester is none.
        ConfigurationError: the project or the store cannot be used, or the file not be written; it may be in a group.
    """
    if file is not None and (file.is_dir() or not file.parent.is_dir()):  # told before an hour is spent
        raise ConfigurationError(f"the report cannot be written to {file}: there is no such directory, or it is one")
    told: set[int] = set()

    def take(report: Report) -> None:
        if not told:
            say(table.heading())
        for run in report.runs:
            if run.index not in told:
                told.add(run.index)
                say(table.row(run))
        _write(report, file)

    def show(line: Line) -> None:
        say(table.spoken(line))

    report = simulate(order, open_services, on_run=take, tell=show if shows else None)
    say(table.closing(report))
    _write(report, file)
    return report.passed == order.runs


def _write(report: Report, file: Path | None) -> None:
    if file is None:
        return
    is_markdown = file.suffix.lower() == ".md"
    text = table.markdown(report) if is_markdown else report.model_dump_json(by_alias=True, indent=2) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConfigurationError(f"the report cannot be written to {file}: {exc.strerror or exc}") from exc
