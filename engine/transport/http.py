"""The HTTP routes (protocol page, section 3): who can be talked to, how the server is, and the talk page."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import trio
from pydantic import Field
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from engine.config import CamelModel
from engine.errors import ErrorCode, RemoteError
from engine.session.services import Services
from engine.store.contract import StoreError
from engine.transport import agents, asyncapi, sessions
from engine.transport.answers import inline, json_response, problem_response
from engine.transport.asgi import Problem
from engine.transport.body import DRAIN_SECONDS, RefusedError
from engine.transport.capsules import add_capsules
from engine.transport.management.routes import add_management
from engine.transport.metrics import Metrics, add_metrics
from engine.transport.openapi import Answer, Operation, Schema, describe
from engine.transport.pages import Page, is_known, load_pages, page_headers
from engine.transport.pipeline_http import OPERATIONS as PIPELINE_OPERATIONS
from engine.transport.problems import problem_of
from engine.transport.requests import IdConverter, routed_path

logger = logging.getLogger(__name__)

BODY_BYTES = 1 << 20
"""The largest request body: what may come over the WebSocket in one frame."""
BODY_SECONDS = 10.0
"""How long a body may be on its way: 1 MiB over a slow line."""
CHECK_SECONDS = 5.0
"""The longest a readiness check may take; an orchestrator asks again soon enough."""

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""The parts of the process by name: why one is not ready, or "" when it is."""


class Health(CamelModel):
    status: str


class ReadinessReport(CamelModel):
    status: str = Field(description='"ready" or "not ready"')
    parts: dict[str, str] = Field(description='Each part by name: "ready", or why it is not.')


_DOCUMENT = Schema("Document", {"type": "object"})
OPERATIONS = (
    Operation("/healthz", "Whether the process runs", {200: Answer(Health)}, refusals=(403,)),
    Operation(
        "/readyz",
        "Whether the store and the parts are ready",
        {200: Answer(ReadinessReport), 503: Answer(ReadinessReport)},
        refusals=(403,),
    ),
    Operation("/openapi.json", "This document", {200: Answer(_DOCUMENT)}, refusals=(403,)),
    Operation("/asyncapi.json", "The WebSocket's messages, as AsyncAPI", {200: Answer(_DOCUMENT)}, refusals=(403,)),
    Operation("/", "The talk page", {200: Answer(media_type="text/html"), 304: Answer()}, refusals=(403,)),
)


class HttpApp(QuartTrio):
    """The web framework's application, given paths in which an id keeps its slashes.

    An answer may come before all of the request's body has: to somebody who may not send it, or as it is too large. Its last event
    waits for the rest, for a while, so that the connection can be used again; one that is closed with something unread is
    reset, and the answer may be lost with it.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        arrived = trio.Event()

        async def receive_noting() -> Any:
            event = await receive()
            if not event.get("more_body", False):  # the end of the body, or of the connection
                arrived.set()
            return event

        async def send_last_late(event: Any) -> None:
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                with trio.move_on_after(DRAIN_SECONDS):
                    await arrived.wait()
            await send(event)

        routed: Any = {**scope, "path": routed_path(scope)}
        await super().__call__(routed, receive_noting, send_last_late)


def create_http_app(
    services: Services,
    readiness: Readiness | None,
    metrics: Metrics | None = None,
    capsules_directory: Path | None = None,
) -> QuartTrio:
    pages = load_pages()
    app = HttpApp(__name__, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES
    app.config["BODY_TIMEOUT"] = BODY_SECONDS
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.url_map.converters["id"] = IdConverter
    app.register_error_handler(HTTPException, inline(_refused))
    app.register_error_handler(RefusedError, inline(_problem))
    app.register_error_handler(RemoteError, inline(_remote))
    app.register_error_handler(StoreError, inline(_store_failed))
    app.register_error_handler(Exception, inline(_failed))
    app.after_request(inline(_harden))
    operations = [*OPERATIONS, *PIPELINE_OPERATIONS]
    operations += agents.add_agents(app, services)
    operations += sessions.add_sessions(app, services)
    if services.documents is not None:
        operations += add_management(app, services, services.documents)
    operations += add_capsules(app, services, capsules_directory, pages["capsules.html"], pages["capsule.html"])
    if metrics is not None:
        operations.append(add_metrics(app, services, metrics))
    app.add_url_rule("/healthz", "healthz", inline(_healthz))
    app.add_url_rule("/readyz", "readyz", partial(_readyz, services, readiness))
    app.add_url_rule("/openapi.json", "openapi", inline(partial(_document, orjson.dumps(describe(operations)))))
    app.add_url_rule("/asyncapi.json", "asyncapi", inline(partial(_document, asyncapi.document())))
    for name, page in pages.items():
        app.add_url_rule(f"/{name}", f"page {name}", inline(partial(_page, page)))
        if name == "index.html":
            app.add_url_rule("/", "talk", inline(partial(_page, page)))
    return app


def _problem(error: RefusedError) -> Response:
    return problem_response(error.problem)


def _refused(error: HTTPException) -> Response:
    return problem_response(Problem(error.code or 500, error.description or "", _allowed(error)))


def _allowed(error: HTTPException) -> dict[str, str]:
    return {name: value for name, value in error.get_headers() if name.lower() in ("allow", "retry-after")}


def _remote(error: RemoteError) -> Response:
    return problem_response(problem_of(error.code, error.message))


def _store_failed(error: StoreError) -> Response:
    logger.warning("a request failed: %s", error)
    return problem_response(problem_of(ErrorCode.TOO_BUSY, "The store cannot be reached now; try again shortly."))


def _failed(error: Exception) -> Response:  # the fence: a fault in one request is answered and logged, once
    logger.error("a request failed", exc_info=error)
    return problem_response(Problem(500, "Something went wrong on our side."))


def _harden(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _healthz() -> Response:
    return json_response(Health(status="ok"))


async def _readyz(services: Services, readiness: Readiness | None) -> Response:
    parts = {"store": await _store_trouble(services)}
    if readiness is not None:
        parts |= await readiness()
    ready = not any(parts.values())
    shown = {name: trouble or "ready" for name, trouble in parts.items()}
    report = ReadinessReport(status="ready" if ready else "not ready", parts=shown)
    return json_response(report, 200 if ready else 503)


async def _store_trouble(services: Services) -> str:
    with trio.move_on_after(CHECK_SECONDS):
        try:
            await services.store.check()
        except StoreError:
            logger.warning("the store is not ready", exc_info=True)
            return "cannot be reached or written"
        return ""
    return f"did not answer in {CHECK_SECONDS:g} s"


def _document(document: bytes) -> Response:
    return Response(document, content_type="application/json")


def _page(page: Page) -> Response:
    headers = page_headers(page, request.host)
    if is_known(page.etag, request.headers.get("If-None-Match", "")):
        return Response(b"", 304, headers)
    return Response(page.body, 200, headers)
