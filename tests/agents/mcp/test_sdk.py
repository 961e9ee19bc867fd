"""Against servers of the official SDK, over both ways, in both of its protocols; and over HTTP against what is no such server.

Its servers are processes that take a second and more to start: this file takes ten to thirty.
"""

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from mcp import Client

from agents.definitions import McpServer
from agents.mcp import connection
from agents.mcp.opening import load_mcp, open_mcp
from engine.interfaces import ToolBox, ToolError
from tests.agents.mcp.support import HERE, processes, until
from tests.agents.support import make_context
from tests.engine.hook_server import Reply, open_hook_server

pytestmark = pytest.mark.sockets

PROGRAM = str(HERE / "sdk_server.py")


@attrs.frozen
class HttpServer:
    process: subprocess.Popen[bytes]
    log: Path
    port: int

    @property
    def as_server(self) -> McpServer:
        return McpServer(name="official", url=f"http://127.0.0.1:{self.port}/mcp")

    def is_up(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def http_server(tmp_path: Path) -> Iterator[HttpServer]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, PROGRAM, str(port)], stdout=output, stderr=output)
    yield HttpServer(process, log, port)
    process.kill()
    process.wait()


@pytest.fixture(params=["auto", "legacy"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    load_mcp()
    mode: str = request.param
    monkeypatch.setattr("agents.mcp.connection.Client", partial(Client, mode=mode))
    monkeypatch.setattr(connection, "RELIST_SECONDS", 0.05)
    return mode


def names(box: ToolBox) -> list[str]:
    return [specification.name for specification in box.specifications]


async def call(box: ToolBox, tool: str, /, **arguments: object) -> object:
    return (await box.call(tool, arguments, make_context())).output


async def converse(box: ToolBox) -> None:
    assert names(box) == ["add", "slow", "what_was_stopped", "grow", "fail"]
    assert await call(box, "add", a=1, b=2) == "3"
    with pytest.raises(ToolError, match="Error executing tool fail"):
        await call(box, "fail")
    with pytest.raises(ToolError, match="a\n  Input should be a valid integer"):
        await call(box, "add", a="x", b=2)
    with trio.move_on_after(0.3) as scope:
        await call(box, "slow")
    assert scope.cancelled_caught
    with trio.fail_after(5):
        while True:  # the server learns in its own time that nobody waits
            if await call(box, "what_was_stopped") == "slow":
                break
    assert await call(box, "grow") == "grown"
    await until(lambda: "fresh" in names(box))
    assert await call(box, "fresh") == "fresh"


async def test_over_standard_input_and_output(protocol: str) -> None:
    server = McpServer(name="official", command=[sys.executable, PROGRAM])
    with trio.fail_after(30):
        async with open_mcp([server], trusted=True) as box:
            await converse(box)
    assert processes() == []


async def test_over_http(protocol: str, http_server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    await until(http_server.is_up)
    with trio.fail_after(30):
        async with open_mcp([http_server.as_server], trusted=True) as box:
            await converse(box)
            with trio.move_on_after(0.3):  # what runs when it ends
                await call(box, "slow")
    said_goodbye = '"DELETE /mcp HTTP/1.1" 200' in http_server.log.read_text()
    assert said_goodbye is (protocol == "legacy")  # the newer one has no sessions
    assert not any(record.levelno >= logging.WARNING for record in caplog.records)


async def test_a_server_that_dies_in_a_call(http_server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    load_mcp()
    monkeypatch.setattr(connection, "RECONNECT_SECONDS", (0.05,))
    await until(http_server.is_up)

    async def kill() -> None:
        await trio.sleep(0.2)
        http_server.process.kill()

    with trio.fail_after(30):
        async with open_mcp([http_server.as_server], trusted=True) as box, trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises(ToolError, match="was lost"):
                await call(box, "slow")
            with pytest.raises(ToolError, match=r"was lost|cannot be reached now"):
                await call(box, "add", a=1, b=2)


# --- what is no server of tools ------------------------------------------------------------------------------------------

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(404), "it says: "),
        (Reply(500), "it says: Server returned an error response"),
        (Reply(200, b"<html>", {"Content-Type": "text/html"}), "it says: Unexpected content type: text/html"),
        (Reply(200, b"not json", JSON), "it says: Failed to parse JSON response"),
        (
            Reply(200, b'"' + b"x" * (1 << 20), JSON),
            "it says: Failed to parse JSON response: it sent a message of more",
        ),
        (Reply(200, b"x", {**JSON, "Content-Encoding": "gzip"}), "the connection broke (RemoteProtocolError)"),
        (Reply(307, b"", {"Location": "http://127.0.0.2/"}), "it says: Redirect to http://127.0.0.2/ not followed"),
        (Reply(200, b"{", JSON, breaks=True), "the connection broke (RemoteProtocolError)"),
        (Reply(200, b"{}", JSON, seconds=30), "it did not answer in 0.4 s"),
    ],
)
async def test_what_is_no_server_is_left_out(
    reply: Reply, message: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_mcp()
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.4)
    async with open_hook_server(reply) as http:
        with trio.fail_after(5):
            async with open_mcp([McpServer(name="o", url=f"http://127.0.0.1:{http.port}/")], trusted=True) as box:
                assert names(box) == []
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage().startswith(f"MCP server o cannot be used: {message}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "2130706433"])
async def test_those_of_strangers_are_not_inside(host: str, caplog: pytest.LogCaptureFixture) -> None:
    async with open_hook_server() as http:
        server = McpServer(name="o", url=f"http://{host}:{http.port}/")
        async with open_mcp([server], trusted=False) as box:
            assert names(box) == []
        assert http.connections == 0
    assert caplog.messages[-1] == "MCP server o cannot be used: its address is not one of the public internet"


async def test_nobody_there(caplog: pytest.LogCaptureFixture) -> None:
    async with open_hook_server() as http:
        pass
    async with open_mcp([McpServer(name="o", url=f"http://127.0.0.1:{http.port}/")], trusted=True) as box:
        assert names(box) == []
    assert caplog.messages[-1] == "MCP server o cannot be used: it cannot be reached"
