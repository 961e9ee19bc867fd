"""One turn over HTTP: what the body of a call brings, and which of a session's elements answer it (protocol page, section 3)."""

from typing import cast

import attrs
import orjson

from engine.elements import InputElement, OutCommand, OutError, OutputElement
from engine.protocol.wire import decode_text
from engine.store.documents import SessionState

MESSAGES = 4096
"""The most messages of one call: over a minute of audio in frames of 20 ms. Each may be answered with an error, and all of those
have to fit into the outbox."""


class UnreadableBodyError(Exception):
    """The body as a whole cannot be read; the message tells the client what could."""


def read_lines(body: bytes) -> list[InputElement]:
    """The elements of a body that has one message a line (NDJSON). Blank lines are nothing.

    A line that cannot be read becomes a `BadInput` in its place, as on the WebSocket.

    Raises:
        UnreadableBodyError: there are too many.
    """
    return _elements([line for line in map(bytes.strip, body.split(b"\n")) if line])


def read_array(body: bytes) -> list[InputElement]:
    """The elements of a body that is one JSON array of messages.

    Raises:
        UnreadableBodyError: it is no array, or too long.
    """
    try:
        messages = orjson.loads(body)
    except orjson.JSONDecodeError:
        messages = None
    if not isinstance(messages, list):
        raise UnreadableBodyError("The body has to be a JSON array of messages.")
    return _elements([_line(message) for message in cast("list[object]", messages)])


def _line(message: object) -> bytes:
    """A message of an array as the line it could have been."""
    try:
        return orjson.dumps(message)
    except TypeError:  # more levels than orjson writes; it reads more
        return b""


def _elements(lines: list[bytes]) -> list[InputElement]:
    if len(lines) > MESSAGES:
        raise UnreadableBodyError(f"The body has more than {MESSAGES} messages; join audio, or use the WebSocket.")
    return [element for element in map(decode_text, lines) if element is not None]


@attrs.define(eq=False)
class TurnAnswer:
    """What of a session is told to a call for one turn: everything up to the last `exit`.

    A session that is refused begins with an error; then there is nothing to stream, and `refusal` says why. `session-end` is told
    when it says something: when there was no turn, or the session was not left to be gone on with.
    """

    has_begun: bool = attrs.field(default=False, init=False)
    refusal: OutError | None = attrs.field(default=None, init=False)
    is_told: bool = attrs.field(default=False, init=False)
    """The turn has been told, and nothing of another since."""

    def passes(self, element: OutputElement) -> bool:
        """Whether the client is told an element."""
        match element:
            case OutError() if not self.has_begun:
                self.refusal = self.refusal or element
                return False
            case OutCommand(name="session-end") if not self.has_begun:
                return False
            case OutCommand(name="session-end") if self.is_told:
                return bool(element.parameters["state"] != SessionState.IDLE)
            case _:
                self.has_begun = True
                self.is_told = isinstance(element, OutCommand) and element.name == "exit"
                return True
