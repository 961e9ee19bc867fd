"""What the management API has to know of documents: implements `engine.interfaces.ManagedDocuments`.

The rules are those of project files, in the same sentences, and a few more, because what comes over the API is trusted less than
what an operator writes into a file:

- tools are only names of installed ones; `module:function` would import any module there is;
- servers of tools are only reached at a URL, never started by a command;
- `knowledge` and `skills`, which are paths, belong into files, and so does everything in a realtime configuration that names one;
- a secret is only `env:NAME`, never a file, and never one of the server's own settings.

What reaches out of the server, to an address with a secret or without, is for admins: an owner of a project leaves the fields of
`ADMINS_ONLY` as they are, and so cannot have a key of the operator sent to somebody else. Realtime configurations are nothing but that.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
from pydantic import BaseModel, ValidationError

from agents.api_models import (
    FILES_ONLY,
    INSTALLED_TOOL_PATTERN,
    MODELS,
    RESERVED,
    BasicAgentDocument,
    KeptUser,
    RealtimeConfigurationDocument,
    RelationalAgentDocument,
    SentApiKey,
    SentUser,
    TemplateDocument,
    TestAgentDocument,
    sent_schema,
    shown_schema,
)
from agents.catalog import LayeredCatalog
from agents.definitions import Project
from agents.project import ProjectCatalog
from agents.rules import (
    SECRET_NAME,
    Path,
    Report,
    check_agent_references,
    check_featured_agent,
    check_properties,
    check_template_use,
    check_tools,
    items,
    listed,
    mapping,
    report_validation,
    unknown,
)
from agents.stored import NAMES, PROJECT, project_of
from engine.elements import JsonObject
from engine.interfaces import DocumentFault, FileDocument, InvalidDocumentError
from engine.principal import ProjectAccess
from engine.store.documents import ResourceKind

ADMINS_ONLY = ("llmConfiguration", "mcpServers", "preSessionWebhook", "postSessionWebhooks")
"""Of an agent."""
MAX_FAULTS = 50
"""Told of one document; the rest is found when these are mended."""

_OF_API_KEYS = frozenset(("name", "role", "projects", "user", "expiresAt"))
_MISSING = object()
_PATH_NAME = re.compile(r"(?i).*(directory|folder|path|file)")
_INSTALLED_TOOL = re.compile(INSTALLED_TOOL_PATTERN)
_UNTRUSTED_FIELDS = (*ADMINS_ONLY, "properties")
"""Where secrets and paths can be."""


@attrs.define(eq=False)
class ProjectDocuments:
    """The documents of the project files, and the rules for those that are made over the API."""

    catalog: LayeredCatalog
    _in_files: dict[ResourceKind, Mapping[str, FileDocument]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._in_files = _documents_in_files(self.catalog.files)

    def in_files(self, kind: ResourceKind) -> Mapping[str, FileDocument]:
        return self._in_files.get(kind, {})

    def schema(self, kind: ResourceKind, *, sent: bool) -> JsonObject:
        return sent_schema(kind) if sent else shown_schema(kind)

    def complete(self, kind: ResourceKind, body: JsonObject) -> JsonObject:
        if kind is ResourceKind.USER:
            return _shown_user(body)
        if kind is ResourceKind.API_KEY:
            return {name: value for name, value in body.items() if name in _OF_API_KEYS}
        try:
            return _dumped(MODELS[kind].validate_python(body, by_alias=True, by_name=False))
        except ValidationError:  # an older version has written it; better as it is than not at all
            return body

    async def projects(self) -> Sequence[ProjectAccess]:
        return await self.catalog.stored.projects()

    def changed(self, kind: ResourceKind, document_id: str) -> None:
        self.catalog.changed(kind, document_id)

    async def warn_of_hidden(self) -> None:
        await self.catalog.warn_of_hidden()

    async def uses(self, kind: ResourceKind, document_id: str) -> Sequence[str]:
        return [
            f"{NAMES[other]} {resource.id}"
            for other, field in _REFERENCES.get(kind, ())
            for resource in await self.catalog.stored.every(other)
            if resource.body.get(field) == document_id
        ]

    async def check(
        self,
        kind: ResourceKind,
        body: JsonObject,
        *,
        stored: JsonObject | None = None,
        projects: frozenset[str] | None = None,
    ) -> None:
        check = _Check(self.catalog, body, stored, projects)
        await check.run(kind)
        if check.faults:
            raise InvalidDocumentError(check.faults)


_REFERENCES: Mapping[ResourceKind, Sequence[tuple[ResourceKind, str]]] = {
    ResourceKind.PROJECT: (
        (ResourceKind.AGENT, PROJECT),
        (ResourceKind.TEMPLATE, PROJECT),
        (ResourceKind.REALTIME_CONFIGURATION, PROJECT),
    ),
    ResourceKind.AGENT: ((ResourceKind.AGENT, "handover"), (ResourceKind.PROJECT, "featuredAgent")),
    ResourceKind.TEMPLATE: ((ResourceKind.AGENT, "template"),),
    ResourceKind.REALTIME_CONFIGURATION: ((ResourceKind.AGENT, "realtimeConfigurationId"),),
}
"""By kind: what may name a document of it, and in which field."""
_SHAPES: Mapping[ResourceKind, Any] = {
    ResourceKind.PROJECT: Project,
    ResourceKind.AGENT: BasicAgentDocument | TestAgentDocument | RelationalAgentDocument,
    ResourceKind.TEMPLATE_REVISION: TemplateDocument,
    ResourceKind.REALTIME_CONFIGURATION: RealtimeConfigurationDocument,
    ResourceKind.USER: SentUser,
    ResourceKind.API_KEY: SentApiKey,
}
"""Where field names are looked for that may have been meant."""


# --- checking ----------------------------------------------------------------------------------------------------------


class _EnoughError(Exception):
    """So many faults were found that the rest can wait."""


@attrs.define(eq=False)
class _Check:
    """One document, and what is wrong with it."""

    catalog: LayeredCatalog
    body: JsonObject
    stored: JsonObject | None
    projects: frozenset[str] | None
    faults: list[DocumentFault] = attrs.field(factory=list[DocumentFault])
    _told: int = attrs.field(default=0, init=False)

    async def run(self, kind: ResourceKind) -> None:
        with suppress(_EnoughError):
            self.structure(kind)
            match kind:
                case ResourceKind.PROJECT:
                    await self.project()
                case ResourceKind.AGENT:
                    await self.agent()
                case ResourceKind.REALTIME_CONFIGURATION:
                    await self.configuration()
                case ResourceKind.TEMPLATE_REVISION:
                    await self.belongs_to_project()
                case ResourceKind.API_KEY:
                    await self.api_key()
                case _:
                    pass

    def report(self, path: Path, message: str, *, of_key: bool = False, fatal: bool = True) -> None:
        """Raises _EnoughError: finding more would take longer than it can be worth to anybody."""
        self._told += 1
        is_last = self._told == MAX_FAULTS
        fault = DocumentFault(_pointer(path, self.body), message)
        if (fatal or (is_last and not self.faults)) and fault not in self.faults:
            self.faults.append(fault)
        if is_last:
            raise _EnoughError

    def structure(self, kind: ResourceKind) -> None:
        try:
            MODELS[kind].validate_python(self.body, by_alias=True, by_name=False)
        except ValidationError as exc:
            report_validation(self.report, exc, _SHAPES[kind], ())
        if self.stored is not None and project_of(self.stored) != project_of(self.body) and PROJECT in self.stored:
            self.report((PROJECT,), "project cannot be changed; make a new document in the other project")
        _check_untrusted(self.report, self.body)

    def is_known(self, project: str) -> bool:
        """Whether the sender may know of what is in that project."""
        return self.projects is None or project in self.projects

    async def belongs_to_project(self) -> str:
        """Its project's ref."""
        ref = self.body.get(PROJECT)
        if not isinstance(ref, str):
            return ""
        if not self.is_known(ref) or await self.catalog.project(ref) is None:
            known = [access.ref for access in await self.catalog.stored.projects() if self.is_known(access.ref)]
            self.report((PROJECT,), unknown("project", ref, known))
        return ref

    async def project(self) -> None:
        if self.projects is not None:
            self._leave_to_admins(("subscription",))
        featured = self.body.get("featuredAgent")
        if isinstance(featured, str):
            known = await self._agents(str(self.body.get("ref")), [featured])
            check_featured_agent(self.report, (), self.body, known)

    async def configuration(self) -> None:
        await self.belongs_to_project()
        if isinstance(self.body.get("properties"), dict):
            document = mapping(self.body["properties"])
            check_properties(self.report, ("properties",), document, self.catalog.components)

    async def agent(self) -> None:
        project = await self.belongs_to_project()
        if self.projects is not None:
            self._leave_to_admins(ADMINS_ONLY)
        named = [self.body.get("handover"), *listed(self.body.get("sharedMemoryAgentRefs"))]
        agents = await self._agents(project, [ref for ref in named if isinstance(ref, str)])
        configurations = await self._configurations(self.body.get("realtimeConfigurationId"))
        check_agent_references(self.report, (), self.body, configurations=configurations, agents=agents)
        check_template_use(self.report, (), self.body, await self._templates(project))
        installed = [each if _is_installed_tool(each) else None for each in listed(self.body.get("tools"))]
        check_tools(self.report, (), {"tools": installed})

    async def api_key(self) -> None:
        for place, ref in enumerate(listed(self.body.get("projects"))):
            if isinstance(ref, str) and await self.catalog.project(ref) is None:
                known = [access.ref for access in await self.catalog.stored.projects()]
                self.report(("projects", place), unknown("project", ref, known))
        user = self.body.get("user")
        if isinstance(user, str) and user and await self.catalog.user(user) is None:
            self.report(("user",), "unknown user; one who came by a token has the name their issuer calls them")

    def _leave_to_admins(self, fields: Sequence[str]) -> None:
        before = self.stored or {}
        for field in fields:
            if (self.body.get(field) or None) != (before.get(field) or None):  # left out, null and empty are the same
                self.report((field,), f"{field} is for admins to change: it decides what the server spends or reaches")

    # --- what there is to refer to; all of it only when something is not among what is asked for

    async def _agents(self, project: str, refs: Collection[str]) -> Collection[str]:
        own = {ref} if isinstance(ref := self.body.get("ref"), str) and PROJECT in self.body else set[str]()
        found = {*own, *await self.catalog.stored.agents_of(project, refs)}
        if found >= set(refs):
            return found
        stored = await self.catalog.stored.every(ResourceKind.AGENT)
        return sorted(
            {
                *found,
                *(agent.ref for agent in self.catalog.files.agents_of(project)),
                *(each.id for each in stored if project_of(each.body) == project),
            }
        )

    async def _configurations(self, asked: Any) -> Sequence[str]:
        """Those of the projects that the sender owns, and the one that is named already: an admin may have lent it."""
        if not isinstance(asked, str):
            return ()
        if self.stored is not None and self.stored.get("realtimeConfigurationId") == asked:
            return (asked,)
        files = self.catalog.files
        if self.catalog.stored.is_in_file(ResourceKind.REALTIME_CONFIGURATION, asked):
            if self.is_known(files.project_of_configuration(asked)):
                return (asked,)
        else:
            body = await self.catalog.stored.body(ResourceKind.REALTIME_CONFIGURATION, asked)
            if body is not None and self.is_known(project_of(body)):
                return (asked,)
        in_files = [
            each.id
            for file in files.projects
            if self.is_known(file.project.ref)
            for each in file.realtime_configurations
        ]
        stored = await self.catalog.stored.every(ResourceKind.REALTIME_CONFIGURATION)
        return [*in_files, *(each.id for each in stored if self.is_known(project_of(each.body)))]

    async def _templates(self, project: str) -> Sequence[JsonObject]:
        """The revisions of the template that is named, those with a number at least; of every template, when it is unknown."""
        ref = self.body.get("template")
        in_files = [_dumped(each) for each in self.catalog.files.templates(project)]
        if not isinstance(ref, str) or any(each["ref"] == ref for each in in_files):
            return in_files
        stored = self.catalog.stored
        revisions = await stored.revisions(ref, project)
        if revisions is None:
            every = await stored.every(ResourceKind.TEMPLATE)
            return [*in_files, *({"ref": each.id} for each in every if project_of(each.body) == project)]
        numbers = range(1, len(revisions.revisions) + 1)
        pinned = self.body.get("templateRevision")
        asked = pinned if isinstance(pinned, int) else revisions.published
        used = None if asked is None else await stored.revision(revisions, asked)
        found: list[JsonObject] = [
            {"ref": ref, "revision": number, "published": number == revisions.published} for number in numbers
        ]
        if used is not None:
            found[used.revision - 1] = _dumped(used)
        return found


