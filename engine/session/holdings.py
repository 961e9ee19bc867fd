"""What stays open as long as a session does, such as a connection to a server of tools."""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import attrs
import trio

logger = logging.getLogger(__name__)

H = TypeVar("H")


@attrs.define(eq=False)
class SessionHoldings:
    """See `engine.interfaces.Holdings`. Each context is entered and left in a task of its own, so that they may come in any order
    and hold scopes and nurseries."""

    nursery: trio.Nursery
    close_seconds: float
    """Bound of leaving them, all at once."""
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def hold(self, manager: AbstractAsyncContextManager[H]) -> H:
        held: H = await self.nursery.start(self._keep, manager, name=f"holds {type(manager).__name__}")
        return held

    def hold_soon(self, manager: AbstractAsyncContextManager[H], entered: Callable[[H], None]) -> None:
        self.nursery.start_soon(self._enter, manager, entered, name=f"enters {type(manager).__name__}")

    async def _enter(self, manager: AbstractAsyncContextManager[H], entered: Callable[[H], None]) -> None:
        try:
            held: H = await self.nursery.start(self._keep, manager, name=f"holds {type(manager).__name__}")
        except Exception:
            logger.exception("something that the session was to hold cannot be had")
        else:
            entered(held)

    def release(self) -> None:
        """The session is over."""
        self._over.set()
        self.nursery.cancel_scope.deadline = trio.current_time() + self.close_seconds

    async def _keep(
        self, manager: AbstractAsyncContextManager[H], *, task_status: trio.TaskStatus[H] = trio.TASK_STATUS_IGNORED
    ) -> None:
        is_held = False
        try:
            async with manager as held:
                is_held = True
                task_status.started(held)
                await self._over.wait()
        except Exception:
            if not is_held:
                raise
            logger.exception("something that the session held has failed")
