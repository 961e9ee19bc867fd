"""What the provider is asked to say, and what it has said: the books of one conversation. Sans-I/O."""

from collections import OrderedDict
from typing import TypeVar

import attrs

from engine.elements import ResponseStatus
from engine.protocol.session_end import Ending

V = TypeVar("V")

REMEMBERED = 64
"""Answers and provider responses kept by id: what is late or still playing belongs to one of the last few."""
MAX_ROUNDS = 8
"""Requests for one answer, with what its tools gave in between. A model that calls tools without end is stopped here."""


def remember(memory: OrderedDict[str, V], key: str, value: V) -> None:
    memory[key] = value
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


@attrs.define(eq=False)
class SpokenItem:
    """An assistant message of the provider's conversation."""

    item_id: str
    received_ms: float = 0.0
    """Of its audio."""
    text: str = ""
    is_open: bool = True
    """More of it may come."""
    was_cut: bool = False
    """It was open when its answer was cut: the provider may have more of it than was received."""


@attrs.define(eq=False)
class Call:
    """A tool call the model has made."""

    call_id: str
    name: str
    is_told: bool = False
    """The provider has an output for it, or has forgotten the call."""
    is_settled: bool = False
    """The engine has said how it ended."""


@attrs.define(eq=False)
class Answer:
    """One engine response: a provider response with its continuations after tool results (L11)."""

    id: str
    ending: Ending = attrs.field(factory=Ending)
    """What it has to do with the session's end."""
    is_apology: bool = attrs.field(default=False)
    items: list[SpokenItem] = attrs.field(factory=list[SpokenItem], init=False)
    sounds_from: float | None = attrs.field(default=None, init=False)
    """When its first audio came."""
    came_at: float = attrs.field(default=0.0, init=False)
    """When words or audio of it came last."""
    calls: dict[str, Call] = attrs.field(factory=dict[str, Call], init=False)
    rounds: int = attrs.field(default=0, init=False)
    """How often tools' results were followed by another request."""
    is_pending: bool = attrs.field(default=True, init=False)
    """A response of it is asked for, or will be, or is under way."""
    is_announced: bool = attrs.field(default=False, init=False)
    """The echo of what it answers has named it."""
    is_shown: bool = attrs.field(default=False, init=False)
    """The engine was told something of it: words, sound or a call."""
    has_spoken: bool = attrs.field(default=False, init=False)
    """… in its last response."""
    is_broken: bool = attrs.field(default=False, init=False)
    """A message of it is complete: what is said next begins a line of its own."""
    has_called: bool = attrs.field(default=False, init=False)
    """Tools were called in its last response: what they give has to be told to the model."""
    was_stopped: bool = attrs.field(default=False, init=False)
    """An interruption has stopped one of its tools."""
    is_over: bool = attrs.field(default=False, init=False)
    """It has ended, or was cut: nothing of it may follow."""
    heard: tuple[float, str] | None = attrs.field(default=None, init=False)
    """Milliseconds and words: what was heard of it, when it was cut and that is known."""
    held_end: ResponseStatus | None = attrs.field(default=None, init=False)
    """How it has ended; told behind the words that it answers, as those have not come."""

    @property
    def has_open_calls(self) -> bool:
        return any(not call.is_settled for call in self.calls.values())

    @property
    def received_ms(self) -> float:
        """Of its audio."""
        return sum(item.received_ms for item in self.items)

    @property
    def text(self) -> str:
        return " ".join(item.text for item in self.items)

    def item(self, item_id: str) -> SpokenItem:
        """The item of that id, which may be new."""
        found = next((item for item in self.items if item.item_id == item_id), None)
        if found is None:
            found = SpokenItem(item_id)
            self.items.append(found)
        return found

    def cut(self) -> None:
        """The user cut in: nothing of it may follow."""
        self.is_over = True
        for item in self.items:
            item.was_cut = item.is_open
