"""The tools of a session's servers, as they come to it: what servers say passes the session's boundary."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import attrs
import trio

from agents.outside import call_outside
from engine.boundary import Boundary, Outside
from engine.elements import JsonObject
from engine.interfaces import Context, ToolBox, ToolResult, ToolSpecification, UnknownToolError

Connect = Callable[[Callable[[], None]], AbstractAsyncContextManager[ToolBox]]
"""Opens the box of some servers, which calls what it is given whenever its tools have changed."""
Lists = trio.MemoryReceiveChannel[Sequence[ToolSpecification]]


@attrs.define(eq=False)
class ServedToolBox(ToolBox):
    """Empty until the servers are connected. Its tools change when those say so, one list of them after the other; where nothing is
    outside the lists come all the same, and nothing is connected."""

    arrived: trio.Event = attrs.field(factory=trio.Event, init=False)
    """The servers are connected, or cannot be."""
    _specifications: Sequence[ToolSpecification] = attrs.field(default=(), init=False)
    _box: ToolBox | None = attrs.field(default=None, init=False)

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return self._specifications

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        if not any(specification.name == name for specification in self._specifications):
            raise UnknownToolError(f"Tool {name} does not exist.")
        return await call_outside(self._box, name, arguments, context)

    @asynccontextmanager
    async def connected(
        self, connect: Connect, boundary: Boundary, servers: Sequence[str] = ()
    ) -> AsyncGenerator[None]:
        """Have them connected as long as this is open. `servers`: their names, for whoever reads along."""
        async with (
            boundary.stream(Outside.TOOL, "servers of tools", partial(self._open, connect), servers) as lists,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._follow, lists, name="tools of servers")
            yield
            nursery.cancel_scope.cancel(reason="the conversation is over")

    async def _follow(self, lists: Lists) -> None:
        async for specifications in lists:
            self._specifications = specifications
            self.arrived.set()

    @asynccontextmanager
    async def _open(self, connect: Connect) -> AsyncGenerator[Lists]:
        changes = _Changes()
        async with connect(changes.happen) as self._box, trio.open_nursery() as nursery:
            sending, lists = trio.open_memory_channel[Sequence[ToolSpecification]](0)
            nursery.start_soon(changes.tell, self._box, sending, name="changes of servers' tools")
            with lists:
                yield lists
            nursery.cancel_scope.cancel(reason="the conversation is over")


@attrs.define(eq=False)
class _Changes:
    """Of a box's tools."""

    _happened: trio.Event = attrs.field(factory=trio.Event, init=False)

    def happen(self) -> None:
        self._happened.set()

    async def tell(self, box: ToolBox, lists: trio.MemorySendChannel[Sequence[ToolSpecification]]) -> None:
        """The tools as they are, and again whenever they have changed; of several changes at once the last."""
        with lists:
            while True:
                self._happened = trio.Event()
                await lists.send(tuple(box.specifications))
                await self._happened.wait()
