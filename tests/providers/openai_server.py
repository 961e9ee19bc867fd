"""A small strict server that speaks the three OpenAI-compatible endpoints over real loopback sockets.

A test scripts what it answers, byte piece by byte piece; requests that the real endpoint would refuse get HTTP 400 with the
reason. It sees when its peer is gone, also in the middle of an answer.
"""

import io
import json
import wave
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from enum import Enum
from itertools import pairwise
from typing import Any, cast

import attrs
import h11
import trio

KEY = "sk-test-0123456789"


class Pause(Enum):
    """What a reply may hold instead of bytes."""

    STALL = "say nothing more until the client has gone"
    DROP = "close the connection in the middle of the answer"
    HOLD = "wait until the test calls `release`"


Piece = bytes | Pause


@attrs.frozen
class Reply:
    pieces: tuple[Piece, ...] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class Request:
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    """The JSON object, or the fields of a form; an uploaded file is its bytes."""


# --- replies ---------------------------------------------------------------------------------------------------------


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


DONE = event(b"[DONE]")


def chunk(
    content: str | None = None,
    *,
    tool_calls: Sequence[Mapping[str, Any]] | None = None,
    finish: str | None = None,
    **more: object,
) -> bytes:
    """One chunk of a chat completion; `more` goes into its delta."""
    delta: dict[str, Any] = {**more}
    if content is not None:
        delta["content"] = content
    if tool_calls is not None:
        delta["tool_calls"] = tool_calls
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
    )


def usage(prompt: int, completion: int, cached: int | None = None) -> bytes:
    """The chunk that ends a stream when usage was asked for."""
    figures: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        figures["prompt_tokens_details"] = {"cached_tokens": cached}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": figures})


def answer(*words: str, finish: str = "stop") -> tuple[bytes, ...]:
    """The pieces of a plain complete answer."""
    return (chunk("", role="assistant"), *map(chunk, words), chunk(finish=finish), usage(10, len(words)), DONE)


def error(
    status: int, code: str | None = None, message: str = "no", *, param: str | None = None, retry_after: str = ""
) -> Reply:
    body = {"error": {"message": message, "type": "some_error", "param": param, "code": code}}
    headers = {"retry-after": retry_after} if retry_after else {}
    return Reply((json.dumps(body).encode(),), status, "application/json", headers)


def cut(body: bytes, places: Iterable[int]) -> tuple[bytes, ...]:
    """The body in pieces, cut at these places."""
    edges = [0, *sorted({place % (len(body) + 1) for place in places}), len(body)]
    return tuple(body[start:end] for start, end in pairwise(edges) if start < end)


# --- what a request must look like -----------------------------------------------------------------------------------

_CHAT_FIELDS = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "temperature",
    "tools",
    "max_tokens",
    "max_completion_tokens",
}
_SPEECH_FIELDS = {"model", "input", "voice", "response_format", "instructions", "speed"}
_TRANSCRIPTION_FIELDS = {"model", "file", "language", "prompt", "response_format", "temperature"}


