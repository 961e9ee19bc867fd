"""Where a session meets what it cannot know beforehand: its client, models, tools, the store.

Everything that comes from outside passes here under a kind and a name, so that it can be kept (`engine.capsule`) and given again to
the same code, which then does the same. This one lets everything pass. Of what passes here, nothing that is inside has to pass
again: what a tool of somebody else's does is its own affair.

What a session gets from elsewhere without it (a thread, a file, a socket of its own) is not kept, and a replay will do it again.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import attrs
import trio

T = TypeVar("T")
D = TypeVar("D", bound="Duplex")
E = TypeVar("E")


class Outside(StrEnum):
    """What there is outside. A name says which one it is: of a store's operation, a component, a tool."""

    STORE = "store"
    CATALOG = "catalog"
    CHAT = "chat"
    MODEL = "model"
    """A realtime model whose session tells only what comes of it."""
    LINK = "link"
    """A realtime model's connection, frame by frame."""
    RECOGNITION = "recognition"
    SYNTHESIS = "synthesis"
    TOOL = "tool"
    FILES = "files"
    """Documents and folders that are read while a session runs."""
    CREDENTIALS = "credentials"


class Note(StrEnum):
    """What a note tells, and the fields of its map."""

    BEGAN = "began"
    """A span has begun: kind (`engine.observation.SpanKind`), id, name, turn_id."""
    ENDED = "ended"
    """It has ended: kind, id, outcome (`engine.observation.Outcome`)."""
    CANCELLED = "cancelled"
    """A cancel scope was cancelled: scope (its name), reason, turn_id."""
    TOLD = "told"
    """The speaking model was told something: what (prompt, instruction, or the name of a `SessionInput`), text, turn_id, and what
    else is known of it: type, id and pass_id of an instruction, name and call_id of a tool, response_id and heard_ms of an
    interruption."""
    HAPPENED = "happened"
    """Something that is counted: what (`engine.observation.Happening`)."""


class Duplex(Protocol):
    """A connection of messages."""

    def send(self, frame: str) -> None: ...

    async def receive(self) -> str | bytes: ...


def nothing(*_: object) -> None:
    """Nobody wants to know."""


@attrs.frozen
class Outlet(Generic[T]):
    """Where something that runs puts what comes of it."""

    items: trio.MemorySendChannel[T]
    started: Callable[[], None] = nothing
    """It has begun to work."""
    hand: Callable[[Any], None] = nothing
    """Given at once and beside the channel, such as the call of a tool."""


class Boundary:
    """One session's; this one keeps nothing."""

    is_replayed: bool = False
    """There is nothing outside: what is asked is answered from a capsule."""

    async def ask(self, kind: Outside, name: str, ask: Callable[[], Awaitable[T]], about: object = None) -> T:
        """One question, one answer, or an exception. `about` is what was asked, for whoever reads along."""
        return await ask()

    def stream(
        self,
        kind: Outside,
        name: str,
        opened: Callable[[], AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]],
        about: object = None,
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[T]]:
        """Something that is opened and then received from until it ends."""
        return opened()

    async def produce(
        self,
        kind: Outside,
        name: str,
        to: "Outlet[T]",
        produce: Callable[["Outlet[T]"], Awaitable[None]],
        about: object = None,
    ) -> None:
        """Something that runs and gives what comes of it to an outlet of ours. It closes no channel of it."""
        await produce(to)

    def connect(
        self, kind: Outside, name: str, opened: Callable[[], AbstractAsyncContextManager[D]]
    ) -> AbstractAsyncContextManager[D]:
        """A connection of messages both ways."""
        return opened()

    def know(self, kind: Outside, name: str, look: Callable[[], T]) -> T:
        """What is known of something outside without asking it, such as the rate of its audio. Raises what `look` raises."""
        return look()

    def secret(self, resolve: Callable[[], str | None]) -> str | None:
        """A secret, which is never kept: where nothing is outside there is none."""
        return resolve()

    def note(self, what: str, values: Mapping[str, Any]) -> None:
        """Something that follows from all the rest, and helps to read it."""

    # --- the session as a whole

    def environment(self, environment: E) -> E:
        """Clock, ids and randomness (`engine.interfaces.Environment`) for this session."""
        return environment

    def named(self, session_id: str, run: int) -> None:
        """The session has its id; `run` is the fence of its opening."""

    def event(self, event: Mapping[str, Any]) -> None:
        """A chat event came for it."""

    def cut_off(self, reason: str, error: Exception | None, *, is_taken_over: bool) -> None:
        """It is ended from outside (`engine.session.live.Cut`)."""

    def vanished(self) -> None:
        """Its client is gone."""

    def ended(self, state: str, reason: str) -> None:
        """It is over, and saved."""

    # --- its client, in the order of what happens on its line

    def received(self, element: object) -> None:
        """An input element has arrived."""

    def input_ended(self) -> None:
        """No input will follow."""

    def told(self, element: object) -> None:
        """An output element was queued for the client, or was shed."""

    def took(self) -> None:
        """The door took the oldest output element to send it."""

    def took_back(self, response_id: str, turn_id: str) -> None:
        """A barge-in took back what was unsent of a response."""


PASSES = Boundary()
"""For whoever is in no session."""


class Keep(Protocol):
    """Opens the boundary of each session that is to be kept."""

    def __call__(self, about: Mapping[str, Any]) -> AbstractAsyncContextManager[Boundary]:
        """`about` is what the session was begun with: values, not plain data. Leaving the context writes what is left, in bounded
        time, also when it is cancelled; it raises nothing of its own."""
        ...
