"""What is remembered beyond a conversation: the contract between agents and whatever keeps it (SPEC R4, R14, R16)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import attrs

from engine.elements import JsonObject
from engine.store.documents import MemoryDocument


class MemoryScope(StrEnum):
    """Whose it is, and how long it lives."""

    SESSION = "session"
    """One conversation's, over its runs."""
    APPLICATION = "application"
    """One user's with one agent, over all their conversations."""
    USER = "user"
    """One user's, whichever agent."""


@attrs.frozen
class PastConversation:
    """One that the user has had with an agent."""

    session_id: str
    ended_at: datetime
    """Aware, in UTC: when it was last saved."""
    lines: tuple[tuple[str, str], ...]
    """Who spoke ("user" or "assistant") and what was heard, oldest first; of a long one the end."""


class Memory(ABC):
    """The memory of one session's user. Each name of a scope has revisions, of which the newest counts.

    Every method may raise StoreError.
    """

    @abstractmethod
    async def get(self, scope: MemoryScope, name: str) -> MemoryDocument | None:
        """The newest revision."""

    @abstractmethod
    async def revisions(self, scope: MemoryScope, name: str, *, limit: int) -> Sequence[MemoryDocument]:
        """The newest ones, newest first."""

    @abstractmethod
    async def append(self, scope: MemoryScope, name: str, body: JsonObject) -> None:
        """Write a new revision."""

    @abstractmethod
    async def last_conversation(self, *, lines: int) -> PastConversation | None:
        """The user's last one with this agent before this session, with its last `lines` lines. None: there was none, or in
        none anything was said."""

    @abstractmethod
    def with_agent(self, ref: str) -> "Memory":
        """The same user's memory with another agent; only for reading."""


class NoMemory(Memory):
    """Keeps nothing."""

    async def get(self, scope: MemoryScope, name: str) -> MemoryDocument | None:
        return None

    async def revisions(self, scope: MemoryScope, name: str, *, limit: int) -> Sequence[MemoryDocument]:
        return ()

    async def append(self, scope: MemoryScope, name: str, body: JsonObject) -> None:
        """Forget it."""

    async def last_conversation(self, *, lines: int) -> PastConversation | None:
        return None

    def with_agent(self, ref: str) -> Memory:
        return self
