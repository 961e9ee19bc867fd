"""Web pages over real sockets. A server on 127.0.0.1 counts as public here, and every other address is what it is."""

import gzip
import itertools
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from agents.web import judged, reading, tools
from agents.web.fetching import MAX_BYTES, MAX_REDIRECTS
from agents.web.reading import MAX_CHARACTERS, MAX_LINKS
from agents.web.tools import web_tools
from engine.interfaces import ToolError
from engine.protocol.webhooks import may_call
from tests.agents.support import make_context
from tests.engine.hook_server import HookServer, Names, Reply, make_certificate, open_hook_server

pytestmark = pytest.mark.sockets

HTML = {"Content-Type": "text/html; charset=utf-8"}
PAGE = """<!doctype html><title>Opening  hours &amp; prices</title><script>let hidden = 1</script>
<nav><a href="/">Home</a></nav><h1>Our café</h1><p>Open from <b>8 to 18</b>.</p>
<table><tr><th>Drink<th>Price<tr><td>Flat white<td>72 Kč</table><ul><li>One<li>Two</ul>
<p>See the <a href="/menu?x=1#top">menu</a>, <a href="mailto:a@b.example">write</a>.</p><footer>© us</footer>"""


def counts_as_public(address: str) -> bool:
    return address == "127.0.0.1" or may_call(address, allow_private=False)


async def read(url: str) -> dict[str, Any]:
    with trio.fail_after(30):
        result = await web_tools(counts_as_public).call("read_web_page", {"url": url}, make_context())
    found: dict[str, Any] = result.output
    return found


async def refusal(url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await read(url)
    return str(caught.value)


def at(server: HookServer, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def page(text: str | bytes, headers: Mapping[str, str] = HTML, status: int = 200) -> Reply:
    return Reply(status, text.encode() if isinstance(text, str) else text, headers)


def names(**addresses: Sequence[Sequence[str]]) -> Names:
    resolver = Names({name.replace("_", "."): answers for name, answers in addresses.items()})
    trio.socket.set_custom_hostname_resolver(resolver)
    return resolver


# --- what is read ------------------------------------------------------------------------------------------------------


async def test_a_page_is_read() -> None:
    async with open_hook_server(page(PAGE)) as server:
        names(cafe_example=[["127.0.0.1"]])
        found = await read(f"http://cafe.example:{server.port}/hours?day=1#now")
    assert found["url"] == f"http://cafe.example:{server.port}/hours?day=1"
    assert found["title"] == "Opening hours & prices"
    assert found["text"] == (
        "Our café\n\nOpen from 8 to 18.\n\nDrink\t\tPrice\nFlat white\t\t72 Kč\n  • One\n  • Two\n\nSee the menu, write."
    )
    assert found["links"] == [
        {"text": "Home", "url": f"http://cafe.example:{server.port}/"},
        {"text": "menu", "url": f"http://cafe.example:{server.port}/menu?x=1"},
    ]
    assert "cut" not in found
    (received,) = server.received
    assert (received.method, received.target) == ("GET", "/hours?day=1")
    assert received.headers["host"] == f"cafe.example:{server.port}"
    assert received.headers["user-agent"] == "Mozilla/5.0 (compatible; souffleur)"
    assert received.headers["accept-encoding"] == "gzip"
    assert "cookie" not in received.headers


async def test_the_main_part_of_a_page_is_what_counts() -> None:
    story = "A long story. " * 30
    async with open_hook_server(page(f"<div>Accept our cookies</div><main><p>{story}</main>")) as server:
        assert (await read(at(server)))["text"] == story.strip()
        server.replies = (page("<div>Everything is outside</div><main>x</main>"),)
        assert (await read(at(server)))["text"] == "Everything is outside\nx"


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/html; charset=windows-1250", "<p>žluťoučký".encode("cp1250"), "žluťoučký"),
        ('text/html; charset="Shift_JIS"', "<p>日本".encode("shift_jis"), "日本"),
        ("text/html", '<meta charset="iso-8859-2"><p>kůň'.encode("iso-8859-2"), "kůň"),
        ("text/html", "<p>naïve café déjà vu".encode(), "naïve café déjà vu"),
        ("text/html; charset=nonsense", "<p>dům".encode(), "dům"),
        ("text/html; charset=hex", b"<p>6869", "6869"),
        ("text/html; charset=iso-8859-1", "﻿<p>dům".encode(), "dům"),
        ("text/plain", "a < b\n\nč".encode(), "a < b\n\nč"),
        ("application/xhtml+xml", b"<p>well</p>", "well"),
    ],
)
async def test_characters_are_what_the_author_wrote(content_type: str, body: bytes, text: str) -> None:
    async with open_hook_server(page(body, {"Content-Type": content_type})) as server:
        assert (await read(at(server)))["text"] == text


