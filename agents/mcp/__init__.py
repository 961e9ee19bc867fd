"""Servers of tools that speak the Model Context Protocol, for planners (SPEC R12). `agents.mcp.opening` is the door.

The protocol is the official SDK's, which rides anyio and so runs on Trio. How bytes come and go is ours: what a server sends is
bounded, and what it leaves behind is cleaned up. Importing the SDK takes most of a second, so only `agents.mcp.opening` may be imported
without need; it loads the rest when there is a server.
"""
