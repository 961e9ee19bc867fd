"""A session's LLM log on its way to the store (SPEC L22): whatever the store does, the conversation does not notice."""

import logging
from collections import deque

import attrs
import trio

from engine.elements import JsonObject
from engine.interfaces import Environment, SessionLog, TokenUsage
from engine.protocol.bounded_json import bound_json
from engine.store.contract import Store, StoreError
from engine.store.documents import LogEntry, LogKind

logger = logging.getLogger(__name__)

MAX_CHARACTERS = 32_000
"""Of one entry: a long prompt, or a planner's answer with its request. What goes beyond it is cut, with a mark."""
MAX_UNSAVED = 500
"""Entries kept while the store fails: an hour of a lively conversation has about so many turns."""
MAX_UNSAVED_CHARACTERS = 1_000_000
"""Of all of them: two hundred sessions must not fill the memory while a store is away."""
BATCH_ENTRIES = 100
GATHER_SECONDS = 0.5
"""What comes within this time is written together: a turn makes several entries, and nobody waits for them."""
FIRST_RETRY = 0.25
LONGEST_RETRY = 5.0
"""Seconds between tries while the store fails."""
RUN_POSITIONS = 1 << 20
"""Positions of one run. A run's entries begin at its fence times this: they come behind those of every run before, also of one
that is still writing when it is taken over, and nobody has to ask the store where the log ends."""


@attrs.define(eq=False)
class StoredLog(SessionLog):
    """The log of one run of a session. `run` writes while the session runs, `flush` at its end."""

    store: Store
    environment: Environment
    session_id: str
    fence: int
    """Of the session's opening."""
    redact: bool = False
    """Keep who, when and how much, and nothing of what was said."""
    lost: int = attrs.field(default=0, init=False)
    """Entries that were given up."""
    _next: int = attrs.field(init=False)
    _unsaved: deque[tuple[LogEntry, int]] = attrs.field(factory=deque[tuple[LogEntry, int]], init=False)
    """In order, each with its length."""
    _characters: int = attrs.field(default=0, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_losing: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.fence * RUN_POSITIONS

    def record(
        self,
        kind: LogKind,
        content: JsonObject,
        *,
        component: str = "",
        model: str = "",
        turn_id: str = "",
        usage: TokenUsage | None = None,
        seconds: float | None = None,
    ) -> None:
        """Queue an entry; `content` is copied, and cut when it is too long. Its time is now: the end of what took `seconds`."""
        if self._next >= (self.fence + 1) * RUN_POSITIONS:
            self._lose("it has more entries than one run may have")
            return
        kept, characters = (None, 0) if self.redact else bound_json(content, MAX_CHARACTERS)
        usage = usage or TokenUsage()
        entry = LogEntry(
            id=self.environment.new_id("log"),
            session_id=self.session_id,
            position=self._next,
            at=self.environment.wall_clock(),
            kind=kind,
            component=component,
            model=model,
            turn_id=turn_id,
            input_tokens=usage.input,
            output_tokens=usage.output,
            cached_tokens=usage.cached,
            duration_ms=None if seconds is None else round(seconds * 1000),
            content=kept,
        )
        self._next += 1
        self._unsaved.append((entry, characters))
        self._characters += characters
        while len(self._unsaved) > MAX_UNSAVED or self._characters > MAX_UNSAVED_CHARACTERS:
            self._forget_oldest()
            self._lose("the store does not take its entries")
        self._work.set()

    async def run(self) -> None:
        """Write what is recorded, in order, until cancelled."""
        while True:
            while not self._unsaved:
                self._work = trio.Event()
                await self._work.wait()
            await trio.sleep(GATHER_SECONDS)
            await self._write_all()

    async def flush(self) -> None:
        """Write what is left; the caller bounds it. May be called again, for what was recorded in the meantime."""
        try:
            await self._write_all()
        finally:
            if self._unsaved:
                logger.error("session %s: %d entries of its LLM log are not saved", self.session_id, len(self._unsaved))

    @property
    def unsaved(self) -> int:
        return len(self._unsaved)

    async def _write_all(self) -> None:
        pause = FIRST_RETRY
        while self._unsaved:
            batch = [entry for entry, _ in self._unsaved][:BATCH_ENTRIES]
            if await self._write(batch):
                pause = FIRST_RETRY
            else:
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY)

    async def _write(self, batch: list[LogEntry]) -> bool:
        try:
            try:
                await self.store.append_log(batch)
            except StoreError:
                raise
            except Exception as exc:  # its words may be those of an entry, which are kept out of this log
                logger.error("%d log entries cannot be written together (%s)", len(batch), type(exc).__name__)
                await self._write_singly(batch)
        except StoreError as exc:
            logger.warning("the LLM log of session %s will be written later: %s", self.session_id, exc)
            return False
        self._forget(batch[-1].position)
        self._is_losing = False
        return True

    async def _write_singly(self, entries: list[LogEntry]) -> None:
        """One that no store can take must not hold up the others for ever."""
        for entry in entries:
            try:
                await self.store.append_log([entry])
            except StoreError:
                raise
            except Exception as exc:
                self.lost += 1
                logger.error(
                    "entry %s of the LLM log of session %s is given up: the store cannot take it (%s)",
                    entry.id,
                    self.session_id,
                    type(exc).__name__,
                )
            self._forget(entry.position)

    def _forget(self, position: int) -> None:
        """Everything up to there is written, or never will be."""
        while self._unsaved and self._unsaved[0][0].position <= position:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, characters = self._unsaved.popleft()
        self._characters -= characters

    def _lose(self, why: str) -> None:
        self.lost += 1
        if not self._is_losing:
            self._is_losing = True
            logger.error("session %s: a part of its LLM log is lost: %s", self.session_id, why)
