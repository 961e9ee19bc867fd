"""What the tests of identities share: a wall clock that stands still, users, signing keys, tokens, and an open authenticator."""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import argon2
import attrs
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from engine.config import Settings
from engine.identity.admin_key import AdminKey
from engine.identity.authenticator import make_authenticator
from engine.principal import Authenticator, UserAccount
from engine.store.contract import Store, StoreError
from engine.store.memory import MemoryStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "a-secret-of-at-least-thirty-two-characters"
ADMIN_KEY = "the-admin-key-of-these-tests"
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
"""For tests that are not about the cost."""


@attrs.define
class Clock:
    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@attrs.define
class Users:
    """The users of a catalog. `asked` are the names it was asked for."""

    accounts: dict[str, UserAccount] = attrs.field(factory=dict[str, UserAccount])
    is_down: bool = False
    asked: list[str] = attrs.field(factory=list[str], repr=False)

    def add(self, name: str, password: str = "", **fields: Any) -> None:
        password_hash = CHEAP.hash(password) if password else ""
        self.accounts[name] = UserAccount(name, password_hash=password_hash, **fields)

    def change(self, name: str, **fields: Any) -> None:
        self.accounts[name] = attrs.evolve(self.accounts[name], **fields)

    async def user(self, name: str) -> UserAccount | None:
        self.asked.append(name)
        if self.is_down:
            raise StoreError("down")
        return self.accounts.get(name)


def claims(**changes: Any) -> dict[str, Any]:
    """Claims that hold for the next hour; a claim that is changed to None is left out."""
    base = {"sub": "anna", "exp": NOW.timestamp() + 3600, "iat": NOW.timestamp(), **changes}
    return {name: value for name, value in base.items() if value is not None}


def token(key: Any = SECRET, algorithm: str = "HS256", kid: str | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": kid} if kid else None)


def encoded(content: object) -> str:
    """A part of a token, by hand."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, **members: Any) -> dict[str, Any]:
    """The JWK of a key's public half."""
    if isinstance(key, rsa.RSAPrivateKey):
        return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | members
    return ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | members


def jwks(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@attrs.frozen
class Identities:
    """An open authenticator and what it is over."""

    authenticator: Authenticator
    users: Users
    store: Store
    clock: Clock
    admin_key: AdminKey | None


@asynccontextmanager
async def open_identities(
    *, store: Store | None = None, admin_key: AdminKey | None = None, **settings: Any
) -> AsyncGenerator[Identities]:
    """Over a user anna with the password "tea", and tokens signed with `SECRET` where a test sets MY_SECRET."""
    users, clock = Users(), Clock()
    users.add("anna", "tea", email="anna@example.com")
    store = store or MemoryStore()
    async with make_authenticator(Settings(**settings), users, store, admin_key, clock) as authenticator:
        yield Identities(authenticator, users, store, clock, admin_key)
