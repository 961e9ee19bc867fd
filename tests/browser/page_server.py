"""A small scripted server for the talk page: its files, its cast list, and a stage on which tests play the server's part.

It speaks the client wire of the protocol page (section 2) and nothing of the engine, so that the page can be judged alone:
every connection becomes a `Peer`, which a test (or the `performer`) drives line by line. It can also do what a real server
should not: drop the line, refuse, send audio that is too late.
"""

import json
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

JsonObject = dict[str, Any]

WEB = Path(__file__).resolve().parents[2] / "engine" / "transport" / "web"

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

# As strict as a policy can be for this page: the tests would show anything that needs more.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

RATE = 24000  # Hz, of the speech that peers say
FRAME_MS = 100  # the longest frame the protocol allows


class Rewound(trio.abc.Stream):
    """A stream of which the beginning has been read already: it is read again first."""

    def __init__(self, stream: trio.SocketStream, head: bytes) -> None:
        self._stream = stream
        self._head = head

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._head:
            await trio.lowlevel.checkpoint()
            head, self._head = self._head, b""
            return head
        return bytes(await self._stream.receive_some(max_bytes))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


@attrs.define(eq=False)
class Peer:
    """The server's end of one connection, in a test's hands."""

    key: str  # the pipeline key, decoded: "agent:barista"
    parameters: Mapping[str, str]
    _socket: WebSocketConnection
    _stream: trio.SocketStream
    _inbox: trio.MemoryReceiveChannel[JsonObject]
    audio: list[bytes] = attrs.field(factory=list[bytes])  # every binary frame, in order
    playback: list[JsonObject] = attrs.field(factory=list[JsonObject])  # every playback report, in order
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def next_message(self) -> JsonObject:
        """The next message that is no playback report. Raises trio.EndOfChannel when the page has left."""
        return await self._inbox.receive()

    async def expect(self, **fields: Any) -> JsonObject:
        """The next message that is no playback report; it must have these fields."""
        with trio.fail_after(10):
            message = await self.next_message()
        assert {name: message.get(name) for name in fields} == fields, message
        return message

    async def wait_audio(self, frames: int) -> None:
        """Waits until so many frames have come."""
        while len(self.audio) < frames:
            await self._changed.wait()

    async def wait_heard(self, response: str, ms: int) -> JsonObject:
        """The first report that so much of a response was heard."""
        with trio.fail_after(10):
            while True:
                for report in self.playback:
                    if report["responseId"] == response and report["playedMs"] >= ms:
                        return report
                await self._changed.wait()

    async def gone(self) -> None:
        """Waits until the page has hung up; messages that came before are dropped."""
        with trio.fail_after(10):
            async for _ in self._inbox:
                pass

    async def send(self, kind: str, /, **fields: Any) -> None:
        await self._socket.send_message(json.dumps({"type": kind, **fields}))

    async def send_bytes(self, data: bytes) -> None:
        await self._socket.send_message(data)

    async def command(self, name: str, /, **parameters: Any) -> None:
        await self.send("command", name=name, parameters=parameters)

    async def error(self, code: str, message: str = "", *, recoverable: bool = True, whose: str = "server") -> None:
        await self.send("error", code=code, message=message, recoverable=recoverable, whose=whose)

    async def ready(self, session: str = "s1", **more: Any) -> None:
        """`ready`, and then the page's wish for the opening."""
        await self.announce_ready(session, **more)
        await self.expect(type="action", name="intro")

    async def announce_ready(self, session: str = "s1", **more: Any) -> None:
        parameters: JsonObject = {
            "protocol": 1,
            "sessionId": session,
            "agent": self.key.partition(":")[2],
            "userId": "u1",
            "deviceRef": self.parameters.get("deviceRef", ""),
            "provider": "Internal",
            "sampleRate": RATE,
            "temperature": 0.8,
            "warnings": [],
        }
        await self.command("ready", **{**parameters, **more})

    async def transcript(
        self, turn: str, text: str, *, interim: bool = False, synthetic: bool = False, provider: str = "Local"
    ) -> None:
        await self.send(
            "transcript",
            text=text,
            isInterim=interim,
            isSynthetic=synthetic,
            isAsynchronous=False,
            provider=provider,
            turnId=turn,
        )

    async def words(self, turn: str, response: str, text: str) -> None:
        """One sentence: its tokens, then itself."""
        for i, word in enumerate(text.split()):
            await self.send("token", text=word if i == 0 else f" {word}", turnId=turn, responseId=response)
        await self.send("text", text=text, turnId=turn, responseId=response)

    async def start_speech(self, turn: str, response: str) -> None:
        await self.send("speech-start", encoding="pcm16", sampleRate=RATE, turnId=turn, responseId=response)

    async def sound(self, seconds: float, pitch: float = 220.0) -> None:
        """A tone, in frames as long as the protocol allows, as fast as the socket takes them."""
        data = tone(seconds, pitch)
        size = RATE * FRAME_MS // 1000 * 2
        for start in range(0, len(data), size):
            await self.send_bytes(data[start : start + size])

    async def end_speech(self, turn: str, response: str, *, cancelled: bool = False) -> None:
        await self.send("speech-end", cancelled=cancelled, turnId=turn, responseId=response)

    async def say(self, turn: str, response: str, text: str, seconds: float) -> None:
        """A whole answer in words and sound, up to its `response-end`."""
        await self.words(turn, response, text)
        await self.start_speech(turn, response)
        await self.sound(seconds)
        await self.end_speech(turn, response)
        await self.command("response-end", turnId=turn, responseId=response, status="completed")

    async def exit(self, turn: str, session: str = "s1", *, saved: bool = True) -> None:
        await self.command("exit", turnId=turn, sessionId=session, userId="u1", saved=saved)

    async def opening(
        self, text: str = "Good evening.", seconds: float = 0.3, turn: str = "t1", response: str = "r1"
    ) -> None:
        """The answer to `intro`."""
        await self.transcript(turn, "#intro", synthetic=True, provider="Client")
        await self.say(turn, response, text, seconds)
        await self.exit(turn)

    async def close(self, code: int = 1000) -> None:
        await self._socket.aclose(code)

    async def drop(self) -> None:
        """The line is cut, without a word."""
        await self._stream.aclose()

    async def read(self, outbox: trio.MemorySendChannel[JsonObject]) -> None:
        with outbox:
            while True:  # noqa: ASYNC913 - every way round waits, or ends
                try:
                    frame = await self._socket.get_message()
                except ConnectionClosed:
                    return
                if isinstance(frame, bytes):
                    self.audio.append(frame)
                else:
                    message: JsonObject = json.loads(frame)
                    if message["type"] == "playback":
                        self.playback.append(message)
                    else:
                        outbox.send_nowait(message)
                self._changed.set()
                self._changed = trio.Event()


