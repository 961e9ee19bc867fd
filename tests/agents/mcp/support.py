"""What the tests of MCP servers share."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from agents.definitions import McpServer

HERE = Path(__file__).parent


def tiny(fault: str = "", name: str = "tiny") -> McpServer:
    command = [sys.executable, "-I", "-S", str(HERE / "tiny_server.py"), *([fault] if fault else [])]
    return McpServer(name=name, command=command)


older: frozenset[int] = frozenset()
"""Processes that other tests have left running, such as a database for all of them."""


def all_processes() -> list[int]:
    return list(_below(os.getpid()))


def processes() -> list[int]:
    """Processes that come of this one, alive or not yet taken away; without the older ones."""
    return [pid for pid in all_processes() if pid not in older]


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from _below(int(child))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in {"Z", "X"}


async def until(condition: Callable[[], bool]) -> None:
    """Other processes do things in their own time."""
    with trio.fail_after(10):
        while True:
            if condition():
                return
            await trio.sleep(0.01)
