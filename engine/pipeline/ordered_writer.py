"""Saving what was said in order, whatever the store does (SPEC L15): a failing store never fails a conversation that can go on."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from engine.store.contract import StoreError, TakenOverError
from engine.store.documents import MessageDocument, TurnDocument

logger = logging.getLogger(__name__)

MAX_UNSAVED = 500
"""Turns kept while the store fails: several hours of talk. Beyond it the oldest is given up, and reported."""
FIRST_RETRY = 0.25
LONGEST_RETRY = 5.0
"""Seconds between tries while the store fails."""
MOST_ACCIDENTS = 3
"""Tries of a document with which the store raises what no store should: beyond them it is the document, and no accident."""


class Document(Protocol):
    """What is written: it has an id of its own, and belongs to a session."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...


D = TypeVar("D", bound=Document)


@attrs.define(eq=False)
class OrderedWriter(Generic[D]):
    """One per session. What could not be written is tried again, and what came later waits behind it."""

    append: Callable[[Sequence[D]], Awaitable[None]]
    """Writes a batch under the session's fence: all or nothing."""
    on_taken_over: Callable[[], None]
    """Somebody else has the session: nothing more is written."""
    what: str = "turn"
    """In the words of the log."""
    _unsaved: list[D] = attrs.field(factory=list[D], init=False)
    _saved: dict[str, trio.Event] = attrs.field(factory=dict[str, trio.Event], init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_taken_over: bool = attrs.field(default=False, init=False)
    _accidents: Counter[str] = attrs.field(factory=Counter[str], init=False)
    """By document: tries that raised what no store should."""
    lost: int = attrs.field(default=0, init=False)

    def put(self, document: D) -> trio.Event:
        """Queue a document; the event is set when it is durable. One written again replaces what was written of it."""
        event = self._saved.setdefault(document.id, trio.Event())
        if self._is_taken_over:
            return event
        self._unsaved = [other for other in self._unsaved if other.id != document.id]
        if len(self._unsaved) >= MAX_UNSAVED:
            self._give_up(self._unsaved[0], "the store has failed too long")
        self._unsaved.append(document)
        self._work.set()
        return event

    async def save(self, document: D, timeout_seconds: float) -> bool:
        """Queue it and wait until it is durable; False when that took too long. It is tried on all the same."""
        durable = self.put(document)
        with trio.move_on_after(timeout_seconds):
            await durable.wait()
        return durable.is_set()

    async def save_now(self, document: D, timeout_seconds: float) -> bool:
        """As `save`, when `run` has ended with the session."""
        durable = self.put(document)
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
                await self.append(batch)
            except (StoreError, TakenOverError):
                raise
            except Exception:
                logger.exception("%d %ss could not be written as they are; each is tried alone", len(batch), self.what)
                return await self._write_singly(batch)
            else:
                self._written(batch)
        except TakenOverError:
            self._taken_over()
        except StoreError as exc:
            logger.warning("%d %ss could not be saved and will be tried again: %s", len(batch), self.what, exc)
            return False
        return True

    async def _write_singly(self, documents: list[D]) -> bool:
        """One that no store can take must not hold up the others for ever: it is given up, and reported. False while it may still be
        an accident: then the others wait, as they are written in order."""
        for document in documents:
            try:
                await self.append([document])
            except (StoreError, TakenOverError):
                raise
            except Exception:
                self._accidents[document.id] += 1
                if self._accidents[document.id] < MOST_ACCIDENTS:
                    logger.exception("%s %s could not be written and will be tried again", self.what, document.id)
                    return False
                self._give_up(document, "it cannot be stored")
            else:
                self._written([document])
        return True

    def _written(self, documents: list[D]) -> None:
        for document in documents:
            if any(other is document for other in self._unsaved):  # not put again, corrected, in the meantime
                self._unsaved.remove(document)
                event = self._saved.pop(document.id, None)
                self._accidents.pop(document.id, None)
                if event is not None:
                    event.set()

    def _give_up(self, document: D, reason: str) -> None:
        self._unsaved = [other for other in self._unsaved if other is not document]
        self._saved.pop(document.id, None)
        self._accidents.pop(document.id, None)
        self.lost += 1
        logger.error("%s %s of session %s was given up: %s", self.what, document.id, document.session_id, reason)

    def _taken_over(self) -> None:
        """What is left was never acknowledged; the session is somebody else's to write."""
        if self._unsaved:
            logger.info("%d %ss were not written: the session was taken over", len(self._unsaved), self.what)
        self._is_taken_over = True
        self._unsaved.clear()
        self._saved.clear()
        self._accidents.clear()
        self.on_taken_over()


TurnWriter = OrderedWriter[TurnDocument]
MessageWriter = OrderedWriter[MessageDocument]
