"""The clients: many conversations from one process, with as little of its own in the way as can be.

The WebSocket is spoken by hand (RFC 6455): a client's frame is made once and sent again and again, and what comes is looked at
the moment it is read. A general client takes 70 to 100 µs for a message, which at fifty sessions would be most of the latency
that is to be measured. The key of the mask is always the same: it is there so that the server has its work with it.
"""

import resource
from array import array
from collections.abc import Iterator
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

import attrs
import orjson
import pybase64
import trio

from bench_parts.conversation import (
    FRAME_MS,
    INTERIM,
    LEVELS,
    MODEL_RATE,
    SPREAD,
    WARM_SECONDS,
    level_frame,
    session_id,
    stamps,
)
from bench_parts.worker import Options, Report, answer, commands, monotonic_ns

HOST = "127.0.0.1"
FRAME_SECONDS = FRAME_MS / 1000
REPORT_FRAMES = 13
"""Between two reports of what was played: 260 ms, as the talk page does."""
END_SECONDS = 5.0
READ_BYTES = 1 << 16
MASK = b"\x37\xfa\x21\x3d"

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
FINAL = 0x80
NORMAL = (1000).to_bytes(2, "big")


def masked(opcode: int, payload: bytes) -> bytes:
    """A client's frame."""
    length = len(payload)
    head = bytes((FINAL | opcode, 0x80 | min(length, 126))) + (length.to_bytes(2, "big") if length >= 126 else b"")
    return head + MASK + bytes(byte ^ key for byte, key in zip(payload, cycle(MASK), strict=False))


def text_frame(message: dict[str, Any]) -> bytes:
    return masked(TEXT, orjson.dumps(message))


