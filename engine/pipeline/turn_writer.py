"""Saving turns in order, whatever the store does (SPEC L15): a failing store never fails a conversation that can go on."""

import logging

import attrs
import trio

from engine.store.contract import Store, StoreError
from engine.store.documents import TurnDocument

logger = logging.getLogger(__name__)

MAX_UNSAVED = 500
"""Turns kept while the store fails: several hours of talk. Beyond it the oldest is given up, and reported."""
FIRST_RETRY = 0.25
LONGEST_RETRY = 5.0
"""Seconds between tries while the store fails."""


@attrs.define(eq=False)
class TurnWriter:
    """One per session. A turn that could not be written is tried again, and later ones wait behind it."""

    store: Store
    _unsaved: list[TurnDocument] = attrs.field(factory=list[TurnDocument], init=False)
    _saved: dict[str, trio.Event] = attrs.field(factory=dict[str, trio.Event], init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    lost: int = attrs.field(default=0, init=False)

    def put(self, turn: TurnDocument) -> trio.Event:
        """Queue a turn; the event is set when it is durable. A turn written again replaces what was written of it."""
        self._unsaved = [other for other in self._unsaved if other.id != turn.id]
        if len(self._unsaved) >= MAX_UNSAVED:
            self._give_up(self._unsaved[0], "the store has failed too long")
        self._unsaved.append(turn)
        event = self._saved.setdefault(turn.id, trio.Event())
        self._work.set()
        return event

    async def save(self, turn: TurnDocument, timeout_seconds: float) -> bool:
        """Queue a turn and wait until it is durable; False when that took too long. It is tried on all the same."""
        durable = self.put(turn)
        with trio.move_on_after(timeout_seconds):
            await durable.wait()
        return durable.is_set()

    async def save_now(self, turn: TurnDocument, timeout_seconds: float) -> bool:
        """As `save`, when `run` has ended with the session."""
        durable = self.put(turn)
        with trio.move_on_after(timeout_seconds):
            await self.flush()
        return durable.is_set()

    async def run(self) -> None:
        """Write what is queued, in order, until cancelled."""
        pause = FIRST_RETRY
        while True:
            while not self._unsaved:
                self._work = trio.Event()
                await self._work.wait()
            if await self._write():
                pause = FIRST_RETRY
            else:
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY)

    async def flush(self) -> None:
        """Write what is left; the caller bounds it. Every try is a full one: the session is ending."""
        pause = FIRST_RETRY
        while self._unsaved and not await self._write():
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)

    @property
    def unsaved(self) -> int:
        return len(self._unsaved)

    async def _write(self) -> bool:
        batch = list(self._unsaved)
        try:
            try:
                await self.store.append_turns(batch)
            except StoreError:
                raise
            except Exception:
                logger.exception("%d turns could not be written as they are; each is tried alone", len(batch))
                await self._write_singly(batch)
            else:
                self._written(batch)
        except StoreError as exc:
            logger.warning("%d turns could not be saved and will be tried again: %s", len(batch), exc)
            return False
        return True

    async def _write_singly(self, turns: list[TurnDocument]) -> None:
        """One that no store can take must not hold up the others for ever: it is given up, and reported."""
        for turn in turns:
            try:
                await self.store.append_turns([turn])
            except StoreError:
                raise
            except Exception:
                self._give_up(turn, "it cannot be stored")
            else:
                self._written([turn])

    def _written(self, turns: list[TurnDocument]) -> None:
        for turn in turns:
            if any(other is turn for other in self._unsaved):  # it was not put again, corrected, in the meantime
                self._unsaved.remove(turn)
                event = self._saved.pop(turn.id, None)
                if event is not None:
                    event.set()

    def _give_up(self, turn: TurnDocument, reason: str) -> None:
        self._unsaved = [other for other in self._unsaved if other is not turn]
        self._saved.pop(turn.id, None)
        self.lost += 1
        logger.error("turn %s of session %s was given up: %s", turn.id, turn.session_id, reason)
