"""The pages of one server's processes, in a directory that all of them are given.

Each worker has a page of its own there, and any of them gives the sum of all. When a worker has ended, whoever started it folds
its page into one of all that have ended: what it has counted stays, and the files are as many as the workers that live.

No lock is held between them. A fold first puts the new sums in place, which name the pages that are in them, and then removes
the page; a reader leaves out pages that are in the sums, and begins anew when the sums have changed while it read.
"""

import os
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from engine.errors import ConfigurationError
from engine.observe.families import Family, Totals
from engine.observe.page import HEADER, Page, entries, entry_size, read_page

IN_MEMORY = Path("/dev/shm")
ENDED = "ended"
WORKER = "worker-"
TRIES = 8
"""Of reading while workers end; each of them changes the sums once."""


@contextmanager
def metrics_directory(memory: Path = IN_MEMORY) -> Generator[Path]:
    """For whoever starts the workers: a directory for their pages, which is gone afterwards. In memory where the system has such a
    place: a page of a file on a disk may have to wait while it is being written back."""
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="souffleur-metrics-", dir=place, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def most_bytes(families: Sequence[Family]) -> int:
    """The room that all series of some families can take."""
    return HEADER.size + sum(family.most_bytes for family in families)


def open_page(directory: Path, families: Sequence[Family]) -> tuple[Page, str]:
    """This process's page and the name of its file. A process may have several; no name is used twice.

    Raises:
        ConfigurationError: the directory cannot be written, or is full.
    """
    name = f"{WORKER}{os.getpid()}-{time.time_ns()}"
    try:
        return Page.in_file(directory / name, most_bytes(families)), name
    except OSError as exc:
        raise ConfigurationError(f"the metrics directory {directory} cannot be used: {exc.strerror}") from exc


def read_others(directory: Path, own: str, families: Sequence[Family]) -> Totals:
    """The sums of all pages but one's own."""
    totals = Totals(families)
    for _ in range(TRIES):
        before = _stamp(directory)
        totals = Totals(families)
        folded = _take_ended(directory, totals)
        try:
            for path in sorted(directory.glob(f"{WORKER}*")):
                if path.name != own and path.name not in folded:
                    content, lives = read_page(path)
                    totals.take(entries(content), lives=lives)
        except FileNotFoundError:
            continue
        if _stamp(directory) == before:
            break
    return totals


def fold(directory: Path, pid: int, families: Sequence[Family]) -> None:
    """Keep what a process that has ended had counted, and remove its pages. Called by one process, for one at a time."""
    for path in directory.glob(f"{WORKER}{pid}-*"):
        totals = Totals(families)
        folded = {name for name in _take_ended(directory, totals) if (directory / name).exists()}
        if path.name not in folded:
            totals.take(entries(read_page(path)[0]), lives=False)
            _write_ended(directory, totals, folded | {path.name})
        path.unlink()
    for path in directory.glob(f".{WORKER}{pid}-*"):  # it ended while it made its page
        path.unlink()


def _take_ended(directory: Path, totals: Totals) -> set[str]:
    """Add the sums of those that have ended; gives the names of the pages that are in them."""
    try:
        content = (directory / ENDED).read_bytes()
    except FileNotFoundError:
        return set()
    totals.take(entries(content), lives=False)
    return {orjson.loads(key)[1][0] for key, numbers in entries(content) if not numbers}


def _write_ended(directory: Path, totals: Totals, folded: set[str]) -> None:
    names = [orjson.dumps(["", [name]]) for name in sorted(folded)]
    page = Page.in_memory(most_bytes(totals.families) + sum(entry_size(len(name), 0) for name in names))
    totals.write_to(page)
    for name in names:
        page.add(name, 0)
    unready = directory / f".{ENDED}"
    unready.write_bytes(page.content())
    unready.replace(directory / ENDED)


def _stamp(directory: Path) -> tuple[int, int]:
    """Changes with the sums: they are a new file each time."""
    try:
        status = (directory / ENDED).stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns
