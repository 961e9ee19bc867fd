"""Calling other people's servers. The only room that knows the HTTP client for that; import it when there is something to call.

The name in a URL is looked up here, its addresses are judged, and the connection goes to the judged address itself: a name that
means one address when it is checked and another when it is used gains nothing. The certificate is still the name's. Proxies of
the environment are not used, as they would look names up for themselves, and redirects are not followed.
"""

import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import attrs
import httpx  # noqa: ASYNC127 - the project's chosen client; this is the one room to change for its successor
import trio

from engine.protocol.webhooks import Answer, CallError, may_call

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
"""Of silence, while a request is sent or its answer read."""
TOTAL_SECONDS = 20.0
MAX_ANSWER_BYTES = 64 << 10
MAX_ADDRESSES = 3
"""Of one name, tried one after the other."""
USER_AGENT = "souffleur"


@asynccontextmanager
async def open_caller(*, allow_private: bool) -> AsyncGenerator["Caller"]:
    """A caller. `allow_private`: also of addresses that are not public, such as this computer's own."""
    # The certificates hold a thread up for 20 ms and more.
    context = await trio.to_thread.run_sync(httpx.create_ssl_context)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    # No connection is kept: the client would know it by its address and not by the name its certificate was checked for.
    async with httpx.AsyncClient(
        verify=context, limits=limits, timeout=timeout, trust_env=False, follow_redirects=False
    ) as client:
        yield Caller(client, allow_private)


@attrs.frozen
class Caller:
    _client: httpx.AsyncClient
    _allow_private: bool

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a body of JSON and get the answer, whatever its status.

        Raises:
            CallError: no answer in time, or the URL may not be called.
        """
        status: int | None = None
        answer: bytes | None = None
        with trio.move_on_after(TOTAL_SECONDS):
            target = _parse(url)
            response = await self._send(target, body, headers)
            try:
                status = response.status_code
                answer = await _read(response)
            finally:
                with trio.move_on_after(1, shield=True):
                    await response.aclose()
        if status is None:
            raise CallError(f"no answer in {TOTAL_SECONDS:g} s")
        return Answer(status, answer)

    async def _send(self, target: httpx.URL, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        failure = CallError("its name has no address")
        for address in (await self._addresses(target))[:MAX_ADDRESSES]:
            request = self._client.build_request(
                "POST",
                target.copy_with(host=address),
                content=body,
                headers={
                    "User-Agent": USER_AGENT,
                    "Content-Type": "application/json",
                    "Accept-Encoding": "identity",  # a small answer must not be able to unpack into a large one
                    **headers,
                    "Host": target.netloc.decode("ascii"),
                },
                extensions={"sni_hostname": target.raw_host.decode("ascii")},
            )
            try:
                return await self._client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                failure = CallError(f"it cannot be reached ({_reason(exc)})")
            except httpx.HTTPError as exc:
                raise CallError(f"the connection broke ({type(exc).__name__})") from exc
        raise failure

    async def _addresses(self, target: httpx.URL) -> list[str]:
        host = target.raw_host.decode("ascii")
        try:
            found = await trio.socket.getaddrinfo(host, target.port or 0, type=socket.SOCK_STREAM)
        except OSError as exc:
            raise CallError("its name has no address") from exc
        addresses = [str(sockaddr[0]) for *_, sockaddr in found]
        allowed = [address for address in addresses if may_call(address, allow_private=self._allow_private)]
        if not allowed:
            raise CallError("its address is not one of the public internet", again=False)
        return allowed


def _parse(url: str) -> httpx.URL:
    try:
        target = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as exc:
        raise CallError("its URL is none", again=False) from exc
    if target.scheme not in ("http", "https") or not target.host:
        raise CallError("its URL is not one of http or https", again=False)
    if target.userinfo:
        raise CallError("its URL holds a user name", again=False)
    return target


async def _read(response: httpx.Response) -> bytes | None:
    document = bytearray()
    try:
        with trio.CancelScope() as reading:  # a loop that is merely left would leave the client's generators behind
            async for chunk in response.aiter_raw():
                document += chunk
                if len(document) > MAX_ANSWER_BYTES:
                    reading.cancel(reason="the answer is too long")
    except httpx.HTTPError:
        return None  # its status had come
    return None if len(document) > MAX_ANSWER_BYTES else bytes(document)


def _reason(exc: BaseException) -> str:
    """Whether it was the certificate is worth knowing; the rest of what the client says is about its own making."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate does not hold"
        cause = cause.__cause__ or cause.__context__
    return type(exc).__name__
