"""Generated conversations: every promise is kept, and the same seed is the same conversation, byte for byte, in any process."""

import hashlib
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import trio
import trio.testing

from engine.elements import InputText, OutCommand, OutTranscript
from engine.protocol.promises import Violation
from engine.testing.contract import SessionRecord
from engine.testing.explore import Found, World, explore
from engine.testing.invariants import Heard
from engine.testing.mishaps import Happened, Mishap
from engine.testing.schedule import PRIVATE_NAMES, current_pass, repeatable, run_repeatably, virtual_clock
from tests.engine.testing.door_world import explore_door
from tests.engine.testing.exploration import (
    HELD,
    MOST_STORIES,
    VIOLATED,
    WORLDS,
    Outcome,
    main,
    report,
    run_all,
    run_seed,
    world_of,
)
from tests.engine.testing.internal_world import explore_internal
from tests.engine.testing.relational_world import explore_relational

ROOT = Path(__file__).parent.parent.parent.parent
LONGEST = 120
LONG = 25
"""A seed whose conversation goes on for minutes, with mishaps at every boundary."""
FOUND = (350,)
"""Seeds that have found something once; each stays right. 350: a call that goes on when the agent says goodbye."""


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_ten_conversations(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = run_seed(seed)
        assert outcome.rules == (), f"seed {seed}\n{outcome.story}"


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed: int) -> None:
    assert run_seed(seed, "scripted").rules == ()
    assert run_seed(400106, "door").rules == ()  # words overtaken by the user's last ones, which were then the last


def digest(seed: int) -> str:
    found = [explore_world(seed) for explore_world in WORLDS.values()]
    return hashlib.sha256("".join(each.digest for each in found).encode()).hexdigest()


def test_the_same_seed_is_the_same_conversation() -> None:
    found = explore(LONG)
    assert found.seconds > 60
    assert len(found.record.heard) > 200
    assert digest(LONG) == digest(LONG) != digest(LONG + 10)


@pytest.mark.parametrize("hash_seed", ["1", "4711"])
def test_it_is_the_same_in_another_process(hash_seed: str) -> None:
    """Without pytest, and without what it switches on."""
    program = f"from tests.engine.testing.test_explore import digest; print(digest({LONG}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=True,
    )
    assert done.stdout.split()[-1] == digest(LONG)


def test_every_kind_of_thing_happens() -> None:
    """What is explored is what there is: moods, ends, mishaps at every boundary, tools, whispers, sessions on end."""
    worlds = [World.of(seed) for seed in range(300)]
    assert {world.mode for world in worlds} == {"typed", "recognizer", "model"}
    assert {world.end for world in worlds} == {"leave", "goodbye", "vanish", "fail", "again"}
    seen: Counter[str] = Counter()
    for seed in range(40):
        found = explore(seed)
        seen.update({each.boundary for each in found.mishaps})
        seen.update({e.name for _, e in found.record.heard if isinstance(e, OutCommand)})
        seen.update(
            str(e.parameters["status"])
            for _, e in found.record.heard
            if isinstance(e, OutCommand) and e.name == "response-end"
        )
    boundaries = {"client", "recognition", "tools", "store"}
    told = {"tool-success", "tool-error", "realtime-instruction", "planning-pass", "sessionShouldEnd", "session-end"}
    assert boundaries | told | {"completed", "cancelled", "failed", "idle"} <= set(seen)


def test_chat_models_have_their_mishaps_too() -> None:
    for explore_world in (explore_internal, explore_relational):
        found = [explore_world(seed) for seed in range(30)]
        happened = {each.mishap for each in chain(*(one.mishaps for one in found)) if each.boundary == "chat"}
        assert {Mishap.DELAY, Mishap.DROP, Mishap.DUPLICATE, Mishap.PARTIAL} <= happened
        assert all(one.violations == [] for one in found)


def test_a_door_is_gone_in_the_middle_of_a_frame() -> None:
    found = [explore_door(seed) for seed in range(0, 60, 2)]
    assert Mishap.PARTIAL in {each.mishap for each in chain(*(one.mishaps for one in found)) if each.boundary == "link"}
    assert all(one.violations == [] for one in found)


# --- the schedule -----------------------------------------------------------------------------------------------------


def test_the_private_names_of_trio_are_what_they_were() -> None:
    """When this fails, Trio has changed, and `engine/testing/schedule.py` has to."""
    for name in PRIVATE_NAMES:
        *path, last = name.split(".")
        place: object = trio
        for part in path[1:]:
            place = getattr(place, part)
        assert hasattr(place, last) or last in getattr(place, "__slots__", ()) or _is_field(place, last), name


