"""The application: one small dispatcher with the WebSocket doors beside the HTTP routes.

The WebSocket paths are plain ASGI and not routes of the web framework, which cancels a handler the moment its client closes
and loses what was still queued: a client that says `#exit` and leaves would not be heard.
"""

import logging
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import attrs

from engine.errors import ErrorCode, RemoteError
from engine.pipeline.line import ClientLine, open_line
from engine.protocol.admission import NoPlaceError
from engine.protocol.parameters import parse_configuration
from engine.session.chat_event import run_chat_event
from engine.session.services import Services
from engine.session.windowing import run_connection
from engine.transport.asgi import AsgiApp, Problem, Receive, Scope, Send, decoded, refuse
from engine.transport.auth import busy, identify, offered_token
from engine.transport.capsules import Viewing, is_viewing
from engine.transport.guard import Guard
from engine.transport.http import Readiness, create_http_app
from engine.transport.metrics import Metrics
from engine.transport.pipeline_http import PipelineDoors, RunTurn, TakeChatEvent, call_of, run_turn
from engine.transport.problems import problem_of
from engine.transport.websocket import NORMAL, AsgiSocket, Door, RunConnection

logger = logging.getLogger(__name__)

PIPELINE = "/api/pipeline"


def create_app(
    services: Services,
    *,
    run: RunConnection = run_connection,
    turn: RunTurn = run_turn,
    chat_event: TakeChatEvent = run_chat_event,
    readiness: Readiness | None = None,
    metrics: Metrics | None = None,
    allowed_hosts: Collection[str] = (),
    allowed_origins: Collection[str] = (),
    capsules_directory: Path | None = None,
) -> "App":
    """The ASGI application of one process.

    `readiness` tells of parts beside the store. `allowed_hosts` and `allowed_origins` are what a deployment behind a proxy, or
    with pages of its own, adds to the names and origins that are let in. `capsules_directory` is where sessions are recorded, to be
    looked at; None when they are not.
    """
    http = create_http_app(services, readiness, metrics, capsules_directory)
    guard = Guard({host.lower() for host in allowed_hosts}, {origin.lower() for origin in allowed_origins})
    doors = PipelineDoors(services, turn, chat_event)
    # The types of the framework for the same dicts are narrower.
    return App(services, run, doors, cast("AsgiApp", http), guard, metrics, Viewing(services))


@attrs.define(eq=False)
class App:
    """Lets in who may come in, and sends each to the right door."""

    services: Services
    run: RunConnection
    pipelines: PipelineDoors
    http: AsgiApp
    guard: Guard
    metrics: Metrics | None
    viewing: Viewing

    @property
    def connections(self) -> int:
        """WebSocket clients that are let in now."""
        return self.services.admission.taken

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        problem = self.guard.check(scope)
        if problem is not None:
            await refuse(scope, send, problem)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif (call := call_of(_raw_path(scope))) is not None:
            await self.pipelines(call, scope, receive, send)
        elif is_viewing(scope):
            await self.viewing(scope, receive, send)
        else:
            await self.http(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = pipeline_key(_raw_path(scope))
        if key is None:
            await refuse(scope, send, Problem(404, "There is no WebSocket at this path."))
            return
        admission = self.services.admission
        try:
            admission.take()
        except NoPlaceError as error:
            self.services.observer.refused(ErrorCode.TOO_BUSY.value)
            await refuse(scope, send, busy(error.refusal))
            return
        try:
            await self._converse(scope, receive, send, key)
        finally:
            admission.give_back()

    async def _converse(self, scope: Scope, receive: Receive, send: Send, key: str) -> None:
        headers, offered = decoded(scope["headers"]), scope["subprotocols"]
        asked = parse_configuration(scope["query_string"].decode("latin-1"), headers, key=key)
        try:
            principal, configuration = await identify(headers, offered, asked, self.services)
        except RemoteError as error:
            self.services.observer.refused(error.code.value)
            await refuse(scope, send, problem_of(error.code, error.message))
            return
        await receive()  # websocket.connect
        await send({"type": "websocket.accept", "subprotocol": offered_token(offered)})
        line = open_line(configuration, self.services.settings)
        door = Door(AsgiSocket(receive, send), configuration, line, self.services.settings)
        with self._watching(line):
            end = await door.run(partial(self.run, configuration, line, self.services, principal=principal))
        level = logging.DEBUG if end.code == NORMAL else logging.INFO
        logger.log(level, "a connection ended with %d: %s", end.code, end.reason)

    def _watching(self, line: ClientLine) -> AbstractContextManager[None]:
        if self.metrics is None:
            return nullcontext()
        return self.metrics.watching_line(lambda: (len(line.outbox), line.outbox.unsent_speech_ms / 1000))


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing of the application has to be started: what it needs was made before it."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


def _raw_path(scope: Scope) -> bytes:
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw_path


def pipeline_key(raw_path: bytes) -> str | None:
    """The key of a pipeline's path, "" when it names none; None for any other path."""
    path = raw_path.decode("latin-1").partition("?")[0]
    if path in (PIPELINE, PIPELINE + "/"):
        return ""
    return unquote(path.removeprefix(PIPELINE + "/")) if path.startswith(PIPELINE + "/") else None
