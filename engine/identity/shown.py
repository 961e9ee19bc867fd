"""What a request shows of its sender: the credentials in its headers and subprotocols. Pure; nothing is checked here.

Credentials come as `Authorization: Bearer TOKEN`, `Authorization: Basic …`, `X-API-Key: KEY`, or, from browsers, which cannot
set headers for a WebSocket, as the subprotocol `souffleur.auth.TOKEN`. TOKEN is a JWT, an API key or the admin key. What has
characters a subprotocol may not have is offered as `souffleur.auth.base64url.VALUE`, where VALUE is a whole value of the
`Authorization` header ("Basic …", "Bearer …"), UTF-8 in base64url without padding.

No message repeats anything of what was shown.
"""

import base64
import unicodedata
from collections.abc import Iterable

import attrs

from engine.principal import UnauthorizedError

SUBPROTOCOL = "souffleur.auth."
ENCODED = "base64url."
KEY_PREFIX = "sf_"
"""What every API key begins with: no JWT does, as those begin with the base64 of a brace."""

MAX_CHARACTERS = 8192
"""Of one credential. Common servers take 8 KiB for all headers together, and no issuer makes tokens nearly as long."""
MAX_PASSWORD_BYTES = 1024
MAX_NAME_CHARACTERS = 256


@attrs.frozen
class Token:
    """A JWT, an API key or the admin key."""

    text: str = attrs.field(repr=False)
    """Printable ASCII without spaces."""
    is_key: bool = attrs.field(default=False, eq=False)
    """It was sent as a key or looks like one, so that it is none of the JWTs."""


@attrs.frozen
class Password:
    """A user's name and password, both of them texts without control characters."""

    name: str = attrs.field(repr=False)
    """Not shown either: people type passwords into the wrong field."""
    password: str = attrs.field(repr=False)


Shown = Token | Password


def shown_by(headers: Iterable[tuple[str, str]], subprotocols: Iterable[str]) -> Shown | None:
    """The one credential of a request; None when it has none. Header names are lowered.

    The same credential may come several ways. Different ones are refused, whatever each of them is worth: who of them is
    meant is not for us to guess, and a proxy and its server must not see two people in one request.

    Raises:
        UnauthorizedError: one cannot be read, or they differ.
    """
    found: list[Shown] = []
    for name, value in headers:
        if name == "authorization":
            found.append(parse_authorization(value))
        elif name == "x-api-key":
            found.append(_token(value.strip(" \t"), "The X-API-Key header", is_key=True))
    found.extend(_offered(each) for each in subprotocols if each.startswith(SUBPROTOCOL))
    if not found:
        return None
    first, *others = found
    if any(other != first for other in others):
        raise UnauthorizedError("The request has several credentials that differ. Send one.")
    return first


def parse_authorization(value: str) -> Shown:
    """What the value of an `Authorization` header shows.

    Raises:
        UnauthorizedError: it is none that is understood.
    """
    if len(value) > MAX_CHARACTERS:
        raise UnauthorizedError(f"Credentials have at most {MAX_CHARACTERS} characters.")
    scheme, _, rest = value.strip(" \t").partition(" ")
    match scheme.lower():
        case "bearer":
            return _token(rest.strip(" \t"), "The bearer token")
        case "basic":
            return _password(rest.strip(" \t"))
        case _:
            raise UnauthorizedError('Credentials are written as "Bearer TOKEN" or "Basic BASE64".')


def _offered(subprotocol: str) -> Shown:
    text = subprotocol.removeprefix(SUBPROTOCOL)
    if not text.startswith(ENCODED):
        return _token(text, "The subprotocol's token")
    if len(text) > MAX_CHARACTERS:
        raise UnauthorizedError(f"Credentials have at most {MAX_CHARACTERS} characters.")
    return parse_authorization(
        _decoded(text.removeprefix(ENCODED), b"-_", "The subprotocol is not base64url of UTF-8.")
    )


def _token(text: str, what: str, *, is_key: bool = False) -> Token:
    if not text:
        raise UnauthorizedError(f"{what} is empty.")
    if len(text) > MAX_CHARACTERS:
        raise UnauthorizedError(f"{what} has more than {MAX_CHARACTERS} characters.")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise UnauthorizedError(f"{what} is not one word of plain characters.")
    return Token(text, is_key or text.startswith(KEY_PREFIX))


def _password(encoded: str) -> Password:
    """RFC 7617: the base64 of name, colon, password; in UTF-8, as we would ask for it. The name ends at the first colon."""
    text = _decoded(encoded, b"+/", "The Basic credentials are not base64 of UTF-8.")
    name, colon, password = text.partition(":")
    if not colon or not name:
        raise UnauthorizedError("The Basic credentials have no user name and colon.")
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise UnauthorizedError("The Basic credentials have control characters.")
    if len(name) > MAX_NAME_CHARACTERS or len(password.encode()) > MAX_PASSWORD_BYTES:
        raise UnauthorizedError("The user name or the password is too long.")
    return Password(name, password)


def _decoded(encoded: str, alphabet_end: bytes, otherwise: str) -> str:
    padded = encoded.rstrip("=")
    padded += "=" * (-len(padded) % 4)
    try:
        return base64.b64decode(padded, altchars=alphabet_end, validate=True).decode("utf-8")
    except ValueError:  # also of characters outside the alphabet, outside ASCII, and of bytes that are not UTF-8
        raise UnauthorizedError(otherwise) from None
