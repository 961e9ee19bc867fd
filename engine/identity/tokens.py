"""The rules of JSON Web Tokens (RFC 7519, RFC 8725): what is read before the signature, and what the claims must say.

Pure: the time comes in, and the key is chosen by the caller, by the algorithm. A key only ever meets the algorithm it is for,
which is what keeps a public key from being taken for a shared secret.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import quote

import attrs
import jwt
from jwt.types import Options

from engine.identity.shown import MAX_NAME_CHARACTERS
from engine.principal import AccessRole, UnauthorizedError

SHARED = "HS256"
PUBLIC = frozenset({"RS256", "ES256"})
MAX_ID_CHARACTERS = 256
"""Of a `jti`: it becomes a key of the store."""
END_OF_TIME = 253_402_300_799
"""The last second of the year 9999, since 1970: the end of what a datetime can say."""
ROLES = (AccessRole.MEMBER, AccessRole.OWNER, AccessRole.ADMIN)
"""The mightiest last."""

UNCHECKED: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""What the library leaves to the rules here, which take the time as an argument."""


@attrs.frozen
class TokenRules:
    """What an operator asks of tokens."""

    secret: bytes = attrs.field(default=b"", repr=False)
    """Empty: no token with a shared secret is taken."""
    audience: str = ""
    issuer: str = ""
    leeway: timedelta = timedelta(seconds=30)
    """How far the clocks of issuer and server may be apart."""
    role_claim: str = ""
    """The claim that carries roles; "": no claim is believed about them."""
    single_use: bool = False


@attrs.frozen
class TokenHeader:
    algorithm: str
    key_id: str | None


@attrs.frozen
class TokenClaims:
    """What a token that holds says."""

    subject: str
    expires_at: datetime
    issued_at: datetime | None = None
    id: str = ""
    name: str = ""
    email: str = ""
    role: AccessRole = AccessRole.MEMBER


def read_header(token: str) -> TokenHeader:
    """What a token says of its signature, before anything of it is known to be true. Keys it brings itself are not looked at.

    Raises:
        UnauthorizedError: it is no token, or one of a kind that is never taken.
    """
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError):
        raise UnauthorizedError("The token is malformed.") from None
    if "crit" in header:  # RFC 7515: what is critical and not understood has to be refused; we understand none of it
        raise UnauthorizedError("The token asks for an extension that is not known here.")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or (algorithm != SHARED and algorithm not in PUBLIC):
        raise UnauthorizedError("The token's algorithm is not accepted.")
    return TokenHeader(algorithm, key_id if isinstance(key_id, str) else None)


def read_claims(token: str, algorithm: str, key: bytes | jwt.PyJWK) -> dict[str, Any]:
    """The claims, once the signature is found to be right. `key` has to be one for that algorithm.

    Raises:
        UnauthorizedError: the signature is wrong, or what is signed is no object of claims.
    """
    try:
        return jwt.decode(token, key=key, algorithms=[algorithm], options=UNCHECKED)
    except jwt.InvalidSignatureError:
        raise UnauthorizedError("The token's signature is wrong.") from None
    except (jwt.PyJWTError, RecursionError):
        raise UnauthorizedError("The token is malformed.") from None


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now: datetime) -> TokenClaims:
    """What the claims say, when they hold at `now`.

    Raises:
        UnauthorizedError: they do not; says which and why.
    """
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise UnauthorizedError("The token has no expiry (exp).")
    if now - rules.leeway >= expires_at:
        raise UnauthorizedError("The token has expired.")
    latest = now + rules.leeway
    not_before = _time(claims, "nbf")
    if not_before is not None and not_before > latest:
        raise UnauthorizedError("The token is not valid yet (nbf).")
    issued_at = _time(claims, "iat")
    if issued_at is not None and issued_at > latest:
        raise UnauthorizedError("The token was issued in the future (iat).")
    if rules.audience and rules.audience not in _texts(claims.get("aud")):
        raise UnauthorizedError("The token is for another audience (aud).")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise UnauthorizedError("The token is from another issuer (iss).")
    token_id = claims.get("jti")
    if rules.single_use and not (isinstance(token_id, str) and 0 < len(token_id) <= MAX_ID_CHARACTERS):
        raise UnauthorizedError("The token has no id (jti), which is needed here: a token holds once.")
    return TokenClaims(
        subject=_subject(claims),
        expires_at=expires_at,
        issued_at=issued_at,
        id=token_id if isinstance(token_id, str) else "",
        name=_words(claims, "name"),
        email=_words(claims, "email"),
        role=_role(claims.get(rules.role_claim)) if rules.role_claim else AccessRole.MEMBER,
    )


def token_owner(issuer: str, subject: str) -> str:
    """The owner of what a token's user opens. The issuer is quoted, so that no subject can pass for one of another issuer."""
    return f"token:{quote(issuer, safe='')}:{subject}"


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise UnauthorizedError("The token has no subject (sub).")
    if len(subject) > MAX_NAME_CHARACTERS or not subject.isprintable():
        raise UnauthorizedError("The token's subject (sub) is not one line of a reasonable length.")
    return subject


def _time(claims: Mapping[str, Any], name: str) -> datetime | None:
    """A NumericDate, seconds since 1970; whole or not."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < END_OF_TIME:
        raise UnauthorizedError(f"The token's {name} is not a time.")
    return datetime.fromtimestamp(value, UTC)


def _words(claims: Mapping[str, Any], name: str) -> str:
    """A claim that is only shown: cut rather than refused."""
    value = claims.get(name)
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) and value.isprintable() else ""


def _role(value: object) -> AccessRole:
    """The mightiest of the roles that are known here; other applications' roles mean nothing."""
    named = _texts(value)
    return next((role for role in reversed(ROLES) if role in named), AccessRole.MEMBER)


def _texts(value: object) -> list[str]:
    """A claim that is one text or a list of them."""
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
