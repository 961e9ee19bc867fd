"""Kill a process that appends turns, again and again, and see that nothing it was told is stored was lost.

Run by itself for as many rounds as wanted: python -m tests.engine.store.kill_rounds [ROUNDS [SEED]]
"""

import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import trio

from engine.store.embedded import open_embedded

SESSIONS = ("a", "b", "c", "d")
FEWEST, MOST = 1, 400
"""Acknowledged turns after which a process may be killed; the log is moved into the database about every 700."""


def append_and_kill(path: Path, acknowledged_turns: int) -> dict[str, list[int]]:
    """Let a process append until so many turns are acknowledged, kill -9 it, and give what it acknowledged, by session."""
    command = [sys.executable, str(Path(__file__).with_name("process.py")), "append", str(path), *SESSIONS]
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


async def stored(path: Path) -> dict[str, list[int]]:
    async with open_embedded(path) as store:
        return {
            session_id: [turn.index for turn in await store.get_turns(session_id, limit=1 << 30)]
            for session_id in SESSIONS
        }


def check_integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def run_rounds(path: Path, rounds: int, seed: int) -> int:
    """Kill that many times; gives the number of turns acknowledged.

    Raises:
        AssertionError: an acknowledged turn is missing, the turns have a gap, or the file is not sound.
    """
    random = Random(seed)
    kept: dict[str, list[int]] = {session_id: [] for session_id in SESSIONS}
    for _ in range(rounds):
        acknowledged = append_and_kill(path, random.randint(FEWEST, MOST))
        check_integrity(path)
        before, kept = kept, trio.run(stored, path)
        for session_id in SESSIONS:
            expected = before[session_id] + acknowledged[session_id]
            assert kept[session_id][: len(expected)] == expected
            # In order, without a gap; at most the one turn under way is there without having been acknowledged.
            assert kept[session_id] == list(range(len(kept[session_id])))
            assert len(kept[session_id]) <= len(expected) + 1
    return sum(len(indexes) for indexes in kept.values())


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    rounds, seed = (arguments + [20, 1][len(arguments) :])[:2]
    with tempfile.TemporaryDirectory() as directory:
        total = run_rounds(Path(directory) / "store.db", rounds, seed)
    sys.stdout.write(f"{rounds} rounds, {total} turns, none lost\n")