def _check_untrusted(report: Report, body: JsonObject) -> None:
    for place, tool in enumerate(listed(body.get("tools"))):
        if isinstance(tool, str) and not _is_installed_tool(tool):
            report(
                ("tools", place), "tools may only be names of installed ones here; module:function is for project files"
            )
    for field in FILES_ONLY:
        if listed(body.get(field)):
            report((field,), f"{field} names paths, which is for project files")
    for place, server in items(body, "mcpServers"):
        if server.get("command") is not None:
            report(
                ("mcpServers", place, "command"),
                "a server may only be reached at a url here; command is for project files",
            )
    for field in _UNTRUSTED_FIELDS:
        _check_references_out(report, (field,), body.get(field), has_paths=field == "properties")


def _check_references_out(report: Report, path: Path, value: Any, *, has_paths: bool) -> None:
    """No secret of a file or of the server itself, wherever one could be named."""
    members: list[tuple[str | int, Any]] = [*mapping(value).items(), *enumerate(listed(value))]
    for key, item in members:
        place = (*path, key)
        is_secret = isinstance(key, str) and SECRET_NAME.fullmatch(key) is not None
        if isinstance(item, str) and (is_secret or has_paths):
            if item.startswith("file:"):
                report(place, f"{key} may only be env:NAME here; file:PATH is for project files")
            elif item.startswith(f"env:{RESERVED}"):
                report(place, f"{key} may not be one of the server's own settings ({RESERVED}…)")
            elif has_paths and isinstance(key, str) and _PATH_NAME.fullmatch(key):
                report(place, f"{key} names a path, which is for project files")
        _check_references_out(report, place, item, has_paths=has_paths)


