"""The store that keeps nothing: for tests under virtual time, and for trying things out (`memory:`).

It holds the same JSON a database would, so that a document handed in or out is never shared, and what cannot be stored is
refused here too.
"""

from collections import defaultdict
from collections.abc import Sequence

import trio

from engine.store.contract import Store, StoreError
from engine.store.documents import SessionDocument, TurnDocument, UsageDocument
from engine.store.rules import keeping_owner, reopened


class MemoryStore(Store):
    """Dictionaries of JSON. No threads; each operation is one checkpoint, then happens at once."""

    def __init__(self) -> None:
        self._closed = False
        self._sessions: dict[str, str] = {}
        self._turns: dict[str, dict[str, tuple[int, str, str]]] = defaultdict(dict)
        """By session and turn id; each (index, turn id, JSON), which is also their order."""
        self._usage: dict[str, dict[str, str]] = defaultdict(dict)

    def close(self) -> None:
        """From here on every operation raises StoreError, as those of a closed database do."""
        self._closed = True

    async def open_session(self, document: SessionDocument) -> SessionDocument:
        await self.check()
        opened = reopened(self._session(document.id), document)
        self._sessions[document.id] = opened.model_dump_json(by_alias=True)
        return opened

    async def save_session(self, document: SessionDocument) -> None:
        await self.check()
        kept = keeping_owner(self._session(document.id), document)
        self._sessions[document.id] = kept.model_dump_json(by_alias=True)

    async def get_session(self, session_id: str) -> SessionDocument | None:
        await self.check()
        return self._session(session_id)

    async def append_turns(self, turns: Sequence[TurnDocument]) -> None:
        rows = [(turn.session_id, (turn.index, turn.id, turn.model_dump_json(by_alias=True))) for turn in turns]
        await self.check()
        for session_id, row in rows:
            self._turns[session_id][row[1]] = row

    async def get_turns(self, session_id: str, *, limit: int, last: bool = False) -> list[TurnDocument]:
        await self.check()
        rows = sorted(self._turns.get(session_id, {}).values())
        limit = max(limit, 0)
        chosen = rows[max(len(rows) - limit, 0) :] if last else rows[:limit]
        return [TurnDocument.model_validate_json(document) for _, _, document in chosen]

    async def save_usage(self, usage: UsageDocument) -> None:
        document = usage.model_dump_json(by_alias=True)
        await self.check()
        self._usage[usage.session_id][usage.id] = document

    async def get_usage(self, session_id: str) -> list[UsageDocument]:
        await self.check()
        documents = self._usage.get(session_id, {}).values()
        records = [UsageDocument.model_validate_json(document) for document in documents]
        return sorted(records, key=lambda record: (record.created_at, record.id))

    async def check(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise StoreError("The store is closed.")

    def _session(self, session_id: str) -> SessionDocument | None:
        document = self._sessions.get(session_id)
        return None if document is None else SessionDocument.model_validate_json(document)
