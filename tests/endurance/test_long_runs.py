"""A small share of each long run, and that the runs can fail."""

import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
import trio

from engine.store.documents import TurnDocument, TurnInputRecord, TurnOutputRecord
from tests.endurance.command import Tell, open_place, run_command
from tests.endurance.cycles import GROWTH_BYTES, GROWTH_BYTES_PER_CYCLE, Usage, judge, run_cycles
from tests.endurance.kill_rounds import check_opening, run_kill_rounds
from tests.endurance.ledger import Ledger, ViolationError, check_file
from tests.endurance.server import ROOT
from tests.endurance.takeovers import run_takeovers
from tests.endurance.visitor import LostError

SEED = 20


def nobody(_: str) -> None: ...


@pytest.mark.sockets
@pytest.mark.parametrize("store", ["sqlite", "mongodb"])
async def test_nothing_acknowledged_is_lost_when_a_server_is_killed(store: str, tmp_path: Path) -> None:
    with open_place(store, tmp_path) as place:
        assert (await run_kill_rounds(place, tmp_path, 5, SEED, nobody)).endswith("none lost")


@pytest.mark.sockets
@pytest.mark.parametrize("store", ["sqlite", "mongodb"])
async def test_a_session_has_one_holder_whoever_takes_it_over(store: str, tmp_path: Path) -> None:
    with open_place(store, tmp_path) as place:
        assert (await run_takeovers(place, tmp_path, 12, SEED, nobody)).endswith("all stored once")


@pytest.mark.sockets
async def test_clients_that_vanish_leave_nothing(tmp_path: Path) -> None:
    with open_place("sqlite", tmp_path) as place:
        assert (await run_cycles(place, tmp_path, 50, SEED, nobody)).startswith("50 cycles")


# --- that they can fail ------------------------------------------------------------------------------------------------


def turn(turn_id: str, index: int, said: str = "Hi.", heard: str = "Hello.") -> TurnDocument:
    return TurnDocument(
        id=turn_id,
        session_id="s1",
        index=index,
        started_at=datetime(2030, 1, 1, tzinfo=UTC),
        input=TurnInputRecord(text=said, kind="text"),
        output=[TurnOutputRecord(text=heard, heard=heard)],
    )


@pytest.fixture
def ledger() -> Ledger:
    """Two turns were acknowledged."""
    ledger = Ledger("s1")
    ledger.note("t1", "Hi.", "Hello.")
    ledger.note("t2", "Hi.", "Hello.")
    return ledger


def test_what_is_as_it_should_be_is_no_violation(ledger: Ledger) -> None:
    turns = [turn("t1", 0), turn("t2", 1)]
    ledger.check(turns, under_way=0)
    ledger.check([*turns, turn("t3", 2)], under_way=1)
    ledger.check([*turns, turn("t3", 2)], under_way=0)  # the same one as before


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ([turn("t1", 0)], "not stored: .'t2'."),
        ([], "not stored: .'t1', 't2'."),
        ([turn("t1", 0), turn("t2", 2)], r"the indexes .0, 2."),
        ([turn("t1", 0), turn("t2", 1), turn("t3", 1)], r"the indexes .0, 1, 1."),
        ([turn("t1", 0), turn("t2", 1), turn("t2", 2)], "stored twice"),
        ([turn("t2", 0), turn("t1", 1)], "another order"),
        ([turn("t1", 0), turn("t2", 1, said="Ho.")], "is stored as 'Ho.': 'Hello.'"),
        ([turn("t1", 0), turn("t2", 1, heard="")], "is stored as 'Hi.': ''"),
        ([turn("t1", 0), turn("t2", 1), turn("t3", 2), turn("t4", 3)], "2 more turns are stored"),
    ],
)
def test_what_is_lost_repeated_or_mixed_up_is_a_violation(
    ledger: Ledger, stored: Sequence[TurnDocument], why: str
) -> None:
    with pytest.raises(ViolationError, match=why):
        ledger.check(stored, under_way=1)


