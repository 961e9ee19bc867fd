"""The Demo chat model: a scripted one that says it is one. It needs no key, no network and no memory of its own.

Each request is answered by going through its messages again from the first one, so that a reconnect or a cut answer changes
nothing. System messages are context for language models and are passed over, except for two things in them: an instruction to
speak, and the date.
"""

import itertools
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from typing import Any, ClassVar

import attrs
import trio

from engine.errors import ConfigurationError
from engine.interfaces import (
    ChatDelta,
    ChatFinished,
    ChatMessage,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ToolSpecification,
)
from providers.chat.demo_lines import ADMISSION
from providers.chat.demo_talk import BOOK_TABLE, Conversation, Reply

OPENING = "#intro"
INSTRUCTION = "Instruction:"
MESSAGES = 120
"""How many of the last messages are gone through: 60 turns, about 6 ms. A booking takes fewer than ten."""
CHARACTERS = 2000
"""Of each message: nobody says more about a table."""


def make_chat_model(configuration: Mapping[str, Any]) -> "DemoChatModel":
    """The part from its configuration, which has nothing to set.

    Raises:
        ConfigurationError: something is set.
    """
    if unknown := configuration.keys() - {"provider"}:
        raise ConfigurationError(f"chat: the Demo model has nothing to set, so remove {', '.join(sorted(unknown))}")
    return DemoChatModel()


@attrs.define(eq=False)
class DemoChatModel(ChatModel):
    name: ClassVar[str] = "Demo"
    model: str = "demo"
    _calls: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    """Numbers the tool calls, whose ids must differ."""

    @asynccontextmanager
    async def open_stream(self, request: ChatRequest) -> AsyncGenerator[trio.MemoryReceiveChannel[ChatDelta]]:
        reply = answer(request)
        deltas: list[ChatDelta] = [ChatText(piece) for piece in re.findall(r"\S+\s*", reply.text)]
        if reply.call:
            arguments = {**reply.arguments, **_required(request.tools, reply)}
            deltas.append(ChatToolCall(f"demo-{next(self._calls)}", reply.call, json.dumps(arguments)))
        deltas.append(ChatFinished())
        send, receive = trio.open_memory_channel[ChatDelta](len(deltas))
        with send:
            for delta in deltas:
                send.send_nowait(delta)
        await trio.lowlevel.checkpoint()
        with receive:
            yield receive


def answer(request: ChatRequest) -> Reply:
    """The reply to the last message of a request. Never raises, whatever the messages say."""
    talk = Conversation(frozenset(tool.name for tool in request.tools), _today(request.messages), request.locale)
    calls: dict[str, str] = {}
    reply = Reply("")
    for message in request.messages[-MESSAGES:]:
        text = message.text[:CHARACTERS]
        match message.role:
            case "assistant":
                calls.update((call.call_id, call.name) for call in message.tool_calls)
                talk.speak(text)
            case "tool":
                reply = talk.take_result(calls.get(message.tool_call_id, talk.calling or BOOK_TABLE), message.text)
            case "user" | "system" if text.startswith(INSTRUCTION):
                reply = talk.instruct(text.removeprefix(INSTRUCTION))
            case "user" if text.startswith(OPENING):
                reply = talk.open()
            case "user":
                reply = talk.hear(text)
                if not talk.has_spoken:
                    reply = attrs.evolve(reply, text=f"{ADMISSION} {reply.text}")
            case _:
                pass
    return reply


def _today(messages: Iterable[ChatMessage]) -> date | None:
    """The date where the caller is, as the context says it last."""
    found: date | None = None
    for message in messages:
        if message.role == "system":
            for written in re.findall(r"\b(\d{4}-\d\d-\d\d)T\d\d:\d\d", message.text):
                try:
                    found = date.fromisoformat(written)
                except ValueError:
                    continue
    return found


def _required(tools: Iterable[ToolSpecification], reply: Reply) -> dict[str, Any]:
    """Texts a tool insists on that the script does not know of, such as the reason for a goodbye."""
    tool = next((tool for tool in tools if tool.name == reply.call), None)
    required: list[str] = tool.parameters.get("required", []) if tool else []
    return {name: "The user said goodbye." for name in required if name not in reply.arguments}
