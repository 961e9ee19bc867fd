"""What an Internal session tells its chat model about the conversation so far: sans-I/O.

The history is what was heard (DESIGN section 3, law 5): a cut answer keeps the words the user heard. Every tool call in it has an
answer in every request, as chat models refuse a history that leaves one open (case C52's kind).
"""

from collections import deque
from collections.abc import Iterable

import attrs

from engine.elements import Image
from engine.interfaces import ChatMessage, Message, Role, ToolCall
from providers.internal.words import count_visible, upto

MAX_ENTRIES = 400
"""Entries kept; the oldest tenth goes first, and what follows it up to a line of the user."""
CONTEXTUAL_INSTRUCTIONS = 5
"""The rolling window of supporting context (P8)."""
KEPT_IMAGES = 4
"""Images kept, the newest: they are large, and each request carries all of them."""
STILL_RUNNING = '{"status": "This call is still running. Its result will follow."}'


@attrs.define(eq=False)
class _Entry:
    role: str
    text: str = ""
    response_id: str = ""
    calls: tuple[ToolCall, ...] = ()
    images: tuple[Image, ...] = ()


@attrs.define(eq=False)
class ChatHistory:
    _entries: list[_Entry] = attrs.field(factory=list[_Entry], init=False)
    _outputs: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _call_ids: set[str] = attrs.field(factory=set[str], init=False)
    _contexts: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=CONTEXTUAL_INSTRUCTIONS), init=False)

    def resume(self, messages: Iterable[Message]) -> None:
        """The conversation of earlier runs of this session."""
        for message in messages:
            if message.role is not Role.INSTRUCTION:
                self._add(_Entry("user" if message.role is Role.USER else "assistant", message.text))

    def add_user(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._add(_Entry("user", text, images=images))
        room = KEPT_IMAGES
        for entry in reversed(self._entries) if images else ():
            entry.images = entry.images[-room:] if room else ()
            room -= len(entry.images)

    def add_instruction(self, text: str) -> None:
        """An instruction or a note to the model, in its place in the conversation."""
        self._add(_Entry("system", text))

    def add_context(self, text: str) -> None:
        """Supporting context: the last five are told in every request."""
        self._contexts.append(text)

    def add_answer(self, response_id: str, text: str, calls: tuple[ToolCall, ...] = ()) -> None:
        """A part of a response: what was said up to its tool calls, or its end."""
        if text.strip() or calls:
            self._add(_Entry("assistant", text, response_id, calls))

    def take_call_id(self, call_id: str) -> bool:
        """Whether a call may have this id: none of the session has had it. Models that number their calls repeat themselves."""
        is_new = bool(call_id) and call_id not in self._call_ids
        self._call_ids.add(call_id)
        return is_new

    def add_output(self, call_id: str, output: str) -> None:
        """How a call ended; may come late. A later one replaces it."""
        self._outputs[call_id] = output

    @property
    def ends_with_answer(self) -> bool:
        """Whether the last thing in it was said by the agent."""
        return bool(self._entries) and self._entries[-1].role == "assistant"

    def cut(self, response_id: str, heard: str) -> None:
        """A response was cut: of its words only the heard ones stay, and none of a response that would have been heard after it."""
        first = next((index for index, entry in enumerate(self._entries) if entry.response_id == response_id), None)
        if first is None:
            return
        room = count_visible(heard)
        for entry in self._entries[first:]:
            if entry.response_id == response_id:
                visible = count_visible(entry.text)
                entry.text = upto(entry.text, room)
                room = max(0, room - visible)
            elif entry.response_id:
                entry.text = ""
        self._entries = [entry for entry in self._entries if entry.text or entry.calls or not entry.response_id]

    def request(self, system_prompt: str) -> tuple[ChatMessage, ...]:
        """The messages of the next request."""
        messages = [ChatMessage("system", text) for text in (system_prompt, *self._contexts) if text.strip()]
        for entry in self._entries:
            messages.append(ChatMessage(entry.role, entry.text, tool_calls=entry.calls, images=entry.images))
            messages += [
                ChatMessage("tool", self._outputs.get(call.call_id, STILL_RUNNING), tool_call_id=call.call_id)
                for call in entry.calls
            ]
        return tuple(messages)

    def _add(self, entry: _Entry) -> None:
        self._entries.append(entry)
        if len(self._entries) <= MAX_ENTRIES:
            return
        tenth = MAX_ENTRIES // 10
        lines = (index for index in range(tenth, MAX_ENTRIES // 2) if self._entries[index].role == "user")
        del self._entries[: next(lines, tenth)]
        known = {call.call_id for entry in self._entries for call in entry.calls}
        self._outputs = {call_id: output for call_id, output in self._outputs.items() if call_id in known}
