"""`souffleur talk`: a conversation from the terminal, typed or from one WAV file into another.

It is an ordinary client of the WebSocket door and knows nothing that another client could not.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import orjson
import pybase64
import trio
import trio_websocket

from engine.errors import ConfigurationError
from engine.protocol.audio import bytes_for_ms
from engine.protocol.player import PlayedLine
from engine.protocol.wav import read_wav, wav_bytes

FRAME_MS = 20
OUTPUT_RATE = 24000
QUIET_SECONDS = 3.0
"""A WAV conversation is over when nothing has come for so long after the last turn's exit …"""
LONGEST_WAIT_SECONDS = 60.0
"""… or when so much time has passed since the file's end."""
GOODBYE_SECONDS = 25.0
"""The longest the client waits for the session's end after its `#exit`: the server's own bound is 20 s."""
MAX_MESSAGE_BYTES = 4 << 20

Say = Callable[[str], None]


@attrs.define(eq=False)
class TalkClient:
    """One connection: what comes in is printed, played and noted."""

    socket: trio_websocket.WebSocketConnection
    say: Say
    player: PlayedLine = attrs.field(factory=lambda: PlayedLine(OUTPUT_RATE))
    started_at: float = attrs.field(factory=trio.current_time)
    ready: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)
    failed: bool = False
    last_element_at: float = 0.0
    turn_is_open: bool = False
    whispered: set[str] = attrs.field(factory=set[str])
    _cut: set[str] = attrs.field(factory=set[str])

    @property
    def now(self) -> float:
        return trio.current_time() - self.started_at

    async def send(self, message: dict[str, Any]) -> None:
        await self.socket.send_message(orjson.dumps(message).decode())

    async def listen(self) -> None:
        """Take in what the server sends until the connection ends."""
        try:
            while True:
                message = await self.socket.get_message()
                self.last_element_at = self.now
                if isinstance(message, str):
                    self._take(orjson.loads(message))
        except trio_websocket.ConnectionClosed as closed:
            if closed.reason is not None and closed.reason.code not in {1000, 1005}:
                self.failed = True
                self.say(f"(the connection was closed: {closed.reason.code} {closed.reason.reason or ''})")
        finally:
            self.ready.set()
            self.ended.set()

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "command", "name": "ready", "parameters": parameters}:
                for warning in parameters.get("warnings", []):
                    self.say(f"(warning: {warning})")
                self.ready.set()
            case {"type": "command", "name": "session-end", "parameters": parameters}:
                self.say(f"(the session has ended: {parameters.get('reason', '')})")
                self.ended.set()
            case {"type": "command", "name": "exit"}:
                self.turn_is_open = False
            case {"type": "command", "name": "tool-start", "parameters": parameters}:
                self.say(f"(tool {parameters['name']} {orjson.dumps(parameters['parameters']).decode()})")
            case {"type": "command", "name": "tool-error", "parameters": parameters}:
                self.say(f"(tool {parameters['name']} failed: {parameters['error']})")
            case {"type": "command", "name": "realtime-instruction", "parameters": {"text": text}} if (
                text not in self.whispered
            ):
                self.whispered.add(text)  # what closes each pass is always the same
                self.say(f"(whispered: {text})")
            case {"type": "transcript", "isInterim": True}:
                self.player.stop(self.now)
            case {"type": "transcript", "text": text, "isSynthetic": synthetic}:
                self.turn_is_open = True
                if not synthetic:
                    self.say(f"you:   {text}")
            case {"type": "text", "text": text}:
                self.say(f"agent: {text}")
            case {"type": "speech", "data": data}:
                self.turn_is_open = True
                self.player.play(pybase64.b64decode(data), self.now)
            case {"type": "error", "message": text, "recoverable": recoverable}:
                self.failed = self.failed or not recoverable
                self.say(f"(error: {text})")
            case _:
                pass


