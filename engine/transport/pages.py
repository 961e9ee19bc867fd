"""The talk page's files: read once, kept in memory, served with validators and a strict content security policy.

What is not in the list does not exist, so no path leads out of the folder, and no request waits for a disk.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import attrs

CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""What is served; a file of another kind in the folder is not."""

_PLAIN_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


@attrs.frozen
class Page:
    body: bytes
    content_type: str
    etag: str


def load_pages(folder: Traversable | None = None) -> Mapping[str, Page]:
    """The files of a folder by their path below it; the talk page's when none is given."""
    pages: dict[str, Page] = {}
    _load(files("engine.transport").joinpath("web") if folder is None else folder, "", pages)
    return pages


def _load(folder: Traversable, prefix: str, pages: dict[str, Page]) -> None:
    for item in folder.iterdir():
        name = prefix + item.name
        if item.is_dir():
            _load(item, name + "/", pages)
            continue
        content_type = CONTENT_TYPES.get("." + item.name.rpartition(".")[2])
        if content_type is not None:
            body = item.read_bytes()
            pages[name] = Page(body, content_type, f'"{sha256(body).hexdigest()[:32]}"')


def is_known(etag: str, if_none_match: str) -> bool:
    """Whether a client that sent this If-None-Match has the page already."""
    candidates = [candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")]
    return etag in candidates or "*" in candidates


def page_headers(page: Page, host: str) -> dict[str, str]:
    """`host` is the Host that was asked: not every browser takes 'self' to cover the WebSockets of the same host."""
    sockets = f" ws://{host} wss://{host}" if _PLAIN_HOST.fullmatch(host) else ""
    policy = {
        "default-src": "'self'",
        "connect-src": "'self'" + sockets,
        "img-src": "'self' data:",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Type": page.content_type,
        "ETag": page.etag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
        "Referrer-Policy": "no-referrer",
    }
