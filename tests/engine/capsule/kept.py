"""Conversations of the exploration, kept and run again."""

from functools import partial
from random import Random

from engine.capsule.file import Capsule
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.replay import Replayed, replay
from engine.session.services import Parts
from engine.testing import explore
from engine.testing.boundaries import ShakyTools
from engine.testing.speaker import ConversingModel
from engine.testing.stage import ScriptedManager, open_stage


def seeds() -> "MemoryCapsules":
    """Capsules whose sessions have ids of their own, and the same ones each time."""
    count = iter(range(1, 100))
    return MemoryCapsules(new_seed=lambda: bytes([next(count)]) * 16)


def keep(seed: int) -> list[Capsule]:
    """What was kept of the sessions of a seed."""
    capsules = seeds()
    found = explore.explore(seed, opener=partial(open_stage, keep=capsules.keep))
    assert found.violations == []
    return capsules.capsules


def parts_of(seed: int) -> Parts:
    """The model, which is not asked, and the planner and tools of a seed, which are inside the boundary."""
    manager = ScriptedManager(
        tool_box=ShakyTools(explore.GeneratedTools(Random(f"tools {seed}")), explore.World.of(seed).tools),
        planner=explore.GeneratedPlanner(Random(f"planner {seed}")),
    )
    return Parts(models={"Scripted": ConversingModel(explore.GeneratedAnswers(Random(0)))}, managers=[manager])


def run_again(capsule: Capsule, seed: int) -> Replayed:
    return replay(capsule, parts_of(seed))
