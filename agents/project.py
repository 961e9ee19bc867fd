"""Project files on disk as what there is to talk to (protocol page, section 5)."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from agents.checks import CheckedFile, Fault, FilePath, check_projects
from agents.definitions import AnyAgent, Project, ProjectFile, RelationalAgent, TemplatableAgent, Template
from agents.rules import Components
from agents.templates import apply_template
from engine.config import RealtimeProperties
from engine.errors import ConfigurationError
from engine.interfaces import Agent
from engine.principal import AccessRole, ProjectAccess, UserAccount

INSTALLED = Components()

logger = logging.getLogger(__name__)


@attrs.frozen
class ProjectCatalog:
    """The loaded projects, in the order of the files."""

    projects: tuple[ProjectFile, ...]
    _agents: Mapping[str, tuple[AnyAgent, str]]
    """By ref, in the order of the files, templates applied."""
    _properties: Mapping[str, RealtimeProperties]
    paths: tuple[str, ...] = ()
    """Of the files, in the same order."""

    def project(self, ref: str) -> ProjectAccess | None:
        for file in self.projects:
            if file.project.ref == ref:
                return access_to(file.project, [user.name for user in file.users])
        return None

    def user(self, name: str) -> UserAccount | None:
        """The user of that name, from whichever file has them first. The password hash is the reference the file has."""
        for file in self.projects:
            for user in file.users:
                if user.name == name:
                    return UserAccount(name, AccessRole(user.role), user.password_hash or "")
        return None

    def user_names(self) -> Sequence[str]:
        return list(dict.fromkeys(user.name for file in self.projects for user in file.users))

    def project_of_configuration(self, configuration_id: str) -> str:
        """The ref of the project whose file has that realtime configuration."""
        return next(
            file.project.ref
            for file in self.projects
            if any(configuration.id == configuration_id for configuration in file.realtime_configurations)
        )

    def templates(self, project: str) -> Sequence[Template]:
        """The revisions of a project's templates."""
        return [template for file in self.projects if file.project.ref == project for template in file.templates]

    def agents_of(self, project: str) -> Sequence[AnyAgent]:
        """A project's agents, as they were written."""
        return [agent for file in self.projects if file.project.ref == project for agent in file.agents]

    def published_agents(self) -> Sequence[Agent]:
        public = {file.project.ref for file in self.projects if file.project.access == "public"}
        return [agent for agent, project in self._agents.values() if agent.published and project in public]

    def agent(self, ref: str) -> tuple[Agent, str] | None:
        return self._agents.get(ref)

    def realtime_properties(self, configuration_id: str) -> RealtimeProperties | None:
        return self._properties.get(configuration_id)

    def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        return list(self._properties.values())


def access_to(project: Project, users: Iterable[str] = ()) -> ProjectAccess:
    """What of a project decides who may use it. `users` are members beside those it names."""
    return ProjectAccess(
        project.ref,
        is_public=project.access == "public",
        members=frozenset(project.members) | frozenset(users),
        minutes_per_month=project.subscription.minutes_per_month,
        featured_agent=project.featured_agent or "",
    )


def load_projects(paths: Iterable[FilePath], *, components: Components = INSTALLED) -> ProjectCatalog:
    """Load project files. Modules beside a file can be imported from then on: its agents' tools may be there.

    Raises:
        ConfigurationError: something is wrong with them; the message names every file and line.
    """
    files = check_projects(paths, components)
    faults = [fault for file in files for fault in file.faults]
    if fatal := [str(fault) for fault in faults if fault.fatal]:
        raise ConfigurationError("\n".join(["the project files cannot be loaded:", *fatal]))
    for fault in faults:
        logger.warning("%s", fault)
    agents: dict[str, tuple[AnyAgent, str]] = {}
    properties: dict[str, RealtimeProperties] = {}
    for file in files:
        project = _parsed(file)
        refs = {agent.ref for agent in project.agents}
        for agent in project.agents:
            finished = finish(agent, _template(agent, project.templates), refs)
            agents[agent.ref] = finished.placed(Path(file.path).resolve().parent), project.project.ref
        properties.update(file.properties)
    return ProjectCatalog(tuple(map(_parsed, files)), agents, properties, tuple(file.path for file in files))


def check_files(paths: Iterable[FilePath], *, components: Components = INSTALLED) -> list[Fault]:
    """All that is wrong with project files, in the order of files and lines; empty when nothing is.

    The agents' tools are imported for it, as serving would: that runs the modules they are in.
    """
    return [fault for file in check_projects(paths, components) for fault in file.faults]


def _parsed(file: CheckedFile) -> ProjectFile:
    if file.project is None:
        raise AssertionError(f"{file.path} has no faults and no project")
    return file.project


def finish(agent: AnyAgent, template: Template | None, refs: Collection[str]) -> AnyAgent:
    """The agent as a conversation sees it: its template applied, and only the shared agents that there are (R2, R3)."""
    if isinstance(agent, TemplatableAgent) and template is not None:
        agent = apply_template(agent, template)
    if isinstance(agent, RelationalAgent):
        shared = [ref for ref in agent.shared_memory_agent_refs if ref in refs]
        agent = agent.model_copy(update={"shared_memory_agent_refs": shared})
    return agent


def _template(agent: AnyAgent, templates: Sequence[Template]) -> Template | None:
    """The revision it is made from; the checks have found that it is there."""
    return template_of(agent, templates) if isinstance(agent, TemplatableAgent) else None


def template_of(agent: TemplatableAgent, templates: Iterable[Template]) -> Template | None:
    """The pinned revision, else the published one; None when the agent has no template, or there is no such revision."""
    pinned = agent.template_revision
    revisions = (template for template in templates if template.ref == agent.template)
    return next((each for each in revisions if (each.published if pinned is None else each.revision == pinned)), None)
