"""What the network has to do for an answer, one step after the other."""

from collections.abc import Sequence

import attrs

from providers.chat.simulation.script import Drop


@attrs.frozen
class Wait:
    """Nothing comes: for so many seconds, or until the client leaves."""

    seconds: float | None


@attrs.frozen
class Head:
    """The status line and the headers."""

    status: int
    headers: Sequence[tuple[str, str]]


@attrs.frozen
class Body:
    """A part of the body: one event of a stream, or all there is."""

    data: bytes


@attrs.frozen
class End:
    """The body ends as it should."""


@attrs.frozen
class Lose:
    """The connection is lost, before `next`, or in the middle of it."""

    how: Drop
    next: Head | Body | None = None


Step = Wait | Head | Body | End | Lose
