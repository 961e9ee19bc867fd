"""The body of a request of plain ASGI: bounded in size and in time, and an answer that is not lost behind one that was refused."""

from collections.abc import Sequence

import attrs
import trio

from engine.transport.asgi import Problem, Receive, Send

DRAIN_SECONDS = 2.0
"""How long a body that was refused is read on and thrown away. A connection that is closed with something unread is reset, and the
answer may be lost with it."""


class RefusedError(Exception):
    """The request is answered with a problem document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class ClientGoneError(Exception):
    """There is nobody to answer."""


@attrs.define(eq=False)
class RequestBody:
    """A request's body, which may be read once."""

    receive: Receive
    max_bytes: int
    max_seconds: float
    _is_read: bool = attrs.field(default=False, init=False)

    async def read(self, headers: Sequence[tuple[str, str]]) -> bytes:
        """All of it.

        Raises:
            RefusedError: it is too large, or too long on its way.
            ClientGoneError
        """
        length = dict(headers).get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > self.max_bytes:
            raise self._too_large()
        with trio.move_on_after(self.max_seconds):
            return await self._collect()
        raise RefusedError(Problem(408, f"The body was not there in {self.max_seconds:g} s."))

    async def _collect(self) -> bytes:
        body = bytearray()
        while not self._is_read:
            body += await self._next()
            if len(body) > self.max_bytes:
                raise self._too_large()
        return bytes(body)

    async def _next(self) -> bytes:
        event = await self.receive()
        if event["type"] != "http.request":
            raise ClientGoneError
        self._is_read = not event.get("more_body", False)
        data: bytes = event.get("body", b"")
        return data

    def _too_large(self) -> RefusedError:
        return RefusedError(Problem(413, f"A body may have up to {self.max_bytes} bytes; use the WebSocket for more."))

    async def refuse(self, send: Send, problem: Problem) -> None:
        """Answer with a problem document. What is still on its way is thrown away for a while, so that the client can read it."""
        document = problem.document()
        headers = [*problem.raw_headers(), (b"content-length", str(len(document)).encode())]
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": document, "more_body": not self._is_read})
        if self._is_read:
            return
        try:
            with trio.move_on_after(DRAIN_SECONDS):
                while not self._is_read:
                    await self._next()
        except ClientGoneError:
            return
        await send({"type": "http.response.body", "body": b""})
