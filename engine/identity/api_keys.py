"""API keys: what is given out once, and what is kept of it. Pure, but for the randomness of a new key.

A key is `sf_ID_SECRET`: 16 hex digits that name it, and 43 characters of base64url, 32 random bytes. What is kept is the
SHA-256 of the secret: nothing slower is needed where nobody can guess. A key has only characters that a header, a subprotocol and
a URL can have.
"""

import hashlib
import hmac
import re
import secrets
from datetime import datetime
from typing import Annotated, Any

import attrs
from pydantic import AwareDatetime, Field

from engine.config import CamelModel
from engine.identity.shown import KEY_PREFIX
from engine.principal import AccessRole

KEY = re.compile(KEY_PREFIX + r"([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
NOBODYS = "0" * 64
"""No secret's SHA-256, for keys that do not exist."""


class ApiKeyDocument(CamelModel):
    """The body of an API key's resource; the resource's id is the key's."""

    name: str = ""
    """What its maker calls it."""
    secret_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", repr=False)]
    role: AccessRole = AccessRole.MEMBER
    projects: tuple[str, ...] | None = None
    """Refs of the only projects it may touch; None: those of its user."""
    expires_at: AwareDatetime | None = None
    user: str = ""
    """Name of the user it speaks for; it then can do no more than they. "": for nobody in particular."""


@attrs.frozen
class NewApiKey:
    id: str
    text: str = attrs.field(repr=False)
    """The key itself, to be shown once: nobody can make it from what is kept."""
    body: dict[str, Any] = attrs.field(repr=False)
    """What to keep, as the body of a resource of kind API_KEY with this id."""


@attrs.frozen
class ApiKey:
    """A key as it was sent."""

    id: str
    secret: str = attrs.field(repr=False)


def new_api_key(
    *,
    name: str = "",
    role: AccessRole = AccessRole.MEMBER,
    projects: frozenset[str] | None = None,
    expires_at: datetime | None = None,
    user: str = "",
) -> NewApiKey:
    """A new key that nobody else has. Raises ValueError when `expires_at` has no time zone."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    document = ApiKeyDocument(
        name=name,
        secret_sha256=_digest(secret),
        role=role,
        projects=None if projects is None else tuple(sorted(projects)),
        expires_at=expires_at,
        user=user,
    )
    return NewApiKey(key_id, f"{KEY_PREFIX}{key_id}_{secret}", document.model_dump(mode="json", by_alias=True))


def shown_body(body: dict[str, Any]) -> dict[str, Any]:
    """What may be shown of a kept key."""
    return {name: value for name, value in body.items() if name != "secretSha256"}


def parse_api_key(text: str) -> ApiKey | None:
    """None when it has not the form of one."""
    match = KEY.fullmatch(text)
    return match and ApiKey(match[1], match[2])


def key_fits(key: ApiKey, document: ApiKeyDocument | None) -> bool:
    """Whether the secret is the kept one's, in the same time wherever it differs. None: there is no such key."""
    return hmac.compare_digest(_digest(key.secret), document.secret_sha256 if document else NOBODYS)


def key_version(document: ApiKeyDocument) -> str:
    """Of everything but its name and expiry: with another, a conversation that was opened with the key has to end."""
    projects = "*" if document.projects is None else "\n".join(sorted(document.projects))
    parts = (document.secret_sha256, document.role.value, document.user, projects)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
