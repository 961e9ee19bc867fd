"""The HTTP routes (protocol page, section 3): who can be talked to, how the server is, and the talk page."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import orjson
import trio
from pydantic import Field
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from engine.config import CamelModel
from engine.session.services import Services
from engine.store.contract import StoreError
from engine.transport import asyncapi
from engine.transport.answers import RefusedError, inline, json_response, problem_response
from engine.transport.asgi import Problem
from engine.transport.openapi import Answer, Operation, Parameter, describe
from engine.transport.pages import Page, is_known, load_pages, page_headers
from engine.transport.pipeline_http import OPERATIONS as PIPELINE_OPERATIONS

logger = logging.getLogger(__name__)

PAGE_LIMIT = 1000
"""The most items in one answer; also the default, as a list of agents is short."""
BODY_BYTES = 1 << 20
"""The largest request body: what may come over the WebSocket in one frame."""
CHECK_SECONDS = 5.0
"""The longest a readiness check may take; an orchestrator asks again soon enough."""

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""The parts of the process by name: why one is not ready, or "" when it is."""


class AgentItem(CamelModel):
    ref: str
    name: str


class AgentPage(CamelModel):
    items: list[AgentItem]
    next: str | None = Field(description="What to pass as `after` for the next page; null on the last.")


class Health(CamelModel):
    status: str


class ReadinessReport(CamelModel):
    status: str = Field(description='"ready" or "not ready"')
    parts: dict[str, str] = Field(description='Each part by name: "ready", or why it is not.')


OPERATIONS = (
    Operation(
        "/api/agents",
        "Published agents of public projects",
        {200: Answer(AgentPage)},
        parameters=(
            Parameter("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_LIMIT, "default": PAGE_LIMIT}),
            Parameter("after", {"type": "string"}),
        ),
        refusals=(400,),
    ),
    Operation("/healthz", "Whether the process runs", {200: Answer(Health)}),
    Operation(
        "/readyz",
        "Whether the store and the parts are ready",
        {200: Answer(ReadinessReport), 503: Answer(ReadinessReport)},
    ),
)


def create_http_app(services: Services, readiness: Readiness | None) -> QuartTrio:
    app = QuartTrio(__name__, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES
    app.register_error_handler(HTTPException, inline(_refused))
    app.register_error_handler(RefusedError, inline(_problem))
    app.register_error_handler(Exception, inline(_failed))
    app.after_request(inline(_harden))
    app.add_url_rule("/api/agents", "agents", partial(_agents, services))
    app.add_url_rule("/healthz", "healthz", inline(_healthz))
    app.add_url_rule("/readyz", "readyz", partial(_readyz, services, readiness))
    document = orjson.dumps(describe((*OPERATIONS, *PIPELINE_OPERATIONS)))
    app.add_url_rule("/openapi.json", "openapi", inline(partial(_document, document)))
    app.add_url_rule("/asyncapi.json", "asyncapi", inline(partial(_document, asyncapi.document())))
    for name, page in load_pages().items():
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


def _failed(error: Exception) -> Response:  # the fence: a fault in one request is answered and logged, once
    logger.error("a request failed", exc_info=error)
    return problem_response(Problem(500, "Something went wrong on our side."))


def _harden(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    return response


async def _agents(services: Services) -> Response:
    limit = request.args.get("limit", str(PAGE_LIMIT))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= PAGE_LIMIT):
        return problem_response(Problem(400, f"limit has to be a whole number from 1 to {PAGE_LIMIT}."))
    agents = list(await services.catalog.published_agents())
    start, after = 0, request.args.get("after")
    if after is not None:
        refs = [agent.ref for agent in agents]
        if after not in refs:
            return problem_response(Problem(400, "after has to be the next of an earlier answer."))
        start = refs.index(after) + 1
    end = start + int(limit)
    shown = [AgentItem(ref=agent.ref, name=agent.name) for agent in agents[start:end]]
    return json_response(AgentPage(items=shown, next=shown[-1].ref if end < len(agents) else None))


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