def test_the_older_of_two_connections_may_be_told_later_but_not_have_written_later() -> None:
    ledger = Ledger("s1")
    ledger.note("t2", "Hi.", "Hello.", 1)
    ledger.note("t1", "Hi.", "Hello.", 0)
    ledger.check([turn("t1", 0), turn("t2", 1)], under_way=0)
    with pytest.raises(ViolationError, match="another order"):
        ledger.check([turn("t2", 0), turn("t1", 1)], under_way=0)


def test_a_turn_that_is_acknowledged_twice_is_a_violation(ledger: Ledger) -> None:
    with pytest.raises(ViolationError, match="acknowledged twice"):
        ledger.note("t2", "Hi.", "Hello.")


def test_a_session_that_greets_again_is_a_violation(ledger: Ledger) -> None:
    check_opening(ledger, "I am still here. What would you like?")
    with pytest.raises(ViolationError, match="was taken up with 'Hello"):
        check_opening(ledger, "Hello, this is Café Souffleur")
    check_opening(Ledger("new"), "Hello, this is Café Souffleur")


BEFORE = Usage(handles=10, threads=5, tasks=20, sessions=0, lines=0, resident_bytes=0)
MOST_BYTES = GROWTH_BYTES + 100 * GROWTH_BYTES_PER_CYCLE


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (attrs.evolve(BEFORE, handles=11), "1 file handles more after 100 cycles"),
        (attrs.evolve(BEFORE, threads=7), "2 threads more"),
        (attrs.evolve(BEFORE, tasks=21), "1 tasks more"),
        (attrs.evolve(BEFORE, sessions=1), "1 sessions more"),
        (attrs.evolve(BEFORE, lines=3), "3 lines to clients more"),
        (attrs.evolve(BEFORE, resident_bytes=MOST_BYTES + 1), "KiB of memory more"),
    ],
)
def test_what_is_held_longer_than_its_client_is_a_violation(after: Usage, why: str) -> None:
    judge(BEFORE, attrs.evolve(BEFORE, handles=9, resident_bytes=MOST_BYTES), 100)
    with pytest.raises(ViolationError, match=why):
        judge(BEFORE, after, 100)


def test_sessions_that_stay_are_seen_in_a_small_share() -> None:
    assert GROWTH_BYTES + 50 * GROWTH_BYTES_PER_CYCLE < 50 * (90 << 10)


def test_a_damaged_file_is_a_violation(tmp_path: Path) -> None:
    check_file("mongodb://somewhere/else")
    path = tmp_path / "souffleur.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 1000,)] * 100)
    connection.close()
    check_file(f"sqlite:{path}")
    damaged = bytearray(path.read_bytes())
    damaged[4096:8192] = bytes(4096)
    path.write_bytes(damaged)
    with pytest.raises(ViolationError, match="damaged"):
        check_file(f"sqlite:{path}")


@pytest.mark.parametrize(
    ("fault", "code", "last_line"),
    [
        (None, 0, "held: 7 rounds"),
        (ViolationError("it was lost"), 1, "violated with seed 3: it was lost"),
        (
            ExceptionGroup("", [ViolationError("one"), ExceptionGroup("", [LostError(1011, "oh")])]),
            1,
            "violated with seed 3: one; closed with 1011: oh",
        ),
    ],
)
def test_the_last_line_is_the_result(
    fault: Exception | None, code: int, last_line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(store: str, directory: Path, rounds: int, seed: int, tell: Tell) -> str:
        await trio.lowlevel.checkpoint()
        tell("half-way")
        if fault is not None:
            raise fault
        assert store == f"sqlite:{directory}/souffleur.db"
        assert seed == 3
        return f"{rounds} rounds"

    assert run_command(run, "A run.", "rounds", 7, ["--seed", "3"]) == code
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("half-way")
    assert last == last_line


def test_a_run_that_fails_by_itself_is_no_result() -> None:
    async def run(store: str, directory: Path, rounds: int, seed: int, tell: Tell) -> str:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        run_command(run, "A run.", "rounds", 7, [])


def test_each_run_is_a_command() -> None:
    commands = [[str(ROOT / "scripts" / name), "--help"] for name in ("kill_rounds", "takeovers", "cycles")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    for process in processes:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "--rounds" in said
