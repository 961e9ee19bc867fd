"""Servers that are processes: real ones, on the real clock, with every fault they can have."""

import json
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from agents.definitions import McpServer
from agents.mcp import connection, opening, stdio
from agents.mcp.opening import open_mcp
from engine.interfaces import ToolBox, ToolError, UnknownToolError
from tests.agents.mcp.support import is_running, processes, tiny, until
from tests.agents.support import make_context


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that do not listen any more are not waited for."""
    monkeypatch.setattr(stdio, "EXIT_SECONDS", 0.2)


@asynccontextmanager
async def opened(*servers: McpServer, reserved: Sequence[str] = ()) -> AsyncGenerator[ToolBox]:
    """The box, and nothing left behind it: no process, no task, no file."""
    await trio.to_thread.run_sync(opening.load_mcp)
    files = len(os.listdir("/proc/self/fd"))
    with trio.fail_after(30):
        async with open_mcp(servers, trusted=True, reserved=reserved) as box:
            yield box
    assert processes() == []
    assert len(os.listdir("/proc/self/fd")) == files


async def call(box: ToolBox, tool: str, /, **arguments: Any) -> Any:
    return (await box.call(tool, arguments, make_context())).output


async def refusal(box: ToolBox, tool: str, /, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await call(box, tool, **arguments)
    return str(caught.value)


def names(box: ToolBox) -> list[str]:
    return [specification.name for specification in box.specifications]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- what works --------------------------------------------------------------------------------------------------------


async def test_tools_are_called() -> None:
    async with opened(tiny()) as box:
        echo = box.specifications[0]
        assert (echo.name, echo.description, echo.timeout_seconds) == ("echo", "Does echo.", 22)
        assert echo.parameters == {"type": "object", "properties": {"text": {"type": "string"}}}
        assert await call(box, "echo", text="žluť 🎉") == "žluť 🎉"
        assert await refusal(box, "fail") == "there is no such drink"
        assert await call(box, "structured") == '{"price": 72}'
        assert await call(box, "picture") == (
            "[image/png, which cannot be shown here]\n\n[x: http://a.example/x]\n\ninside"
        )
        assert await call(box, "ask") == "asked"
        with pytest.raises(UnknownToolError):
            await call(box, "nothing")


async def test_servers_with_the_same_tools_have_their_names_before_them() -> None:
    async with opened(tiny(name="a"), tiny("schema", name="my b"), reserved=["good"]) as box:
        assert "echo" in names(box)
        assert "my_b_good" in names(box)
    async with opened(tiny("schema", name="a"), tiny("schema", name="b")) as box:
        assert names(box) == ["a_good", "b_good"]


async def test_tools_change() -> None:
    async with opened(tiny()) as box:
        assert "fresh" not in names(box)
        assert await call(box, "change") == "done"
        await until(lambda: "fresh" in names(box))
        assert await call(box, "fresh", text="x") == "x"


async def test_a_server_knows_nothing_of_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("SOUFFLEUR_ADMIN_KEY", "secret")
    async with opened(tiny()) as box:
        found = json.loads(await call(box, "environment"))
    assert set(found) <= {*stdio.KEPT_VARIABLES, "LC_CTYPE"}  # Python sets that one for itself
    assert "PATH" in found


async def test_an_error_of_the_conversation_is_not_put_into_a_group() -> None:
    with pytest.raises(ValueError, match="own"):
        async with opened(tiny()):
            raise ValueError("our own")
    assert processes() == []


async def test_without_servers_nothing_is_opened() -> None:
    async with open_mcp([], trusted=True) as box:
        assert list(box.specifications) == []


async def test_commands_are_for_project_files(caplog: pytest.LogCaptureFixture) -> None:
    async with open_mcp([tiny()], trusted=False) as box:
        assert list(box.specifications) == []
        assert processes() == []
    assert warnings(caplog) == ["MCP server tiny cannot be used: only project files may start commands"]


# --- servers that cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (McpServer(name="tiny", command=["/nowhere/at/all"]), "its command does not exist"),
        (McpServer(name="tiny", command=["/"]), "it cannot be started (Permission denied)"),
        (tiny("exit"), "it has ended; no licence; no licence; no licence"),
        (tiny("hang"), "it did not answer in 0.5 s"),
        (tiny("babble"), "it prints what are no messages"),
    ],
)
async def test_a_server_that_fails_is_left_out(
    server: McpServer, message: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = tiny(name="good")
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    async with opened(good, server) as box:
        assert await call(box, "echo", text="still here") == "still here"
    assert warnings(caplog) == [f"MCP server tiny cannot be used: {message}"]


async def test_lines_that_are_no_messages_are_passed_over() -> None:
    async with opened(tiny("chatty")) as box:
        assert await call(box, "echo", text="x") == "x"


async def test_a_list_without_end_is_not_read_to_its_end() -> None:
    async with opened(tiny("endless")) as box:
        assert len(names(box)) == 13  # each of its pages has the same


# --- what happens to calls ---------------------------------------------------------------------------------------------


async def test_a_huge_result_is_cut() -> None:
    async with opened(tiny()) as box:
        assert await call(box, "huge") == "x" * 16_000 + "\n[cut here: there are 184000 more characters]"


async def test_a_server_that_dies_in_a_call_is_connected_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RECONNECT_SECONDS", (0.05, 0.05))
    lost = "The connection to the server tiny was lost; whether it has done it is not known."
    async with opened(tiny(), tiny("schema", name="other")) as box:
        assert await refusal(box, "die") == lost
        assert await refusal(box, "echo") == "The server tiny cannot be reached now; do without it."
        assert await call(box, "good", text="not hurt") == "not hurt"
        for _ in range(2):
            await wait_for(box, "echo")
            assert await refusal(box, "die") == lost
        await trio.sleep(0.1)
        assert await refusal(box, "echo") == "The server tiny cannot be reached now; do without it."
    gone = "MCP server tiny cannot be used: it has ended; something terrible has happened"
    assert warnings(caplog)[1:] == [gone, gone, gone, "MCP server tiny is left alone"]


async def wait_for(box: ToolBox, tool: str) -> None:
    while True:
        try:
            await call(box, tool)
        except ToolError:
            await trio.sleep(0.02)
        else:
            return


async def test_a_message_without_end_ends_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RECONNECT_SECONDS", ())
    async with opened(tiny()) as box:
        assert "was lost" in await refusal(box, "flood")
    assert warnings(caplog)[0] == "MCP server tiny cannot be used: it sent a message of more than 1 MiB"


async def test_a_slow_call_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CALL_SECONDS", 0.1)
    async with opened(tiny()) as box:
        assert await refusal(box, "slow") == "The server tiny did not answer in 0.1 seconds."


async def test_a_barge_in_waits_for_no_server() -> None:
    """Not even for one that does not read what it is told, whose pipe is full."""
    async with opened(tiny(), tiny(name="other")) as box:
        for tool in ("tiny_deaf", "tiny_echo", "tiny_echo", "tiny_echo"):
            began = trio.current_time()
            with trio.move_on_after(0.05) as scope:
                await call(box, tool, text="x" * 200_000)
            assert scope.cancelled_caught
            assert trio.current_time() - began < 0.3
        assert await call(box, "other_echo", text="not hurt") == "not hurt"


async def test_calls_run_side_by_side() -> None:
    async with opened(tiny(name="a"), tiny(name="b")) as box:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, box, "a_slow")
            await trio.sleep(0.02)
            assert await call(box, "b_echo", text="x") == "x"
            nursery.cancel_scope.cancel()


# --- how it ends -------------------------------------------------------------------------------------------------------


async def test_what_a_server_has_started_ends_with_it() -> None:
    async with opened(tiny()) as box:
        pids = json.loads(await call(box, "children"))
        assert [is_running(pid) for pid in pids] == [True, True]
    await until(lambda: not any(map(is_running, pids)))  # the system takes a moment


async def test_a_server_that_will_not_go_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "EXIT_SECONDS", 0.1)
    monkeypatch.setattr(stdio, "TERMINATE_SECONDS", 0.1)
    async with opened(tiny("stubborn")) as box:
        await call(box, "echo")
        began = trio.current_time()
    assert trio.current_time() - began < 2


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03, 0.1, 0.2, 0.4])
async def test_cancelled_whenever_nothing_is_left(seconds: float) -> None:
    async def hold() -> None:
        async with opened(tiny(), tiny(name="b")) as box:
            await call(box, "tiny_slow")

    await trio.to_thread.run_sync(opening.load_mcp)
    files = len(os.listdir("/proc/self/fd"))
    with trio.move_on_after(seconds):
        await hold()
    assert processes() == []
    assert len(os.listdir("/proc/self/fd")) == files
