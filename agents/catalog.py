"""What there is to talk to, for the sessions: implements `engine.interfaces.Catalog`."""

from collections.abc import Sequence

import attrs
import trio

from agents.project import ProjectCatalog
from engine.config import RealtimeProperties
from engine.interfaces import Agent
from engine.principal import ProjectAccess, UserAccount


@attrs.define(eq=False)
class LayeredCatalog:
    """The documents of the project files, which are what their files say until the next start."""

    files: ProjectCatalog

    async def published_agents(self) -> Sequence[Agent]:
        await trio.lowlevel.checkpoint()
        return self.files.published_agents()

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        await trio.lowlevel.checkpoint()
        return self.files.agent(ref)

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        await trio.lowlevel.checkpoint()
        properties = self.files.realtime_properties(configuration_id)
        return None if properties is None else (properties, self.files.project_of_configuration(configuration_id))

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        await trio.lowlevel.checkpoint()
        return self.files.all_realtime_properties()

    async def project(self, ref: str) -> ProjectAccess | None:
        await trio.lowlevel.checkpoint()
        return self.files.project(ref)

    async def user(self, name: str) -> UserAccount | None:
        await trio.lowlevel.checkpoint()
        return self.files.user(name)
