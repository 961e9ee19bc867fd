"""A session's memory in the store."""

from collections.abc import Sequence

import attrs

from engine.elements import JsonObject
from engine.interfaces import Environment
from engine.memory import Memory, MemoryScope, PastConversation
from engine.store.contract import SessionFilter, Store
from engine.store.documents import MemoryDocument, SessionDocument

LOOKED_AT = 10
"""Sessions that are looked through for the last one in which something was said."""
SPOKEN_KINDS = frozenset({"speech", "text"})
USER, ASSISTANT = "user", "assistant"


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

    async def last_conversation(self, *, lines: int) -> PastConversation | None:
        which = SessionFilter(owner=self.session.owner, agent=self.session.agent)
        for past in await self.store.list_sessions(which, limit=LOOKED_AT):
            said = [] if past.id == self.session.id else await self._lines(past, lines)
            if said:
                return PastConversation(past.id, past.updated_at, tuple(said[-lines:]))
        return None

    async def _lines(self, past: SessionDocument, lines: int) -> list[tuple[str, str]]:
        turns = await self.store.get_turns(past.id, limit=lines, last=True)
        said: list[tuple[str, str]] = []
        for turn in turns:
            if turn.input.text and turn.input.kind in SPOKEN_KINDS:
                said.append((USER, turn.input.text))
            said += [(ASSISTANT, output.heard) for output in turn.output if output.heard.strip()]
        return said or [
            (message.role, message.text) for message in await self.store.get_messages(past.id, limit=lines, last=True)
        ]

    def with_agent(self, ref: str) -> Memory:
        return attrs.evolve(self, session=self.session.model_copy(update={"agent": ref}))


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
