"""A session's memory in the store."""

from collections.abc import Sequence

import attrs

from engine.elements import JsonObject
from engine.interfaces import Environment
from engine.memory import Memory, MemoryScope
from engine.store.contract import Store
from engine.store.documents import MemoryDocument, SessionDocument


@attrs.frozen
class StoredMemory(Memory):
    """See `Memory`. Of the session only what never changes is looked at: its id, its owner and its agent."""

    store: Store
    environment: Environment
    session: SessionDocument

    async def get(self, scope: MemoryScope, name: str) -> MemoryDocument | None:
        return await self.store.get_memory(scope_name(scope, self.session), name)

    async def revisions(self, scope: MemoryScope, name: str, *, limit: int) -> Sequence[MemoryDocument]:
        return await self.store.get_memory_revisions(scope_name(scope, self.session), name, limit=limit)

    async def append(self, scope: MemoryScope, name: str, body: JsonObject) -> None:
        document = MemoryDocument(
            id=self.environment.new_id("memory"),
            scope=scope_name(scope, self.session),
            name=name,
            body=body,
            session_id=self.session.id,
            created_at=self.environment.wall_clock(),
        )
        await self.store.append_memory(document, expected=None)


def scope_name(scope: MemoryScope, session: SessionDocument) -> str:
    """How a scope is called in the store. An agent's ref holds no colon and a session id neither, so no two are the same,
    whatever an owner is called."""
    match scope:
        case MemoryScope.SESSION:
            return f"session:{session.id}"
        case MemoryScope.APPLICATION:
            return f"application:{session.agent}:{session.owner}"
        case MemoryScope.USER:
            return f"user:{session.owner}"