async def test_a_page_may_come_packed() -> None:
    async with open_hook_server(page(gzip.compress(b"<p>small"), {**HTML, "Content-Encoding": "gzip"})) as server:
        assert (await read(at(server)))["text"] == "small"
        server.replies = (page(zlib.compress(b"<p>small"), {**HTML, "Content-Encoding": "deflate"}),)
        assert (await read(at(server)))["text"] == "small"
        server.replies = (page(b"not packed at all", {**HTML, "Content-Encoding": "gzip"}),)
        assert await refusal(at(server)) == "The page is damaged: it cannot be unpacked."
        server.replies = (page(b"x", {**HTML, "Content-Encoding": "br"}),)
        assert await refusal(at(server)) == "The page is packed in a way that was not asked for."


# --- what is bounded ---------------------------------------------------------------------------------------------------


async def test_a_long_page_is_cut() -> None:
    many = "".join(f"<a href=/{place}>link {place}</a> " for place in range(10 * MAX_LINKS))
    async with open_hook_server(page(many + "<p>" + "word " * MAX_CHARACTERS)) as server:
        found = await read(at(server))
    assert len(found["text"]) == MAX_CHARACTERS
    assert len(found["links"]) == MAX_LINKS
    assert found["cut"]


async def test_a_page_of_many_links_takes_no_longer_than_any() -> None:
    """In steps of the processor's time, as others may use the machine."""
    before = os.times()
    async with open_hook_server(
        page("".join(f"<p>Word and <a href=/{n}></a> word.</p>" for n in range(20_000)))
    ) as server:
        assert (await read(at(server)))["cut"]
    after = os.times()
    assert after.children_user - before.children_user < 2


async def test_what_is_larger_than_may_be_is_not_read_to_its_end() -> None:
    bomb = gzip.compress(b"<p>boom " + bytes([32]) * (50 << 20), 9)
    assert len(bomb) < 100_000
    async with open_hook_server(page(bomb, {**HTML, "Content-Encoding": "gzip"})) as server:
        began = time.perf_counter()
        found = await read(at(server))
        assert time.perf_counter() - began < 3
        assert (found["text"], bool(found["cut"])) == ("boom", True)
        server.replies = (page(b"<p>plain" + b" " * (MAX_BYTES + 1)),)
        assert (await read(at(server)))["cut"]
        server.replies = (page(b"<p>plain" + b" " * (MAX_BYTES - 8)),)
        assert "cut" not in await read(at(server))


async def test_a_page_that_breaks_off_is_read_as_far_as_it_came() -> None:
    async with open_hook_server(Reply(200, b"<p>the first half", HTML, breaks=True)) as server:
        found = await read(at(server))
    assert (found["text"], bool(found["cut"])) == ("the first half", True)


async def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "TOTAL_SECONDS", 0.1)
    async with open_hook_server(Reply(200, b"late", HTML, seconds=30)) as server:
        assert await refusal(at(server)) == "The page could not be read within 0.1 seconds."


async def test_a_page_made_to_be_endless_to_parse_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on meanwhile, and the process is gone afterwards."""
    monkeypatch.setattr(reading, "READ_SECONDS", 0.4)
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(trio.current_time())
            await trio.sleep(0.01)

    async with open_hook_server(page("<a><b><div>" * 100_000)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        assert await refusal(at(server)) == "The page is built in a way that cannot be read."
        nursery.cancel_scope.cancel()
    assert max(later - sooner for sooner, later in itertools.pairwise(beats)) < 0.3
    assert not any("reader.py" in arguments for arguments in _processes())


async def test_a_call_that_is_cancelled_leaves_no_process() -> None:
    async with open_hook_server(page("<a><b><div>" * 100_000)) as server:
        with trio.move_on_after(0.5) as scope:
            await read(at(server))
    assert scope.cancelled_caught
    assert not any("reader.py" in arguments for arguments in _processes())


def _processes() -> list[str]:
    """The command lines of this process's children."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()]


# --- what is no page ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (page("x", status=404), "The site answered with 404 (Not Found)."),
        (page("x", status=799), "The site answered with 799 (which has no meaning)."),
        (
            page("x", {"Content-Type": "application/pdf"}),
            "It is a PDF, which cannot be read here; look for a web page ",
        ),
        (page("x", {"Content-Type": "image/png"}), "It is an image, not a page of text."),
        (page("x", {"Content-Type": "application/zip"}), "It is no page of text but application/zip."),
        (page("x", {}), "It is no page of text but of an unknown kind."),
        (page(""), "The page is empty."),
        (page("<script>draw()</script>"), "The page has no text; what it shows is made by scripts, which are not run."),
        (Reply(200, b"", HTML, breaks=True), "The connection broke (RemoteProtocolError)."),
    ],
)
async def test_what_is_no_page(reply: Reply, message: str) -> None:
    async with open_hook_server(reply) as server:
        assert (await refusal(at(server))).startswith(message)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://a.example/", "Only http and https URLs"),
        ("file:///etc/passwd", "Only http and https URLs"),
        ("javascript:alert(1)", "Only http and https URLs"),
        ("cafe.example", "Only http and https URLs"),
        ("http:///path", "Only http and https URLs"),
        ("http://user:secret@a.example/", "The URL holds a user name or password"),
        ("http://a.example:99999/", "The URL's port is none"),
        ("http://0177.0.0.1/", "That is no URL"),
        ("http://a\0b/", "That is no URL"),
        ("", "Only http and https URLs"),
        ("http://a.example/" + "x" * 3000, "The URL is longer than 2000 characters."),
        ("http://nowhere.example/", "There is no site nowhere.example: its name has no address."),
        ("http://" + "a" * 64 + ".example/", "There is no site"),
    ],
)
async def test_what_is_no_url(url: str, message: str) -> None:
    names()
    assert (await refusal(url)).startswith(message)


