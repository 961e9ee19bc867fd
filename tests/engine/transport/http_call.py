"""A call over HTTP whose answer is read as it comes."""

import json
from collections.abc import Mapping
from typing import Any

import attrs
import h11
import trio

from tests.engine.transport.stack import HOST


@attrs.define(eq=False)
class HttpCall:
    """One client connection; several calls may follow one another on it."""

    stream: trio.abc.Stream
    connection: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.CLIENT))
    status: int = attrs.field(default=0, init=False)
    headers: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _rest: bytes = attrs.field(default=b"", init=False)

    async def begin(self, path: str, headers: Mapping[str, str] | None = None, *, method: str = "POST") -> None:
        """The request's head. Without a Content-Length the body is sent in chunks."""
        fields = {"host": HOST, "content-type": "application/x-ndjson"}
        fields |= {name.lower(): value for name, value in (headers or {}).items()}
        if "content-length" not in fields:
            fields["transfer-encoding"] = "chunked"
        await self._send(h11.Request(method=method, target=path, headers=list(fields.items())))

    async def put(self, body: bytes) -> None:
        await self._send(h11.Data(body))

    async def finish(self) -> None:
        await self._send(h11.EndOfMessage())

    async def ask(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        await self.begin(path, {"content-length": str(len(body)), **(headers or {})})
        await self.put(body)
        await self.finish()

    async def _send(self, event: h11.Event) -> None:
        await self.stream.send_all(self.connection.send(event) or b"")

    async def _next(self) -> h11.Event:
        while True:
            event = self.connection.next_event()
            if isinstance(event, h11.Event):
                return event
            assert event is h11.NEED_DATA
            self.connection.receive_data(bytes(await self.stream.receive_some()))

    async def head(self) -> int:
        """The status of the answer."""
        event = await self._next()
        while isinstance(event, h11.InformationalResponse):
            event = await self._next()
        assert isinstance(event, h11.Response)
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}
        return self.status

    async def line(self) -> Any:
        """The next line of the answer; None at its end."""
        while b"\n" not in self._rest:
            event = await self._next()
            if not isinstance(event, h11.Data):
                assert isinstance(event, h11.EndOfMessage)
                assert not self._rest
                return None
            self._rest += bytes(event.data)
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def lines(self) -> list[Any]:
        """What still comes."""
        found: list[Any] = []
        while (line := await self.line()) is not None:
            found.append(line)
        return found

    async def document(self) -> Any:
        """The whole answer as one JSON value."""
        body = self._rest
        while isinstance(event := await self._next(), h11.Data):
            body += bytes(event.data)
        return json.loads(body)

    def again(self) -> None:
        self.connection.start_next_cycle()


def messages(*sent: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in sent)


def text(words: str) -> Mapping[str, Any]:
    return {"type": "text", "text": words}
