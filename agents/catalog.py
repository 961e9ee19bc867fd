"""What there is to talk to, for the sessions: implements `engine.interfaces.Catalog`."""

import logging
from collections.abc import Mapping, Sequence

import attrs
import trio

from agents.definitions import RelationalAgent
from agents.project import INSTALLED, ProjectCatalog
from agents.remembered import Remembered
from agents.rules import Components
from agents.stored import StoredDocuments
from engine.config import RealtimeProperties, properties_from
from engine.errors import ConfigurationError
from engine.interfaces import Agent
from engine.principal import ProjectAccess, UserAccount
from engine.secrets import resolve_secret
from engine.store.contract import Store, StoreError
from engine.store.documents import ResourceKind

FALL_BACK_SECONDS = 60.0
"""How long an agent, project or user is served as it was last known while the store fails: a failover of a database takes up to
half a minute. Longer would let in whom an operator has shut out."""
LIST_SECONDS = 5.0
"""How old the list of published agents may be: everybody may ask for it, and it reads every agent there is."""
REMEMBERED = 1000
"""The most that is remembered of each kind."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class LayeredCatalog:
    """The documents of the project files, which are what their files say until the next start, and those of the store beside them."""

    files: ProjectCatalog
    store: Store
    cache_seconds: float = 900.0
    """How old a realtime configuration may be (P10). A change over this process's own API shows at once."""
    components: Components = INSTALLED
    stored: StoredDocuments = attrs.field(init=False)
    _users: Mapping[str, UserAccount] = attrs.field(init=False)
    """Of the files, with the passwords that their references lead to."""
    _agents: Remembered[tuple[Agent, str]] = attrs.field(init=False)
    _configurations: Remembered[tuple[RealtimeProperties, str]] = attrs.field(init=False)
    _projects: Remembered[ProjectAccess] = attrs.field(init=False)
    _accounts: Remembered[UserAccount] = attrs.field(init=False)
    _published: Remembered[Sequence[Agent]] = attrs.field(init=False)
    _colleagues: Remembered[Mapping[str, str]] = attrs.field(init=False)
    """Of a project: names by ref of its published agents."""

    def __attrs_post_init__(self) -> None:
        stored = self.stored = StoredDocuments(self.files, self.store)
        self._users = {name: self._with_password(name) for name in self.files.user_names()}
        self._agents = Remembered(stored.agent, 0, FALL_BACK_SECONDS, REMEMBERED)
        self._configurations = Remembered(self._read_configuration, self.cache_seconds, None, REMEMBERED)
        self._projects = Remembered(stored.project, 0, FALL_BACK_SECONDS, REMEMBERED)
        self._accounts = Remembered(stored.user, 0, FALL_BACK_SECONDS, REMEMBERED)
        self._published = Remembered(self._read_published, LIST_SECONDS, None, 1)
        self._colleagues = Remembered(self._read_colleagues, LIST_SECONDS, None, REMEMBERED)

    async def published_agents(self) -> Sequence[Agent]:
        in_files = self.files.published_agents()
        try:
            return [*in_files, *(await self._published.get("") or ())]
        except StoreError:
            logger.warning("the published agents of the store cannot be listed now")
            return in_files

    async def agent(self, ref: str) -> tuple[Agent, str] | None:
        await trio.lowlevel.checkpoint()
        return self.files.agent(ref) or await self._agents.get(ref)

    async def realtime_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        await trio.lowlevel.checkpoint()
        properties = self.files.realtime_properties(configuration_id)
        if properties is not None:
            return properties, self.files.project_of_configuration(configuration_id)
        return await self._configurations.get(configuration_id)

    async def all_realtime_properties(self) -> Sequence[RealtimeProperties]:
        in_files = self.files.all_realtime_properties()
        try:
            resources = await self.stored.every(ResourceKind.REALTIME_CONFIGURATION)
        except StoreError:
            logger.warning("the realtime configurations of the store cannot be listed now")
            return in_files
        found = [await self._configurations.get(resource.id) for resource in resources]
        return [*in_files, *(each[0] for each in found if each is not None)]

    async def project(self, ref: str) -> ProjectAccess | None:
        await trio.lowlevel.checkpoint()
        return self.files.project(ref) or await self._projects.get(ref)

    async def shared_agents(self, ref: str) -> Mapping[str, str]:
        """Those that the agent names; of the featured agent that names none, all that are published in its project."""
        found = await self.agent(ref)
        agent, project = found or (None, "")
        if not isinstance(agent, RelationalAgent):
            return {}
        if agent.shared_memory_agent_refs:
            named = [await self.agent(other) for other in agent.shared_memory_agent_refs]
            return {other.ref: other.name for other, _ in filter(None, named) if other.ref != ref}
        access = await self.project(project)
        if access is None or access.featured_agent != ref:
            return {}
        return {name: shown for name, shown in (await self._colleagues.get(project) or {}).items() if name != ref}

    async def user(self, name: str) -> UserAccount | None:
        await trio.lowlevel.checkpoint()
        return self._users.get(name) or await self._accounts.get(name)

    # --- what management tells it

    def changed(self, kind: ResourceKind, document_id: str) -> None:
        """A document was written or deleted by this process."""
        match kind:
            case ResourceKind.AGENT:
                self._agents.forget(document_id)
            case ResourceKind.REALTIME_CONFIGURATION:
                self._configurations.forget(document_id)
            case ResourceKind.PROJECT:
                self._projects.forget(document_id)
            case ResourceKind.USER:
                self._accounts.forget(document_id)
            case _:  # a template shows in the agents made from it
                self._agents.clear()
        if kind in (ResourceKind.AGENT, ResourceKind.PROJECT, ResourceKind.TEMPLATE):
            self._published.clear()
            self._colleagues.clear()

    async def warn_of_hidden(self) -> None:
        """Tell an operator, at the start, which documents of the store are hidden by one of a file."""
        try:
            hidden = await self.stored.hidden()
        except StoreError:
            logger.warning("whether a project file hides documents of the store cannot be found out now")
            return
        for each in hidden:
            logger.warning(
                "the %s is in the store too, where it was made over the API; the project file's is used", each
            )

    # --- reading

    async def _read_configuration(self, configuration_id: str) -> tuple[RealtimeProperties, str] | None:
        found = await self.stored.realtime_configuration(configuration_id)
        if found is None:
            return None
        document, project = found
        try:
            kind = self.components.properties_class(provider := str(document.get("provider")))
            if kind is None:
                raise ConfigurationError(f"the provider {provider} is not installed")
            return properties_from(document, {provider: kind}), project
        except (ConfigurationError, ValueError) as exc:
            message = (
                f"{type(exc).__name__}" if isinstance(exc, ValueError) else str(exc)
            )  # a ValueError quotes the document
            logger.error("the realtime configuration %s cannot be used: %s", configuration_id, message)
            return None

    async def _read_published(self, key: str) -> Sequence[Agent]:
        return await self.stored.published_agents()

    async def _read_colleagues(self, project: str) -> Mapping[str, str]:
        in_files = {agent.ref: agent.name for agent in self.files.agents_of(project) if agent.published}
        return in_files | await self.stored.published_names(project)

    def _with_password(self, name: str) -> UserAccount:
        account = self.files.user(name)
        assert account is not None
        if not account.password_hash:
            return account
        try:
            found = resolve_secret(account.password_hash, f"passwordHash of the user {name}") or ""
        except ConfigurationError as exc:
            logger.error("the user %s cannot sign in with a password: %s", name, exc)
            found = ""
        return attrs.evolve(account, password_hash=found)
