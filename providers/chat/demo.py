"""The Demo chat model: a scripted one that says it is one. It needs no key, no network and no memory of its own.

It plays several parts, told apart by the prompt it is asked with: the speaker of an agent, alone or with a planner; that planner,
before the first word and after each turn; and a simulated user. Each request is answered from its messages alone.
"""

import itertools
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import attrs
import trio

from engine.errors import ConfigurationError
from engine.interfaces import (
    ChatDelta,
    ChatFinished,
    ChatModel,
    ChatRequest,
    ChatText,
    ChatToolCall,
    ToolSpecification,
)
from providers.chat.demo_caller import call_in
from providers.chat.demo_opening import plan_opening
from providers.chat.demo_planner import plan_turn
from providers.chat.demo_prompts import Part, first_prompt, part_of
from providers.chat.demo_speaker import speak
from providers.chat.demo_talk import Reply

PLAY: Mapping[Part, Callable[[ChatRequest], Reply]] = {
    Part.SPEAKER: speak,
    Part.PLANNER: plan_turn,
    Part.OPENING: plan_opening,
    Part.CALLER: call_in,
}


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
    is_scripted: bool = True
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
    return PLAY[part_of(first_prompt(request.messages))](request)


def _required(tools: Iterable[ToolSpecification], reply: Reply) -> dict[str, Any]:
    """Texts a tool insists on that the script does not know of, such as the reason for a goodbye."""
    tool = next((tool for tool in tools if tool.name == reply.call), None)
    required: list[str] = tool.parameters.get("required", []) if tool else []
    return {name: "The user said goodbye." for name in required if name not in reply.arguments}
