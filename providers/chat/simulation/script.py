"""What the model answers, how fast, and what goes wrong: the words in which a test, or a load, tells the simulator what happens.

Times are seconds. Everything has a default, so that a script says only what matters to it. Nothing here changes once it is made: how
far a script has come is the service's to know.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any, cast

import attrs
import orjson

from providers.chat.simulation.checks import Json
from providers.chat.simulation.refusals import BROKEN_SERVICE, Refusal
from providers.chat.simulation.schemas import least_value

_WORD = re.compile(r"\s*(?:\w+|[^\w\s])|\s+$")
_ARGUMENT_PIECE = 8
"""Characters of a piece of a call's arguments."""
_LONGEST_PIECE = 9
"""Characters of a piece cut by chance."""


class ScriptError(Exception):
    """A script has the model do what no model could do for this request."""


def pieces_of(words: str, chance: Random | None = None) -> tuple[str, ...]:
    """Text as the model brings it: a word with the space before it, a sign by itself; or cut anywhere, by chance."""
    if chance is None:
        return tuple(_WORD.findall(words))
    return _cut(words, lambda: chance.randint(1, _LONGEST_PIECE))


def _cut(words: str, size: Callable[[], int]) -> tuple[str, ...]:
    pieces: list[str] = []
    start = 0
    while start < len(words):
        end = start + size()
        pieces.append(words[start:end])
        start = end
    return tuple(pieces)


# --- what goes wrong


class Place(Enum):
    """Where in an answer; a number stands for so many pieces of its output."""

    HEADERS = "before the status line"
    FINISH = "behind the last piece, before the finish reason"
    DONE = "behind the finish reason and the usage, before the end marker"
    END = "behind the end marker, before the end of the body"


Where = Place | int


class Drop(Enum):
    """How a connection is lost."""

    ABRUPT = "the stream ends where it is; on a socket by a reset"
    TORN = "half of the next event comes, then the connection is closed"
    CLEAN = "the body ends as it should, though the answer has not"


@attrs.frozen
class Stall:
    """Nothing comes: for so long, or until the client leaves."""

    at: Where = Place.FINISH
    seconds: float | None = None


@attrs.frozen
class Disconnect:
    """The connection is lost."""

    at: Where = Place.FINISH
    how: Drop = Drop.ABRUPT


@attrs.frozen
class ErrorEvent:
    """An error comes where a chunk should, and ends the stream."""

    at: Where = Place.FINISH
    error: Refusal = BROKEN_SERVICE


GARBAGE = b'data: {"id":"chatcmpl-1","choices":[{"index":0,"del\n\n'
"""An event that is no JSON."""
COMMENT = b": PROCESSING\n\n"
"""What some endpoints send to keep a connection awake. Not wrong."""


@attrs.frozen
class Raw:
    """Bytes come between two events."""

    data: bytes = GARBAGE
    at: Where = Place.FINISH


@attrs.frozen
class Duplicate:
    """The event before comes again."""

    at: Where = Place.FINISH


Mishap = Stall | Disconnect | ErrorEvent | Raw | Duplicate
"""Only of streams, but for what happens at `Place.HEADERS`."""


# --- what the model answers


@attrs.frozen
class Pace:
    """How fast the answer comes. By default all at once."""

    accepted_after: float = 0.0
    """From the request to the headers."""
    first_after: float = 0.0
    """From the headers to the first piece of output."""
    token_seconds: float = 0.0
    """Between two pieces."""
    jitter: float = 0.0
    """By how much of itself each wait may be longer or shorter, by the script's seed: 0.5 for half."""


AT_ONCE = Pace()


def _arguments(given: str | Mapping[str, object]) -> str:
    return given if isinstance(given, str) else orjson.dumps(given).decode()


@attrs.frozen
class Call:
    """A tool call. Arguments may be any text, also one that is no JSON."""

    name: str
    arguments: str = attrs.field(default="{}", converter=_arguments)
    call_id: str | None = None
    """None: one is made."""

    def pieces(self, chance: Random | None) -> tuple[str, ...]:
        return _cut(self.arguments, lambda: chance.randint(1, _LONGEST_PIECE) if chance else _ARGUMENT_PIECE)


@attrs.frozen
class Usage:
    """Tokens. Those cached are some of the prompt's, those for reasoning some of the completion's. None: as counted."""

    prompt: int | None = None
    completion: int | None = None
    cached: int = 0
    reasoning: int = 0


