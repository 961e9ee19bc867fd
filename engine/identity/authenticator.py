"""Who somebody is: what they show, checked against what is known (SPEC L8)."""

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Protocol

import attrs
import jwt
import trio
from pydantic import ValidationError

from engine.config import Settings
from engine.errors import ConfigurationError, ErrorCode, RemoteError, Whose
from engine.identity.admin_key import AdminKey
from engine.identity.api_keys import ApiKeyDocument, key_fits, key_version, parse_api_key
from engine.identity.key_ring import KeyRing, open_key_ring
from engine.identity.passwords import PasswordChecker, is_password_hash, password_version
from engine.identity.shown import Password, Shown, Token, parse_authorization, shown_by
from engine.identity.tokens import (
    ROLES,
    SHARED,
    TokenClaims,
    TokenHeader,
    TokenRules,
    check_claims,
    read_claims,
    read_header,
    token_owner,
)
from engine.principal import (
    AccessRole,
    Authenticator,
    Credential,
    CredentialKind,
    Principal,
    UnauthorizedError,
    UserAccount,
)
from engine.secrets import resolve_secret
from engine.store.contract import StoreError
from engine.store.documents import Resource, ResourceKind

ADMIN_KEY_SECONDS = 10.0
"""How old what is known of the admin key's file may be: an operator who replaces the key need not start the server again."""
MIN_SECRET_BYTES = 32
"""RFC 7518, section 3.2: a shared secret is no shorter than what it makes."""

logger = logging.getLogger(__name__)


class Accounts(Protocol):
    """What is asked of a catalog. May raise StoreError."""

    async def user(self, name: str) -> UserAccount | None: ...


class Keeper(Protocol):
    """What is asked of a store. Each may raise StoreError."""

    async def get_resource(self, kind: ResourceKind, resource_id: str) -> Resource | None: ...

    async def get_resources(self, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]: ...

    async def use_once(self, key: str, *, now: datetime, expires_at: datetime) -> bool: ...


@asynccontextmanager
async def make_authenticator(
    settings: Settings,
    catalog: Accounts,
    store: Keeper,
    admin_key: AdminKey | None,
    wall_clock: Callable[[], datetime],
) -> AsyncGenerator[Authenticator]:
    """The authenticator of a process. It keeps the keys of tokens fresh while the context is open.

    Without an admin key nobody is an admin by key.

    Raises:
        ConfigurationError: a setting is wrong; says which.
    """
    rules = _token_rules(settings)
    if not settings.jwt_keys:
        yield IdentityAuthenticator(catalog, store, admin_key, wall_clock, rules, None)
        return
    if not settings.jwt_audience:
        logger.warning("SOUFFLEUR_JWT_AUDIENCE is not set: tokens that were issued for other servers are taken too")
    async with open_key_ring(settings.jwt_keys) as ring:
        yield IdentityAuthenticator(catalog, store, admin_key, wall_clock, rules, ring)


def _token_rules(settings: Settings) -> TokenRules:
    setting = "SOUFFLEUR_JWT_SECRET"
    secret = (settings.jwt_secret and resolve_secret(settings.jwt_secret, setting)) or ""
    if 0 < len(secret) < MIN_SECRET_BYTES:
        raise ConfigurationError(f"{setting}: a secret for HS256 has at least {MIN_SECRET_BYTES} characters.")
    if secret:
        try:
            jwt.encode({}, secret, SHARED)
        except jwt.InvalidKeyError:
            raise ConfigurationError(f"{setting}: what is there is a public key, and no secret.") from None
    return TokenRules(
        secret=secret.encode(),
        audience=settings.jwt_audience,
        issuer=settings.jwt_issuer,
        leeway=timedelta(seconds=settings.jwt_leeway_seconds),
        role_claim=settings.jwt_role_claim,
        single_use=settings.jwt_single_use,
    )


