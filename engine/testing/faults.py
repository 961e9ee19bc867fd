"""Parts that fail when a test says so."""

from collections.abc import Callable, Sequence
from enum import Enum, auto

import attrs
import trio

from engine.store.contract import Store, StoreError
from engine.store.documents import SessionDocument, TurnDocument, UsageDocument
from engine.store.memory import MemoryStore


class Fault(Enum):
    FAIL = auto()
    """The store says that it cannot."""
    CRASH = auto()
    """The store raises what no store should."""
    HANG = auto()
    """The store never answers."""


@attrs.frozen
class StoreCall:
    """One call of a store. Calls are counted from 1, over all operations and per operation."""

    number: int
    operation: str
    of_operation: int
    at: float


FaultPlan = Callable[[StoreCall], Fault | float | None]
"""What happens to a call: nothing, a fault, or that many seconds before it is done."""


def no_faults(call: StoreCall) -> None:
    """The plan of a store that works."""


class FaultyStore(Store):
    """A store whose calls fail, hang or take their time, as `plan` says; it keeps what was written in the order of writing.

    `plan` may be replaced at any time.
    """

    def __init__(self, plan: FaultPlan = no_faults, inner: Store | None = None) -> None:
        self.plan = plan
        self.inner = inner or MemoryStore()
        self.calls: list[StoreCall] = []
        self.saved_sessions: list[SessionDocument] = []
        self.written_turns: list[TurnDocument] = []
        self.written_usage: list[UsageDocument] = []

    @property
    def turns(self) -> list[TurnDocument]:
        """Every turn as it was written last, in the order of their index."""
        return sorted({turn.id: turn for turn in self.written_turns}.values(), key=lambda turn: turn.index)

    async def _called(self, operation: str) -> None:
        before = sum(call.operation == operation for call in self.calls)
        call = StoreCall(len(self.calls) + 1, operation, before + 1, trio.current_time())
        self.calls.append(call)
        match self.plan(call):
            case Fault.FAIL:
                await trio.lowlevel.checkpoint()
                raise StoreError(f"{operation} was made to fail.")
            case Fault.CRASH:
                await trio.lowlevel.checkpoint()
                raise RuntimeError(f"{operation} was made to crash.")
            case Fault.HANG:
                await trio.sleep_forever()
            case None:
                pass
            case seconds:
                await trio.sleep(seconds)

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        await self._called("open_session")
        return await self.inner.open_session(document)

    async def save_session(self, document: SessionDocument) -> None:
        await self._called("save_session")
        await self.inner.save_session(document)
        self.saved_sessions.append(document)

    async def get_session(self, session_id: str) -> SessionDocument | None:
        await self._called("get_session")
        return await self.inner.get_session(session_id)

    async def append_turns(self, turns: Sequence[TurnDocument]) -> None:
        await self._called("append_turns")
        await self.inner.append_turns(turns)
        self.written_turns.extend(turns)

    async def get_turns(self, session_id: str, *, limit: int, last: bool = False) -> list[TurnDocument]:
        await self._called("get_turns")
        return await self.inner.get_turns(session_id, limit=limit, last=last)

    async def save_usage(self, usage: UsageDocument) -> None:
        await self._called("save_usage")
        await self.inner.save_usage(usage)
        self.written_usage.append(usage)

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        await self._called("get_usage")
        return await self.inner.get_usage(session_id)

    async def check(self) -> None:
        await self._called("check")
        await self.inner.check()