async def test_nobody_there() -> None:
    async with open_hook_server() as server:
        pass
    assert await refusal(at(server)) == "The site cannot be reached (ConnectError)."


# --- where it may go ---------------------------------------------------------------------------------------------------

REFUSED = "That address is not one of the public internet; it may not be read."


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0x7f.1"),
        *("10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "0", "255.255.255.255"),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[fe80::1]", "[fd00::1]", "[64:ff9b::a00:1]"),
        *("[2002:7f00:1::]", "[ff02::1]", "224.0.0.1"),
    ],
)
async def test_what_is_inside_is_not_connected_to(host: str) -> None:
    async with open_hook_server() as server:
        with pytest.raises(ToolError, match="public internet"):
            await web_tools().call("read_web_page", {"url": f"http://{host}:{server.port}/"}, make_context())
    assert server.connections == 0


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.2", "169.254.169.254"])
async def test_a_name_that_leads_inside(address: str) -> None:
    names(inside_example=[[address]])
    assert await refusal("http://inside.example/") == REFUSED


async def test_a_name_is_looked_up_once_and_its_judged_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[str] = []

    async def connect(host: str, port: int, **_: object) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        connected.append(host)
        raise OSError("there is nobody at that address here")

    monkeypatch.setattr(trio, "open_tcp_stream", connect)
    resolver = names(rebind_example=[["93.184.216.34", "10.0.0.1"], ["127.0.0.2"]])
    assert await refusal("http://rebind.example/") == "The site cannot be reached (ConnectError)."
    assert resolver.asked == ["rebind.example"]
    assert connected == ["93.184.216.34"]


async def test_an_address_where_nobody_is_does_not_hide_the_next() -> None:
    async with open_hook_server(page("<p>here")) as server:
        names(two_example=[["127.0.0.3", "127.0.0.1"]])
        context = make_context()
        url = f"http://two.example:{server.port}/"
        result = await web_tools(lambda address: address.startswith("127.")).call(
            "read_web_page", {"url": url}, context
        )
    assert result.output["text"] == "here"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_and_judged_again(status: int) -> None:
    async with open_hook_server(page("", {"Location": "/there?a=b"}, status), page("<p>arrived")) as server:
        found = await read(at(server, "/here/"))
        assert (found["url"], found["text"]) == (at(server, "/there?a=b"), "arrived")
        for location in ("http://127.0.0.2/", "http://169.254.169.254/latest", "//[::1]/", "http://localhost.example/"):
            names(localhost_example=[["127.0.0.2"]])
            server.replies = (page("", {"Location": location}, status),)
            assert await refusal(at(server)) == REFUSED
        server.replies = (page("", {"Location": "file:///etc/passwd"}, status),)
        assert (await refusal(at(server))).startswith("Only http and https")
        server.replies = (page("", {"Location": "http://a:b@c.example/"}, status),)
        assert "user name" in await refusal(at(server))


async def test_redirects_end() -> None:
    async with open_hook_server(page("", {"Location": "/again"}, 302)) as server:
        assert "over more than 5 redirects" in await refusal(at(server))
        assert len(server.received) == MAX_REDIRECTS + 1


async def test_cookies_are_not_sent_back() -> None:
    cookies = {"Location": "/next", "Set-Cookie": "a=b; Path=/"}
    async with open_hook_server(page("", cookies, 302), page("<p>x")) as server:
        await read(at(server))
        assert ["cookie" in received.headers for received in server.received] == [False, False]


async def test_a_redirect_without_a_place_is_no_page() -> None:
    async with open_hook_server(page("x", status=302)) as server:
        assert await refusal(at(server)) == "The site answered with 302 (Found)."


async def test_the_certificate_is_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_certificate(tmp_path, "cafe.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    judged._ssl_context.cache_clear()  # pyright: ignore[reportPrivateUsage] - the authority is this test's own
    async with open_hook_server(page("<p>safe"), tls=context()) as server:
        names(cafe_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
        assert (await read(f"https://cafe.example:{server.port}/"))["text"] == "safe"
        assert "cannot be reached" in await refusal(f"https://other.example:{server.port}/")
    judged._ssl_context.cache_clear()  # pyright: ignore[reportPrivateUsage]


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_hook_server() as proxy, open_hook_server(page("<p>direct")) as server:
        monkeypatch.setenv("HTTP_PROXY", at(proxy))
        monkeypatch.setenv("ALL_PROXY", at(proxy))
        assert (await read(at(server)))["text"] == "direct"
    assert (proxy.connections, server.connections) == (0, 1)
