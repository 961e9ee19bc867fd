"""Kill a process that appends turns, again and again, and see that nothing it was told is stored was lost.

Run by itself for as many rounds as wanted: python -m tests.engine.store.kill_rounds [--store URL] [ROUNDS [SEED]]
"""

import argparse
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from random import Random

import trio

from engine.store.locate import open_store
from tests.engine.store.crew import SCRIPT

SESSIONS = ("killed-a", "killed-b", "killed-c", "killed-d")
FEWEST, MOST = 1, 400
"""Acknowledged turns after which a process may be killed; a file's log is moved into the database about every 700."""


def append_and_kill(url: str, acknowledged_turns: int) -> dict[str, list[int]]:
    """Let a process append until so many turns are acknowledged, kill -9 it, and give what it acknowledged, by session."""
    command = [sys.executable, SCRIPT, "append", url, *SESSIONS]
    acknowledged: dict[str, list[int]] = {session_id: [] for session_id in SESSIONS}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            session_id, index = line.split()
            acknowledged[session_id].append(int(index))
            if number + 1 == acknowledged_turns:
                process.kill()  # and read on: what it had written before is acknowledged too
    assert process.returncode == -9
    return acknowledged


async def stored(url: str) -> dict[str, list[int]]:
    async with open_store(url) as store:
        return {
            session_id: [turn.index for turn in await store.get_turns(session_id, limit=1 << 30)]
            for session_id in SESSIONS
        }


def check_integrity(url: str) -> None:
    """Nothing to check by other means where the store is not a file."""
    kind, _, place = url.partition(":")
    if kind == "sqlite":
        with closing(sqlite3.connect(place)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def run_rounds(url: str, rounds: int, seed: int, most: int = MOST) -> int:
    """Kill that many times, each after at most so many turns; gives the number of turns acknowledged.

    Raises:
        AssertionError: an acknowledged turn is missing, the turns have a gap, or the file is not sound.
    """
    random = Random(seed)
    kept = trio.run(stored, url)
    total = 0
    for _ in range(rounds):
        acknowledged = append_and_kill(url, random.randint(FEWEST, most))
        check_integrity(url)
        before, kept = kept, trio.run(stored, url)
        for session_id in SESSIONS:
            expected = before[session_id] + acknowledged[session_id]
            assert kept[session_id][: len(expected)] == expected
            # In order, without a gap; at most the one turn under way is there without having been acknowledged.
            assert kept[session_id] == list(range(len(kept[session_id])))
            assert len(kept[session_id]) <= len(expected) + 1
            total += len(acknowledged[session_id])
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", metavar="URL", help="an empty store; by default a file that is deleted afterwards")
    parser.add_argument("rounds", nargs="?", type=int, default=20)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        turns = run_rounds(options.store or f"sqlite:{directory}/store.db", options.rounds, options.seed)
    sys.stdout.write(f"{options.rounds} rounds, {turns} turns acknowledged, none lost\n")
