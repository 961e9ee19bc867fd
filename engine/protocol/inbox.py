"""What was received from a client and not yet taken.

The client's socket is always read (DESIGN section 3, law 7), so what cannot be worked off at once waits here. Neighbouring
audio is joined, so that ten thousand tiny frames cost what their bytes cost; bounded in bytes and in elements.
"""

from collections import deque

import attrs

from engine.elements import BadInput, Image, InputAudio, InputElement, InputText


@attrs.define(eq=False)
class _Audio:
    data: bytearray


def _size(element: InputElement) -> int:
    match element:
        case InputAudio(data) | Image(data):
            return len(data)
        case InputText(text):
            return 4 * len(text)
        case BadInput():
            return len(element.message)
        case _:
            return 256  # a token, action or report: small, and its parameters are bounded by the frame they came in


@attrs.define(eq=False)
class Inbox:
    """A queue of input elements in the order they came."""

    max_bytes: int
    max_elements: int
    _queue: deque[InputElement | _Audio] = attrs.field(factory=deque["InputElement | _Audio"], init=False)
    _bytes: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def has_room(self, element: InputElement) -> bool:
        """Whether an element may be put. An empty inbox takes any, so that nothing legal is refused for ever."""
        if not self._queue:
            return True
        if self._bytes + _size(element) > self.max_bytes:
            return False
        joins = isinstance(element, InputAudio) and isinstance(self._queue[-1], InputAudio | _Audio)
        return joins or len(self._queue) < self.max_elements

    def put(self, element: InputElement) -> None:
        """Queue an element; ask `has_room` first."""
        self._bytes += _size(element)
        if isinstance(element, InputAudio) and self._queue:
            last = self._queue[-1]
            if isinstance(last, _Audio):
                last.data += element.data
                return
            if isinstance(last, InputAudio):
                joined = _Audio(bytearray(last.data))
                joined.data += element.data
                self._queue[-1] = joined
                return
        self._queue.append(element)

    def waiting(self) -> list[InputElement]:
        """What waits, in its order; it goes on waiting."""
        return [InputAudio(bytes(item.data)) if isinstance(item, _Audio) else item for item in self._queue]

    def take(self) -> InputElement | None:
        """The next element, None when there is none."""
        if not self._queue:
            return None
        item = self._queue.popleft()
        element = InputAudio(bytes(item.data)) if isinstance(item, _Audio) else item
        self._bytes -= _size(element)
        return element
