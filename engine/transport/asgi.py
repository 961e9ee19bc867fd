"""The small part of ASGI that the doors speak, and answers that are no pages: problem documents (RFC 9457)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

import attrs
import orjson

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
RawHeaders = Iterable[tuple[bytes, bytes]]

PROBLEM_TYPE = "application/problem+json"

FAULT = "websocket.fault"
"""An event of our own server: the client sent what no message can be made of. Fields `code` (the close code that says so) and
`reason`. The application may still send, and closes. A server that lacks it closes by itself."""


@attrs.frozen
class Problem:
    """Why a request was refused."""

    status: int
    detail: str
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    more: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    """Members of the document beside the usual ones."""

    def document(self) -> bytes:
        title = HTTPStatus(self.status).phrase
        usual = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return orjson.dumps({**usual, **self.more})

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        fixed = {"content-type": PROBLEM_TYPE, "cache-control": "no-store", "x-content-type-options": "nosniff"}
        return [(name.encode(), value.encode()) for name, value in {**fixed, **self.headers}.items()]


def decoded(headers: RawHeaders) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


async def refuse(scope: Scope, send: Send, problem: Problem) -> None:
    """Answer a request, or a WebSocket's handshake, with a problem document."""
    body = problem.document()
    headers = [*problem.raw_headers(), (b"content-length", str(len(body)).encode())]
    prefix = "websocket.http" if scope["type"] == "websocket" else "http"
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": problem.detail})  # a server turns it into a 403
        return
    await send({"type": f"{prefix}.response.start", "status": problem.status, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": body})
