"""What agents may call (SPEC R12, R16): knowledge, memory, skills, servers of tools, web pages, and tools of their own."""

import functools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import attrs
import trio

from agents.definitions import AgentDefinition
from agents.knowledge.library import Knowledge, KnowledgeError, KnowledgeLibrary, cache_directory
from agents.knowledge.tools import KnowledgeToolBox
from agents.mcp.opening import load_mcp, open_mcp
from agents.mcp.served import ServedToolBox
from agents.memory.shared import shared_memory_tools
from agents.memory.tools import memory_tools
from agents.outside import OutsideToolBox, own_tools
from agents.relational.citations import materialize_citations
from agents.skills.folders import Skill, read_skills
from agents.skills.tools import ActiveSkills, SkillsToolBox
from agents.tools import CombinedToolBox
from agents.web.tools import web_tools
from engine.boundary import PASSES, Boundary, Outside, nothing
from engine.calling import specification_of
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolResult, ToolSpecification, UnknownToolError

logger = logging.getLogger(__name__)

SERVERS_SECONDS = 3.0
"""How long the session's start waits for the servers of tools; those that take longer are there for a later turn."""

_readers = trio.CapacityLimiter(4)
"""Of skills' folders, at once in the whole server."""


@attrs.frozen
class JoinedToolBox(ToolBox):
    """Boxes whose tools may come and go, and have names of their own."""

    boxes: Sequence[ToolBox]

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [specification for box in self.boxes for specification in box.specifications]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        for box in self.boxes:
            if specification_of(box, name) is not None:
                return await box.call(name, arguments, context)
        raise UnknownToolError(f"Tool {name} does not exist.")


@attrs.define(eq=False)
class Libraries:
    """The knowledge and skills beside project files; one object for all sessions of a process."""

    cache: Path | None = None
    """Where indexes of the knowledge are kept from start to start."""
    _by_root: dict[Path, KnowledgeLibrary] = attrs.field(factory=dict[Path, KnowledgeLibrary], init=False)

    async def load(self, agents: Sequence[AgentDefinition]) -> None:
        """Take in the documents that agents know, and import what their servers need: seconds, which no caller should wait."""
        for agent in agents:
            knowledge = self.knowledge_of(agent)
            if knowledge is not None:
                try:
                    await knowledge.prepare()
                except KnowledgeError as exc:
                    logger.warning("the knowledge of agent %s cannot be taken in now: %s", agent.ref, exc)
        if any(agent.mcp_servers for agent in agents):
            await trio.to_thread.run_sync(load_mcp, limiter=_readers)

    def knowledge_of(self, agent: AgentDefinition, boundary: Boundary = PASSES) -> Knowledge | None:
        """What an agent knows, for one session; None when it knows nothing."""
        if not agent.knowledge:
            return None
        found: list[KnowledgeLibrary] = []

        def look() -> bool:
            if agent.directory is not None:
                found.append(self._library(agent.directory))
            return bool(found)

        if not boundary.know(Outside.FILES, "knowledge", look):
            return None
        return Knowledge(found[0] if found else None, tuple(agent.knowledge), boundary)

    def _library(self, root: Path) -> KnowledgeLibrary:
        if root not in self._by_root:
            self._by_root[root] = KnowledgeLibrary(root, self.cache)
        return self._by_root[root]

    async def skills_of(self, agent: AgentDefinition, boundary: Boundary = PASSES) -> Sequence[Skill]:
        """Those that can be read; what is wrong with the others was told when the project was checked."""
        if not agent.skills:
            return ()
        return await boundary.ask(Outside.FILES, "skills", partial(self._read_skills, agent), agent.skills)

    async def _read_skills(self, agent: AgentDefinition) -> Sequence[Skill]:
        root = agent.directory
        if root is None:
            return ()
        skills, faults = await trio.to_thread.run_sync(read_skills, root, agent.skills, limiter=_readers)
        for fault in faults:
            logger.error("agent %s: %s", agent.ref, fault)
        return skills


def _as_it_is(text: str) -> str:
    return text


@functools.cache
def shared_libraries() -> Libraries:
    """Those of this process: agents of any kind know the same documents."""
    return Libraries(cache_directory(os.environ))


@attrs.frozen
class Equipment:
    """The tools of one session, and what prompts say of them."""

    box: ToolBox
    without_web: ToolBox
    """The same without what reads web pages (S0, "Initial Planning")."""
    knowledge_names: Sequence[str] = ()
    mcp_names: Sequence[str] = ()
    describe_skills: Callable[[], str] = lambda: ""
    """The skills, those that are active with their content."""
    cite: Callable[[str], str] = _as_it_is
    """A text with its citations written out (R11)."""


async def open_equipment(
    context: Context, agent: AgentDefinition, libraries: Libraries, *, with_skills: bool, reserved: Sequence[str] = ()
) -> Equipment:
    """All that an agent may call. What is connected for it stays so as long as the session. `reserved`: names that no server's
    tool may have.

    Raises:
        ConfigurationError: two tools have the same name, or one of the agent's own cannot be loaded.
    """
    boundary = context.boundary
    boxes: list[ToolBox] = []
    cite: Callable[[str], str] = _as_it_is
    names: Sequence[str] = ()
    knowledge = libraries.knowledge_of(agent, boundary)
    if knowledge is not None:
        known = KnowledgeToolBox(knowledge)
        boxes.append(known)
        cite = partial(_cite, known)
        names = await _knowledge_names(knowledge)
    if agent.has_memory:
        boxes += [memory_tools(), shared_memory_tools(context.shared_agents)]
    skills = SkillsToolBox(await libraries.skills_of(agent, boundary) if with_skills else (), ActiveSkills(), boundary)
    boxes += [skills, own_tools(agent.tools, boundary)]
    web = web_tools()
    without_web = CombinedToolBox(boxes)
    everything = CombinedToolBox([*boxes, OutsideToolBox(web.specifications, web)])
    servers, server_names = ServedToolBox(), [server.name for server in agent.mcp_servers]
    if agent.mcp_servers:
        taken = [*reserved, *(specification.name for specification in everything.specifications)]
        connections = servers.connected(partial(_connect, agent, taken), boundary, server_names)
        context.holdings.hold_soon(connections, nothing)
        with trio.move_on_after(SERVERS_SECONDS):
            await servers.arrived.wait()
    return Equipment(
        JoinedToolBox([everything, servers]),
        JoinedToolBox([without_web, servers]),
        names,
        server_names,
        skills.describe,
        cite,
    )


def _connect(
    agent: AgentDefinition, reserved: Sequence[str], changed: Callable[[], None]
) -> AbstractAsyncContextManager[ToolBox]:
    directory = agent.directory
    trusted = directory is not None
    return open_mcp(agent.mcp_servers, trusted=trusted, reserved=reserved, directory=directory, changed=changed)


def _cite(known: KnowledgeToolBox, text: str) -> str:
    return materialize_citations(text, known.citations.source).text


async def _knowledge_names(knowledge: Knowledge) -> list[str]:
    try:
        names = await knowledge.names()
    except KnowledgeError as exc:
        logger.warning("the knowledge cannot be read now: %s", exc)
        return []
    shown = [f"{each.title}: {each.description}" if each.description else each.title for each in names.sources]
    return [*shown, f"{names.more} more"] if names.more else shown
