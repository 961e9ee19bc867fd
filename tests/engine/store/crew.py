"""Processes that share a store and do the same thing at the same time.

Run by itself for as many contested leases as wanted: python -m tests.engine.store.crew [--store URL] [LEASES [PROCESSES]]
"""

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

SCRIPT = str(Path(__file__).with_name("process.py"))


@attrs.frozen
class Crew:
    """Members by name. Made by `open_crew`."""

    members: dict[str, "subprocess.Popen[str]"]

    def rounds(self, command: str, count: int) -> list[list[list[int]]]:
        """Have every member do it at once, and again; gives for each round what each of them said, in numbers."""
        return [
            [[int(word) for words in lines for word in words] for lines in self.all(f"{command} {number}").values()]
            for number in range(count)
        ]

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
        crew.all("open 0")
        yield crew
        for process in members.values():
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(timeout=30) for process in members.values()] == [0] * size


def race(crew: Crew, command: str, count: int) -> list[str]:
    """Have everybody contend for one thing after the other, each time at once; gives the winner of each.

    Raises:
        AssertionError: one of them has two winners, or none.
    """
    winners: list[str] = []
    for number in range(count):
        said = crew.all(f"{command} {number}")
        (winner,) = (name for name, lines in said.items() if lines == [["won"]])
        winners.append(winner)
    return winners


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
        winners = race(opened, "lease", options.leases)
    sys.stdout.write(f"{options.leases} leases, {len(winners)} winners: {dict(Counter(winners))}\n")
