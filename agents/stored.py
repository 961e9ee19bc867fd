"""Documents that were made over the API, read from the store beside those of the project files, which go first: a document of the
store is hidden while a file has one of its id."""

import logging
from collections.abc import Collection, Mapping
from typing import TypeVar

import attrs
from pydantic import BaseModel, TypeAdapter, ValidationError

from agents.api_models import KeptUser
from agents.definitions import (
    AgentByType,
    AnyAgent,
    Project,
    RealtimeConfiguration,
    RelationalAgent,
    TemplatableAgent,
    Template,
)
from agents.project import ProjectCatalog, access_to, finish, template_of
from engine.elements import JsonObject
from engine.interfaces import TemplateRevisions
from engine.principal import AccessRole, ProjectAccess, UserAccount
from engine.store.contract import Store
from engine.store.documents import Resource, ResourceKind

PAGE = 500
"""Documents read from the store at once."""
MAX_DOCUMENTS = 20_000
"""The most that are looked through to answer one question."""
PROJECT = "project"
"""The field by which a document over the API names its project; in a file it stands beside it."""
NAMES = {
    ResourceKind.AGENT: "agent",
    ResourceKind.TEMPLATE: "template",
    ResourceKind.TEMPLATE_REVISION: "revision of a template",
    ResourceKind.REALTIME_CONFIGURATION: "realtime configuration",
    ResourceKind.PROJECT: "project",
    ResourceKind.USER: "user",
    ResourceKind.API_KEY: "API key",
}

M = TypeVar("M", bound=BaseModel)

logger = logging.getLogger(__name__)

_AGENT: TypeAdapter[AnyAgent] = TypeAdapter(AgentByType)


def names_in_files(files: ProjectCatalog, kind: ResourceKind) -> Collection[str]:
    """The ids of a kind that files have. Revisions of templates are hidden with their template."""
    match kind:
        case ResourceKind.PROJECT:
            return {file.project.ref for file in files.projects}
        case ResourceKind.AGENT:
            return {agent.ref for file in files.projects for agent in file.agents}
        case ResourceKind.TEMPLATE:
            return {template.ref for file in files.projects for template in file.templates}
        case ResourceKind.REALTIME_CONFIGURATION:
            return {each.id for file in files.projects for each in file.realtime_configurations}
        case ResourceKind.USER:
            return {user.name for file in files.projects for user in file.users}
        case _:
            return ()