@attrs.define(eq=False)
class IdentityAuthenticator:
    """The authenticator over a catalog's users, a store's API keys, the admin key and an operator's rules for tokens.

    Beside UnauthorizedError each of its checks may raise a RemoteError TOO_BUSY: it cannot be found out now.
    """

    _catalog: Accounts
    _store: Keeper
    _admin_key: AdminKey | None
    _wall_clock: Callable[[], datetime]
    _rules: TokenRules
    _ring: KeyRing | None
    _passwords: PasswordChecker = attrs.field(factory=PasswordChecker)
    _admin_key_holds_until: float = attrs.field(default=0.0, init=False)
    _files: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1), init=False)

    async def authenticate(self, headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Principal | None:
        shown = shown_by(headers, subprotocols)
        return None if shown is None else await self._check(shown)

    async def authenticate_value(self, value: str) -> Principal:
        return await self._check(parse_authorization(value))

    async def _check(self, shown: Shown) -> Principal:
        try:
            match shown:
                case Password(name, password):
                    return await self._check_password(name, password)
                case Token(text, is_key):
                    return await self._check_token(text, is_key=is_key)
        except StoreError as exc:
            message = "Credentials cannot be checked now; try again shortly."
            raise RemoteError(ErrorCode.TOO_BUSY, message, whose=Whose.SERVER) from exc

    # --- passwords

    async def _check_password(self, name: str, password: str) -> Principal:
        """Users who do not exist, have no password or are disabled cost the same time and get the same answer."""
        account = await self._catalog.user(name)
        password_hash = account.password_hash if account else ""
        if password_hash and not is_password_hash(password_hash):
            logger.error("the password hash of the user %r is no argon2 hash, or too costly: nobody can use it", name)
            password_hash = ""
        fits = await self._passwords.fits(password, password_hash)
        if not fits or account is None or account.is_disabled:
            raise UnauthorizedError("The user name or the password is wrong.")
        return Principal(
            owner=_user_owner(account.name),
            user_id=account.name,
            name=account.name,
            email=account.email,
            role=account.role,
            credential=Credential(
                CredentialKind.PASSWORD,
                account.name,
                account.name,
                version=password_version(password_hash),
            ),
        )

    # --- keys and tokens

    async def _check_token(self, text: str, *, is_key: bool) -> Principal:
        admin_key = await self._current_admin_key()
        if admin_key is not None and admin_key.fits(text):
            return _admin(admin_key)
        return await (self._check_api_key(text) if is_key else self._check_jwt(text))

    async def _current_admin_key(self) -> AdminKey | None:
        key, now = self._admin_key, trio.current_time()
        if key is not None and key.path is not None and now >= self._admin_key_holds_until:
            self._admin_key_holds_until = now + ADMIN_KEY_SECONDS
            key = self._admin_key = await trio.to_thread.run_sync(key.reread, limiter=self._files)
        return key

    async def _check_api_key(self, text: str) -> Principal:
        key = parse_api_key(text)
        resource = await self._store.get_resource(ResourceKind.API_KEY, key.id) if key else None
        document = _api_key_document(resource)
        if key is None or not key_fits(key, document) or document is None:
            raise UnauthorizedError("The API key is not valid.")
        if document.expires_at is not None and document.expires_at <= self._wall_clock():
            raise UnauthorizedError("The API key has expired.")
        role, email = document.role, ""
        if document.user:
            account = await self._catalog.user(document.user)
            if account is None or account.is_disabled:
                raise UnauthorizedError("The user of this API key is unknown or disabled.")
            role, email = min(role, account.role, key=ROLES.index), account.email
        owner = _user_owner(document.user) if document.user else f"key:{key.id}"
        return Principal(
            owner=owner,
            user_id=document.user or owner,
            name=document.user or document.name,
            email=email,
            role=role,
            projects=None if document.projects is None else frozenset(document.projects),
            credential=Credential(
                CredentialKind.API_KEY,
                key.id,
                document.user,
                expires_at=document.expires_at,
                version=key_version(document),
            ),
        )

    async def _check_jwt(self, text: str) -> Principal:
        header = read_header(text)
        claims = check_claims(
            read_claims(text, header.algorithm, await self._key(header)), self._rules, self._wall_clock()
        )
        account = await self._catalog.user(claims.subject)
        if account is not None:  # it can take from what a token says, and adds nothing to it
            if account.is_disabled:
                raise UnauthorizedError("The user of this token is disabled.")
            if _is_signed_out(account, claims.issued_at):
                raise UnauthorizedError("The token was issued before its user signed out everywhere.")
        await self._use(claims)
        return Principal(
            owner=token_owner(self._rules.issuer, claims.subject),
            user_id=claims.subject,
            name=claims.name,
            email=claims.email,
            role=claims.role,
            credential=Credential(CredentialKind.TOKEN, claims.id, claims.subject, claims.issued_at, claims.expires_at),
        )

    async def _key(self, header: TokenHeader) -> bytes | jwt.PyJWK:
        """The key for that algorithm. Only its own: the secret for HS256, an issuer's public key for the others."""
        key: bytes | jwt.PyJWK | None
        if header.algorithm == SHARED:
            key = self._rules.secret or None
        else:
            key = await self._ring.find(header) if self._ring is not None else None
        if key is None:
            if self._ring is None and not self._rules.secret:
                raise UnauthorizedError("Tokens are not taken here.")
            raise UnauthorizedError("The token is signed with a key that is not known here.")
        return key

    async def _use(self, claims: TokenClaims) -> None:
        """After everything else: a token that was refused has not been used."""
        if not self._rules.single_use:
            return
        forgotten = claims.expires_at + self._rules.leeway
        if not await self._store.use_once(f"token:{claims.id}", now=self._wall_clock(), expires_at=forgotten):
            raise UnauthorizedError("The token has been used before.")

    # --- revocation

    async def revoked(self, credentials: Sequence[Credential]) -> Sequence[Credential]:
        """One question to the store for all API keys, and one to the catalog for each user."""
        admin_key = await self._current_admin_key()
        documents = await self._documents({each.id for each in credentials if each.kind is CredentialKind.API_KEY})
        accounts = await self._accounts({each.subject for each in credentials if each.subject})
        now = self._wall_clock()

        def is_revoked(each: Credential) -> bool:
            match each.kind:
                case CredentialKind.ADMIN_KEY:
                    return admin_key is None or admin_key.version != each.version
                case CredentialKind.API_KEY:
                    if documents is not None and _is_key_revoked(each, documents.get(each.id), now):
                        return True
                    return each.subject in accounts and _is_user_gone(accounts[each.subject])
                case CredentialKind.PASSWORD:
                    return each.subject in accounts and _is_password_revoked(each, accounts[each.subject])
                case CredentialKind.TOKEN:
                    account = accounts.get(each.subject)  # most are known to their issuer alone
                    return account is not None and (account.is_disabled or _is_signed_out(account, each.issued_at))

        return [each for each in credentials if is_revoked(each)]

    async def _documents(self, key_ids: Collection[str]) -> Mapping[str, ApiKeyDocument] | None:
        """The API keys there are of these, by id; None when it cannot be found out."""
        if not key_ids:
            return {}
        try:
            resources = await self._store.get_resources(ResourceKind.API_KEY, key_ids)
        except StoreError:
            logger.warning("whether API keys still hold cannot be found out now")
            return None
        found = {resource.id: _api_key_document(resource) for resource in resources}
        return {key_id: document for key_id, document in found.items() if document is not None}

    async def _accounts(self, names: Collection[str]) -> Mapping[str, UserAccount | None]:
        """The accounts of these users; without those that cannot be found out."""
        accounts: dict[str, UserAccount | None] = {}
        try:
            for name in sorted(names):
                accounts[name] = await self._catalog.user(name)
        except StoreError:
            logger.warning("whether users are still there cannot be found out now")
        return accounts


def _user_owner(name: str) -> str:
    return f"user:{name}"


def _admin(key: AdminKey) -> Principal:
    credential = Credential(CredentialKind.ADMIN_KEY, "", version=key.version)
    return Principal(owner="admin:key", user_id="admin:key", name="admin", role=AccessRole.ADMIN, credential=credential)


def _api_key_document(resource: Resource | None) -> ApiKeyDocument | None:
    """None also for what is damaged: a key whose limits cannot be read is none."""
    if resource is None:
        return None
    try:
        return ApiKeyDocument.model_validate(resource.body)
    except ValidationError:  # its text quotes what is stored
        logger.error("the API key %s is damaged in the store and opens nothing", resource.id)
        return None


def _is_signed_out(account: UserAccount, issued_at: datetime | None) -> bool:
    """A token that does not say when it was issued may have been issued before."""
    since = account.tokens_valid_from
    return since is not None and (issued_at is None or issued_at < since)


def _is_user_gone(account: UserAccount | None) -> bool:
    return account is None or account.is_disabled


def _is_password_revoked(credential: Credential, account: UserAccount | None) -> bool:
    if account is None or account.is_disabled:
        return True
    return password_version(account.password_hash) != credential.version


def _is_key_revoked(credential: Credential, document: ApiKeyDocument | None, now: datetime) -> bool:
    """Deleted, made another, or given an earlier end that is past. The end it had when it was shown is no revocation."""
    if document is None or key_version(document) != credential.version:
        return True
    has_ended = document.expires_at is not None and document.expires_at <= now
    return has_ended and document.expires_at != credential.expires_at