def _is_installed_tool(reference: object) -> bool:
    return isinstance(reference, str) and _INSTALLED_TOOL.fullmatch(reference) is not None


def _pointer(path: Path, body: JsonObject) -> str:
    """The JSON pointer of a place. What is on the way and not in the document are names of our own, such as the tag of a union."""
    value: Any = body
    parts: list[str] = []
    for place, part in enumerate(path):
        inner = listed(value)[part] if isinstance(part, int) else mapping(value).get(part, _MISSING)
        if inner is not _MISSING or place == len(path) - 1:
            parts.append(str(part).replace("~", "~0").replace("/", "~1"))
            value = inner
    return "".join(f"/{part}" for part in parts)


# --- showing -----------------------------------------------------------------------------------------------------------


def _dumped(document: BaseModel) -> JsonObject:
    """The whole document, with its defaults."""
    return document.model_dump(mode="json", by_alias=True)


def _shown_user(body: JsonObject) -> JsonObject:
    try:
        kept = KeptUser.model_validate(body, by_alias=True, by_name=False)
    except ValidationError:  # it may hold what nobody may see, so what cannot be read is not shown
        kept = KeptUser(name=str(body.get("name", "")))
    shown = kept.model_dump(mode="json", by_alias=True, exclude={"password_hash", "source"})
    return {**shown, "hasPassword": bool(kept.password_hash)}


