"""The conversation as it was heard (SPEC L11, law 5): what prompts and planning read."""

import attrs

from engine.interfaces import Message, Role
from engine.protocol.turn import Turn


@attrs.define(eq=False)
class ConversationMemory:
    """The last `limit` messages, oldest first. A turn's messages are put as a whole: the user's, then the agent's."""

    limit: int
    messages: list[Message] = attrs.field(factory=list[Message])

    def put_turn(self, turn: Turn) -> None:
        """Record a turn, or correct what is recorded of it: a barge-in may show that less of it was heard."""
        spoken = [
            Message(Role.ASSISTANT, record.heard_text, turn.id)
            for record in turn.responses
            if record.heard_text.strip()
        ]
        asked = turn.final is not None and not turn.is_asked_again and not is_action(turn)
        lines = [Message(Role.USER, turn.user_text, turn.id), *spoken] if asked else spoken
        places = [
            index
            for index, message in enumerate(self.messages)
            if message.turn_id == turn.id and message.role is not Role.INSTRUCTION
        ]
        at = places[0] if places else len(self.messages)
        rest = [
            message for message in self.messages[at:] if message.turn_id != turn.id or message.role is Role.INSTRUCTION
        ]
        self.messages[at:] = [*lines, *rest]
        del self.messages[: max(0, len(self.messages) - self.limit)]

    def put(self, message: Message) -> None:
        """Record a line of a conversation without turns."""
        self.messages.append(message)
        del self.messages[: max(0, len(self.messages) - self.limit)]

    def put_instruction(self, text: str, turn_id: str) -> None:
        """An instruction shapes later prompts and is no part of the plain transcript."""
        self.put(Message(Role.INSTRUCTION, text, turn_id))


def is_action(turn: Turn) -> bool:
    """Whether the turn's input was an action such as `#intro`, which is no user message (L21)."""
    return turn.final is not None and turn.final.is_synthetic and turn.final.text.startswith("#")
