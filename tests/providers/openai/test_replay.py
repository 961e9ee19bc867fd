"""Conversations with the simulated service are kept and run again, without a service: the provider's rules do the same once more."""

import random
from functools import partial
from unittest import mock

import pytest

from engine.capsule.file import Capsule, Kind
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.replay import replay
from engine.session.services import Parts
from engine.testing.schedule import run_repeatably
from engine.testing.stage import ScriptedManager
from providers.openai.connection import OpenLink
from providers.openai.model import OpenAIRealtimeModel
from tests.providers.openai import faults
from tests.providers.openai.scene import Scene, open_scene


def keep(seed: int, *, redacts: bool = False) -> Capsule:
    capsules = MemoryCapsules(redacts=redacts, new_seed=lambda: bytes(16))
    scenes: list[Scene] = []
    with mock.patch.object(faults, "open_scene", partial(open_scene, keep=capsules.keep)):
        run_repeatably(seed, faults.converse, seed, scenes)
    (capsule,) = capsules.capsules
    return capsule


def parts_of(seed: int) -> Parts:
    """The planner and the tools of a seed; there is no service to connect to."""
    plan = faults.Plan.of(random.Random(seed))
    manager = ScriptedManager(
        tool_box=faults.RandomTools(random.Random(seed + 2)),
        planner=faults.RandomPlanner(random.Random(seed + 3), is_parting=plan.end == "planned"),
    )
    nowhere: OpenLink = mock.Mock(side_effect=AssertionError("a link was opened"))
    return Parts(models={"OpenAI": OpenAIRealtimeModel(nowhere)}, managers=[manager])


@pytest.mark.parametrize("seed", [*range(10), *range(40, 48)])
def test_it_does_the_same(seed: int) -> None:
    """Lost connections, stalls, interruptions, pictures, push to talk: every frame is sent again, every element told."""
    capsule = keep(seed)
    result = replay(capsule, parts_of(seed))
    assert result.divergence is None
    assert result.told == result.expected
    assert any(record.kind is Kind.SENT for record in capsule.records)


def test_another_frame_is_found() -> None:
    capsule = keep(0)
    number, record = next(
        (n, r) for n, r in enumerate(capsule.records) if r.kind is Kind.SENT and "response.create" in str(r.fields[1])
    )
    records = list(capsule.records)
    records[number] = type(record)(record.at, record.kind, (record.fields[0], '{"type":"other"}'), record.step)
    result = replay(type(capsule)(capsule.head, tuple(records), capsule.is_whole), parts_of(0))
    assert result.divergence is not None
    assert result.divergence.what == "another frame is sent"
    assert result.divergence.expected == '{"type":"other"}'
    assert "response.create" in str(result.divergence.found)


def test_the_key_is_nowhere_in_it() -> None:
    assert "a key for the simulator" not in repr(keep(0))


def test_a_redacted_one_still_goes_through_the_rules() -> None:
    result = replay(keep(0, redacts=True), parts_of(0))
    assert result.told > 10
