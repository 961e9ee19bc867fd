"""Getting a web page: every address on the way judged, and nothing that comes unbounded.

Raises `ToolError`s: their texts are for the model that asked.
"""

import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Protocol

import attrs
import httpx2
import trio

from agents.web.judged import Judge, JudgedTransport, RefusedAddressError, UnknownNameError
from engine.interfaces import ToolError

CONNECT_SECONDS = 5.0
READ_SECONDS = 8.0
"""Of silence."""
MAX_REDIRECTS = 5
MAX_BYTES = 2 << 20
"""Of a page, as it came and unpacked; the rest is not read. Half of all pages have less than 100 KB, and what is told of one less."""
MAX_URL = 2000
USER_AGENT = "Mozilla/5.0 (compatible; souffleur)"
"""Begins as every browser's does, which many servers ask for, and says what it is."""

HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPES = ("text/plain", "text/markdown")
_REDIRECTS = (301, 302, 303, 307, 308)
_OTHERS = {
    "application/pdf": "It is a PDF, which cannot be read here; look for a web page that says the same.",
    "image/": "It is an image, not a page of text.",
    "video/": "It is a video, not a page of text.",
    "audio/": "It is a recording, not a page of text.",
}


@attrs.frozen
class Fetched:
    url: str
    """Where the redirects led."""
    is_html: bool
    charset: str
    """As the server says; may be empty or nonsense."""
    body: bytes
    is_cut: bool
    """There was more."""


async def fetch(url: str, judge: Judge) -> Fetched:
    """Get a page. The caller bounds the time.

    Raises:
        ToolError: there is none, or none that may be read, and why.
    """
    target = _parse(url)
    transport = await JudgedTransport.open(judge, keep_alive=False)
    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(
        transport=transport, timeout=timeout, trust_env=False, follow_redirects=False
    ) as client:
        for _ in range(MAX_REDIRECTS + 1):
            async with _get(client, target) as response:
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    return await _take(response, target)
                target = _parse(response.headers["location"], target)
            client.cookies.clear()  # what a page leaves behind is nobody's
    raise ToolError(f"The page only leads on and on, over more than {MAX_REDIRECTS} redirects.")


@asynccontextmanager
async def _get(client: httpx2.AsyncClient, target: httpx2.URL) -> AsyncGenerator[httpx2.Response]:
    headers = {
        "User-Agent": USER_AGENT,
        "Accept": "text/html,application/xhtml+xml;q=0.9,text/plain;q=0.8",
        "Accept-Encoding": "gzip",  # what can be unpacked within bounds
        "Accept-Language": "*",
    }
    try:
        response = await client.send(client.build_request("GET", target, headers=headers), stream=True)
    except RefusedAddressError as exc:
        raise ToolError("That address is not one of the public internet; it may not be read.") from exc
    except UnknownNameError as exc:
        raise ToolError(f"There is no site {target.host}: its name has no address.") from exc
    except httpx2.TimeoutException as exc:
        raise ToolError("The site does not answer.") from exc
    except httpx2.HTTPError as exc:
        raise ToolError(f"The site cannot be reached ({type(exc).__name__}).") from exc
    try:
        yield response
    finally:
        with trio.move_on_after(1, shield=True):
            await response.aclose()


async def _take(response: httpx2.Response, target: httpx2.URL) -> Fetched:
    status = response.status_code
    if not 200 <= status < 300:
        phrase = next((known.phrase for known in HTTPStatus if known == status), "which has no meaning")
        raise ToolError(f"The site answered with {status} ({phrase}).")
    kind, _, parameters = response.headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    if kind not in (*HTML_TYPES, *TEXT_TYPES):
        known = next((text for prefix, text in _OTHERS.items() if kind.startswith(prefix)), None)
        raise ToolError(known or f"It is no page of text but {kind or 'of an unknown kind'}.")
    body, is_cut = await _read(response)
    if not body:
        raise ToolError("The page is empty.")
    return Fetched(str(target), kind in HTML_TYPES, _charset(parameters), body, is_cut)


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return value.strip().strip("\"'")[:40]
    return ""


# --- the body ---------------------------------------------------------------------------------------------------------


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class _Plain:
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes:
        return data[:max_length]


def _unpacker(encoding: str) -> _Unpacker:
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(zlib.MAX_WBITS | 32)
        case _:
            raise ToolError("The page is packed in a way that was not asked for.")


async def _read(response: httpx2.Response) -> tuple[bytes, bool]:
    """The unpacked body, and whether there is more of it."""
    unpacker = _unpacker(response.headers.get("content-encoding", ""))
    body = bytearray()
    received = 0
    try:
        with trio.CancelScope() as reading:  # a loop that is merely left would leave the client's generators behind
            async for chunk in response.aiter_raw():
                received += len(chunk)
                body += unpacker.decompress(chunk, MAX_BYTES + 1 - len(body))
                if max(len(body), received) > MAX_BYTES:
                    reading.cancel(reason="the page is too long")
                    await trio.lowlevel.checkpoint()
    except zlib.error as exc:
        raise ToolError("The page is damaged: it cannot be unpacked.") from exc
    except httpx2.HTTPError as exc:
        if not body:
            raise ToolError(f"The connection broke ({type(exc).__name__}).") from exc
        return bytes(body[:MAX_BYTES]), True  # half a page is better than none
    return bytes(body[:MAX_BYTES]), reading.cancelled_caught


# --- URLs -------------------------------------------------------------------------------------------------------------


def _parse(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        if len(url) > MAX_URL:
            raise ToolError(f"The URL is longer than {MAX_URL} characters.")
        target = httpx2.URL(url.strip()) if base is None else base.join(url.strip())
    except (httpx2.InvalidURL, ValueError) as exc:
        raise ToolError("That is no URL; give a whole one, such as https://example.com/page.") from exc
    if target.scheme not in ("http", "https") or not target.host:
        raise ToolError("Only http and https URLs can be read, such as https://example.com/page.")
    if target.userinfo:
        raise ToolError("The URL holds a user name or password; those are never sent.")
    if target.port is not None and not 0 < target.port < 1 << 16:
        raise ToolError("The URL's port is none.")
    return target.copy_with(fragment=None)
