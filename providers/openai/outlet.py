"""What a session has to say, on its way to the engine: in order, from whichever task it comes."""

from collections import deque

import attrs
import trio

from engine.elements import RealtimeElement
from engine.interfaces import StartTool
from providers.openai.conversation import Emit, StartCall


@attrs.define(eq=False)
class Outlet:
    """`put` never waits, so that a task may be cancelled at any time and nothing is lost with it. What the channel does not take at
    once is sent by a task of its own; whoever makes much of it waits with `flushed`."""

    elements: trio.MemorySendChannel[RealtimeElement]
    start_tool: StartTool
    _queue: deque[Emit | StartCall] = attrs.field(factory=deque[Emit | StartCall], init=False)
    _is_sending: bool = attrs.field(default=False, init=False)
    """The task has one in hand, which goes before the queue."""
    _more: trio.Event = attrs.field(factory=trio.Event, init=False)
    _empty: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_gone: bool = attrs.field(default=False, init=False)
    """Nobody listens any more."""

    def put(self, what: Emit | StartCall) -> None:
        self._queue.append(what)
        if not self._is_sending:
            self._send_nowait()

    def _send_nowait(self) -> None:
        while self._queue:
            first = self._queue[0]
            if isinstance(first, StartCall):
                self.start_tool(first.call)
            elif not self._is_gone:
                try:
                    self.elements.send_nowait(first.element)
                except trio.WouldBlock:
                    self._more.set()
                    return
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._is_gone = True
            self._queue.popleft()
        self._empty.set()

    @property
    def is_full(self) -> bool:
        """Something waits for the engine."""
        return bool(self._queue) or self._is_sending

    async def flushed(self) -> None:
        """Until everything has been taken. Several tasks may wait."""
        while self.is_full:
            if self._empty.is_set():
                self._empty = trio.Event()
            await self._empty.wait()

    async def run(self) -> None:
        """The task."""
        while True:  # noqa: ASYNC913 - every way round waits, or sends
            self._more = trio.Event()
            self._send_nowait()
            if not self._queue:
                await self._more.wait()
                continue
            first = self._queue.popleft()
            assert isinstance(first, Emit), "a call waits for nobody"
            self._is_sending = True
            try:
                await self.elements.send(first.element)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._is_gone = True
            finally:
                self._is_sending = False
