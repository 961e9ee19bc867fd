"""Where the keys of tokens come from: a file, or an address. The only room here that knows the HTTP client."""

import ipaddress
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import trio

from engine.errors import ConfigurationError

MAX_BYTES = 256 << 10
"""Of a JWKS: those of large issuers are below 10 KiB, certificates included."""
FETCH_SECONDS = 5.0
"""The longest a fetch may take; somebody may be waiting to be let in."""

Fetch = Callable[[], Awaitable[bytes]]
"""Gives the document as it is now. Raises FetchError."""


class FetchError(Exception):
    """The document cannot be had now. Its text says why, without the address's query."""


@asynccontextmanager
async def open_source(place: str) -> AsyncGenerator[Fetch]:
    """The source for a path, or an https URL; http only to this computer itself.

    Raises:
        ConfigurationError: it is a URL keys must not come from.
    """
    if "://" not in place:
        yield _file(place)
        return
    is_secure = _require_safe(place)
    # what an environment says of proxies is for the way out, not for this computer itself
    async with httpx2.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False, trust_env=is_secure) as client:
        yield _address(client, place)


def _file(place: str) -> Fetch:
    path = os.path.expanduser(place)  # as it is written, where no home directory is known

    async def read() -> bytes:
        try:
            async with await trio.open_file(path, "rb") as file:
                return _bounded(await file.read(MAX_BYTES + 1))
        except OSError as exc:
            raise FetchError(f"the file cannot be read ({type(exc).__name__})") from exc

    return read


def _address(client: httpx2.AsyncClient, url: str) -> Fetch:
    """Redirects are not followed: whoever may redirect could name another issuer's keys, or an address inside."""
    # asked for as it is: a small answer must not be able to unpack into a large one
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}

    async def ask() -> bytes:
        document = bytearray()
        try:
            async with client.stream("GET", url, headers=headers) as response:
                if response.status_code != 200:
                    raise FetchError(f"the answer was {response.status_code}")
                async for chunk in response.aiter_raw():
                    document += chunk
                    _bounded(document)
        except httpx2.HTTPError as exc:
            raise FetchError(f"no answer ({type(exc).__name__})") from exc
        return bytes(document)

    return ask


def _bounded(document: bytes | bytearray) -> bytes:
    if len(document) > MAX_BYTES:
        raise FetchError(f"it has more than {MAX_BYTES} bytes")
    return bytes(document)


def _require_safe(url: str) -> bool:
    """True for https, False for http to this computer itself."""
    try:
        parts = urlsplit(url)
        httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL):
        raise ConfigurationError("SOUFFLEUR_JWT_KEYS: the URL is not one.") from None
    if parts.username or parts.password or parts.fragment or not parts.hostname:
        raise ConfigurationError("SOUFFLEUR_JWT_KEYS: write the URL without a user name, a password and a fragment.")
    if parts.scheme == "https":
        return True
    if parts.scheme == "http" and _is_loopback(parts.hostname):
        return False
    raise ConfigurationError("SOUFFLEUR_JWT_KEYS: keys come from an https URL or a file.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
