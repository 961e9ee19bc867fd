"""The HTTP doors of a pipeline: one turn, or one event, for a session (protocol page, section 3).

Plain ASGI, as the WebSocket's door is. The answer to a turn is a stream that lasts as long as the turn; meanwhile somebody has to
watch whether its client is still there, and a web framework that has handed out its response does not.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, cast
from urllib.parse import unquote

import attrs
import trio
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from engine.config import PipelineConfiguration
from engine.elements import InputElement, JsonObject, OutError
from engine.errors import ErrorCode, RemoteError, Whose
from engine.pipeline.line import ClientLine, open_line
from engine.principal import Principal
from engine.protocol.admission import NoPlaceError
from engine.protocol.http_turn import TurnAnswer, UnreadableBodyError, read_array, read_lines
from engine.protocol.outbox import OutboxFullError
from engine.protocol.parameters import PARAMETERS, parse_configuration
from engine.protocol.wire import WireEncoder
from engine.session.chat_event import run_chat_event
from engine.session.live import Cut, LiveSession
from engine.session.run import SessionMode, run_session
from engine.session.services import Services
from engine.session.start import SessionEnd
from engine.transport.asgi import Event, Problem, Receive, Scope, Send, decoded
from engine.transport.asyncapi import wishes
from engine.transport.auth import busy, identify
from engine.transport.body import ClientGoneError, RefusedError, RequestBody
from engine.transport.json_body import BadJsonError, read_json
from engine.transport.messages import InputMessage, InputMessages, OutputMessage
from engine.transport.openapi import Answer, Operation, Parameter, Schema, path_parameter
from engine.transport.problems import problem_of
from engine.transport.websocket import ALLOWANCE_BYTES
from engine.transport.wire_model import Message, without_default

logger = logging.getLogger(__name__)

PREFIX, TURN = "/api/pipeline/", "/turn"
NDJSON, JSON = "application/x-ndjson", "application/json"

BODY_BYTES = 1 << 20
"""The largest body of a call; longer audio belongs on the WebSocket."""
READERS: Mapping[str, Callable[[bytes], list[InputElement]]] = {NDJSON: read_lines, JSON: read_array}
"""What a turn's input may be written in."""

FAULT = "Something went wrong on our side."

Headers = list[tuple[str, str]]


class RunTurn(Protocol):
    """`run_turn`, and what tests put in its place."""

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> SessionEnd: ...


class TakeChatEvent(Protocol):
    """`run_chat_event`, and what tests put in its place."""

    async def __call__(
        self, configuration: PipelineConfiguration, event: JsonObject, services: Services, *, principal: Principal
    ) -> str: ...


async def run_turn(
    configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
) -> SessionEnd:
    """One turn of a session, which is then left IDLE.

    The input of such a session ends before its answer has begun, so what bounds the time from there to the end is the turn's limit.
    """
    seconds = services.settings.http_turn_seconds
    settings = services.settings.model_copy(update={"session_end_timeout_seconds": seconds})
    services = attrs.evolve(services, settings=settings)
    return await run_session(configuration, line, services, principal=principal, mode=SessionMode.SINGLE_TURN)


class ChatEventAccepted(Message):
    session_id: str
    device_ref: str | SkipJsonSchema[None] = Field(default=None, json_schema_extra=without_default)
    """Who the client is from now on, when it had not said: a secret, like the one in `ready`. Else absent."""


@attrs.frozen
class Call:
    """What a path asks for."""

    key: str
    is_turn: bool


def call_of(raw_path: bytes) -> Call | None:
    """None when the path is not one of these doors."""
    path = raw_path.decode("latin-1").partition("?")[0]
    if not path.startswith(PREFIX):
        return None
    key = path.removeprefix(PREFIX)
    is_turn = key.endswith(TURN)
    key = unquote(key.removesuffix(TURN))
    return Call(key, is_turn) if key else None


@attrs.frozen
class Caller:
    """Who calls, and with which wishes."""

    principal: Principal
    configuration: PipelineConfiguration
    made_up_device: str = ""
    """The device it is from now on; "" when it had said who it is."""