def _is_field(place: object, name: str) -> bool:
    return name in getattr(place, "__annotations__", {})


def test_a_schedule_is_put_back() -> None:
    scheduler = trio._core._run  # pyright: ignore[reportPrivateUsage] - it is what is looked after here
    before = (scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING)  # pyright: ignore[reportPrivateUsage]
    with repeatable(3):
        assert scheduler._r is not before[0]  # pyright: ignore[reportPrivateUsage]
    assert (scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING) == before  # pyright: ignore[reportPrivateUsage]


def test_time_passes_at_once() -> None:
    async def wait(hours: float) -> float:
        await trio.sleep(3600 * hours)
        return trio.current_time()

    assert run_repeatably(0, wait, 1000.0) == 3_600_000


@pytest.mark.parametrize("seed", [LONG, 350, 7])
def test_it_passes_as_for_the_other_clock(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, and in as many passes of the scheduler: a conversation that is kept on one clock can be run again on the other."""

    async def count() -> tuple[list[float], int]:
        for seconds in (0.1, 0.2, 0.7, 1 / 3, 0.0, 1e-9):
            await trio.sleep(seconds)
            await trio.testing.wait_all_tasks_blocked()
        return [trio.current_time()], current_pass()

    jumping = explore(seed), run_repeatably(seed, count)
    monkeypatch.setattr("engine.testing.schedule.JumpingClock", virtual_clock)
    looking = explore(seed), run_repeatably(seed, count)
    assert jumping[0].digest == looking[0].digest
    assert jumping[1] == looking[1]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_tells_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--seed", "40"]) == HELD
    *_, speed, last = capsys.readouterr().out.splitlines()
    assert speed.startswith("scripted: 3 sessions, ")
    assert speed.endswith("times real time")
    assert last.startswith("held: 3 sessions in ")


def test_the_command_shows_a_violation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int) -> Found:
        heard: Heard = [(0.0, OutCommand("ready", {})), (1.5, OutTranscript("hi", False, False, False, "Client", "t1"))]
        record = SessionRecord(heard, sent=[(1.0, InputText("hi"))])
        return Found(
            seed, record, [Violation("exit", "turn t1 has none", 2)], [Happened(1.2, "store", 1, Mishap.DROP)], 9
        )

    def crashing(seed: int) -> Found:
        raise ExceptionGroup("several", [ZeroDivisionError()])

    for world in WORLDS:
        monkeypatch.setitem(WORLDS, world, broken)
    monkeypatch.setitem(WORLDS, "relational", crashing)
    assert main(["--seeds", "3", "--seed", "7"]) == VIOLATED
    told = capsys.readouterr().out
    assert "seed 7 (internal): exit" in told
    assert "     1.200  ~ store drop (message 1)" in told
    assert "     1.500  ! exit: turn t1 has none" in told
    assert "again: scripts/simulate --seeds 1 --seed 7" in told
    assert "seed 8 (relational): raised ZeroDivisionError" in told
    assert told.splitlines()[-1].startswith("violated: 3 of 3 sessions in ")


def test_the_command_tells_only_some_stories(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(seed: int) -> Found:
        return Found(seed, SessionRecord([]), [Violation("exit", "turn t1 has none")], [], 9)

    monkeypatch.setitem(WORLDS, "scripted", broken)
    assert main(["--seeds", str(MOST_STORIES + 5), "--world", "scripted"]) == VIOLATED
    told = capsys.readouterr().out
    assert told.count("again: ") == MOST_STORIES
    assert f"exit: {MOST_STORIES + 5} sessions" in told


def test_each_world_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", str(len(WORLDS)), "--world", "all"]) == HELD
    told = capsys.readouterr().out
    assert all(f"\n{world}: 1 sessions, " in told for world in WORLDS)


def test_several_processes_share_the_seeds() -> None:
    outcomes = list(run_all(range(4), 2))
    assert sorted(outcome.seed for outcome in outcomes) == [0, 1, 2, 3]
    assert all(outcome.rules == () for outcome in outcomes)


def test_a_report_counts_kinds() -> None:
    done = [Outcome(1, "scripted", 100, 0.02, ("exit", "exit", "tools")), Outcome(9, "openai", 0, 0.1)]
    assert report(done, 2.0) == [
        "",
        "openai: 1 sessions, 10.0 a second and core",
        "scripted: 1 sessions, 50.0 a second and core, 100 s long, 5,000 times real time",
        "exit: 1 sessions",
        "tools: 1 sessions",
        "violated: 1 of 2 sessions in 2 s (1.0 a second); seeds [1]",
    ]
    assert [world_of(seed) for seed in (0, 6, 8, 9, 18)] == ["scripted", "door", "relational", "openai", "relational"]
