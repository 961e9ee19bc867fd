"""Sessions are killed at many of their awaits, in every way: each promise holds, and the session is gone on with. All of the awaits:
`scripts/kill_every_await`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import trio

from engine.elements import ControlToken, OutCommand, OutError, OutputElement
from engine.errors import ErrorCode
from engine.interfaces import Context
from engine.pipeline.line import ClientLine
from engine.pipeline.ordered_writer import OrderedWriter
from engine.session import run as session_run
from engine.store.documents import TurnDocument
from engine.testing.checkpoints import Checkpoint
from engine.testing.faults import StoreCall
from engine.testing.kill import Kill, Killed, Scene, checkpoints, kill, kill_everywhere, run_clean
from engine.testing.schedule import repeatable
from engine.testing.speaker import ConversingModel
from engine.testing.stage import ScriptedManager, Stage
from tests.engine.testing import killing
from tests.engine.testing.kill_scene import SCENE, SETTINGS
from tests.engine.testing.killing import HELD, VIOLATED, Outcome, Task, main, report, run_all, tasks_of
from tests.engine.testing.relational_kill import RELATIONAL

EVERY = 59
"""Of the checkpoints of the twenty turns one in so many is tried here; each kind has its own."""
EVERY_RELATIONAL = 240
FOUND = (("crash", 0, "saving the session"), ("crash", 0, "the usage record"), ("crash", 9, "turn writer"))
"""What has found something once: the kind, the steps to a second kill of that kind (0: none), and the task."""
KINDS = list(Kill)


@cache
def all_of(scene: Scene) -> list[Checkpoint]:
    return checkpoints(scene)


def some(scene: Scene, how: Kill, every: int) -> list[Checkpoint]:
    """One in `every`; each kind has others."""
    return [each for each in all_of(scene) if how.fits(each)][every * KINDS.index(how) // len(KINDS) :: every]


def told(killed: Killed) -> list[OutputElement]:
    return [element for _, element in killed.heard]


def ends(killed: Killed) -> list[tuple[str, str]]:
    return [
        (str(e.parameters["state"]), str(e.parameters["reason"]))
        for e in told(killed)
        if isinstance(e, OutCommand) and e.name == "session-end"
    ]


# --- every kind, here and there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", KINDS)
def test_twenty_turns(how: Kill) -> None:
    chosen = some(SCENE, how, EVERY)
    assert len(chosen) > 9
    for checkpoint in chosen:
        killed = kill(SCENE, how, checkpoint.number)
        assert killed.violations == [], killed.story


@pytest.mark.parametrize("how", KINDS)
def test_a_relational_agent(how: Kill) -> None:
    for checkpoint in some(RELATIONAL, how, EVERY_RELATIONAL):
        killed = kill(RELATIONAL, how, checkpoint.number)
        assert killed.violations == [], killed.story


@pytest.mark.parametrize("how", [Kill.VANISH, Kill.CUT, Kill.CRASH])
def test_a_crash_in_the_middle_of_the_clean_up(how: Kill) -> None:
    for task in tasks_of("scripted", [how], Kill.CRASH, every=97):
        assert task.again is not None
        killed = kill(SCENE, how, task.number, again=task.again)
        assert killed.violations == [], killed.story


@pytest.mark.parametrize("how", KINDS)
def test_the_session_beside_it_is_the_same_to_the_byte(how: Kill) -> None:
    assert len(killing.clean_beside().heard_beside) > 100
    for task in tasks_of("beside", [how], every=350):
        killed = killing.kill_beside(task)
        assert killed.violations == [], killed.story


@pytest.mark.parametrize(("how", "steps", "task"), FOUND)
def test_what_was_found_once(how: str, steps: int, task: str) -> None:
    kind = Kill(how)
    places = [each for each in all_of(SCENE) if each.task == task and "store" in each.where and kind.fits(each)]
    assert places
    for place in places[::3]:
        killed = kill(SCENE, kind, place.number, again=(kind, steps) if steps else None)
        assert killed.violations == [], killed.story


# --- the checkpoints --------------------------------------------------------------------------------------------------


def test_the_scene_is_what_it_says() -> None:
    """Twenty turns with everything in them, ended in good order and evaluated; the same each time."""
    clean, again = run_clean(SCENE), run_clean(SCENE)
    assert clean.checkpoints == again.checkpoints
    assert repr(clean.heard) == repr(again.heard)
    assert ends(clean) == [("CLOSED", "the client ended the session")]
    names = [element.name for element in told(clean) if isinstance(element, OutCommand)]
    assert names.count("exit") == 20
    assert {"tool-success", "tool-error", "realtime-instruction", "response-instruction-end"} <= set(names)
    statuses = [e.parameters["status"] for e in told(clean) if isinstance(e, OutCommand) and e.name == "response-end"]
    assert statuses.count("cancelled") >= 4
    tasks = {checkpoint.task for checkpoint in clean.checkpoints}
    assert {"connection", "turns", "provider", "recognition", "input", "turn writer", "saving the session"} <= tasks


def test_a_checkpoint_says_where_it_is() -> None:
    found = all_of(SCENE)
    assert [checkpoint.number for checkpoint in found] == list(range(len(found)))
    first = found[0]
    assert (first.task, first.where, first.can_crash, first.is_live) == ("connection", "", False, False)
    assert str(first) == "checkpoint 0 at 0 s, connection: begins"
    waits = next(each for each in found if each.task == "turns" and each.where)
    assert waits.where.startswith("engine.pipeline.turn:")
    assert all(kind.fits(waits) for kind in Kill)
    nurseries = [each for each in found if each.where.endswith("_run_legs") and each.task.endswith("legs")]
    assert nurseries
    assert not any(each.can_crash for each in nurseries), "Trio's own clean-up raises nothing"


def test_a_checkpoint_that_is_not_there_is_said() -> None:
    with pytest.raises(BaseException, match="not the same each time") as caught:
        kill(SCENE, Kill.VANISH, 100_000)
    assert isinstance(caught.value, AssertionError)


# --- what kills do ----------------------------------------------------------------------------------------------------


def place(task: str, *, after: float = 5.0) -> Checkpoint:
    return next(each for each in all_of(SCENE) if each.task.endswith(task) and each.can_crash and each.at > after)


def test_a_crash_of_the_conversation_is_told() -> None:
    for task in ("turns", "provider", "recognition", "input", "conversing"):
        killed = kill(SCENE, Kill.CRASH, place(task).number)
        assert [state for state, _ in ends(killed)] == ["DISCONNECTED"], task
        errors = [e for e in told(killed) if isinstance(e, OutError) and not e.recoverable]
        assert len(errors) == 1
        assert errors[0].code in {
            ErrorCode.INTERNAL, ErrorCode.PROVIDER_UNAVAILABLE, ErrorCode.RECOGNITION_FAILED
        }  # fmt: skip


def test_a_crash_of_a_leg_stops_nothing() -> None:
    for task in ("extraction", "planning"):
        killed = kill(SCENE, Kill.CRASH, place(task).number)
        assert ends(killed) == [] or ends(killed)[0][0] == "CLOSED", killed.story
        assert not any(isinstance(e, OutError) and not e.recoverable for e in told(killed))


def test_each_kind_of_kill_ends_a_session_in_its_way() -> None:
    number = place("turns").number
    reasons = {how: ends(kill(SCENE, how, number)) for how in (Kill.VANISH, Kill.TAKEOVER, Kill.DEATH)}
    assert reasons[Kill.VANISH] == [("DISCONNECTED", "the client vanished")]
    assert reasons[Kill.TAKEOVER] == [("DISCONNECTED", "taken over by another connection")]
    cuts = [ends(kill(SCENE, Kill.CUT, each)) for each in (number, number + 1)]
    assert sorted(reason for ((_, reason),) in cuts) == ["its credentials were revoked", "the server is stopping"]


# --- broken promises are found ----------------------------------------------------------------------------------------


class Leaky(ScriptedManager):
    async def on_session_disconnect(self, context: Context) -> None:
        await super().on_session_disconnect(context)
        trio.lowlevel.spawn_system_task(trio.sleep_forever, name="left")


def small(**parts: Any) -> Scene:
    """A visit of two turns."""

    def make() -> Mapping[str, Any]:
        made = {"model": ConversingModel("At seven, by the window."), "settings": SETTINGS}
        return {name: each() for name, each in parts.items()} | {k: v for k, v in made.items() if k not in parts}

    async def visit(stage: Stage) -> None:
        for _ in range(2):
            await stage.client.says("A table, please.")
            await stage.client.hears("At seven")
            await stage.client.hears_command("exit")
        await stage.client.send(ControlToken("exit"))
        await stage.client.hears_command("session-end")

    def plan(call: StoreCall) -> float | None:
        return 0.1 if call.operation == "append_turns" else None

    return Scene(make, visit, plan=plan)


def rules(scene: Scene, how: Kill, every: int = 1) -> set[str]:
    return {
        violation.rule for killed in kill_everywhere(scene, every=every, how=[how]) for violation in killed.violations
    }


def test_a_small_visit_is_killed_everywhere() -> None:
    for how in Kill:
        assert rules(small(), how, every=9) == set()


def test_a_task_that_is_left_is_found() -> None:
    scene = small(manager=Leaky)
    with pytest.raises(AssertionError, match="left-running"):
        checkpoints(scene)
    killed = kill(scene, Kill.VANISH, 40)
    assert "left-running" in {violation.rule for violation in killed.violations}
    assert killed.story.startswith("vanish at checkpoint 40 at ")


def test_what_is_acknowledged_before_it_is_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def save(self: OrderedWriter[TurnDocument], document: TurnDocument, timeout_seconds: float) -> bool:
        self.put(document)
        await trio.lowlevel.checkpoint()
        return True

    monkeypatch.setattr(OrderedWriter, "save", save)
    assert rules(small(), Kill.DEATH, every=2) == {"stored-turns"}


def test_a_crash_that_is_not_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def say(line: ClientLine, element: OutputElement) -> None:
        if not isinstance(element, OutError):
            line.put_output(element)

    monkeypatch.setattr(session_run, "say_last", say)
    assert rules(small(), Kill.CRASH) == {"session-end"}


def test_a_history_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: Any) -> tuple[tuple[()], int]:
        await trio.lowlevel.checkpoint()
        return (), 0

    monkeypatch.setattr("engine.session.start.read_history", read)
    assert {"memory", "stored-turns"} <= rules(small(), Kill.VANISH, every=7)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_tells_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--world", "scripted", "--kill", "vanish", "--every", "300"]) == HELD
    *_, counts, last = capsys.readouterr().out.splitlines()
    assert counts.startswith("scripted: 3 vanish (")
    assert last.startswith("held: 3 kills in ")


def test_the_command_shows_a_violation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def crashing(task: Task) -> Killed:
        raise ZeroDivisionError

    monkeypatch.setitem(killing.WORLDS, "scripted", (lambda: all_of(SCENE), crashing))
    assert main(["--world", "scripted", "--kill", "crash", "--again", "crash", "--steps", "3", "--every", "400"]) == (
        VIOLATED
    )
    out = capsys.readouterr().out
    assert "raised ZeroDivisionError\n" in out
    assert "again: scripts/kill_every_await --world scripted --kill crash --checkpoint " in out
    assert " --again crash --steps 3" in out


def test_several_processes_share_the_kills() -> None:
    tasks = tasks_of("scripted", [Kill.VANISH], every=20)[:26]
    outcomes = list(run_all(tasks, 2))
    assert sorted(outcome.task.number for outcome in outcomes) == [task.number for task in tasks]
    assert all(outcome.rules == () for outcome in outcomes)


def test_a_report_counts_kinds() -> None:
    done = [
        Outcome(Task("scripted", Kill.VANISH, 1), ("once", "once"), "", 1.0),
        Outcome(Task("scripted", Kill.CRASH, 2), (), "", 2.0),
    ]
    assert report(done, 4.0) == [
        "",
        "scripted: 1 vanish, 1 crash (3 s of CPU)",
        "once: 1 kills",
        "violated: 1 of 2 kills in 4 s (0.5 a second)",
    ]


def test_a_touched_neighbour_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = killing.clean_beside()
    with repeatable(0):
        other = Killed(None, [], clean.heard, clean.sent, clean.heard_beside[:-1], clean.checkpoints)
    monkeypatch.setattr(killing, "clean_beside", lambda: other)
    killed = killing.kill_beside(Task("beside", Kill.VANISH, 50))
    assert [violation.rule for violation in killed.violations] == ["isolation"]
