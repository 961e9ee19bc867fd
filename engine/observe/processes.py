"""The processes of one server count together, and any of them gives out the sum.

Each worker keeps four files in a directory that its supervisor makes (`metrics_directory`): the client's, for counters, for
histograms, for gauges that are summed, and for those of which the highest counts. When a worker has ended, its supervisor removes
those of its gauges and adds what it had counted to that of all that have ended (`mark_worker_dead`). So there are at most four
files for each worker that lives and two more, however often workers are started again.

The client reads whatever it finds, so a lock on the directory keeps the two apart: who reads holds it together with other readers,
who makes or adds files holds it alone. It is gone with whoever holds it.
"""

import fcntl
import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, mmap_dict, multiprocess

logger = logging.getLogger(__name__)

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The client's variable: it counts in files of this directory when the variable is there before it is imported."""
IN_MEMORY = Path("/dev/shm")
ENDED = "ended"
"""Stands in the names of files where a worker's have its process id."""

_files: Any = mmap_dict
_multiprocess: Any = multiprocess
"""These parts of the client have no types."""


@contextmanager
def metrics_directory(memory: Path = IN_MEMORY) -> Generator[Path]:
    """For whoever starts the workers: a directory for their files, which is gone afterwards. In memory where the system has such a
    place: to count in a file on a disk may have to wait while it is being written back."""
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="souffleur-metrics-", dir=place, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def given_directory() -> Path | None:
    """The directory that this process counts in; None when it counts for itself."""
    directory = os.environ.get(DIRECTORY)
    return None if directory is None else Path(directory)


def registry_of_all(directory: Path) -> CollectorRegistry:
    """What all processes count, read anew whenever it is collected."""
    registry = CollectorRegistry()
    _multiprocess.MultiProcessCollector(registry, str(directory))
    return registry


def mark_worker_dead(directory: Path, pid: int) -> None:
    """Keep what a process had counted that has ended, and forget what it said of now. For whoever started it, when it was waited for;
    takes as long as the readers of that moment. A directory that is gone is logged: nobody stops serving for it."""
    try:
        with locked(directory):
            _multiprocess.mark_process_dead(pid, str(directory))
            for kind in ("counter", "histogram"):
                path = directory / f"{kind}_{pid}.db"
                if path.exists():
                    _add(path, directory / f"{kind}_{ENDED}.db")
                    path.unlink()
    except OSError as exc:
        logger.warning("what worker %d had counted is lost: %s", pid, exc.strerror)


def _add(path: Path, sums: Path) -> None:
    """Add every number of a file to that of another one."""
    added, kept = _files.MmapedDict(str(path)), _files.MmapedDict(str(sums))
    try:
        for key, value, _ in added.read_all_values():
            kept.write_value(key, kept.read_value(key)[0] + value, 0.0)
    finally:
        added.close()
        kept.close()


@contextmanager
def locked(directory: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the directory's lock, alone or together with others who share it.

    Raises:
        OSError: there is no such directory.
    """
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
