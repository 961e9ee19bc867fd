"""Session capsules on pages of the server: the list of those that are kept here, and one of them on a time line.

A capsule holds a conversation, so its content is for admins alone. The pages themselves hold nothing, and anybody may have them: they
ask for the key once. A file that somebody has got elsewhere can be shown too (POST /capsules/view); nothing of it is kept.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import orjson
import trio
from pydantic import Field
from quart import Response, request
from quart_trio import QuartTrio

from engine.capsule.codec import CapsuleError
from engine.capsule.file import SUFFIX, Capsule, read_capsule
from engine.capsule.shelf import NoSuchCapsuleError, glances, open_capsule
from engine.capsule.timeline import timeline_of
from engine.config import CamelModel
from engine.errors import NotFoundError, RemoteError
from engine.identity.permissions import may_administer
from engine.principal import Principal
from engine.session.services import Services
from engine.transport.answers import JSON, json_response, refused
from engine.transport.asgi import Problem, Receive, Scope, Send, decoded
from engine.transport.body import ClientGoneError, RefusedError, RequestBody
from engine.transport.openapi import AFTER, LIMIT, Answer, Operation, Schema, path_parameter
from engine.transport.pages import Page, is_known, page_headers
from engine.transport.problems import problem_of
from engine.transport.requests import read_page_query, read_query, require_principal

logger = logging.getLogger(__name__)

T = TypeVar("T")

LIST = "/capsules"
VIEW = "/capsules/view"
VIEW_BYTES = 128 << 20
"""The largest file that is taken from a browser: twice what a server keeps of one session by itself."""
VIEW_SECONDS = 120.0
"""How long it may be on its way."""
OCTETS = "application/octet-stream"
_reader = trio.CapacityLimiter(1)
"""One capsule at once: reading one takes several times its size of memory."""
_looker = trio.CapacityLimiter(2)
NOT_RECORDING = (
    "This server keeps no capsules. Start it with `souffleur serve --record DIRECTORY`, and it keeps one of every session. "
    "A capsule you have as a file can be opened on the page /capsules."
)
NO_SUCH_CAPSULE = "There is no such capsule; the oldest are deleted when there is no room for new ones."


class CapsuleItem(CamelModel):
    name: str = Field(description="Of its file, and in its address.")
    session_id: str
    agent: str = Field(description="The key that was connected to, such as agent:barista.")
    began: str = Field(description='ISO 8601; "" when it is not known.')
    seconds: float
    bytes: int
    state: str = Field(
        description="whole; cut: it ends before its session did, or the session goes on; full: nothing more was kept; damaged."
    )
    reason: str = Field(description="Why the session ended, or why nothing more was kept.")
    redacted: bool = Field(description="Without words and sound.")


class CapsulePage(CamelModel):
    items: list[CapsuleItem]
    next: str | None = Field(description="What to pass as `after` for the next page; null on the last.")


_TIMELINE = Schema("Timeline", {"type": "object"})
_FILE = Schema("CapsuleFile", {"type": "string", "format": "binary"})
_NAME = path_parameter("name", f"The capsule's file, which ends in {SUFFIX}.")
OPERATIONS = (
    Operation(
        LIST,
        "The capsules that are kept here, newest first; for a browser a page that shows them",
        {200: Answer(CapsulePage)},
        parameters=(LIMIT, AFTER),
        refusals=(400, 401, 403, 404, 503),
        security="required",
        description="For admins. A request whose Accept names text/html gets the page, which holds nothing, without credentials.",
        tag="capsules",
    ),
    Operation(
        f"{LIST}/{{name}}",
        "The page that shows a capsule, and holds nothing of it",
        {200: Answer(media_type="text/html"), 304: Answer(None, headers=("ETag",))},
        parameters=(_NAME,),
        refusals=(403,),
        tag="capsules",
    ),
    Operation(
        f"{LIST}/{{name}}/timeline",
        "A capsule on one time line",
        {200: Answer(_TIMELINE)},
        parameters=(_NAME,),
        refusals=(400, 401, 403, 404, 422, 503),
        security="required",
        description="For admins.",
        tag="capsules",
    ),
    Operation(
        VIEW,
        "The page on which a capsule's file can be opened",
        {200: Answer(media_type="text/html"), 304: Answer(None, headers=("ETag",))},
        refusals=(403,),
        tag="capsules",
    ),
    Operation(
        VIEW,
        "The time line of a capsule that is sent along; nothing of it is kept",
        {200: Answer(_TIMELINE)},
        method="post",
        body=_FILE,
        body_type=OCTETS,
        refusals=(401, 403, 408, 413, 415, 422, 503),
        security="required",
        description="For admins.",
        tag="capsules",
    ),
)


def add_capsules(
    app: QuartTrio, services: Services, directory: Path | None, list_page: Page, page: Page
) -> Sequence[Operation]:
    """The routes but that of POST, which is `Viewing`'s. Returns the description of all."""
    routes = _Routes(services, directory, list_page, page)
    app.add_url_rule(LIST, "capsules", routes.read_list)
    app.add_url_rule(VIEW, "capsule viewing", routes.read_page)
    app.add_url_rule(f"{LIST}/<id:name>", "capsule page", routes.read_page)
    app.add_url_rule(f"{LIST}/<id:name>/timeline", "capsule timeline", routes.read_timeline)
    return OPERATIONS


