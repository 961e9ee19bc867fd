"""One server of tools, for one conversation: connected, listed, asked, and connected again when it was lost."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import attrs
import mcp_types
import trio
from mcp import Client
from mcp.client import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from agents.mcp.limits import ServerGoneError, Streams
from agents.mcp.results import MAX_ERROR, MAX_TOOLS, cut, output_of, reason_of, usable
from engine.elements import JsonObject
from engine.interfaces import ToolError

CONNECT_SECONDS = 15.0
"""What a server has to be started, greeted and asked for its tools. The SDK waits 10 s for those that do not answer its newest
greeting before it tries the older one."""
CALL_SECONDS = 20.0
MAX_PAGES = 10
"""Of a list of tools."""
RECONNECT_SECONDS = (1.0, 5.0, 25.0)
"""Before each try to connect again; then the server is left alone. And before each try to be told again of changes."""
STEADY_SECONDS = 60.0
"""A connection that has lasted so long was a good one: the tries begin anew."""
RELIST_SECONDS = 1.0
"""Between looks at tools that change."""

logger = logging.getLogger(__name__)

_RESULT: TypeAdapter[mcp_types.CallToolResult | mcp_types.InputRequiredResult] = TypeAdapter(
    mcp_types.CallToolResult | mcp_types.InputRequiredResult
)
_SESSION_TERMINATED = "Session terminated"
"""What the SDK makes of a server that has forgotten the session."""
_ME = mcp_types.Implementation(name="souffleur", version="1")


def mute_sdk() -> None:
    """The SDK logs what it cannot read, and with it what was said. What goes wrong is told by us."""
    for name in ("mcp", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@attrs.define(eq=False)
class _Call:
    """One call under way, in a task of its own: see `Connection.call`."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_done: trio.Event = attrs.field(factory=trio.Event)
    result: mcp_types.CallToolResult | mcp_types.InputRequiredResult | None = None
    error: Exception | None = None