Performance = Callable[[Peer], Awaitable[None]]


@attrs.define(eq=False)
class Playhouse:
    """The server as a test sees it."""

    port: int
    _arrivals: trio.MemoryReceiveChannel[Peer]
    agents: list[JsonObject]
    perform: Performance | None = None  # plays every connection; without it the test does
    refusal: int = 0  # an HTTP status: connections are refused with it
    requests: list[str] = attrs.field(factory=list[str])
    files: dict[str, Path] = attrs.field(factory=dict[str, Path])  # more files to serve, by their path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def peer(self) -> Peer:
        """The next connection of the page."""
        with trio.fail_after(10):
            return await self._arrivals.receive()

    async def handle(self, stream: trio.SocketStream, arrivals: trio.MemorySendChannel[Peer]) -> None:
        """One TCP connection: a file, the cast list, or a WebSocket."""
        async with stream:
            try:
                head = await _read_head(stream)
                if head is None:
                    return
                target = head.split(b" ", 2)[1].decode()
                if b"\nupgrade: websocket" in head.lower():
                    await self._converse(stream, head, target, arrivals)
                else:
                    self.requests.append(target)
                    await stream.send_all(self._answer(target))
            except trio.BrokenResourceError:
                return  # the browser changed its mind

    def _answer(self, target: str) -> bytes:
        path = urllib.parse.urlsplit(target).path
        if path == "/api/agents":
            body = json.dumps({"items": self.agents, "next": None}).encode()
            return _response(200, "application/json", body)
        file = self.files.get(path) or WEB / ("index.html" if path == "/" else path.removeprefix("/"))
        if ".." in path or not file.is_file():
            return _response(404, "text/plain", b"no such file")
        return _response(200, CONTENT_TYPES[file.suffix], file.read_bytes())

    async def _converse(
        self, stream: trio.SocketStream, head: bytes, target: str, arrivals: trio.MemorySendChannel[Peer]
    ) -> None:
        address = urllib.parse.urlsplit(target)
        if self.refusal:
            await stream.send_all(_response(self.refusal, "text/plain", b""))
            return
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, Rewound(stream, head))
            socket = await request.accept()
            outbox, inbox = trio.open_memory_channel[JsonObject](1000)
            prefix = "/api/pipeline/"
            assert address.path.startswith(prefix), address.path
            peer = Peer(
                urllib.parse.unquote(address.path.removeprefix(prefix)),
                dict(urllib.parse.parse_qsl(address.query)),
                socket,
                stream,
                inbox,
            )
            if self.perform is None:
                arrivals.send_nowait(peer)
                await peer.read(outbox)
            else:
                async with trio.open_nursery() as stage:
                    stage.start_soon(_play, self.perform, peer, name="performance")
                    await peer.read(outbox)
                    stage.cancel_scope.cancel()


async def _play(perform: Performance, peer: Peer) -> None:
    try:
        await perform(peer)
    except (ConnectionClosed, trio.EndOfChannel):
        return  # the page has left


async def _read_head(stream: trio.SocketStream) -> bytes | None:
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = await stream.receive_some(16384)
        if not chunk:
            return None
        head += chunk
    return head


def _response(status: int, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} -\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def tone(seconds: float, pitch: float) -> bytes:
    """A soft sine in PCM16 at RATE."""
    angles = np.arange(round(seconds * RATE)) * (2 * np.pi * pitch / RATE)
    return bytes((9000 * np.sin(angles)).astype("<i2").tobytes())


@asynccontextmanager
async def open_playhouse(
    *, agents: list[JsonObject] | None = None, perform: Performance | None = None
) -> AsyncGenerator[Playhouse]:
    """The server on a free port of this machine, as long as the context lasts."""
    if agents is None:
        agents = [{"ref": "barista", "name": "Barista"}, {"ref": "concierge", "name": "Concierge"}]
    arrivals, arriving = trio.open_memory_channel[Peer](10)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    playhouse = Playhouse(listener.socket.getsockname()[1], arriving, agents, perform)
    async with trio.open_nursery() as nursery:

        async def handle(stream: trio.SocketStream) -> None:
            await playhouse.handle(stream, arrivals)

        await nursery.start(trio.serve_listeners, handle, [listener], name="playhouse")
        yield playhouse
        nursery.cancel_scope.cancel()
