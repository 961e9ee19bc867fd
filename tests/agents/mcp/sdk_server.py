"""A server made with the official SDK.

python sdk_server.py            over standard input and output
python sdk_server.py PORT       over HTTP
"""

import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("official")
stopped: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def slow() -> str:
    """Take a minute, and remember when that was not wanted."""
    try:
        await anyio.sleep(60)
    except BaseException:
        stopped.append("slow")
        raise
    return "done"


@server.tool()
def what_was_stopped() -> list[str]:
    """The calls that were not wanted any more."""
    return stopped


@server.tool()
async def grow(context: Context) -> str:
    """Have a tool more."""

    def fresh() -> str:
        return "fresh"

    server.add_tool(fresh)
    await context.notify_tools_changed()  # to those of the newer protocol
    await context.session.send_tool_list_changed()
    return "grown"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("there is no such drink")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
