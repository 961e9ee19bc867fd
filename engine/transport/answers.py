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

from engine.errors import ErrorCode, RemoteError
from engine.principal import UnauthorizedError
from engine.transport.asgi import Problem
from engine.transport.auth import CHALLENGE
from engine.transport.pages import is_known

P = ParamSpec("P")
T = TypeVar("T")

JSON = "application/json"
RETRY_AFTER_SECONDS = 5
"""When a store that failed is worth asking again."""

_TAGS = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


class RefusedError(Exception):
    """A request that is answered with a problem document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


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


def unavailable(detail: str) -> Problem:
    return Problem(503, detail, {"Retry-After": str(RETRY_AFTER_SECONDS)})


def problem_of(error: RemoteError) -> Problem:
    """How a rule's verdict is said over HTTP."""
    if isinstance(error, UnauthorizedError):
        return Problem(401, error.message, CHALLENGE)
    match error.code:
        case ErrorCode.FORBIDDEN:
            return Problem(403, error.message)
        case ErrorCode.NOT_FOUND:
            return Problem(404, error.message)
        case _:
            return unavailable(error.message)


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
