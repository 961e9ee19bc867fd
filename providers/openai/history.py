"""The provider's own history, kept to what was heard (DESIGN section 3, law 5). Sans-I/O."""

from collections.abc import Iterable, Iterator, Sequence

from engine.interfaces import Message, Role
from providers.openai import frames
from providers.openai.answers import Answer

SLACK_SECONDS = 0.1
"""Audio may be played a little faster than it was made."""
IDLE_SECONDS = 20.0
"""Of silence, after which the engine ends an answer by itself (`idle_response_end_seconds`); what came of it was shown."""
RETOLD_MESSAGES = 30
"""Of the conversation so far, told to a new connection: about five minutes of talk."""


def cut(answer: Answer, *, text_only: bool) -> Iterator[str]:
    """The frames that leave of an answer what was heard of it: whole items, the beginning of one, nothing of the later ones."""
    heard_ms, heard_text = answer.heard or (0.0, "")
    return _cut_text(answer, heard_text) if text_only else _cut_speech(answer, heard_ms)


def _cut_speech(answer: Answer, heard_ms: float) -> Iterator[str]:
    left = heard_ms
    for item in list(answer.items):
        heard = int(min(left, item.received_ms))
        left = max(0.0, left - item.received_ms)
        if heard <= 0:
            answer.items.remove(item)
            yield frames.item_delete(item.item_id)
        elif heard < item.received_ms or item.was_cut:
            item.received_ms, item.was_cut = float(heard), False
            yield frames.item_truncate(item.item_id, heard)


def _cut_text(answer: Answer, heard: str) -> Iterator[str]:
    """Written words cannot be truncated: what was read of them takes their place."""
    came = [item for item in answer.items if item.text.strip()]
    is_whole = heard.split() == answer.text.split()
    if came and not is_whole and heard.strip():
        yield frames.assistant_item(heard, after=came[0].item_id)
    kept = came if is_whole else []
    for item in answer.items:
        if item not in kept:
            yield frames.item_delete(item.item_id)
    answer.items = kept


def is_idle(answer: Answer, now: float) -> bool:
    """Whether an answer that has not ended fell silent so long ago that it has ended for the engine."""
    return answer.came_at <= now - IDLE_SECONDS


def still_playing(answers: Iterable[Answer], now: float) -> list[Answer]:
    """Those whose audio cannot have been played by `now`, played one after the other as soon as it came. When the user cuts in, the
    engine names the first of them; of the others nothing was heard, nor of any if it names none, as it had shown none yet."""
    found: list[Answer] = []
    free_at = 0.0
    for answer in answers:
        if answer.sounds_from is None or not answer.received_ms:
            continue
        if answer.heard is not None:
            free_at = 0.0  # it was cut, and stopped then
            continue
        free_at = max(free_at, answer.sounds_from) + answer.received_ms / 1000
        if free_at > now + SLACK_SECONDS:
            found.append(answer)
    return found


def spoken(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role is not Role.INSTRUCTION and message.text.strip()]


def retold(messages: Sequence[Message], summary: str = "") -> Iterator[str]:
    """The end of the conversation so far, for a connection that knows nothing of it, and what was said before in few words."""
    if summary:
        yield frames.system_item(f"What was said before: {summary}")
    for message in spoken(messages)[-RETOLD_MESSAGES:]:
        yield frames.user_item(message.text) if message.role is Role.USER else frames.assistant_item(message.text)
