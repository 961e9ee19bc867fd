"""Who may do what: rules over a principal and a project, pure.

| who                                   | public project | private project                    | manage it        | read its sessions |
|---------------------------------------|----------------|------------------------------------|------------------|-------------------|
| anonymous                             | talk           | not found                          | unauthorized     | unauthorized      |
| member role                           | talk           | talk as its member, else not found | no               | own               |
| owner role                            | talk           | talk as its member, else not found | as its member    | as its member     |
| admin role                            | talk           | talk                               | yes              | yes               |
| API key made for other projects       | forbidden      | not found                          | no               | no                |

"No" is FORBIDDEN for those who may know of the project, and NOT_FOUND for everybody else: a private project cannot be told
from one that does not exist, by nobody's credentials and by none, or refs could be tried until one answers. That is why a
project that does not exist is given to these rules as None, and why the caller may give the sentence it says for what is missing.

The user a credential speaks for is what makes somebody a member. A name that is only shown (a token's `name`, an API key's
label) makes nobody anything: people choose those themselves. A key that speaks for no user belongs to the projects it was made for.
"""

from engine.errors import ErrorCode, NotFoundError, RemoteError
from engine.principal import AccessRole, Principal, ProjectAccess, UnauthorizedError
from engine.store.documents import SessionDocument

NO_SUCH_AGENT = "There is no such agent here that is open to you."
NO_SUCH_PROJECT = "There is no such project."
NO_SUCH_SESSION = "There is no such session."
"""As the stores say it of a session that is another's."""


def may_talk(principal: Principal, project: ProjectAccess | None, *, missing: str = NO_SUCH_AGENT) -> None:
    """Whether this one may talk to the agents of a project, or to what its realtime configurations make. Also in the middle of
    a session, when credentials are replaced. `missing` is what is said when there is nothing for this one.

    Raises:
        NotFoundError: there is no such project, as far as this one may know.
        RemoteError: FORBIDDEN: the project is public, but the key was made for others.
    """
    if project is None:
        raise NotFoundError(missing)
    if _belongs(principal, project):
        return
    if not project.is_public:
        raise NotFoundError(missing)
    if not _within(principal, project.ref):
        raise RemoteError(ErrorCode.FORBIDDEN, "This API key was made for other projects.")


def may_manage(principal: Principal, project: ProjectAccess | None, *, missing: str = NO_SUCH_PROJECT) -> None:
    """Whether this one may read and change what a project consists of.

    Raises:
        UnauthorizedError: nobody has said who they are.
        NotFoundError: there is no such project, as far as this one may know.
        RemoteError: FORBIDDEN.
    """
    _require_somebody(principal)
    if project is None:
        raise NotFoundError(missing)
    belongs = _belongs(principal, project)
    if belongs and principal.role in (AccessRole.OWNER, AccessRole.ADMIN):
        return
    if not belongs and not project.is_public:
        raise NotFoundError(missing)
    raise RemoteError(ErrorCode.FORBIDDEN, "Only an owner of the project or an admin may do this.")


def may_administer(principal: Principal) -> None:
    """Whether this one may do what concerns no project: users, API keys, new projects.

    Raises:
        UnauthorizedError: nobody has said who they are.
        RemoteError: FORBIDDEN.
    """
    _require_somebody(principal)
    if not principal.is_admin:
        raise RemoteError(ErrorCode.FORBIDDEN, "Only an admin may do this.")


def may_read_session(
    principal: Principal, document: SessionDocument | None, project: ProjectAccess | None = None
) -> SessionDocument:
    """The session, when this one may read it: their own, or one of a project they own. `project` is the session's; without it
    only their own, unless they are an admin.

    Raises:
        UnauthorizedError: nobody has said who they are.
        NotFoundError: there is no such session, as far as this one may know.
    """
    _require_somebody(principal)
    if document is not None and _reads(principal, document, project):
        return document
    raise NotFoundError(NO_SUCH_SESSION)


def check_minutes(access: ProjectAccess, used_seconds: float) -> None:
    """Whether a project has minutes left. `used_seconds` are its active seconds of this month.

    Raises:
        RemoteError: QUOTA.
    """
    if access.minutes_per_month is not None and used_seconds >= access.minutes_per_month * 60:
        raise RemoteError(ErrorCode.QUOTA, "The minutes of this project are used up for this month.")


def _reads(principal: Principal, document: SessionDocument, project: ProjectAccess | None) -> bool:
    is_own = bool(document.owner) and document.owner == principal.owner
    if document.project_ref and not _within(principal, document.project_ref):
        return False
    if is_own or principal.is_admin:
        return True
    if project is None or project.ref != document.project_ref:
        return False
    return _belongs(principal, project) and principal.role in (AccessRole.OWNER, AccessRole.ADMIN)


def _belongs(principal: Principal, project: ProjectAccess) -> bool:
    """Whether a project is one of theirs, whoever else may use it."""
    if principal.role is None or not _within(principal, project.ref):
        return False
    if principal.role is AccessRole.ADMIN:
        return True
    user = principal.credential.subject if principal.credential else principal.user_id
    return user in project.members if user else principal.projects is not None


def _within(principal: Principal, project_ref: str) -> bool:
    return principal.projects is None or project_ref in principal.projects


def _require_somebody(principal: Principal) -> None:
    if principal.role is None:
        raise UnauthorizedError("Credentials are needed for this.")
