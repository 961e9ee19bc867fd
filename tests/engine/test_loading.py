"""What is heavy is made ready beside the serving."""

from collections.abc import Sequence
from typing import ClassVar

import pytest
import trio

from engine.interfaces import Agent, InteractionManager
from engine.loading import PartLoader
from engine.testing.scripted import ScriptedModel
from engine.testing.stage import ScriptedAgent, ScriptedManager, scripted_services


class Loads(ScriptedManager):
    content_classes: ClassVar[tuple[type, ...]] = (ScriptedAgent,)
    loaded: ClassVar[Sequence[Agent]] = ()

    async def load(self, agents: Sequence[Agent]) -> None:
        await trio.lowlevel.checkpoint()
        type(self).loaded = agents


class Other(ScriptedManager):
    content_classes: ClassVar[tuple[type, ...]] = (int,)

    async def load(self, agents: Sequence[Agent]) -> None:
        raise AssertionError("none of its agents is there")


class Fails(Loads):
    async def load(self, agents: Sequence[Agent]) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError("the disk is full")


async def load(*managers: InteractionManager) -> None:
    await PartLoader(scripted_services(model=ScriptedModel(), managers=managers)).run()


async def test_each_manager_loads_what_its_agents_need() -> None:
    await load(Loads(), Other())
    assert [agent.ref for agent in Loads.loaded] == ["tester"]


async def test_one_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    await load(Fails(), Loads())
    assert [agent.ref for agent in Loads.loaded] == ["tester"]
    assert "what Fails needs is not ready yet" in caplog.text
