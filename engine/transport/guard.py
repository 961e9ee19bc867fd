"""Who may knock: web pages of other origins may not, and neither may a name that was bent to a loopback address.

A browser sends the cookies and reaches the addresses of the computer it runs on, whatever page it shows. So requests that
change something and WebSocket upgrades are refused when they come from another origin; and a server that listens on loopback
answers only to loopback names, because a page whose own name was made to resolve to 127.0.0.1 counts as same-origin there
(DNS rebinding). Programs that are no browsers send no Origin and are not concerned.
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

import attrs

from engine.transport.asgi import Problem, Scope, decoded

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_STATE = "souffleur.loopback"
"""Key in the ASGI state by which our server says that it listens on loopback only."""
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without port, can only mean this computer."""
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _authority(text: str) -> tuple[str, int | None] | None:
    """Host and port of a Host header; None when it is none."""
    try:
        parts = urlsplit("//" + text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.netloc != text or "@" in text:
        return None
    return host, port


@attrs.frozen
class Guard:
    """`allowed_hosts` and `allowed_origins` are what an operator adds: a reverse proxy's name, a web application elsewhere."""

    allowed_hosts: Collection[str] = ()
    """Host names without port that a loopback server answers to besides loopback names."""
    allowed_origins: Collection[str] = ()
    """Origins such as https://app.example.com that may do what a page of our own may."""

    def check(self, scope: Scope) -> Problem | None:
        """Why the request may not go on; None when it may."""
        headers = dict(decoded(scope["headers"]))
        authority = _authority(headers.get("host", ""))
        if scope.get("state", {}).get(LOOPBACK_STATE) and not self._is_own_name(authority):
            return Problem(403, "This server listens on loopback and answers only to loopback names and allowed hosts.")
        is_safe = scope["type"] == "http" and scope["method"] in SAFE_METHODS
        origin = headers.get("origin")
        if is_safe or origin is None or origin in self.allowed_origins or _is_same(origin, authority):
            return None
        return Problem(403, "Requests from pages of another origin are refused.")

    def _is_own_name(self, authority: tuple[str, int | None] | None) -> bool:
        return authority is not None and (is_loopback(authority[0]) or authority[0] in self.allowed_hosts)


def _is_same(origin: str, authority: tuple[str, int | None] | None) -> bool:
    """Whether an Origin names the host that was asked. The scheme is not compared: a proxy may have taken TLS off."""
    scheme, separator, rest = origin.partition("://")
    theirs = _authority(rest)
    default = _DEFAULT_PORTS.get(scheme)
    if not separator or theirs is None or authority is None or default is None:
        return False  # "null" and the schemes of extensions and files are no origin of ours
    return theirs[0] == authority[0] and (theirs[1] or default) == (authority[1] or default)