@attrs.define(eq=False)
class Connection:
    name: str
    open_streams: Callable[[], AbstractAsyncContextManager[Streams]]
    nursery: trio.Nursery
    """Where calls run."""
    tell: Callable[[], None]
    """Called when its tools are others than before."""
    tools: tuple[mcp_types.Tool, ...] = ()
    """Those it has, or had when it was there."""
    _client: Client | None = None
    _lost: trio.Event = attrs.field(factory=trio.Event)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep connected. Started when it is connected for the first time, or could not be; then it has ended, too."""
        has_begun = False
        tries = 0
        while True:
            began = trio.current_time()
            try:
                async with trio.open_nursery() as nursery:
                    with trio.move_on_after(CONNECT_SECONDS) as limit:
                        await nursery.start(self.hold_server)
                    if limit.cancelled_caught:
                        raise ServerGoneError(f"it did not answer in {CONNECT_SECONDS:g} s")
                    if not has_begun:
                        has_begun = True
                        task_status.started()
            except* (
                Exception
            ) as group:  # the border to the SDK and to other people's servers; a cancellation may be in the group
                logger.warning("MCP server %s cannot be used: %s", self.name, reason_of(group))
                logger.debug("MCP server %s failed", self.name, exc_info=group)
            if not has_begun:
                task_status.started()
                return
            tries = 0 if trio.current_time() - began >= STEADY_SECONDS else tries
            if tries == len(RECONNECT_SECONDS):
                logger.warning("MCP server %s is left alone", self.name)
                return
            await trio.sleep(RECONNECT_SECONDS[tries])
            tries += 1

    async def hold_server(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Ends with an exception: ServerGoneError, or whatever has broken in the SDK."""
        self._lost, self._changed = trio.Event(), trio.Event()
        async with Client(self.open_streams(), cache=None, client_info=_ME, message_handler=self._hear) as client:
            self._take(await self._list(client))
            self._client = client
            task_status.started()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._follow, client, name=f"MCP server {self.name}: tools")
                    nursery.start_soon(self._listen, client, name=f"MCP server {self.name}: changes")
                    await self._lost.wait()
                    raise ServerGoneError("it has lost the session")
            finally:
                self._client = None

    # --- its tools

    async def _list(self, client: Client) -> tuple[mcp_types.Tool, ...]:
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS:
                break
        return usable(tools, self.name)

    def _take(self, tools: tuple[mcp_types.Tool, ...]) -> None:
        if tools != self.tools:
            self.tools = tools
            self.tell()

    async def _follow(self, client: Client) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            try:
                self._take(await self._list(client))
            except MCPError as exc:
                logger.warning("MCP server %s has changed its tools, which cannot be listed: %s", self.name, exc.code)
            await trio.sleep(RELIST_SECONDS)

    async def _listen(self, client: Client) -> None:
        """Newer servers tell only those who ask, and nothing of what was before: whenever they have begun to tell, the tools are looked
        at. They may end it at any time, with a word or without, such as when they have too much to tell."""
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        tries = 0
        while True:
            began = trio.current_time()
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    if not changes.honored.tools_list_changed:
                        return
                    self._changed.set()
                    async for _ in changes:
                        self._changed.set()
            except (SubscriptionLost, MCPError) as exc:
                if isinstance(exc, MCPError) and exc.code == mcp_types.METHOD_NOT_FOUND:
                    return
            tries = 0 if trio.current_time() - began >= STEADY_SECONDS else tries
            if tries == len(RECONNECT_SECONDS):
                logger.warning("MCP server %s does not tell any more when its tools change", self.name)
                return
            await trio.sleep(RECONNECT_SECONDS[tries])
            tries += 1

    async def _hear(self, message: IncomingMessage) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._changed.set()

    # --- calls

    async def call(self, tool: str, arguments: JsonObject) -> str:
        """The result of a call, as text. It runs in a task of its own: when it is cancelled, the SDK tells the server so, for up to
        5 s if that does not listen, and nobody should have to wait for that.

        Raises:
            ToolError: it failed, and why.
        """
        client = self._client
        if client is None:
            raise ToolError(f"The server {self.name} cannot be reached now; do without it.")
        call = _Call()
        self.nursery.start_soon(self._perform, client, tool, arguments, call, name=f"MCP server {self.name}: {tool}")
        try:
            with trio.move_on_after(CALL_SECONDS):
                await call.is_done.wait()
        finally:
            call.scope.cancel(reason="nobody waits for it")
        if call.error is not None:
            raise ToolError(self._explain(call.error, client)) from call.error
        if isinstance(call.result, mcp_types.CallToolResult):
            return output_of(call.result)
        if call.result is not None:
            raise ToolError("The tool asks for something that only a person could give it.")
        if call.is_done.is_set():
            raise ToolError(f"The connection to the server {self.name} was lost; whether it has done it is not known.")
        raise ToolError(f"The server {self.name} did not answer in {CALL_SECONDS:g} seconds.")

    async def _perform(self, client: Client, tool: str, arguments: JsonObject, call: _Call) -> None:
        """Not by `Client.call_tool`: that checks results by a schema of the server's, which may make it fetch URLs or match for
        minutes, and answers what a person should be asked."""
        request = mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            with call.scope:
                call.result = await client.session.send_request(request, _RESULT)
        except Exception as exc:  # the border to the SDK
            call.error = exc
        finally:
            call.is_done.set()

    def _explain(self, error: Exception, client: Client) -> str:
        if not isinstance(error, MCPError):
            return f"The server {self.name} answered in a way that cannot be read."
        if error.code == mcp_types.CONNECTION_CLOSED or error.message == _SESSION_TERMINATED:
            if self._client is client:
                self._client = None  # before anybody asks it again
                self._lost.set()
            return f"The connection to the server {self.name} was lost; whether it has done it is not known."
        return f"The server {self.name} says: {cut(error.message, MAX_ERROR)}"
