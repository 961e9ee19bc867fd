"""What an Internal session tells its chat model about the conversation so far: sans-I/O.

The history is what was heard (DESIGN section 3, law 5): a cut answer keeps the words the user heard. Every tool call in it has an
answer in every request, as chat models refuse a history that leaves one open (case C52's kind).
"""

from collections import deque
from collections.abc import Iterable

import attrs

from engine.elements import Image
from engine.interfaces import ChatMessage, Message, Role, ToolCall

MAX_ENTRIES = 400
"""Entries kept; the oldest go first, up to the next line of the user."""
CONTEXTUAL_INSTRUCTIONS = 5
"""The rolling window of supporting context (P8)."""
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
    _contexts: deque[str] = attrs.field(factory=lambda: deque[str](maxlen=CONTEXTUAL_INSTRUCTIONS), init=False)

    def resume(self, messages: Iterable[Message]) -> None:
        """The conversation of earlier runs of this session."""
        for message in messages:
            if message.role is not Role.INSTRUCTION:
                self._add(_Entry("user" if message.role is Role.USER else "assistant", message.text))

    def add_user(self, text: str, images: tuple[Image, ...] = ()) -> None:
        self._add(_Entry("user", text, images=images))

    def add_instruction(self, text: str) -> None:
        """An instruction the model has to act on, in its place in the conversation."""
        self._add(_Entry("system", text))

    def add_context(self, text: str) -> None:
        """Supporting context: the last five are told in every request."""
        self._contexts.append(text)

    def add_answer(self, response_id: str, text: str, calls: tuple[ToolCall, ...] = ()) -> None:
        """A part of a response: what was said up to its tool calls, or its end."""
        if text.strip() or calls:
            self._add(_Entry("assistant", text, response_id, calls))

    def add_output(self, call_id: str, output: str) -> None:
        """How a call ended; may come late."""
        self._outputs[call_id] = output

    def cut(self, response_id: str, heard: str) -> None:
        """A response was cut: of its words only the heard ones stay."""
        words = heard.split()
        for entry in [entry for entry in self._entries if entry.response_id == response_id]:
            said = entry.text.split()
            kept, words = words[: len(said)], words[len(said) :]
            if len(kept) < len(said):
                entry.text = " ".join(kept)
            if not entry.text and not entry.calls:
                self._entries.remove(entry)

    def request(self, system_prompt: str) -> tuple[ChatMessage, ...]:
        """The messages of the next request."""
        messages = [ChatMessage("system", system_prompt)]
        messages += [ChatMessage("system", text) for text in self._contexts]
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
        del self._entries[: MAX_ENTRIES // 10]
        while self._entries and self._entries[0].role != "user":
            del self._entries[0]
        known = {call.call_id for entry in self._entries for call in entry.calls}
        self._outputs = {call_id: output for call_id, output in self._outputs.items() if call_id in known}