def frames_of(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """The server's frames that are whole, taken out of the buffer: opcode and payload. It sends no fragments."""
    at = 0
    while len(buffer) >= at + 2:
        opcode, length = buffer[at] & 0x0F, buffer[at + 1]
        start = at + 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length = int.from_bytes(buffer[start : start + size], "big")
            start += size
        if len(buffer) < start + length:
            break
        yield opcode, bytes(buffer[start : start + length])
        at = start + length
    del buffer[:at]


@attrs.define(eq=False)
class Tally:
    """What the clients have seen. Each latency comes with the time at which what it measures was sent."""

    down: "array[int]" = attrs.field(factory=lambda: array("q"))
    late: "array[int]" = attrs.field(factory=lambda: array("q"))
    """Milliseconds of each frame that came after the barge-in that should have stopped it, with its time."""
    own_lateness: "array[int]" = attrs.field(factory=lambda: array("q"))
    exits: "array[int]" = attrs.field(factory=lambda: array("q"))
    """1 for a turn that was saved, 0 for one that was not, with the time."""
    errors: list[str] = attrs.field(factory=list[str])

    def within(self, begin: int, end: int) -> dict[str, list[int]]:
        """The values whose times lie in the window."""
        found: dict[str, list[int]] = {}
        for name in ("down", "late", "own_lateness", "exits"):
            pairs: array[int] = getattr(self, name)
            found[name] = [value for at, value in zip(pairs[::2], pairs[1::2], strict=True) if begin <= at < end]
        return found


def first_frame_at(number: int, monotonic: float, now: float) -> float:
    """When on Trio's clock a client's first frame is due, in seconds: there are as long pauses between it and the others' in each run,
    as a step that finds the processor's caches warm from another session's takes a good tenth less."""
    grid = (monotonic // FRAME_SECONDS + 1 + number * SPREAD % 1.0) * FRAME_SECONDS
    return now + grid - monotonic


@attrs.define(eq=False)
class Client:
    """One conversation."""

    number: int
    port: int
    rate: int
    wire: str
    tally: Tally
    sent: "array[int]" = attrs.field(factory=lambda: array("q"), init=False)
    """When each frame of audio was sent."""
    interruptions: "array[int]" = attrs.field(factory=lambda: array("q"), init=False)
    """When the client was told that the user speaks, where something had been played, and when the last frame of that came."""
    ready: trio.Event = attrs.field(factory=trio.Event, init=False)
    over: trio.Event = attrs.field(factory=trio.Event, init=False)
    leaves: bool = attrs.field(default=False, init=False)
    _stream: trio.SocketStream = attrs.field(init=False)
    _pongs: list[bytes] = attrs.field(factory=list[bytes], init=False)
    _run: str = attrs.field(default="", init=False)
    """The response whose binary frames are coming."""
    _playing: str = attrs.field(default="", init=False)
    _plays_from: int = attrs.field(default=0, init=False)
    _played_at: int = attrs.field(default=0, init=False)
    """When its last frame came."""
    _dead: str = attrs.field(default="", init=False)

    async def run(self) -> None:
        try:
            self._stream = await trio.open_tcp_stream(HOST, self.port)
            buffer = await self._shake_hands()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._speak, name="speaker")
                await self._listen(buffer)
                nursery.cancel_scope.cancel(reason="the connection was closed")
        except (OSError, trio.BrokenResourceError) as exc:
            self.tally.errors.append(f"connection: {type(exc).__name__}")
        finally:
            self.ready.set()
            self.over.set()

    async def _shake_hands(self) -> bytearray:
        """Ask for the upgrade; what came behind the answer is returned."""
        query = urlencode(
            {
                "sessionId": session_id(self.number),
                "inputSampleRate": self.rate,
                "outputSampleRate": MODEL_RATE,
                "wire": self.wire,
            }
        )
        head = (
            f"GET /api/pipeline/agent:{session_id(self.number)}?{query} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\n\r\n"
        )
        await self._stream.send_all(head.encode())
        buffer = bytearray()
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            buffer += await self._stream.receive_some(READ_BYTES) or b"HTTP/1.1 (closed)\r\n\r\n"
        status = bytes(buffer[: buffer.find(b"\r\n")]).decode("latin-1")
        if " 101 " not in status:
            raise ConnectionRefusedError(status)
        del buffer[: end + 4]
        return buffer

    # what is said

    async def _speak(self) -> None:
        frames = [self._frame(level_frame(number, self.rate)) for number in range(LEVELS)]
        await self.ready.wait()
        start = first_frame_at(self.number, monotonic_ns() / 1e9, trio.current_time())
        count = 0
        while not self.leaves:
            due = start + count * FRAME_SECONDS
            await trio.sleep_until(due)
            now = monotonic_ns()
            self.sent.append(now)
            await self._stream.send_all(frames[count % LEVELS])
            count += 1
            self.tally.own_lateness.extend((now, round((trio.current_time() - due) * 1e9)))
            if count % REPORT_FRAMES == 0 and self._playing:
                await self._stream.send_all(self._playback(now))
            while self._pongs:
                await self._stream.send_all(self._pongs.pop())
        await self._stream.send_all(masked(CLOSE, NORMAL))  # an `#end` would wait for the answer under way

    def _frame(self, pcm: bytes) -> bytes:
        if self.wire == "binary":
            return masked(BINARY, pcm)
        return text_frame({"type": "audio", "data": pybase64.b64encode_as_string(pcm)})

    def _playback(self, now: int) -> bytes:
        played_ms = max(0, now - self._plays_from) // 1_000_000
        return text_frame({"type": "playback", "responseId": self._playing, "playedMs": played_ms})

    # what is heard

    async def _listen(self, buffer: bytearray) -> None:
        while True:
            now = monotonic_ns()
            for opcode, payload in frames_of(buffer):
                if opcode == BINARY:
                    self._hear(self._run, payload, now)
                elif opcode == TEXT:
                    self._take(orjson.loads(payload), now)
                elif opcode == PING:
                    self._pongs.append(masked(PONG, payload))
                elif opcode == CLOSE:
                    if not self.leaves:
                        self.tally.errors.append(f"closed: {int.from_bytes(payload[:2], 'big')}")
                    return
            data = await self._stream.receive_some(READ_BYTES)
            if not data:
                if not self.leaves:
                    self.tally.errors.append("closed without a word")
                return
            buffer += data

    def _hear(self, response_id: str, pcm: bytes, now: int) -> None:
        if not response_id or response_id == self._dead:
            self.tally.late.extend((now, len(pcm) // 2 * 1000 // MODEL_RATE))
            if response_id:
                self.interruptions[-1] = now
            return
        if response_id != self._playing:
            self._playing, self._plays_from = response_id, now
        self._played_at = now
        for sent in stamps(pcm):
            self.tally.down.extend((sent, now - sent))

    def _take(self, message: dict[str, Any], now: int) -> None:
        match message:
            case {"type": "speech", "data": data, "responseId": response_id}:
                pcm = pybase64.b64decode(data)
                if pcm:
                    self._hear(response_id, pcm, now)
            case {"type": "speech-start", "responseId": response_id}:
                self._run = response_id
            case {"type": "speech-end"}:
                self._run = ""
            case {"type": "transcript", "isInterim": True, "text": text} if text == INTERIM:
                if self._playing:
                    self.interruptions.extend((now, self._played_at))
                    self._dead, self._playing = self._playing, ""
            case {"type": "command", "name": "exit", "parameters": {"saved": saved}}:
                self.tally.exits.extend((now, int(saved)))
            case {"type": "command", "name": "ready"}:
                self.ready.set()
            case {"type": "error", "code": code}:
                self.tally.errors.append(f"error: {code}")
            case _:
                pass


async def run(options: Options) -> None:
    """Converse as told. Options: `port`, `sessions`, `rate`, `wire`."""
    lines, tally = commands(), Tally()
    everyone: dict[int, Client] = {}
    clients: list[Client] = []
    """Who converses now."""

    def new(number: int) -> Client:
        made = everyone[number] = Client(number, options["port"], options["rate"], options["wire"], tally)
        return made

    async with trio.open_nursery() as nursery:
        answer({})
        begin, usage = 0, resource.getrusage(resource.RUSAGE_SELF)
        while line := await lines.next():
            match line.strip():
                case b"warm":
                    warm = new(options["sessions"])
                    nursery.start_soon(warm.run)
                    await trio.sleep(WARM_SECONDS)
                    await _leave([warm])
                    answer({})
                case b"connect":
                    first = len(everyone) if clients else 0  # each has a session of its own, which nobody had before
                    clients = [new(first + number) for number in range(options["sessions"])]
                    for client in clients:
                        nursery.start_soon(client.run)
                    for client in clients:
                        await client.ready.wait()
                    answer({"errors": tally.errors})
                case b"begin":
                    begin, usage = monotonic_ns(), resource.getrusage(resource.RUSAGE_SELF)
                    answer({})
                case b"end":
                    answer(_report(tally, everyone, begin, usage))
                case b"leave":
                    await _leave(clients)
                    answer({"errors": tally.errors})
                case _:
                    break
        nursery.cancel_scope.cancel(reason="all is measured")


def _report(tally: Tally, clients: dict[int, Client], begin: int, before: resource.struct_rusage) -> Report:
    end, after = monotonic_ns(), resource.getrusage(resource.RUSAGE_SELF)
    return {
        **tally.within(begin, end),
        "errors": tally.errors,
        "begin": begin,
        "end": end,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "sent": [clients[number].sent.tolist() for number in range(len(clients))],
        "interruptions": [clients[number].interruptions.tolist() for number in range(len(clients))],
    }


async def _leave(clients: list[Client]) -> None:
    """End the sessions; whoever is not let go in time is left to the end of the process."""
    for client in clients:
        client.leaves = True
    with trio.move_on_after(END_SECONDS) as limit:
        for client in clients:
            await client.over.wait()
    if limit.cancelled_caught:
        clients[0].tally.errors.append("a session did not end")
