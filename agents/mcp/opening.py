"""The tools of an agent's MCP servers, for as long as a conversation lasts.

    async with open_mcp(agent.mcp_servers, trusted=True) as box:
        ...

One connection per server and conversation: a server keeps its state apart for each, and is not started again with every plan
(a server in Python takes a second for that). The context owns them all: when it is left, or cancelled, no task, socket or process
remains.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from agents.definitions import McpServer
from engine.boundary import nothing
from engine.interfaces import EmptyToolBox, ToolBox

if TYPE_CHECKING:
    from agents.mcp.box import McpToolBox


@asynccontextmanager
async def open_mcp(
    servers: Sequence[McpServer],
    *,
    trusted: bool,
    reserved: Collection[str] = (),
    directory: Path | None = None,
    changed: Callable[[], None] = nothing,
) -> AsyncGenerator[ToolBox]:
    """Connect to servers, all at once; those that cannot be used are warned about and left out. Entering takes 15 s at most, and
    with the first server of a process a second more, as the SDK is loaded: do it beside the first words. Leaving takes up to 4 s,
    for servers that do not end when they are told.

    Tools of servers come and go: the box's `specifications` are those of the moment they are asked for.

    `trusted`: the servers are from a project file. Others may neither be commands nor at addresses that are not public.
    `reserved`: names of other tools, which none of these may have. `directory`: where commands are started. `changed` is called when
    the tools are others than before.
    """
    if not servers:
        yield EmptyToolBox()
        return
    make_box = await trio.to_thread.run_sync(load_mcp)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        box = make_box(nursery, servers, trusted=trusted, reserved=reserved, directory=directory, changed=changed)
        await box.connect()
        try:
            yield box
        except Exception as exc:  # it is the caller's own, and no part of a group
            failure = exc
        nursery.cancel_scope.cancel(reason="the conversation is over")
    if failure is not None:
        raise failure


def load_mcp() -> "type[McpToolBox]":
    """Import the SDK, 1 s and 24 MB, once in a process. In a thread it still holds Python's lock for up to 0.35 s at a time, so a
    server whose project files name MCP servers should do this before it lets anybody in."""
    from agents.mcp.box import McpToolBox
    from agents.mcp.connection import mute_sdk

    mute_sdk()
    return McpToolBox