@attrs.frozen
class PipelineDoors:
    """Answers the calls to pipelines."""

    services: Services
    turn: RunTurn = run_turn
    chat_event: TakeChatEvent = run_chat_event

    async def __call__(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        body = RequestBody(receive, BODY_BYTES, self.services.settings.http_body_seconds)
        headers = decoded(scope["headers"])
        try:
            try:
                await (self._turn if call.is_turn else self._event)(call, scope, headers, body, send)
            except NoPlaceError as error:
                raise RefusedError(busy(error.refusal)) from None
            except RemoteError as error:
                raise RefusedError(problem_of(error.code, error.message)) from None
        except RefusedError as refused:
            self.services.observer.refused(str(refused.problem.status))
            await body.refuse(send, refused.problem)
        except ClientGoneError:
            logger.debug("a client left before its call was there")

    async def _turn(self, call: Call, scope: Scope, headers: Headers, body: RequestBody, send: Send) -> None:
        read = READERS[_media_type(scope, headers, READERS)]
        caller = await self._identify(call, scope, headers)
        try:
            elements = read(await body.read(headers))
        except UnreadableBodyError as error:
            raise RefusedError(Problem(422, str(error))) from None
        with self.services.admission.enter():
            door = TurnDoor(body.receive, send, self._for_turn(caller.configuration), self.services)
            run = partial(self.turn, door.configuration, door.line, self.services, principal=caller.principal)
            await door.run(elements, run)

    def _for_turn(self, asked: PipelineConfiguration) -> PipelineConfiguration:
        warnings = asked.warnings
        if asked.wire != "json":
            warnings = (*warnings, "wire is ignored: the answer to a turn over HTTP is JSON.")
        session_id = asked.session_id or self.services.environment.new_id("session")
        return attrs.evolve(asked, wire="json", warnings=warnings, session_id=session_id)

    async def _event(self, call: Call, scope: Scope, headers: Headers, body: RequestBody, send: Send) -> None:
        _media_type(scope, headers, (JSON,))
        caller = await self._identify(call, scope, headers)
        event = _read_event(await body.read(headers))
        try:
            with self.services.admission.enter():
                session_id = await self.chat_event(
                    caller.configuration, event, self.services, principal=caller.principal
                )
        except (RemoteError, NoPlaceError):
            raise
        except Exception:  # the fence: a fault in one call is answered and logged, once
            logger.exception("a chat event failed")
            raise RefusedError(problem_of(ErrorCode.INTERNAL, FAULT)) from None
        accepted = ChatEventAccepted(session_id=session_id, device_ref=caller.made_up_device or None)
        document = accepted.model_dump_json(by_alias=True, exclude_none=True).encode()
        await send({"type": "http.response.start", "status": 202, "headers": _headers(JSON, len(document))})
        await send({"type": "http.response.body", "body": document})

    async def _identify(self, call: Call, scope: Scope, headers: Headers) -> Caller:
        """Who it is; before anything is read of what they send."""
        query = scope["query_string"].decode("latin-1")
        asked = parse_configuration(query, headers, key=call.key)
        principal, configuration = await identify(headers, (), asked, self.services)
        is_made_up = configuration.device_ref != asked.device_ref
        return Caller(principal, configuration, configuration.device_ref if is_made_up else "")


def _media_type(scope: Scope, headers: Headers, accepted: Iterable[str]) -> str:
    """What the body is said to be, when it is something that can be read here."""
    if scope["method"] != "POST":
        raise RefusedError(Problem(405, "Calls to a pipeline are made with POST.", {"Allow": "POST"}))
    fields = dict(headers)
    media_type = fields.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in accepted:
        raise RefusedError(Problem(415, f"The Content-Type has to be {' or '.join(accepted)}."))
    if fields.get("content-encoding", "identity").strip().lower() != "identity":
        raise RefusedError(Problem(415, "A body with a Content-Encoding is not read here."))
    return media_type


def _headers(media_type: str, length: int | None = None) -> list[tuple[bytes, bytes]]:
    """Of an answer; without a length it is a stream, which no proxy may collect before it hands it on."""
    last = ("x-accel-buffering", "no") if length is None else ("content-length", str(length))
    fields = (("content-type", media_type), ("cache-control", "no-store"), ("x-content-type-options", "nosniff"), last)
    return [(name.encode(), value.encode()) for name, value in fields]


def _read_event(body: bytes) -> JsonObject:
    try:
        event = read_json(body)
    except BadJsonError as error:
        raise RefusedError(Problem(422, str(error))) from None
    if not isinstance(event, dict):
        raise RefusedError(Problem(422, "The body has to be a JSON object: the event."))
    return cast("JsonObject", event)


@attrs.define(eq=False)
class TurnDoor:
    """The tasks of one call for a turn: its input goes in, what the session says goes out, and somebody watches the client.

    The session is inside one cancel scope. Whatever ends a call early ends that scope, so that the session is saved as it is saved
    when a client vanishes: the client has left, or takes nothing. The turn's limit is no such end: the session is told, and tells.
    """

    receive: Receive
    send: Send
    configuration: PipelineConfiguration
    services: Services
    line: ClientLine = attrs.field(init=False)
    _answer: TurnAnswer = attrs.field(factory=TurnAnswer, init=False)
    _session: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _writing: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _live: LiveSession | None = attrs.field(default=None, init=False)
    """The session, once it runs."""
    _latest: float = attrs.field(init=False)
    """When all of it is over, whoever takes how long."""
    _written: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.services.settings
        self.line = open_line(self.configuration, settings)
        bound = settings.http_turn_seconds + settings.cleanup_seconds + settings.slow_client_seconds
        self._latest = self._session.deadline = self._writing.deadline = trio.current_time() + bound

    async def run(self, elements: Iterable[InputElement], converse: Callable[[], Awaitable[SessionEnd]]) -> None:
        """Answer the call. Nothing of it is left afterwards.

        Raises:
            RefusedError: the session did not begin. Nothing has been streamed, so a status can still say why.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_client, name="client watch")
            nursery.start_soon(self._hand_in, elements, name="turn input")
            nursery.start_soon(self._write, name="turn answer")
            nursery.start_soon(self._limit, name="turn limit")
            await self._converse(converse)
            await self._written.wait()
            nursery.cancel_scope.cancel(reason="the call was answered")
        if not self._answer.has_begun and not self._writing.cancel_called:
            refusal = self._answer.refusal
            raise RefusedError(problem_of(*(refusal.code, refusal.message) if refusal else (ErrorCode.INTERNAL, FAULT)))

    async def _converse(self, converse: Callable[[], Awaitable[SessionEnd]]) -> None:
        try:
            with self._session:
                await converse()
        except Exception:  # the fence: nothing that a session raises goes beyond its call
            logger.exception("a turn failed")
            self._tell(ErrorCode.INTERNAL, FAULT)
        self.line.end_output()

    async def _hand_in(self, elements: Iterable[InputElement]) -> None:
        for element in elements:
            await self.line.put_input(element)
        self.line.end_input()

    async def _watch_client(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self._writing.cancel(reason="the client has left")
        if not self._answer.is_told:  # else the session is being saved, which its client did not wait for
            self._session.cancel(reason="the client has vanished")

    async def _limit(self) -> None:
        """End a turn that takes too long, and tell."""
        seconds = self.services.settings.http_turn_seconds
        await trio.sleep(seconds)
        message = f"The turn was not over in {seconds:g} s and was ended."
        if self._live is not None:
            error = RemoteError(ErrorCode.SESSION_LIMIT, message, whose=Whose.SERVER)
            self._live.end(Cut("the turn took too long", error))
        else:  # it has not even begun
            self._tell(ErrorCode.SESSION_LIMIT, message)
            self._session.cancel(reason="the turn took too long")

    def _tell(self, code: ErrorCode, message: str) -> None:
        try:
            self.line.put_output(OutError(code, message, recoverable=False, whose=Whose.SERVER))
        except OutboxFullError:
            logger.debug("no room to say %s", code)

    # the answer

    async def _write(self) -> None:
        with self._writing:
            await self._stream()
        self._written.set()

    async def _stream(self) -> None:
        encoder = WireEncoder("json", self.configuration.output_encoding)
        while (element := await self.line.take_output()) is not None:
            is_first = not self._answer.has_begun
            if not self._answer.passes(element):
                continue
            if is_first:
                self._live = self.services.live.find(self.configuration.session_id)
                await self._send({"type": "http.response.start", "status": 200, "headers": _headers(NDJSON)})
            for frame in encoder.encode(element):
                assert isinstance(frame, str), "this wire has no binary frames"
                await self._send({"type": "http.response.body", "body": frame.encode() + b"\n", "more_body": True})
        if self._answer.has_begun:
            await self._send({"type": "http.response.body", "body": b""})

    async def _send(self, event: Event) -> None:
        """Send. When the client takes nothing for too long, the session ends, and so does the writing.

        Both by their deadlines: the server may shield what is being written, as half a piece would be the end of the connection.
        """
        seconds = self.services.settings.slow_client_seconds * (1 + len(event.get("body", b"")) // ALLOWANCE_BYTES)
        due = min(trio.current_time() + seconds, self._latest)
        self._session.deadline = self._writing.deadline = due
        await self.send(event)
        self._session.deadline = self._writing.deadline = self._latest


# --- the description -------------------------------------------------------------------------------------------------

_KEY = path_parameter("key", "setup:reference, such as agent:barista or realtime:.")


def _wishes(*left_out: str) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(
            parameter.name, schema, description=f"{schema.pop('description')} Also the header {parameter.header}."
        )
        for parameter, (name, schema) in zip(PARAMETERS, wishes(), strict=True)
        if name not in left_out
    )


_REFUSALS = (401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 502, 503)

OPERATIONS = (
    Operation(
        "/api/pipeline/{key}/turn",
        "One turn of a session",
        {
            200: Answer(
                OutputMessage,
                "One message a line, as they are said, up to the turn's `exit`. The session is then left IDLE, and the next call "
                "goes on with it. Without an `exit` the last line says why there is none.",
                media_type=NDJSON,
            )
        },
        method="post",
        parameters=(_KEY, *_wishes("wire")),
        body=InputMessages,
        more_bodies={NDJSON: InputMessage},
        refusals=(*_REFUSALS, 504),
        security="optional",
        description="The body has one message a line, or is an array of them. A line that cannot be read is answered with an "
        "`error` in its place, and the rest goes on. A client that leaves ends the turn.",
        tag="pipeline",
    ),
    Operation(
        "/api/pipeline/{key}",
        "An event for a session",
        {202: Answer(ChatEventAccepted, "The event was taken.")},
        method="post",
        parameters=(_KEY, *_wishes()),
        body=Schema("ChatEvent", {"type": "object", "description": "Whatever the agent understands."}),
        refusals=_REFUSALS,
        security="optional",
        description="It is given to the agent, and no model is spoken with. The session is then left IDLE, unless it is being "
        "spoken with.",
        tag="pipeline",
    ),
)
"""These routes in the OpenAPI document."""
