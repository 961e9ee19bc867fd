"""The public keys tokens are signed with: a JWKS document (RFC 7517), read. Pure."""

from collections.abc import Mapping
from typing import Any, cast

import attrs
import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from engine.identity.tokens import TokenHeader

MAX_KEYS = 64
"""An issuer has two or three; each costs 0.1 ms to take in."""
MIN_RSA_BITS = 2048
"""RFC 7518, section 3.3."""
PUBLIC_MEMBERS = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}
"""What is taken of a key. A private part that somebody left in is not."""


@attrs.frozen
class PublicKey:
    algorithm: str
    id: str | None
    key: jwt.PyJWK = attrs.field(repr=False)


@attrs.frozen
class KeySet:
    keys: tuple[PublicKey, ...] = ()

    def find(self, header: TokenHeader) -> jwt.PyJWK | None:
        """The key a token names; of a token that names none the only one there is for its algorithm."""
        fitting = [key for key in self.keys if key.algorithm == header.algorithm]
        if header.key_id is not None:
            return next((key.key for key in fitting if key.id == header.key_id), None)
        return fitting[0].key if len(fitting) == 1 else None


def parse_keys(document: bytes) -> KeySet:
    """The keys of a JWKS that tokens may be signed with: RSA for RS256, P-256 for ES256. Others mean nothing here, shared
    secrets least of all: what is published is no secret.

    Raises:
        ValueError: it is no JWKS, or none of its keys can be used.
    """
    content: object = orjson.loads(document)  # its error is a ValueError
    entries: object = cast("dict[str, object]", content).get("keys") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is no JWKS: it has no list of keys")
    found = [key for each in cast("list[object]", entries)[:MAX_KEYS] if (key := _parse_key(each)) is not None]
    if not found:
        raise ValueError("none of its keys is an RSA or P-256 key for signatures")
    return KeySet(tuple(found))


def _parse_key(entry: object) -> PublicKey | None:
    if not isinstance(entry, dict):
        return None
    parts = cast("Mapping[str, Any]", entry)
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(parts.get("kty")))
    operations = parts.get("key_ops")
    if (
        algorithm is None
        or parts.get("alg", algorithm) != algorithm
        or parts.get("use", "sig") != "sig"
        or (isinstance(operations, list) and "verify" not in operations)
        or (algorithm == "ES256" and parts.get("crv") != "P-256")
    ):
        return None
    members = {name: parts[name] for name in PUBLIC_MEMBERS[parts["kty"]] if isinstance(parts.get(name), str)}
    try:
        key = jwt.PyJWK(members, algorithm)
    except (jwt.PyJWTError, KeyError, ValueError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < MIN_RSA_BITS:
        return None
    key_id = parts.get("kid")
    return PublicKey(algorithm, key_id if isinstance(key_id, str) else None, key)
