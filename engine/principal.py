"""Who is talking, what they may do, and the contract of what finds that out (SPEC L8)."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import attrs

from engine.errors import ErrorCode, RemoteError


class AccessRole(StrEnum):
    """What a user may do beyond talking. A member talks to the private agents of their projects and reads their own
    sessions; an owner also manages those projects and reads all of their sessions; an admin does everything everywhere."""

    MEMBER = "member"
    OWNER = "owner"
    ADMIN = "admin"


class CredentialKind(StrEnum):
    TOKEN = "token"
    PASSWORD = "password"
    API_KEY = "apiKey"
    ADMIN_KEY = "adminKey"


@attrs.frozen
class Credential:
    """What somebody has shown, without the secret in it: enough to ask later whether it still holds."""

    kind: CredentialKind
    id: str
    """A token's `jti` ("" when it has none), a user's name, an API key's id."""
    subject: str = ""
    """The user it speaks for; "" for none."""
    issued_at: datetime | None = None
    expires_at: datetime | None = None
    version: str = ""
    """Of what it was checked against; a password that was changed has another."""


@attrs.frozen
class Principal:
    """Whose connection or request it is. The anonymous have no credential: their device or speaker is their name."""

    owner: str
    """Who may resume what this one opens. Its kind is part of it, so that a device cannot pass for a user. A secret for the
    anonymous: stored and shown as a digest only."""
    user_id: str = ""
    """Empty for the anonymous."""
    name: str = ""
    email: str = ""
    role: AccessRole | None = None
    """None for the anonymous."""
    projects: frozenset[str] | None = None
    """The only projects it may touch, for an API key that was made for some; None: whatever else allows."""
    credential: Credential | None = None

    @property
    def is_admin(self) -> bool:
        return self.role is AccessRole.ADMIN and self.projects is None


@attrs.frozen
class ProjectAccess:
    """What of a project decides who may use it."""

    ref: str
    is_public: bool
    members: frozenset[str] = frozenset()
    """Names of users."""
    minutes_per_month: float | None = None
    """None: no limit."""
    featured_agent: str = ""
    """The ref of the agent that shares memory with all the others (R3)."""


@attrs.frozen
class UserAccount:
    """A user as an operator has written them down."""

    name: str
    role: AccessRole = AccessRole.MEMBER
    password_hash: str = attrs.field(default="", repr=False)
    """argon2, in its own encoded form; "" for users who have no password."""
    email: str = ""
    is_disabled: bool = False
    tokens_valid_from: datetime | None = None
    """Tokens issued before are refused: what "sign out everywhere" sets."""


class UnauthorizedError(RemoteError):
    """The credentials are wrong, expired, revoked or not understood. The message says which kind, never what they were."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNAUTHORIZED, message)


class Authenticator(Protocol):
    """Finds out who somebody is."""

    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        """Who the credentials of a request speak for; None when it has none. Header names are lowered.

        Raises:
            UnauthorizedError: there are credentials and they do not hold.
        """
        ...

    async def authenticate_value(self, value: str) -> Principal:
        """The same for the value of an `Authorization` header, as `#authorization:` brings it.

        Raises:
            UnauthorizedError: it does not hold.
        """
        ...

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        """Those of these that no longer hold, because they or their user were removed, disabled or changed. What cannot be
        found out now is not among them. Expiry is not revocation: a conversation that was let in may finish."""
        ...


class NobodyKnown:
    """The authenticator of a process without identities: everybody is anonymous, and no credentials are right."""

    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        for name, _ in headers:
            if name in ("authorization", "x-api-key"):
                raise UnauthorizedError("Credentials are not known here.")
        return None

    async def authenticate_value(self, value: str) -> Principal:
        raise UnauthorizedError("Credentials are not known here.")

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        return ()
