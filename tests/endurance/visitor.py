"""A client that types, over a real socket, and that can vanish as real ones do."""

import json
import socket
from typing import Any
from urllib.parse import urlencode

import attrs
import trio
from trio_websocket import ConnectionClosed, HandshakeError, WebSocketConnection, wrap_client_stream

from engine.testing.wire import WireJudge
from tests.endurance.server import KEY

ANSWER_SECONDS = 30.0
"""The longest an answer may take; it is some hundredths of a second on a quiet machine."""


class LostError(Exception):
    """The connection has ended. `code` is the close code, None when there was none."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"closed with {code}: {reason}" if code else "cut off")
        self.code = code


class AnswerError(Exception):
    """The server did not say what it should."""


@attrs.frozen
class Answer:
    """One turn, as the client has it."""

    turn_id: str
    text: str
    """What the agent said."""
    is_saved: bool
    """It was acknowledged as durable."""


@attrs.define(eq=False)
class Visitor:
    """One connection with a session."""

    session_id: str
    _stream: trio.SocketStream
    _socket: WebSocketConnection
    errors: list[str] = attrs.field(factory=list[str], init=False)
    """Codes of the errors it was told."""
    _judge: WireJudge = attrs.field(factory=WireJudge, init=False)

    async def say(self, text: str) -> Answer:
        """Type something, and wait until that turn is acknowledged.

        Raises:
            LostError, AnswerError
        """
        return await self._turn({"type": "text", "text": text})

    async def ask_for_opening(self) -> Answer:
        return await self._turn({"type": "action", "name": "intro"})

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await self._socket.send_message(json.dumps(message))
        except ConnectionClosed as closed:
            raise _lost(closed) from None

    async def hear(self) -> dict[str, Any]:
        """The server's next message. Raises LostError, and AnswerError when nothing comes."""
        message: str | bytes = "null"
        with trio.move_on_after(ANSWER_SECONDS) as waiting:
            try:
                message = await self._socket.get_message()
            except ConnectionClosed as closed:
                raise _lost(closed) from None
        if waiting.cancelled_caught:
            raise AnswerError(f"nothing was said in session {self.session_id} for {ANSWER_SECONDS:g} s")
        self._judge.heard(message, trio.current_time())
        heard: dict[str, Any] = json.loads(message)
        if heard["type"] == "error":
            self.errors.append(heard["code"])
        return heard

    async def wait_for_end(self) -> LostError:
        """Listen until the connection ends, and say how it did."""
        while True:  # noqa: ASYNC913 - every way round waits, or ends
            try:
                await self.hear()
            except LostError as lost:
                return lost

    def vanish(self) -> None:
        """Leave without a word: the connection is reset, as when a process dies or a network goes."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._stream.socket.close()

    async def vanish_in_a_frame(self) -> None:
        """Vanish when half of a message is sent."""
        await self._stream.send_all(b"\x81\xfe\x01\x00" + bytes(50))  # a text of 256 bytes
        self.vanish()

    def hang_up(self) -> None:
        """Close the connection without a close frame."""
        self._stream.socket.close()

    async def _turn(self, message: dict[str, Any]) -> Answer:
        await self.send(message)
        words: dict[str, list[str]] = {}
        while True:
            heard = await self.hear()
            match heard:
                case {"type": "text", "text": text, "turnId": turn_id}:
                    words.setdefault(turn_id, []).append(text)
                case {"type": "command", "name": "exit", "parameters": {"turnId": turn_id, "saved": saved}}:
                    return Answer(turn_id, " ".join(words.get(turn_id, ())), saved)
                case _:
                    pass


def _lost(closed: ConnectionClosed) -> LostError:
    if closed.reason is None:
        return LostError(None)
    code = closed.reason.code
    return LostError(None if code == 1006 else code, closed.reason.reason or "")


async def visit(nursery: trio.Nursery, port: int, session_id: str) -> Visitor:
    """A client whose session is ready. It is to leave in one of the ways it can; `nursery` has the task that reads for it.

    Raises:
        LostError: nobody listens there, or the server hung up.
        AnswerError: the session was refused.
    """
    wishes = {"sessionId": session_id, "deviceRef": "long-runs", "textOnly": "true"}
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        raise LostError(None) from None
    try:
        connection = await _shake_hands(nursery, stream, f"/api/pipeline/{KEY}?{urlencode(wishes)}")
        visitor = Visitor(session_id, stream, connection)
        ready = await visitor.hear()
        if ready.get("name") != "ready" or ready["parameters"]["sessionId"] != session_id:
            raise AnswerError(f"session {session_id} did not get ready: {ready}")
    except BaseException:
        stream.socket.close()
        raise
    return visitor


async def _shake_hands(nursery: trio.Nursery, stream: trio.SocketStream, path: str) -> WebSocketConnection:
    with trio.move_on_after(ANSWER_SECONDS):
        try:
            return await wrap_client_stream(
                nursery, stream, "127.0.0.1", path, message_queue_size=1000, receive_buffer_size=None
            )
        except (HandshakeError, OSError, trio.BrokenResourceError):
            raise LostError(None) from None
    raise AnswerError(f"the handshake was not answered in {ANSWER_SECONDS:g} s")