@attrs.define(eq=False)
class StoredDocuments:
    """What the store has and no file does. Everything here may raise StoreError."""

    files: ProjectCatalog
    store: Store
    _hidden: dict[ResourceKind, Collection[str]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._hidden = {kind: names_in_files(self.files, kind) for kind in ResourceKind}

    def is_in_file(self, kind: ResourceKind, document_id: str) -> bool:
        return document_id in self._hidden[kind]

    async def body(self, kind: ResourceKind, document_id: str) -> JsonObject | None:
        if self.is_in_file(kind, document_id):
            return None
        resource = await self.store.get_resource(kind, document_id)
        return None if resource is None else resource.body

    async def bodies(self, kind: ResourceKind, document_ids: Collection[str]) -> Mapping[str, JsonObject]:
        asked = sorted(document_id for document_id in document_ids if not self.is_in_file(kind, document_id))
        found = await self.store.get_resources(kind, asked) if asked else []
        return {resource.id: resource.body for resource in found}

    async def every(self, kind: ResourceKind) -> list[Resource]:
        """All of a kind, in the order of their ids; at most MAX_DOCUMENTS."""
        found, after = list[Resource](), ""
        while len(found) < MAX_DOCUMENTS:
            page = await self.store.list_resources(kind, limit=PAGE, after=after)
            found += [resource for resource in page if not self.is_in_file(kind, resource.id)]
            if len(page) < PAGE:
                return found
            after = page[-1].id
        logger.error("there are more than %d %s; the rest is not looked at", MAX_DOCUMENTS, kind.value)
        return found

    async def hidden(self) -> list[str]:
        """The documents that are stored and hidden by a file, in words."""
        found: list[str] = []
        for kind, ids in self._hidden.items():
            resources = await self.store.get_resources(kind, ids) if ids else []
            found += [f"{NAMES[kind]} {resource.id}" for resource in sorted(resources, key=lambda each: each.id)]
        return found

    # --- as the engine wants them

    async def agent(self, ref: str) -> tuple[AnyAgent, str] | None:
        """The agent as a conversation sees it, and its project's ref."""
        body = await self.body(ResourceKind.AGENT, ref)
        agent = None if body is None else read_agent(ref, body)
        if body is None or agent is None:
            return None
        project = project_of(body)
        template = await self.template(agent, project) if isinstance(agent, TemplatableAgent) else None
        shared = agent.shared_memory_agent_refs if isinstance(agent, RelationalAgent) else ()
        return finish(agent, template, await self.agents_of(project, shared)), project

    async def template(self, agent: TemplatableAgent, project: str) -> Template | None:
        """The revision of its project's template that an agent is made from; None also when there is none such any more."""
        if agent.template is None:
            return None
        if self.is_in_file(ResourceKind.TEMPLATE, agent.template):
            return template_of(agent, self.files.templates(project))
        revisions = await self.revisions(agent.template, project)
        number = agent.template_revision or (revisions.published if revisions else None)
        found = await self.revision(revisions, number) if revisions and number else None
        if found is None:
            logger.error("the template %s that agent %s is made from is gone", agent.template, agent.ref)
            return None
        return found

    async def revisions(self, ref: str, project: str) -> TemplateRevisions | None:
        """What a stored template of that project consists of."""
        body = await self.body(ResourceKind.TEMPLATE, ref)
        found = None if body is None else _read(TemplateRevisions, ResourceKind.TEMPLATE, ref, body)
        return found if found is not None and found.project == project else None

    async def revision(self, revisions: TemplateRevisions, number: int) -> Template | None:
        if not 1 <= number <= len(revisions.revisions):
            return None
        revision_id = revisions.revisions[number - 1]
        body = await self.body(ResourceKind.TEMPLATE_REVISION, revision_id)
        if body is None:
            return None
        body = {**without_project(body), "revision": number, "published": number == revisions.published}
        return _read(Template, ResourceKind.TEMPLATE_REVISION, revision_id, body)

    async def agents_of(self, project: str, refs: Collection[str]) -> Collection[str]:
        """Those of these refs that are agents of that project."""
        in_files = {agent.ref for agent in self.files.agents_of(project)}
        asked = set(refs) - in_files
        stored = await self.bodies(ResourceKind.AGENT, asked)
        return in_files & set(refs) | {ref for ref, body in stored.items() if project_of(body) == project}

    async def published_agents(self) -> list[AnyAgent]:
        """Those of public projects, by ref."""
        public = {access.ref for access in await self.projects() if access.is_public}
        found = [
            (resource, read_agent(resource.id, resource.body)) for resource in await self.every(ResourceKind.AGENT)
        ]
        return [
            agent
            for resource, agent in found
            if agent is not None and agent.published and project_of(resource.body) in public
        ]

    async def published_names(self, project: str) -> dict[str, str]:
        """Names by ref of a project's published agents."""
        resources = [each for each in await self.every(ResourceKind.AGENT) if project_of(each.body) == project]
        agents = [read_agent(resource.id, resource.body) for resource in resources]
        return {agent.ref: agent.name for agent in agents if agent is not None and agent.published}

    async def project(self, ref: str) -> ProjectAccess | None:
        body = await self.body(ResourceKind.PROJECT, ref)
        project = None if body is None else _read(Project, ResourceKind.PROJECT, ref, body)
        return None if project is None else access_to(project)

    async def projects(self) -> list[ProjectAccess]:
        """Every one, those of the files first."""
        accesses = [self.files.project(file.project.ref) for file in self.files.projects]
        for resource in await self.every(ResourceKind.PROJECT):
            project = _read(Project, ResourceKind.PROJECT, resource.id, resource.body)
            accesses.append(None if project is None else access_to(project))
        return [access for access in accesses if access is not None]

    async def realtime_configuration(self, configuration_id: str) -> tuple[JsonObject, str] | None:
        """Its properties as written, and its project's ref."""
        body = await self.body(ResourceKind.REALTIME_CONFIGURATION, configuration_id)
        return None if body is None else read_configuration(configuration_id, body)

    async def user(self, name: str) -> UserAccount | None:
        body = await self.body(ResourceKind.USER, name)
        return None if body is None else read_user(name, body)


# --- reading bodies ----------------------------------------------------------------------------------------------------


def project_of(body: JsonObject) -> str:
    return str(body.get(PROJECT, ""))


def without_project(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if name != PROJECT}


def read_agent(ref: str, body: JsonObject) -> AnyAgent | None:
    try:
        return _AGENT.validate_python(without_project(body), by_alias=True, by_name=False)
    except ValidationError as exc:
        _damaged(ResourceKind.AGENT, ref, exc)
        return None


def read_configuration(configuration_id: str, body: JsonObject) -> tuple[JsonObject, str] | None:
    kind = ResourceKind.REALTIME_CONFIGURATION
    configuration = _read(RealtimeConfiguration, kind, configuration_id, without_project(body))
    return None if configuration is None else (configuration.properties, project_of(body))


def read_user(name: str, body: JsonObject) -> UserAccount:
    kept = _read(KeptUser, ResourceKind.USER, name, body)
    if kept is None:  # who is not known here may still have a token, and it may have been this one who was shut out
        return UserAccount(name, is_disabled=True)
    return UserAccount(
        name,
        AccessRole(kept.role),
        kept.password_hash or "",
        kept.email,
        is_disabled=kept.disabled,
        tokens_valid_from=kept.tokens_valid_from,
    )


def _read(model: type[M], kind: ResourceKind, document_id: str, body: JsonObject) -> M | None:
    try:
        return model.model_validate(body, by_alias=True, by_name=False)
    except ValidationError as exc:
        _damaged(kind, document_id, exc)
        return None


def _damaged(kind: ResourceKind, document_id: str, error: ValidationError) -> None:
    """What cannot be read is not there: an older version has written it, or a hand."""
    places = ", ".join(".".join(map(str, detail["loc"])) for detail in error.errors(include_url=False)[:5])
    logger.error("the stored %s %s cannot be read, and is left out: %s", NAMES.get(kind, kind), document_id, places)