def connection_url(url: str, key: str, **parameters: str) -> str:
    """The WebSocket address of a pipeline of a server.

    Raises:
        ConfigurationError: the address is none of an HTTP or WebSocket server.
    """
    scheme, separator, rest = url.partition("://")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if not separator or scheme not in schemes:
        raise ConfigurationError(f"{url!r} is no address of a server; it looks like http://127.0.0.1:8080")
    return f"{schemes[scheme]}://{rest.rstrip('/')}/api/pipeline/{quote(key, safe=':')}?{urlencode(parameters)}"


async def talk_text(url: str, key: str, say: Say) -> bool:
    """Chat: lines from standard input, sentences on the terminal. True when it ended well.

    Raises:
        ConfigurationError: the server cannot be reached.
    """

    async def type_lines(client: TalkClient) -> None:
        while not client.ended.is_set():
            line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if not line:
                break
            if line.strip():
                await client.send({"type": "text", "text": line.strip()})
        await client.send({"type": "token", "text": "#exit"})

    return await _converse(connection_url(url, key, textOnly="true"), say, type_lines, None)


async def talk_wav(url: str, key: str, wav: Path, out: Path | None, say: Say) -> bool:
    """Speak a WAV file in real time, and write what is heard on the same time line. True when it ended well.

    Raises:
        ConfigurationError: the file cannot be read, or the server not be reached.
    """
    try:
        pcm, rate = read_wav(await trio.Path(wav).read_bytes())
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"{wav} cannot be used: {exc}") from exc

    async def speak(client: TalkClient) -> None:
        await client.send({"type": "action", "name": "intro"})
        frame = bytes_for_ms(FRAME_MS, rate)
        begun = trio.current_time()
        frames = 0
        file_over: float | None = None
        while not client.ended.is_set():
            data = pcm[frames * frame : (frames + 1) * frame]
            if not data and file_over is None:
                file_over = client.now
            if file_over is not None and _is_over(client, file_over):
                break
            await client.send({"type": "audio", "data": pybase64.b64encode(data or bytes(frame)).decode()})
            frames += 1
            await trio.sleep_until(begun + frames * FRAME_MS / 1000)
        await client.send({"type": "token", "text": "#exit"})

    address = connection_url(url, key, inputSampleRate=str(rate), outputSampleRate=str(OUTPUT_RATE))
    return await _converse(address, say, speak, out)


def _is_over(client: TalkClient, file_over: float) -> bool:
    quiet_since = max(client.last_element_at, client.player.ends_at, file_over)
    is_quiet = not client.turn_is_open and client.now - quiet_since >= QUIET_SECONDS
    return is_quiet or client.now - file_over >= LONGEST_WAIT_SECONDS


async def _converse(url: str, say: Say, act: Callable[[TalkClient], Any], out: Path | None) -> bool:
    try:
        async with trio_websocket.open_websocket_url(
            url, max_message_size=MAX_MESSAGE_BYTES, receive_buffer_size=None
        ) as socket:
            client = TalkClient(socket, say)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.listen, name="listen")
                await client.ready.wait()
                with trio.CancelScope() as acting:
                    nursery.start_soon(_cancel_when, client.ended, acting, name="end")  # noqa: ASYNC111 - cancelling a scope that has ended does nothing
                    with suppress(trio_websocket.ConnectionClosed):  # `listen` has said why
                        await act(client)
                with trio.move_on_after(GOODBYE_SECONDS):
                    await client.ended.wait()
                nursery.cancel_scope.cancel(reason="the conversation is over")
    except (OSError, trio_websocket.HandshakeError) as exc:
        raise ConfigurationError(f"no conversation could be had with {url.partition('?')[0]}: {exc}") from exc
    if out is not None:
        await trio.Path(out).write_bytes(wav_bytes(client.player.finish(client.now), OUTPUT_RATE))
        say(f"(what was heard is in {out})")
    return not client.failed


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel(reason="the session has ended")
