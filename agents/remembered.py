"""What was read from a store, remembered for a while: read once for all who ask at the same time, and served a little longer while
the store fails."""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

from engine.store.contract import StoreError

T = TypeVar("T")

RETRY_SECONDS = 5.0
"""How long a store that failed is not asked again for what is remembered: nobody waits for it meanwhile."""

logger = logging.getLogger(__name__)


@attrs.define
class _Entry(Generic[T]):
    value: T
    read_at: float
    next_read_at: float


@attrs.define(eq=False)
class _Flight(Generic[T]):
    """A reading under way."""

    landed: trio.Event = attrs.field(factory=trio.Event)
    is_done: bool = False
    value: T | None = None
    error: StoreError | None = None


@attrs.define(eq=False)
class Remembered(Generic[T]):
    """Values by key. What does not exist (None) is not remembered."""

    read: Callable[[str], Awaitable[T | None]]
    """Raises StoreError."""
    fresh_seconds: float
    """How old a value may be; 0: it is read each time."""
    kept_seconds: float | None
    """How old it may be when it cannot be read; None: however old."""
    limit: int
    """The most values; what was asked for longest ago goes first."""
    _entries: OrderedDict[str, _Entry[T]] = attrs.field(factory=OrderedDict[str, _Entry[T]], init=False)
    _flights: dict[str, _Flight[T]] = attrs.field(factory=dict[str, _Flight[T]], init=False)

    async def get(self, key: str) -> T | None:
        """Raises StoreError: it cannot be read and is not remembered."""
        await trio.lowlevel.checkpoint()
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            if trio.current_time() < entry.next_read_at:
                return entry.value
        flight = self._flights.get(key)
        while flight is not None:
            await flight.landed.wait()
            if flight.is_done:
                break
            flight = self._flights.get(key)  # who read was cancelled; the next one reads
        else:
            flight = await self._fly(key)
        if flight.error is None:
            return flight.value
        if (entry := self._entries.get(key)) is not None and self._is_kept(entry):
            return entry.value
        raise StoreError(str(flight.error)) from flight.error

    def forget(self, key: str) -> None:
        """It was changed: what is remembered, and what is being read now, is out of date."""
        self._entries.pop(key, None)
        self._flights.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
        self._flights.clear()

    async def _fly(self, key: str) -> _Flight[T]:
        flight = self._flights[key] = _Flight[T]()
        try:
            flight.value = await self.read(key)
            flight.is_done = True
        except StoreError as exc:
            flight.error = exc
            flight.is_done = True
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
                self._note(key, flight)
            flight.landed.set()
        return flight

    def _note(self, key: str, flight: _Flight[T]) -> None:
        """Only of a reading that nothing has overtaken."""
        now = trio.current_time()
        if flight.error is not None:
            entry = self._entries.get(key)
            if entry is not None and self._is_kept(entry):
                logger.warning("the store failed; %s is served as it was %.0f s ago", key, now - entry.read_at)
                entry.next_read_at = now + RETRY_SECONDS
        elif flight.is_done and flight.value is None:
            self._entries.pop(key, None)
        elif flight.value is not None:
            self._entries[key] = _Entry(flight.value, now, now + self.fresh_seconds)
            self._entries.move_to_end(key)
            if len(self._entries) > self.limit:
                self._entries.popitem(last=False)

    def _is_kept(self, entry: _Entry[T]) -> bool:
        return self.kept_seconds is None or trio.current_time() < entry.read_at + self.kept_seconds
