"""Tools that come and go, of a server of the newer protocol in the same process, in virtual time."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import mcp_types
import pytest
import trio
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged
from trio.testing import MockClock

from agents.mcp.connection import RECONNECT_SECONDS, RELIST_SECONDS, STEADY_SECONDS, Connection


class Shop:
    """The server."""

    def __init__(self, most_listeners: int = 10) -> None:
        self.names = ["echo"]
        self.looks: list[float] = []
        """When its tools were listed."""
        self.bus = InMemorySubscriptionBus()
        self.listeners = ListenHandler(self.bus, max_subscriptions=most_listeners)
        self.server = Server[Any]("shop", on_list_tools=self.list_tools, on_subscriptions_listen=self.listeners)

    async def list_tools(self, *_: object) -> mcp_types.ListToolsResult:
        await trio.lowlevel.checkpoint()
        self.looks.append(trio.current_time())
        return mcp_types.ListToolsResult(
            tools=[mcp_types.Tool(name=name, input_schema={"type": "object"}) for name in self.names]
        )

    async def add(self, name: str) -> None:
        self.names.append(name)
        await self.bus.publish(ToolsListChanged())


@attrs.define(eq=False)
class Seen:
    """What a connection has had, each with its time."""

    connection: Connection
    tools: list[tuple[float, str]]


@asynccontextmanager
async def connected(shop: Shop, then: Callable[[], None] = lambda: None) -> AsyncGenerator[Seen]:
    """`then` runs when its tools have been listed for the first time, before it is asked to tell of changes."""
    seen: list[tuple[float, str]] = []

    def tell() -> None:
        seen.append((trio.current_time(), " ".join(tool.name for tool in connection.tools)))
        if len(seen) == 1:
            then()

    async with trio.open_nursery() as nursery:
        # The SDK's client takes a server of its own in the place of streams to one.
        connection = Connection("shop", cast("Any", lambda: shop.server), nursery, tell)
        await nursery.start(connection.run)
        yield Seen(connection, seen)
        nursery.cancel_scope.cancel()


async def test_a_change_is_told(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with connected(shop) as seen:
        await trio.sleep(5)
        await shop.add("fresh")
        await trio.sleep(5)
    assert seen.tools == [(0, "echo"), (5, "echo fresh")]


async def test_a_change_before_it_is_asked_to_tell(autojump_clock: MockClock) -> None:
    """Nobody is told of it, and it is there."""
    shop = Shop()
    async with connected(shop, lambda: shop.names.append("fresh")) as seen:
        await trio.sleep(60)
    assert seen.tools == [(0, "echo"), (0, "echo fresh")]
    assert shop.looks == [0, 0]


async def test_many_changes_are_looked_at_together(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with connected(shop):
        await trio.sleep(5)
        for number in range(10):
            await shop.add(f"tool{number}")
            await trio.sleep(RELIST_SECONDS / 100)
        await trio.sleep(60)
    assert shop.looks == [0, 0, 5, 5 + RELIST_SECONDS]


async def test_it_is_asked_again_when_it_ends_to_tell(autojump_clock: MockClock) -> None:
    """What changed in between is there, and what changes later is told."""
    shop = Shop()
    async with connected(shop) as seen:
        await trio.sleep(5)
        shop.listeners.close()
        await trio.sleep(0.5)
        await shop.add("between")
        await trio.sleep(4.5)
        await shop.add("later")
        await trio.sleep(5)
    again = 5 + RECONNECT_SECONDS[0]
    assert seen.tools == [(0, "echo"), (again, "echo between"), (10, "echo between later")]


async def test_a_server_that_ends_to_tell_again_and_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not asked for ever; one that has told for a while is."""
    shop = Shop()
    async with connected(shop) as seen:
        for _ in range(10):
            await trio.sleep(STEADY_SECONDS + 1)
            shop.listeners.close()
            await trio.sleep(RECONNECT_SECONDS[0] + 1)
        assert len(shop.looks) == 12
        assert not caplog.messages
        for seconds in (*RECONNECT_SECONDS, 1):
            shop.listeners.close()
            await trio.sleep(seconds + 0.5)
        await shop.add("fresh")
        await trio.sleep(1000)
        assert seen.tools == [(0, "echo")]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "MCP server shop does not tell any more when its tools change"
    ]


async def test_a_server_that_has_no_room_for_more_listeners(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(most_listeners=0)
    async with connected(shop) as seen:
        await trio.sleep(1000)
        assert seen.connection.tools
    assert shop.looks == [0]
    assert caplog.messages[-1] == "MCP server shop does not tell any more when its tools change"


async def test_a_server_that_cannot_tell(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    shop.server = Server[Any]("shop", on_list_tools=shop.list_tools)
    async with connected(shop):
        await trio.sleep(1000)
    assert shop.looks == [0]
    assert not caplog.messages
