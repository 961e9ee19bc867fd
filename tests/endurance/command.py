"""The command lines of the long runs."""

import argparse
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

import trio

from tests.endurance.ledger import ViolationError
from tests.endurance.server import ServerError
from tests.endurance.visitor import AnswerError, LostError
from tests.engine.store.secantus import running_server

HELD, VIOLATED = 0, 1
FAULTS = (ViolationError, ServerError, AnswerError, LostError)

Tell = Callable[[str], None]
Run = Callable[[str, Path, int, int, Tell], Awaitable[str]]
"""Store, directory for files, rounds, seed, and who is told how far it is; gives what was found."""


@contextmanager
def open_place(store: str, directory: Path) -> Generator[str]:
    """The URL of the store of a run: `sqlite` is a new file, `mongodb` a SecantusDB of its own; any URL is itself."""
    if store == "sqlite":
        yield f"sqlite:{directory / 'souffleur.db'}"
    elif store == "mongodb":
        with running_server() as server:
            yield server.url("souffleur")
    else:
        yield store


def run_command(run: Run, description: str, what: str, rounds: int, arguments: Sequence[str]) -> int:
    """Run, print the result as the last line, and give the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"{what} (default %(default)s)")
    parser.add_argument("--store", default="sqlite", help="sqlite, mongodb, or the URL of a new store (default sqlite)")
    parser.add_argument("--seed", type=int, default=1, help="(default %(default)s)")
    options = parser.parse_args(arguments)
    began = time.monotonic()

    def tell(line: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {line}")

    with (
        tempfile.TemporaryDirectory(prefix="souffleur-long-run-") as name,
        open_place(options.store, Path(name)) as store,
    ):
        try:
            found = trio.run(partial(run, store, Path(name), options.rounds, options.seed, tell))
        except* FAULTS as group:
            faults = [str(fault) for fault in leaves(group)]
        else:
            faults = []
            say(f"held: {found}")
    if faults:
        say(f"violated with seed {options.seed}: {'; '.join(faults)}")
    return VIOLATED if faults else HELD


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group of groups."""
    found: list[BaseException] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            found.append(error)
    return found
