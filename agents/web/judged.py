"""Connections that go to judged addresses only.

The name in a URL is looked up here, its addresses are judged, and the connection goes to a judged address itself: a name that means
one address when it is checked and another when it is used gains nothing. The certificate is still the name's, and so is the Host
header. Proxies of the environment are not used, as they would look names up for themselves.

Webhooks hold to the same rules with a client of their own (`engine.outbound`). This one is of httpx2, which the MCP SDK rides.
"""

import socket
import ssl
from collections.abc import Callable
from functools import cache

import httpx2
import trio

Judge = Callable[[str], bool]
"""Whether an IP address may be connected to."""

MAX_ADDRESSES = 3
"""Of one name, tried one after the other."""


class RefusedAddressError(httpx2.TransportError):
    """All addresses of the name are such as may not be connected to."""


class UnknownNameError(httpx2.TransportError):
    """The name has no address."""


@cache
def _ssl_context() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class JudgedTransport(httpx2.AsyncBaseTransport):
    """For one client of one server: connections that are kept are known by their address, not by the name whose certificate was
    checked, so a client that asks several names keeps none (`keep_alive=False`)."""

    def __init__(self, judge: Judge, context: ssl.SSLContext, *, keep_alive: bool) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None if keep_alive else 0)
        self._judge = judge
        self._inner = httpx2.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits)

    @classmethod
    async def open(cls, judge: Judge, *, keep_alive: bool) -> "JudgedTransport":
        """Close it, or the client it is given to. The certificates, once in a process, hold a thread up for 20 ms and more."""
        context = await trio.to_thread.run_sync(_ssl_context)
        return cls(judge, context, keep_alive=keep_alive)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """As httpx2 has it.

        Raises:
            RefusedAddressError, UnknownNameError: see there.
            httpx2.TransportError: whatever else can go wrong on the way.
        """
        host = request.url.raw_host.decode("ascii")
        failure: httpx2.TransportError = UnknownNameError("the name has no address")
        for address in (await self._addresses(host, request.url.port or 0))[:MAX_ADDRESSES]:
            judged = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # the Host among them is the name's
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(judged)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
                failure = exc
        raise failure

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:  # UnicodeError: a label of more than 63 letters
            raise UnknownNameError("the name has no address") from exc
        allowed = [address for *_, sockaddr in found if self._judge(address := str(sockaddr[0]))]
        if not allowed:
            raise RefusedAddressError("its address is not one of the public internet")
        return allowed

    async def aclose(self) -> None:
        await self._inner.aclose()
