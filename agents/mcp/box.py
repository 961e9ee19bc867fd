"""The tools of several servers as one box. Made by `agents.mcp.opening`."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import attrs
import mcp_types
import trio

from agents.definitions import McpServer
from agents.mcp.connection import CALL_SECONDS, Connection
from agents.mcp.http import open_http
from agents.mcp.limits import Streams
from agents.mcp.results import named, specification_of
from agents.mcp.stdio import open_stdio
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolResult, ToolSpecification, UnknownToolError
from engine.protocol.webhooks import may_call

TIME_LIMIT_SECONDS = CALL_SECONDS + 2.0
"""Told to who runs the tools; a call's own limit comes first, as it has a better sentence to say."""

logger = logging.getLogger(__name__)


@attrs.frozen
class _Entry:
    connection: Connection
    tool: str
    specification: ToolSpecification


class McpToolBox(ToolBox):
    def __init__(
        self,
        nursery: trio.Nursery,
        servers: Sequence[McpServer],
        *,
        trusted: bool,
        reserved: Collection[str],
        directory: Path | None,
        changed: Callable[[], None],
    ) -> None:
        self._nursery = nursery
        self._reserved = frozenset(reserved)
        self._connections = [
            Connection(server.name, opener, nursery, changed)
            for server in servers
            if (opener := _opener(server, trusted, directory)) is not None
        ]
        self._seen: Sequence[tuple[mcp_types.Tool, ...]] = ()
        self._entries: Mapping[str, _Entry] = {}

    async def connect(self) -> None:
        """Returns when every server is connected, or has failed."""
        async with trio.open_nursery() as connecting:
            for connection in self._connections:
                connecting.start_soon(self._nursery.start, connection.run, name=f"MCP server {connection.name}: first")

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return tuple(entry.specification for entry in self._table().values())

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        entry = self._table().get(name)
        if entry is None:
            raise UnknownToolError(f"Tool {name} does not exist.")
        return ToolResult(await entry.connection.call(entry.tool, arguments))

    def _table(self) -> Mapping[str, _Entry]:
        """By the names that models use. Made anew when a server has changed its tools, whose tuple is another one then."""
        seen = [connection.tools for connection in self._connections]
        if len(seen) != len(self._seen) or any(new is not old for new, old in zip(seen, self._seen, strict=True)):
            self._seen, self._entries = seen, self._make_table()
        return self._entries

    def _make_table(self) -> Mapping[str, _Entry]:
        found = [(connection, tool) for connection in self._connections for tool in connection.tools]
        names = named([(connection.name, tool.name) for connection, tool in found], self._reserved)
        entries: dict[str, _Entry] = {}
        for (connection, tool), name in zip(found, names, strict=True):
            if name:
                entries[name] = _Entry(connection, tool.name, specification_of(tool, name, TIME_LIMIT_SECONDS))
            else:
                logger.warning("a tool of the MCP server %s is left out: its name is taken", connection.name)
        return entries


def _opener(
    server: McpServer, trusted: bool, directory: Path | None
) -> Callable[[], AbstractAsyncContextManager[Streams]] | None:
    if server.url is not None:
        return partial(open_http, server.url, partial(may_call, allow_private=trusted))
    if server.command is not None and trusted:
        return partial(open_stdio, server.command, server.name, directory)
    logger.warning("MCP server %s cannot be used: only project files may start commands", server.name)
    return None