def _expect(condition: object, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


def check_chat(body: Mapping[str, Any]) -> None:
    _expect(not body.keys() - _CHAT_FIELDS, f"unknown fields {sorted(body.keys() - _CHAT_FIELDS)}")
    _expect(body.get("model") and body.get("stream") is True, "model and stream")
    _expect(body.get("messages"), "messages must not be empty")
    _expect(body.get("tools", [1]), "tools must not be empty")
    open_calls: set[str] = set()
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        _expect(role in ("system", "user", "assistant", "tool"), f"role {role}")
        if role == "tool":
            _expect(message["tool_call_id"] in open_calls, "a tool message must answer an open call")
            open_calls.discard(message["tool_call_id"])
            continue
        _expect(not open_calls, "a tool call was not answered")
        calls = message.get("tool_calls", ())
        for call in calls:
            _expect(isinstance(json.loads(call["function"]["arguments"]), dict), "arguments must be a JSON object")
            open_calls.add(call["id"])
        _expect(content is not None or calls, "content must not be null")
    _expect(not open_calls, "a tool call was not answered")
    for tool in body.get("tools", ()):
        _expect(tool["type"] == "function" and tool["function"]["name"], "a tool is a function with a name")


def check_speech(body: Mapping[str, Any]) -> None:
    _expect(not body.keys() - _SPEECH_FIELDS, f"unknown fields {sorted(body.keys() - _SPEECH_FIELDS)}")
    _expect(body.get("model") and body.get("voice"), "model and voice")
    _expect(0 < len(str(body.get("input", "")).strip()) <= 4096, "input must have 1 to 4096 characters")
    _expect(body.get("response_format") in ("pcm", "wav"), "response_format")


def check_transcription(body: Mapping[str, Any]) -> None:
    _expect(not body.keys() - _TRANSCRIPTION_FIELDS, f"unknown fields {sorted(body.keys() - _TRANSCRIPTION_FIELDS)}")
    _expect(body.get("model"), "model")
    with wave.open(io.BytesIO(body["file"])) as file:
        _expect((file.getnchannels(), file.getsampwidth()) == (1, 2), "PCM16 mono")
        _expect(file.getnframes() >= file.getframerate() // 10, "the audio file is too short")


_ROUTES: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "/v1/chat/completions": check_chat,
    "/v1/audio/speech": check_speech,
    "/v1/audio/transcriptions": check_transcription,
}


def _parse_form(content_type: str, data: bytes) -> dict[str, Any]:
    document = BytesParser(policy=HTTP).parsebytes(b"content-type: " + content_type.encode() + b"\r\n\r\n" + data)
    assert isinstance(document, EmailMessage)
    fields: dict[str, Any] = {}
    for part in document.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        payload = cast("bytes", part.get_payload(decode=True))
        fields[name] = payload if part.get_filename() else payload.decode()
    return fields


# --- the server ------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class OpenAIServer:
    """Started with `await nursery.start(server.run)`; gives its replies in order, and HTTP 500 when none is left."""

    replies: deque[Reply] = attrs.field(factory=deque[Reply])
    requests: list[Request] = attrs.field(factory=list[Request])
    connections: int = 0
    """Open ones."""
    accepted: int = 0
    """All there ever were."""
    key: str | None = KEY
    """None: a request with any Authorization header is refused."""
    url: str = ""
    released: trio.Event = attrs.field(factory=trio.Event)
    _changed: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    _stalled: int = 0

    def add(self, *replies: Reply | Sequence[Piece]) -> None:
        self.replies.extend(reply if isinstance(reply, Reply) else Reply(tuple(reply)) for reply in replies)

    async def wait_stalled(self) -> None:
        """Until an answer hangs at a `STALL`."""
        while not self._stalled:
            await self._changed.park()

    async def wait_connections(self, count: int) -> None:
        while self.connections != count:
            await self._changed.park()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve, listeners)
            task_status.started()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.accepted += 1
        try:
            await _Exchange(self, stream).run()
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            pass  # the client went away in the middle: what many tests are about
        finally:
            self.connections -= 1
            self._changed.unpark_all()

    def _answer(self, request: Request) -> Reply:
        self.requests.append(request)
        authorization = request.headers.get("authorization")
        if authorization != (self.key and f"Bearer {self.key}"):
            return error(401, "invalid_api_key", f"Incorrect API key provided: {authorization}")
        check = _ROUTES.get(request.path)
        if check is None:
            return error(404, message="no such path")
        try:
            check(request.body)
        except (ValueError, KeyError, wave.Error) as exc:
            return error(400, "bad_request", f"{type(exc).__name__}: {exc}")
        return self.replies.popleft() if self.replies else error(500, message="no reply scripted")

    def stall(self, change: int) -> None:
        self._stalled += change
        self._changed.unpark_all()


class _Exchange:
    """The requests and answers of one connection."""

    def __init__(self, server: OpenAIServer, stream: trio.SocketStream) -> None:
        self._server = server
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        async with self._stream:
            while (request := await self._receive()) is not None:
                if not await self._reply(self._server._answer(request)):  # pyright: ignore[reportPrivateUsage]
                    return
                if self._http.our_state is h11.MUST_CLOSE:
                    return
                self._http.start_next_cycle()

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._stream.receive_some())
        return event

    async def _receive(self) -> Request | None:
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        data = b""
        while isinstance(part := await self._next_event(), h11.Data):
            data += part.data
        headers = {name.decode(): value.decode() for name, value in head.headers}
        content_type = headers.get("content-type", "")
        body = _parse_form(content_type, data) if content_type.startswith("multipart/") else json.loads(data)
        return Request(head.target.decode(), headers, body)

    async def _reply(self, reply: Reply) -> bool:
        """Whether the connection can go on."""
        headers = {"content-type": reply.content_type, "transfer-encoding": "chunked", **reply.headers}
        await self._send(h11.Response(status_code=reply.status, headers=list(headers.items()), reason="Scripted"))
        for piece in reply.pieces:
            match piece:
                case bytes():
                    await self._send(h11.Data(data=piece))
                case Pause.STALL:
                    self._server.stall(+1)
                    try:
                        await self._stream.receive_some()
                    finally:
                        self._server.stall(-1)
                    return False
                case Pause.HOLD:
                    await self._server.released.wait()
                case Pause.DROP:
                    return False
        await self._send(h11.EndOfMessage())
        return True

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        assert data is not None
        if data:
            await self._stream.send_all(data)
