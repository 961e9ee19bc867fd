"""The benchmark runs, and its table comes out whole. What it says is for people to judge: no number has a limit here."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "scripts" / "bench"


def bench(*arguments: str) -> list[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.sockets
def test_the_table_comes_out_whole() -> None:
    printed = bench("--sessions", "1", "--rates", "24000", "--seconds", "2", "--settle", "0.5")
    lines = [line for line in printed if line.startswith("|")]
    titles, _, row = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    cells = dict(zip(titles, row, strict=True))
    unknown = {title for title, cell in cells.items() if "-" in cell}
    assert unknown <= {"KiB/session", "barge-in p50 / p99"}  # one session is too few, and 2 s may be too short
    assert cells["client Hz"] == "24000"
    assert cells["late frames"] == "0"


def test_the_core_is_measured_by_itself() -> None:
    printed = bench("--core", "--rates", "24000")
    assert printed[-1].startswith("24000 Hz: ")
