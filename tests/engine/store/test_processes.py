"""Several processes on one file, and processes that are killed. A second or two each: every process has to start."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import trio

from engine.store.contract import Store
from engine.store.embedded import open_embedded
from tests.engine.store.kill_rounds import check_integrity, run_rounds

PROCESSES = 3
TURNS = 50


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    assert run_rounds(tmp_path / "store.db", rounds=3, seed=1) > 0


def test_processes_share_a_file_from_its_making_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    script = str(Path(__file__).with_name("process.py"))
    names = [f"process {number}" for number in range(PROCESSES)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, script, "race", str(path), name, str(TURNS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for name in names
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = {name: process.communicate()[0].split() for name, process in zip(names, processes, strict=True)}
    assert sorted(said.values()) == [["refused", "done"]] * (PROCESSES - 1) + [["won", "done"]]
    (winner,) = (name for name, words in said.items() if words[0] == "won")
    check_integrity(path)

    async def look() -> None:
        async with open_embedded(path) as store:
            shared = await store.get_session("shared")
            assert shared is not None
            assert shared.owner == winner
            for name in names:
                assert await indexes(store, name) == list(range(TURNS))

    trio.run(look)


async def indexes(store: Store, session_id: str) -> list[int]:
    return [turn.index for turn in await store.get_turns(session_id, limit=TURNS * 2)]
