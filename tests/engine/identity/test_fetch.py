"""Fetching a JWKS: from files, and over real loopback sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.errors import ConfigurationError
from engine.identity.fetch import MAX_BYTES, FetchError, open_source
from engine.identity.key_ring import REFRESH_SECONDS, open_key_ring
from engine.identity.tokens import TokenHeader
from tests.engine.identity.support import ec_key, jwks, public

sockets = pytest.mark.sockets


@attrs.define
class Server:
    """Gives one answer to whatever it is asked, and closes."""

    answer: bytes = b""
    requests: list[bytes] = attrs.field(factory=list[bytes])
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/jwks?tenant=secret"

    def answer_with(self, body: bytes, status: str = "200 OK", *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
        self.answer = "\r\n".join(lines).encode() + body

    async def handle(self, stream: trio.SocketStream) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += await stream.receive_some()
        self.requests.append(request)
        try:
            await stream.send_all(self.answer)
        except trio.BrokenResourceError:  # who has heard enough may leave
            return


@asynccontextmanager
async def open_server() -> AsyncGenerator[Server]:
    server = Server()
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1")
        listeners = await nursery.start(serve)
        server.port = listeners[0].socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()


@sockets
async def test_a_document_is_fetched() -> None:
    async with open_server() as server, open_source(server.url) as fetch:
        server.answer_with(b'{"keys": []}')
        assert await fetch() == b'{"keys": []}'
        server.answer_with(b'{"keys": [1]}')
        assert await fetch() == b'{"keys": [1]}'
    assert server.requests[0].startswith(b"GET /jwks?tenant=secret HTTP/1.1\r\n")


@sockets
async def test_redirects_are_not_followed() -> None:
    async with open_server() as server, open_server() as other, open_source(server.url) as fetch:
        other.answer_with(b"stolen")
        for place in (other.url, "file:///etc/hosts", "/elsewhere"):
            server.answer_with(b"", "302 Found", f"Location: {place}")
            with pytest.raises(FetchError, match=r"the answer was 302$"):
                await fetch()
    assert other.requests == []
    assert len(server.requests) == 3


@sockets
async def test_what_goes_wrong_is_told_without_the_address() -> None:
    async with open_server() as server, open_source(server.url) as fetch:
        server.answer_with(b"secret", "500 Internal Server Error")
        with pytest.raises(FetchError, match=r"^the answer was 500$"):
            await fetch()
        for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", b"nonsense\r\n\r\n"):
            server.answer = answer
            with pytest.raises(FetchError, match=r"^no answer \(\w+\)$"):
                await fetch()
        server.port, port = 1, server.port
        async with open_source(server.url) as nowhere:
            with pytest.raises(FetchError, match=r"^no answer \(ConnectError\)$"):
                await nowhere()
        server.port = port


@sockets
async def test_a_document_is_bounded() -> None:
    async with open_server() as server, open_source(server.url) as fetch:
        server.answer_with(b" " * MAX_BYTES)
        assert len(await fetch()) == MAX_BYTES
        server.answer_with(b" " * (MAX_BYTES + 1))
        with pytest.raises(FetchError, match=f"more than {MAX_BYTES} bytes"):
            await fetch()
        server.answer = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        )
        server.answer += (b"10000\r\n" + b" " * 0x10000 + b"\r\n") * 8  # and no end
        with pytest.raises(FetchError, match=f"more than {MAX_BYTES} bytes"):
            await fetch()


@sockets
async def test_keys_rotate(mock_clock: MockClock) -> None:
    mock_clock.rate = 1.0  # real time, of which some can be left out
    async with open_server() as server:
        server.answer_with(jwks(public(ec_key(), kid="k1")))
        async with open_key_ring(server.url) as ring:
            assert await ring.find(TokenHeader("ES256", "k1")) is not None
            server.answer_with(jwks(public(ec_key(1), kid="k2")))
            for _ in range(20):
                assert await ring.find(TokenHeader("ES256", "k2")) is None
            mock_clock.jump(REFRESH_SECONDS)
            assert await ring.find(TokenHeader("ES256", "k2")) is not None
            assert await ring.find(TokenHeader("ES256", "k1")) is None
    assert len(server.requests) == 2


async def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(public(ec_key(), kid="k1")))
    async with open_key_ring(str(path)) as ring:
        assert await ring.find(TokenHeader("ES256", "k1")) is not None
    async with open_source(str(path)) as fetch:
        path.write_bytes(b"x" * (MAX_BYTES + 1))
        with pytest.raises(FetchError, match="more than"):
            await fetch()
        path.unlink()
        with pytest.raises(FetchError, match=r"^the file cannot be read \(FileNotFoundError\)$"):
            await fetch()


async def test_a_file_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "keys.json").write_bytes(b"x")
    async with open_source("~/keys.json") as fetch:
        assert await fetch() == b"x"


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"keys": []}'])
async def test_a_file_has_to_be_right_from_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="SOUFFLEUR_JWT_KEYS: the keys of tokens"):
        async with open_key_ring(str(path)):
            raise AssertionError("it was taken")


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example.com/jwks",
        "http://127.0.0.1.example.com/jwks",
        "http://169.254.169.254/jwks",
        "ftp://id.example.com/jwks",
        "file:///etc/passwd",
        "https://user:hunter2@id.example.com/jwks",
        "https://id.example.com/jwks#hunter2",
        "https:///jwks",
        "https://[::1/jwks",
        "https://id.example.com:port/jwks",
    ],
)
async def test_places_keys_must_not_come_from(url: str) -> None:
    with pytest.raises(ConfigurationError, match="SOUFFLEUR_JWT_KEYS") as caught:
        async with open_source(url):
            raise AssertionError("it was taken")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://id.example.com/a", "http://localhost:8/a", "http://[::1]/a", "http://127.0.0.9/a"]
)
async def test_places_keys_may_come_from(url: str) -> None:
    async with open_source(url):
        pass