def _documents_in_files(files: ProjectCatalog) -> dict[ResourceKind, Mapping[str, FileDocument]]:
    found: dict[ResourceKind, dict[str, FileDocument]] = {kind: {} for kind in ResourceKind}

    for path, file in zip(files.paths, files.projects, strict=True):

        def add(kind: ResourceKind, document_id: str, body: JsonObject, path: str = path) -> None:
            found[kind].setdefault(document_id, FileDocument(body, path))

        project, users = file.project, [user.name for user in file.users]
        members = list(dict.fromkeys([*project.members, *users]))
        add(ResourceKind.PROJECT, project.ref, {**_dumped(project), "members": members})
        for agent in file.agents:
            add(ResourceKind.AGENT, agent.ref, {**_dumped(agent), PROJECT: project.ref})
        for configuration in file.realtime_configurations:
            add(
                ResourceKind.REALTIME_CONFIGURATION,
                configuration.id,
                {**_dumped(configuration), PROJECT: project.ref},
            )
        for template in sorted(file.templates, key=lambda each: -each.revision):
            body = {**_dumped(template), PROJECT: project.ref}
            add(ResourceKind.TEMPLATE, template.ref, body)
            add(ResourceKind.TEMPLATE_REVISION, f"{template.ref}/{template.revision}", body)
        for user in file.users:
            kept = KeptUser(name=user.name, role=user.role, password_hash=user.password_hash)
            add(ResourceKind.USER, user.name, _shown_user(_dumped(kept)))
    return {kind: dict(sorted(documents.items())) for kind, documents in found.items()}
