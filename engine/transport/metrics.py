"""`/metrics`: what Prometheus reads, from this computer or with an admin's credentials (protocol page, section 3)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, cast

from quart import Response, request
from quart_trio import QuartTrio

from engine.identity.permissions import may_administer
from engine.principal import Principal
from engine.session.services import Services
from engine.transport.asgi import Scope, decoded
from engine.transport.guard import is_loopback
from engine.transport.openapi import Answer, Operation
from engine.transport.requests import read_principal

FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"})
"""What a proxy adds: a request that came through one is from somewhere else, though its last step was on this computer."""

OPERATION = Operation(
    "/metrics",
    "What is measured, of all workers together, in Prometheus's text format",
    {200: Answer(media_type="text/plain")},
    refusals=(401, 403, 503),
    security="optional",
    description="Open to programs on the same computer that do not come through a proxy; else an admin's credentials are needed.",
)


class Metrics(Protocol):
    """What the transport needs of the process's metrics."""

    async def exposition(self) -> tuple[bytes, str]:
        """The text, and its content type."""
        ...

    def watching_line(self, read: Callable[[], tuple[int, float]]) -> AbstractContextManager[None]:
        """A connection: its unsent elements, and seconds of unsent speech, are asked for as long as the context is open."""
        ...


def add_metrics(app: QuartTrio, services: Services, metrics: Metrics) -> Operation:
    app.add_url_rule("/metrics", "metrics", partial(_metrics, services, metrics))
    return OPERATION


async def _metrics(services: Services, metrics: Metrics) -> Response:
    principal = await read_principal(services)
    if principal is not None or not _is_local():
        may_administer(principal or Principal(""))
    body, content_type = await metrics.exposition()
    return Response(body, content_type=content_type)


def _is_local() -> bool:
    scope = cast("Scope", request.scope)
    client = scope.get("client")
    names = {name for name, _ in decoded(scope["headers"])}
    return client is not None and is_loopback(client[0]) and not names & FORWARDED
