"""What the HTTP routes answer with: JSON, problem documents (RFC 9457), and entity tags."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import orjson
import trio
from pydantic import BaseModel
from quart import Response, request

from engine.transport.asgi import Problem
from engine.transport.body import RefusedError
from engine.transport.pages import is_known

P = ParamSpec("P")
T = TypeVar("T")

JSON = "application/json"
_TAGS = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


def refused(status: int, detail: str, **more: Any) -> RefusedError:
    """`more` are members of the problem document beside the usual ones."""
    return RefusedError(Problem(status, detail, more=more))


def inline(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """For handlers that only look something up: Quart would run a plain function in a thread."""

    @wraps(function)
    async def handler(*args: P.args, **kwargs: P.kwargs) -> T:
        await trio.lowlevel.checkpoint()
        return function(*args, **kwargs)

    return handler


def json_bytes(document: Any) -> bytes:
    """camelCase for our own models, and as it is for what is JSON already."""
    if isinstance(document, BaseModel):
        return document.model_dump_json(by_alias=True).encode()
    return orjson.dumps(document)


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(document), status, dict(headers or {}), content_type=JSON)


def read_response(document: Any) -> Response:
    """The answer to a GET: with its entity tag, and without a body for a client that has it already."""
    body = json_bytes(document)
    headers = {"ETag": tag_of(body)}
    if is_known(headers["ETag"], request.headers.get("If-None-Match", "")):
        return Response(b"", 304, headers)
    return Response(body, 200, headers, content_type=JSON)


def problem_response(problem: Problem) -> Response:
    headers = {name.decode(): value.decode() for name, value in problem.raw_headers()}
    return Response(problem.document(), problem.status, headers)


# --- entity tags -----------------------------------------------------------------------------------------------------


def tag_of(body: bytes) -> str:
    """The strong entity tag of a representation. Made of its content, so one that was deleted and made anew has another, and
    what a project file holds has one too."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def matches(if_match: str, tag: str | None) -> bool:
    """Whether an `If-Match` holds for what has that entity tag, None for what does not exist. Weak tags never match."""
    if tag is None:
        return False
    return if_match.strip() == "*" or tag in _TAGS.findall(if_match)
