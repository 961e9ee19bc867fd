"""Calls over real sockets: they go to the address that was judged and to no other, and nothing they bring is unbounded."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from engine import outbound
from engine.outbound import MAX_ANSWER_BYTES, open_caller
from engine.protocol.webhooks import Answer, CallError
from tests.engine.hook_server import Names, Reply, make_certificate, open_hook_server

pytestmark = pytest.mark.sockets

PUBLIC = "93.184.216.34"


async def call(url: str, *, allow_private: bool = True) -> Answer:
    with trio.fail_after(10):
        async with open_caller(allow_private=allow_private) as caller:
            return await caller.post(url, b'{"a": 1}', {"X-Own": "yes"})


async def refusal(url: str, *, allow_private: bool = True) -> tuple[str, bool]:
    with pytest.raises(CallError) as caught:
        await call(url, allow_private=allow_private)
    return str(caught.value), caught.value.again


def names(**addresses: Sequence[Sequence[str]]) -> Names:
    resolver = Names({name.replace("_", "."): answers for name, answers in addresses.items()})
    trio.socket.set_custom_hostname_resolver(resolver)
    return resolver


async def test_a_call_and_its_answer() -> None:
    async with open_hook_server(Reply(202, b"thanks")) as server:
        names(hook_example=[["127.0.0.1"]])
        assert await call(f"http://hook.example:{server.port}/a?b=c") == Answer(202, b"thanks")
    (received,) = server.received
    assert (received.method, received.target, received.body) == ("POST", "/a?b=c", b'{"a": 1}')
    assert received.headers["host"] == f"hook.example:{server.port}"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["accept-encoding"] == "identity"
    assert received.headers["x-own"] == "yes"
    assert received.headers["user-agent"] == "souffleur"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"])
async def test_what_is_inside_is_not_connected_to(host: str) -> None:
    async with open_hook_server() as server:
        message, again = await refusal(f"http://{host}:{server.port}/secret", allow_private=False)
    assert message == "its address is not one of the public internet"
    assert not again
    assert server.connections == 0


async def test_a_name_is_looked_up_once_and_its_judged_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is judged, and inside when it is used (DNS rebinding)."""
    connected: list[str] = []

    async def connect(host: str, port: int, **_: object) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        connected.append(host)
        raise OSError("there is nobody at that address here")

    monkeypatch.setattr(trio, "open_tcp_stream", connect)
    resolver = names(rebind_example=[[PUBLIC, "10.0.0.1"], ["127.0.0.1"]])
    await refusal("http://rebind.example/", allow_private=False)
    assert resolver.asked == ["rebind.example"]
    assert connected == [PUBLIC]


async def test_of_several_addresses_only_public_ones_count() -> None:
    async with open_hook_server() as server:
        names(mixed_example=[["127.0.0.1", "10.0.0.1"]])
        message, _ = await refusal(f"http://mixed.example:{server.port}/", allow_private=False)
    assert "public internet" in message
    assert server.connections == 0


async def test_an_address_where_nobody_is_does_not_hide_the_next() -> None:
    async with open_hook_server() as server:
        names(two_example=[["127.0.0.2", "127.0.0.1"]])
        assert (await call(f"http://two.example:{server.port}/")).status == 204


async def test_redirects_are_not_followed() -> None:
    async with open_hook_server() as inside, open_hook_server() as server:
        server.replies = (Reply(307, headers={"Location": f"http://127.0.0.1:{inside.port}/"}),)
        assert (await call(f"http://127.0.0.1:{server.port}/")).status == 307
    assert inside.connections == 0


async def test_an_endless_answer_is_not_read() -> None:
    async with open_hook_server(Reply(200, bytes(MAX_ANSWER_BYTES)), Reply(200, bytes(MAX_ANSWER_BYTES + 1))) as server:
        url = f"http://127.0.0.1:{server.port}/"
        assert await call(url) == Answer(200, bytes(MAX_ANSWER_BYTES))
        assert await call(url) == Answer(200, None)


async def test_an_answer_that_breaks_off_has_a_status() -> None:
    async with open_hook_server(Reply(200, b"tha", breaks=True)) as server:
        assert await call(f"http://127.0.0.1:{server.port}/") == Answer(200, None)


async def test_a_receiver_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "TOTAL_SECONDS", 0.05)
    async with open_hook_server(Reply(seconds=30)) as server:
        assert await refusal(f"http://127.0.0.1:{server.port}/") == ("no answer in 0.05 s", True)


async def test_nobody_there() -> None:
    async with open_hook_server() as server:
        pass
    assert await refusal(f"http://127.0.0.1:{server.port}/") == ("it cannot be reached (ConnectError)", True)
    names()
    assert await refusal("http://nowhere.example/") == ("its name has no address", True)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://hook.example/", "its URL is not one of http or https"),
        ("http:///path", "its URL is not one of http or https"),
        ("http://user:secret@hook.example/", "its URL holds a user name"),
        ("http://hook.example:port/", "its URL is none"),
        ("http://0177.0.0.1/", "its URL is none"),
        ("http://\0/", "its URL is none"),
    ],
)
async def test_what_is_no_address_of_a_server(url: str, message: str) -> None:
    assert await refusal(url) == (message, False)


async def test_the_certificate_is_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_certificate(tmp_path, "hook.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with open_hook_server(tls=context()) as server:
        names(hook_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
        assert (await call(f"https://hook.example:{server.port}/")).status == 204
        message, again = await refusal(f"https://other.example:{server.port}/")
        assert message == "it cannot be reached (its certificate does not hold)"
        assert again
    assert len(server.received) == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_hook_server() as proxy, open_hook_server() as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert (await call(f"http://127.0.0.1:{server.port}/")).status == 204
    assert (proxy.connections, server.connections) == (0, 1)
