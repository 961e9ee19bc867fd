"""Who may manage what (`engine.identity.permissions`), for the length of one request.

- An admin manages everything.
- An owner manages the agents and templates of their projects, and those projects' own documents but for the subscription; reads
  their realtime configurations; and makes or deletes no project. What of an agent reaches out of the server is an admin's, see
  `agents.managed`. What belongs to other projects is not there.
- Users and API keys are an admin's alone: both can stand for more than one project.
"""

import attrs

from engine.errors import ErrorCode, RemoteError
from engine.identity.permissions import may_administer, may_manage
from engine.interfaces import ManagedDocuments
from engine.principal import AccessRole, Principal, ProjectAccess
from engine.session.services import Services
from engine.transport.requests import require_principal

OWNERS_ONLY = "Only an owner of a project or an admin may do this."


@attrs.define(eq=False)
class Access:
    principal: Principal
    services: Services
    documents: ManagedDocuments
    _projects: frozenset[str] | None = attrs.field(default=None, init=False)

    @property
    def is_admin(self) -> bool:
        return self.principal.is_admin

    def require_admin(self) -> None:
        """Raises RemoteError FORBIDDEN."""
        may_administer(self.principal)

    async def manages(self, project_ref: str) -> bool:
        return self.is_admin or manages(self.principal, await self.services.catalog.project(project_ref))

    async def projects(self) -> frozenset[str] | None:
        """The refs of those it manages; None for everything."""
        if self.is_admin:
            return None
        if self._projects is None:
            self._projects = await managed_projects(self.principal, self.services)
        return self._projects


def manages(principal: Principal, project: ProjectAccess | None) -> bool:
    """Whether the rules let this one manage a project."""
    try:
        may_manage(principal, project)
    except RemoteError:
        return False
    return True


async def managed_projects(principal: Principal, services: Services) -> frozenset[str]:
    """The refs of the projects this one manages. Raises StoreError."""
    every = await services.documents.projects() if services.documents is not None else ()
    return frozenset(project.ref for project in every if manages(principal, project))


async def require_manager(services: Services, documents: ManagedDocuments) -> Access:
    """Whoever manages something, or could.

    Raises:
        RemoteError: UNAUTHORIZED or FORBIDDEN.
    """
    principal = await require_principal(services)
    if not may_own(principal):
        raise RemoteError(ErrorCode.FORBIDDEN, OWNERS_ONLY)
    return Access(principal, services, documents)


def may_own(principal: Principal | None) -> bool:
    return principal is not None and principal.role in (AccessRole.OWNER, AccessRole.ADMIN)
