"""The speaker's part: each request is answered by going through its messages again from the first one, so that a reconnect or a cut
answer changes nothing. System messages are context for language models and are passed over, but for instructions to speak, the
date, and what a planner has whispered."""

import re
from collections.abc import Iterable
from datetime import date

import attrs

from engine.interfaces import ChatMessage, ChatRequest
from providers.chat.demo_lines import ADMISSION
from providers.chat.demo_prompts import INSTRUCTION, first_prompt, read_briefing, whispers
from providers.chat.demo_steered import REQUEST_HELP, SteeredConversation
from providers.chat.demo_talk import BOOK_TABLE, Conversation, Reply

OPENING = "#intro"
MESSAGES = 120
"""How many of the last messages are gone through: 60 turns, about 6 ms. A booking takes fewer than ten."""
CHARACTERS = 2000
"""Of each message: nobody says more about a table."""


def speak(request: ChatRequest) -> Reply:
    """The reply to the last message of a request."""
    talk = make_conversation(request)
    calls: dict[str, str] = {}
    reply = Reply("")
    said = request.messages[-MESSAGES:]
    last = max((index for index, message in enumerate(said) if message.role == "user"), default=-1)
    for index, message in enumerate(said):
        text = message.text[:CHARACTERS]
        match message.role:
            case "assistant":
                calls.update((call.call_id, call.name) for call in message.tool_calls)
                talk.speak(text)
            case "tool":
                reply = talk.take_result(calls.get(message.tool_call_id, talk.calling or BOOK_TABLE), message.text)
                reply = _admit(talk, reply)
            case "user" | "system" if text.startswith(INSTRUCTION):
                reply = talk.instruct(text.removeprefix(INSTRUCTION))
            case "user" if text.startswith(OPENING):
                reply = talk.open()
            case "user":
                if index == last and isinstance(talk, SteeredConversation):
                    talk.told = tuple(whispers(request.messages))
                reply = _admit(talk, talk.hear(text))
            case _:
                pass
    return reply


def make_conversation(request: ChatRequest) -> Conversation:
    tools, today = frozenset(tool.name for tool in request.tools), today_in(_context(request.messages))
    if REQUEST_HELP not in tools:
        return Conversation(tools, today, request.locale)
    return SteeredConversation(tools, today, request.locale, briefing=read_briefing(first_prompt(request.messages)))


def _admit(talk: Conversation, reply: Reply) -> Reply:
    """The first words say what speaks."""
    return attrs.evolve(reply, text=f"{ADMISSION} {reply.text}") if reply.text and not talk.has_spoken else reply


def _context(messages: Iterable[ChatMessage]) -> Iterable[str]:
    return (message.text for message in messages if message.role == "system")


def today_in(texts: Iterable[str]) -> date | None:
    """The date where the caller is, as the context says it last."""
    found: date | None = None
    for text in texts:
        for written in re.findall(r"\b(\d{4}-\d\d-\d\d)T\d\d:\d\d", text):
            try:
                found = date.fromisoformat(written)
            except ValueError:
                continue
    return found
