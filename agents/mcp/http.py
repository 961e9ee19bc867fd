"""A server that is reached at a URL, over streamable HTTP: the SDK's transport, on connections to judged addresses."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import trio
from mcp.client.streamable_http import streamable_http_client

from agents.mcp.limits import MAX_MESSAGE_BYTES, Streams
from agents.web.judged import Judge, JudgedTransport

CONNECT_SECONDS = 5.0
WRITE_SECONDS = 10.0
SILENCE_SECONDS = 3600.0
"""A stream of events may say nothing for the whole of a conversation. What is asked has a time limit of its own."""
GOODBYE_SECONDS = 1.0
"""To tell a server that a session is over."""
SESSION_HEADER = "mcp-session-id"


@asynccontextmanager
async def open_http(url: str, judge: Judge) -> AsyncGenerator[Streams]:
    """Ways to and from a server. Nothing is sent yet.

    Raises:
        httpx2.HTTPError: (in a group) a message could not be brought.
    """
    transport = _Transport(await JudgedTransport.open(judge, keep_alive=True))
    timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, write=WRITE_SECONDS)
    headers = {"User-Agent": "souffleur", "Accept-Encoding": "identity"}  # so that nothing unpacks into something large
    async with httpx2.AsyncClient(transport=transport, timeout=timeout, headers=headers, trust_env=False) as client:
        try:
            async with streamable_http_client(
                url, http_client=client, terminate_on_close=False, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams:
                yield streams
        finally:  # the SDK would not say it when it is cancelled
            if transport.session_id is not None:
                with trio.move_on_after(GOODBYE_SECONDS, shield=True):
                    await _say_goodbye(client, url, transport.session_id)


async def _say_goodbye(client: httpx2.AsyncClient, url: str, session_id: str) -> None:
    with suppress(httpx2.HTTPError):  # it may be why the conversation with it is over
        await client.delete(url, headers={SESSION_HEADER: session_id})


class _Transport(httpx2.AsyncBaseTransport):
    """Bounds what is not a stream of events, which the SDK bounds, and remembers the server's session."""

    def __init__(self, inner: JudgedTransport) -> None:
        self._inner = inner
        self.session_id: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        self.session_id = response.headers.get(SESSION_HEADER, self.session_id)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("it packs what it was asked not to")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """Not a generator: one that is left behind would have to be collected as garbage."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._pieces = aiter(stream)
        self._left = MAX_MESSAGE_BYTES

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._pieces)
        self._left -= len(piece)
        if self._left < 0:
            raise httpx2.StreamError(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")
        return piece

    async def aclose(self) -> None:
        await self._stream.aclose()