@attrs.define(eq=False)
class _Routes:
    services: Services
    directory: Path | None
    list_page: Page
    page: Page

    async def read_list(self) -> Response:
        if any(named == "text/html" and quality > 0 for named, quality in request.accept_mimetypes):
            await trio.lowlevel.checkpoint()
            return _page(self.list_page)
        directory = await self._admitted()
        query = read_page_query()
        look = partial(glances, directory, after=query.after or "", limit=query.limit)
        found, following = await _in_thread(look, _looker)
        items = [CapsuleItem.model_validate(attrs.asdict(each)) for each in found]
        response = json_response(CapsulePage(items=items, next=following))
        response.headers["Vary"] = "Accept"
        return response

    async def read_page(self, name: str = "") -> Response:
        await trio.lowlevel.checkpoint()
        return _page(self.page)

    async def read_timeline(self, name: str) -> Response:
        directory = await self._admitted()
        read_query()
        document = await _in_thread(lambda: _document(open_capsule(directory, name)), _reader)
        return Response(document, content_type=JSON)

    async def _admitted(self) -> Path:
        """The directory, for an admin.

        Raises:
            RemoteError: UNAUTHORIZED or FORBIDDEN; NOT_FOUND where nothing is kept.
        """
        may_administer(await require_principal(self.services))
        if self.directory is None:
            raise NotFoundError(NOT_RECORDING)
        return self.directory


def _page(page: Page) -> Response:
    headers = {**page_headers(page, request.host), "Vary": "Accept"}
    if is_known(page.etag, request.headers.get("If-None-Match", "")):
        return Response(b"", 304, headers)
    return Response(page.body, 200, headers)


async def _in_thread(work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """What the disk has.

    Raises:
        NotFoundError
        RefusedError: the file is damaged, or cannot be read.
    """
    try:
        return await trio.to_thread.run_sync(work, limiter=limiter)
    except NoSuchCapsuleError:
        raise NotFoundError(NO_SUCH_CAPSULE) from None
    except CapsuleError as exc:
        raise refused(422, f"{exc} What cannot be read here can still be deleted, or sent on as it is.") from None
    except OSError as exc:
        logger.error("a capsule cannot be read: %s", exc.strerror)
        raise refused(503, "The server cannot read its directory of capsules; its log says why.") from None


def _document(capsule: Capsule) -> bytes:
    return orjson.dumps(timeline_of(capsule))


# --- a file that is sent -----------------------------------------------------------------------------------------------


def is_viewing(scope: Scope) -> bool:
    """Whether it is for `Viewing`: GET is for the page of that address."""
    return scope["path"] == VIEW and scope["method"] not in ("GET", "HEAD")


@attrs.define(eq=False)
class Viewing:
    """POST /capsules/view, as plain ASGI: nothing of the body is read before it is known who sends it."""

    services: Services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = RequestBody(receive, VIEW_BYTES, VIEW_SECONDS)
        headers = decoded(scope["headers"])
        try:
            if scope["method"] != "POST":
                raise RefusedError(Problem(405, "A capsule's file is sent by POST.", {"Allow": "GET, HEAD, POST"}))
            await self._admit(headers)
            data = await body.read(headers)
            document = await _in_thread(lambda: _document(_sent(data)), _reader)
        except RefusedError as error:
            await body.refuse(send, error.problem)
            return
        except RemoteError as error:
            await body.refuse(send, problem_of(error.code, error.message))
            return
        except ClientGoneError:
            return
        fixed = {"content-type": JSON, "content-length": str(len(document)), **SAFE}
        raw = [(name.encode(), value.encode()) for name, value in fixed.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await send({"type": "http.response.body", "body": document})

    async def _admit(self, headers: list[tuple[str, str]]) -> None:
        try:
            principal = await self.services.authenticator.authenticate(headers, ())
        except RemoteError as error:
            self.services.observer.refused(error.code.value)
            raise
        may_administer(principal or Principal(""))
        kind = dict(headers).get("content-type", "").partition(";")[0].strip().lower()
        if kind != OCTETS:
            raise RefusedError(Problem(415, f"The body has to be a capsule's file, as {OCTETS}."))


SAFE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def _sent(data: bytes) -> Capsule:
    """Read what was sent, by way of a file that only we can read and that is gone afterwards. Raises CapsuleError, OSError."""
    with tempfile.TemporaryDirectory(prefix="souffleur-capsule-") as directory:
        path = Path(directory) / f"sent{SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return read_capsule(path)
