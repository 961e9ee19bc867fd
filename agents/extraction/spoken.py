"""A conversation as text, for models that read it and take no part in it."""

from collections.abc import Sequence

from engine.interfaces import Message, Role

SPEAKERS = {Role.USER: "User", Role.ASSISTANT: "Agent"}
TOLD_LINES = 120
LINE_CHARACTERS = 600
"""Of each line: about 20,000 tokens at the very most."""


def plain(text: str, characters: int = LINE_CHARACTERS) -> str:
    """In one line, so that nobody's words look like another speaker's."""
    text = " ".join(text.split())
    return text if len(text) <= characters else f"{text[:characters]}…"


def spoken(messages: Sequence[Message]) -> list[Message]:
    """What was said, without the instructions and without what is blank."""
    return [message for message in messages if message.role in SPEAKERS and message.text.strip()]


def transcript(messages: Sequence[Message], lines: int = TOLD_LINES) -> str:
    """The last lines, each with who said it; "" when nothing was said."""
    return "\n".join(f"{SPEAKERS[message.role]}: {plain(message.text)}" for message in spoken(messages)[-lines:])


def has_user_spoken(messages: Sequence[Message]) -> bool:
    return any(message.role is Role.USER for message in spoken(messages))
