"""The command behind `scripts/kill_every_await`: every kind of kill at every checkpoint, on several processes, and what was found."""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import attrs

from engine.protocol.promises import Violation
from engine.testing.checkpoints import Checkpoint
from engine.testing.kill import Kill, Killed, Scene, checkpoints, kill, run_clean
from tests.engine.testing.kill_scene import SCENE
from tests.engine.testing.relational_kill import RELATIONAL

HELD, VIOLATED = 0, 1
SHARE = 25
"""Kills that a process does at a time."""
STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20)
"""How long after the first the second of two kills comes; they take turns."""


@attrs.frozen
class Task:
    """One kill to be done."""

    world: str
    how: Kill
    number: int
    again: tuple[Kill, int] | None = None

    def __str__(self) -> str:
        again = f" --again {self.again[0]} --steps {self.again[1]}" if self.again else ""
        return f"scripts/kill_every_await --world {self.world} --kill {self.how} --checkpoint {self.number}{again}"


@attrs.frozen
class Outcome:
    task: Task
    rules: tuple[str, ...]
    story: str
    cpu: float


@cache
def clean_beside() -> Killed:
    """Both conversations when nobody is killed."""
    return run_clean(SCENE, beside=SCENE)


def _alone(scene: Scene) -> Callable[[Task], Killed]:
    return lambda task: kill(scene, task.how, task.number, again=task.again)


def kill_beside(task: Task) -> Killed:
    """With the same conversation beside it, which has to be the same to the byte whatever happens to the first."""
    killed = kill(SCENE, task.how, task.number, again=task.again, beside=SCENE)
    if repr(killed.heard_beside) != repr(clean_beside().heard_beside):
        killed.violations.append(Violation("isolation", "the session beside it was touched"))
    return killed


WORLDS: dict[str, tuple[Callable[[], list[Checkpoint]], Callable[[Task], Killed]]] = {
    "scripted": (lambda: checkpoints(SCENE), _alone(SCENE)),
    "relational": (lambda: checkpoints(RELATIONAL), _alone(RELATIONAL)),
    "beside": (lambda: clean_beside().checkpoints, kill_beside),
}


def run_task(task: Task) -> Outcome:
    """One kill. Whatever it raises is a violation too."""
    began = time.process_time()
    try:
        killed = WORLDS[task.world][1](task)
        rules = tuple(violation.rule for violation in killed.violations)
        story = killed.story if rules else ""
    except Exception as error:
        rules, story = (f"raised {type(error).__name__}",), traceback.format_exc(limit=4)[-3000:]
    return Outcome(task, rules, story, time.process_time() - began)


def run_share(tasks: Sequence[Task]) -> list[Outcome]:
    """Some of them, in this process."""
    return [run_task(task) for task in tasks]


def tasks_of(
    world: str, kinds: Sequence[Kill], again: Kill | None = None, *, every: int = 1, steps: int = 0
) -> list[Task]:
    """All there is to do in a world, or one in `every`."""
    found: list[Task] = []
    for kind in kinds:
        places = [checkpoint.number for checkpoint in WORLDS[world][0]() if kind.fits(checkpoint)]
        for turn, number in enumerate(places[::every]):
            second = (again, steps or STEPS[turn % len(STEPS)]) if again is not None else None
            found.append(Task(world, kind, number, second))
    return found


def run_all(tasks: Sequence[Task], workers: int) -> Iterator[Outcome]:
    """All of them, as they come."""
    shares = [tasks[start : start + SHARE] for start in range(0, len(tasks), SHARE)]
    if workers == 1:
        for share in shares:
            yield from run_share(share)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for outcomes in pool.imap_unordered(run_share, shares):
            yield from outcomes


def main(arguments: Sequence[str], description: str = "") -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = [kind.value for kind in Kill]
    parser.add_argument("--world", choices=sorted(WORLDS), default="", help="only this one (default: all)")
    parser.add_argument("--kill", choices=kinds, action="append", help="only this kind; may be given again")
    parser.add_argument("--again", choices=kinds, help="kill a second time, in the middle of the clean-up")
    parser.add_argument("--steps", type=int, default=0, help="so many steps later (default: by turns, up to 20)")
    parser.add_argument("--every", type=int, default=1, help="only at one in so many checkpoints")
    parser.add_argument("--checkpoint", type=int, help="only at this one")
    parser.add_argument("--workers", type=int, default=1, help="processes (default %(default)s)")
    options = parser.parse_args(arguments)
    chosen = [Kill(kind) for kind in options.kill or kinds]
    again = Kill(options.again) if options.again else None
    tasks = [
        task
        for world in ([options.world] if options.world else WORLDS)
        for task in tasks_of(world, chosen, again, every=options.every, steps=options.steps)
        if options.checkpoint in (None, task.number)
    ]
    began = time.monotonic()
    done: list[Outcome] = []
    for outcome in run_all(tasks, options.workers):
        done.append(outcome)
        if outcome.rules:
            _say(f"\n{', '.join(sorted(set(outcome.rules)))}\n{outcome.story}\n            again: {outcome.task}")
    for line in report(done, time.monotonic() - began):
        _say(line)
    return VIOLATED if any(outcome.rules for outcome in done) else HELD


def report(done: Sequence[Outcome], wall: float) -> list[str]:
    """The kills by world and kind, the violations by rule, and the result as the last line."""
    lines = [""]
    for world in sorted({outcome.task.world for outcome in done}):
        of_world = [outcome for outcome in done if outcome.task.world == world]
        counts = Counter(outcome.task.how.value for outcome in of_world)
        cpu = sum(outcome.cpu for outcome in of_world)
        lines.append(f"{world}: {', '.join(f'{count} {how}' for how, count in counts.items())} ({cpu:.0f} s of CPU)")
    rules = Counter(rule for outcome in done for rule in sorted(set(outcome.rules)))
    lines += [f"{rule}: {count} kills" for rule, count in rules.most_common()]
    wrong = sum(bool(outcome.rules) for outcome in done)
    result = f"violated: {wrong} of" if wrong else "held:"
    return [*lines, f"{result} {len(done)} kills in {wall:.0f} s ({len(done) / max(wall, 1e-9):.1f} a second)"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
