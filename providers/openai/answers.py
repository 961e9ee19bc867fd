"""What the provider is being asked to say, and what it has said: the books of one conversation. Sans-I/O."""

from collections import OrderedDict
from typing import TypeVar

import attrs

from engine.elements import Transcript

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


@attrs.define(eq=False)
class Call:
    """A tool call the model has made."""

    call_id: str
    name: str
    is_told: bool = False
    """The provider has an output for it."""
    is_settled: bool = False
    """The engine has said how it ended."""


@attrs.define(eq=False)
class Answer:
    """One engine response: a provider response with its continuations after tool results (L11)."""

    id: str
    items: list[SpokenItem] = attrs.field(factory=list[SpokenItem], init=False)
    calls: dict[str, Call] = attrs.field(factory=dict[str, Call], init=False)
    rounds: int = attrs.field(default=0, init=False)
    has_spoken: bool = attrs.field(default=False, init=False)
    has_news: bool = attrs.field(default=False, init=False)
    """Tools were called in its last response: what they give has to be told to the model."""
    ends_session: bool = attrs.field(default=False)
    is_apology: bool = attrs.field(default=False)
    is_over: bool = attrs.field(default=False, init=False)
    """Its end was emitted, or it was interrupted: nothing of it may follow."""

    @property
    def has_open_calls(self) -> bool:
        return any(not call.is_settled for call in self.calls.values())


@attrs.define(eq=False)
class Request:
    """Something that is to be answered, in its place in the queue."""

    answer: Answer
    echo: Transcript | None = None
    """Opens the answer; an input's echo (M4)."""
    frames: tuple[str, ...] = ()
    """Items that go into the conversation right before the request."""
    event_id: str = ""
    is_continuation: bool = False
    answers_speech: bool = False
    """What is answered was spoken to the provider itself, and its words will come as a transcript."""
    only_if_idle: bool = False
    """Not asked again when the provider has begun to answer by itself."""


@attrs.define(eq=False)
class Utterance:
    """What the user has said, by the provider's recognition."""

    item_id: str
    text: str = ""
    """The words so far."""
    final: str | None = None
    answer_id: str = ""
    """The answer to it, once that has begun."""
    waits_since: float | None = None
    """Since when a later one has its words and this one has not."""
