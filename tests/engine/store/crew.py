"""Processes that share a store and do the same thing at the same time.

Run by itself for as many contested leases as wanted: python -m tests.engine.store.crew [--store URL] [LEASES [PROCESSES]]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

SCRIPT = str(Path(__file__).with_name("process.py"))


@attrs.frozen
class Crew:
    """Members by name. Made by `open_crew`."""

    members: dict[str, "subprocess.Popen[str]"]

    def all(self, command: str) -> dict[str, list[list[str]]]:
        """Have every member do it at once; gives the words of each line each of them said."""
        for process in self.members.values():
            assert process.stdin is not None
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
        return {name: _said(name, process) for name, process in self.members.items()}


def _said(name: str, process: "subprocess.Popen[str]") -> list[list[str]]:
    assert process.stdout is not None
    said: list[list[str]] = []
    for line in process.stdout:
        if line == "done\n":
            return said
        said.append(line.split())
    raise AssertionError(f"{name} ended before it was done")


@contextmanager
def open_crew(url: str, size: int) -> Generator[Crew]:
    """Processes that all have opened the store, at the same moment. They end with the context."""
    with ExitStack() as stack:
        members = {
            name: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, SCRIPT, "crew", url, name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for name in (f"member-{number}" for number in range(size))
        }
        for process in members.values():
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        crew = Crew(members)
        crew.all("open")
        yield crew
        for process in members.values():
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(timeout=30) for process in members.values()] == [0] * size


def race_for_leases(crew: Crew, first: int, count: int) -> dict[str, int]:
    """Have everybody ask for the same leases; gives how many each has got.

    Raises:
        AssertionError: one of them has two holders, or none.
    """
    said = crew.all(f"leases {first} {count}")
    won = sorted(int(number) for lines in said.values() for number, _ in lines)
    assert won == list(range(first, first + count))
    return {name: len(lines) for name, lines in said.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", metavar="URL", help="an empty store; by default a file that is deleted afterwards")
    parser.add_argument("leases", nargs="?", type=int, default=300)
    parser.add_argument("processes", nargs="?", type=int, default=6)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        open_crew(options.store or f"sqlite:{directory}/store.db", options.processes) as opened,
    ):
        winners = race_for_leases(opened, 0, options.leases)
    sys.stdout.write(f"{options.leases} leases, {sum(winners.values())} winners: {winners}\n")