@attrs.frozen
class Reply:
    """One completion: `Reply("Hello.")`, `Reply(calls=[Call("lookup", {"id": 7})])`, `Reply("Well", finish="content_filter")`."""

    text: str | Sequence[str] | Mapping[str, Any] = ""
    """A sequence gives the pieces themselves, a mapping the JSON of a structured output."""
    calls: Sequence[Call] = ()
    refusal: str = ""
    """What the model says in place of a structured output."""
    finish: str | None = None
    """None: `tool_calls` with calls, `length` where the request's limit cut it, else `stop`."""
    pace: Pace | None = None
    """None: the script's."""
    usage: Usage = Usage()
    mishaps: Sequence[Mishap] = ()
    is_held: bool = True
    """Whether the request is held against the reply: a call of a tool it does not offer, an output that does not fit its format."""

    def pieces(self, chance: Random | None) -> tuple[str, ...]:
        if isinstance(self.text, str):
            return pieces_of(self.text, chance)
        if isinstance(self.text, Mapping):
            return pieces_of(orjson.dumps(self.text).decode(), chance)
        return tuple(self.text)


Answer = Reply | Refusal


@attrs.frozen
class Asked:
    """What the model is asked."""

    number: int
    """Of this request, from 0; those that were refused do not count."""
    body: Json
    headers: Mapping[str, str]
    """Names are in lower case."""

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def messages(self) -> Sequence[Json]:
        return cast("Sequence[Json]", self.body["messages"])

    @property
    def text(self) -> str:
        """The words of the last message."""
        return text_of(self.messages[-1])

    @property
    def system(self) -> str:
        """The words of all system and developer messages."""
        return "\n".join(text_of(message) for message in self.messages if message["role"] in ("system", "developer"))

    @property
    def is_tool_output(self) -> bool:
        return bool(self.messages[-1]["role"] == "tool")

    @property
    def tools(self) -> Mapping[str, Json]:
        """The functions offered, by name."""
        return {tool["function"]["name"]: tool["function"] for tool in self.body.get("tools", ())}

    @property
    def forced_tool(self) -> str | None:
        """The function that has to be called; any of them when it is empty; None when none has to."""
        wanted = self.body.get("tool_choice", "auto")
        if isinstance(wanted, dict):
            return str(cast("Json", wanted)["function"]["name"])
        return "" if wanted == "required" else None

    @property
    def format(self) -> Json:
        return cast("Json", self.body.get("response_format", {"type": "text"}))


def text_of(message: Json) -> str:
    """The words of a message, without pictures and sound."""
    content: object = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in cast("Sequence[Json]", content))


def echo(asked: Asked) -> Reply:
    """The default model: it says what it heard, calls what it has to, and fits the format it is asked for."""
    forced = asked.forced_tool
    if forced is not None:
        name = forced or next(iter(asked.tools))
        return Reply(calls=[Call(name, least_value(asked.tools[name].get("parameters", {"type": "object"})))])
    match asked.format["type"]:
        case "json_schema":
            return Reply(least_value(asked.format["json_schema"].get("schema", {"type": "object"})))
        case "json_object":
            return Reply({"said": asked.text})
        case _:
            return Reply(f"The tool says: {asked.text}" if asked.is_tool_output else f"You said: {asked.text}")


@attrs.frozen
class When:
    """Answers for the requests that fit everything given here: who asks can be told by the model, the system prompt or the tools."""

    answers: Answer | Sequence[Answer]
    """In turn; the last one is for all that follow."""
    model: str = ""
    """The request's."""
    says: str = ""
    """Somewhere in the last message, in whatever case."""
    system: str = ""
    """Somewhere in the system prompt."""
    tool: str = ""
    """Among those offered."""
    test: Callable[[Asked], bool] | None = None
    times: int | None = None
    """How often at most; None for always."""

    def fits(self, asked: Asked) -> bool:
        return (
            (not self.model or self.model == asked.model)
            and self.says.lower() in asked.text.lower()
            and self.system.lower() in asked.system.lower()
            and (not self.tool or self.tool in asked.tools)
            and (self.test is None or self.test(asked))
        )

    def answer(self, time: int) -> Answer:
        """What is answered to the request of that number, from 0, among those that fit."""
        if isinstance(self.answers, Reply | Refusal):
            return self.answers
        return self.answers[min(time, len(self.answers) - 1)]


def _answers(given: "str | Answer | Sequence[str | Answer]") -> tuple[Answer, ...]:
    several = (given,) if isinstance(given, str | Reply | Refusal) else given
    return tuple(Reply(answer) if isinstance(answer, str) else answer for answer in several)


@attrs.frozen
class Script:
    """Everything the service answers: the first of `when` that fits, else the next of `replies`, else `answer`."""

    replies: tuple[Answer, ...] = attrs.field(default=(), converter=_answers)
    """In the order of the requests. A string is a reply."""
    when: Sequence[When] = ()
    answer: Callable[[Asked], Answer] = echo
    pace: Pace = AT_ONCE
    repeats: bool = False
    """Whether `replies` begin again after the last: for load."""
    seed: int | None = None
    """Cuts texts and arguments into pieces by chance, and moves the jitter; None: words, and no jitter."""


ECHO = Script()
"""Says what it hears."""
