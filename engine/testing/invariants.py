"""What has to be true of every conversation, however it went: rules over what one client was told, and over what was stored.

`check_stream` reads the output elements of a connection in the order in which they were sent (protocol page, section 2);
`check_turns` the stored turns, `check_memory` the conversation as prompts see it. Each returns what it found wrong, so that a test,
a simulation or a replay can say all of it at once; `require` makes a failure of it.

The rules know nothing of the engine's inside: they are what a client may rely on.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from engine.elements import OutCommand, OutputElement, OutTranscript
from engine.interfaces import Message, Role
from engine.protocol.promises import Promises, Violation
from engine.store.documents import MessageDocument, TurnDocument

Heard = Sequence[tuple[float, OutputElement]]
"""What a client was told, each with its time in seconds."""


def require(violations: Iterable[Violation]) -> None:
    """Raises AssertionError with every violation, when there is one."""
    lines = [str(violation) for violation in violations]
    if lines:
        raise AssertionError("\n".join(lines))


def check_stream(heard: Heard, *, is_over: bool = True, has_turns: bool = True) -> list[Violation]:
    """What is wrong with a client's stream, by `engine.protocol.promises`, with nothing forgotten. `is_over`: it is complete, so
    that whatever was begun must have ended. Without turns, as with a model that speaks continuously, only the rules of sessions,
    frames, plans and goodbyes hold.

    The rules: every response ends exactly once, with the status of what was sent, and nothing of it follows; after an interim
    comes nothing that was said before it; from there to the old turn's `exit` come only commands of the old turn, and after it
    nothing of that turn, in this session and those that follow; a final has exactly one interim before it; a turn that emitted
    something has exactly one `exit`, an interim that led to nothing has none; a tool call starts once and settles once; the last
    frame of speech is marked in a completed response and in no other; instructions are of the newest pass over the turn the user
    is in; a session ends behind its goodbye, and its last element is `session-end`.
    """
    found: list[Violation] = []
    promises = Promises(found.append, has_turns, memory=len(heard) + 1)
    for at, element in heard:
        promises.take(element, at)
    if is_over:
        promises.end()
    return found


# --- what is stored ---------------------------------------------------------------------------------------------------


def check_turns(turns: Sequence[TurnDocument], heard: Heard = (), lost: Collection[str] = ()) -> list[Violation]:
    """What is wrong with the stored turns of one session, in the order of their index; `heard` is its client's whole stream, `lost`
    are turns that need not be stored.

    The rules: ids and indexes are used once and leave no gap; what was heard is how the text begins; every tool call is
    settled; the turns are those whose `exit` the client got, in that order, with the words the client saw.
    """
    violations: list[Violation] = []

    def broken(rule: str, message: str) -> None:
        violations.append(Violation(rule, message, len(heard)))

    for turn_id, count in Counter(turn.id for turn in turns).items():
        if count > 1:
            broken("stored-turns", f"turn {turn_id} is stored {count} times")
    first = turns[0].index if turns else 0
    if [turn.index for turn in turns] != list(range(first, first + len(turns))):
        broken("stored-turns", f"the indexes are {[turn.index for turn in turns]}")
    for turn in turns:
        for output in turn.output:
            words = output.heard.split()
            if output.text.split()[: len(words)] != words:
                broken("heard", f"turn {turn.id}: {output.heard!r} is not how {output.text!r} begins")
        for tool in turn.tools:
            if tool.error == UNFINISHED:
                broken("tools", f"turn {turn.id}: call {tool.call_id} is not settled")
    if heard:
        exits = [str(e.parameters["turnId"]) for _, e in heard if isinstance(e, OutCommand) and e.name == "exit"]
        kept = {turn.id for turn in turns}
        exits = [turn_id for turn_id in exits if turn_id in kept or turn_id not in lost]
        if exits != [turn.id for turn in turns]:
            broken("stored-turns", f"exits for {exits}, stored are {[turn.id for turn in turns]}")
        finals = {e.turn_id: e.text for _, e in heard if isinstance(e, OutTranscript) and not e.is_interim}
        for turn in turns:
            if turn.input.text and turn.input.text != finals.get(turn.id):
                broken("transcripts", f"turn {turn.id} stores {turn.input.text!r}, shown was {finals.get(turn.id)!r}")
    return violations


UNFINISHED = "The call did not finish."
"""What a stored call says that was never settled."""


def check_memory(messages: Sequence[Message], turns: Sequence[TurnDocument]) -> list[Violation]:
    """What is wrong with the conversation as it is remembered: it is the stored turns, in the order in which they were spoken,
    each the user's words and then what was heard of the answers. Older turns may have been forgotten."""
    expected: list[tuple[Role, str, str]] = []
    for turn in turns:
        if turn.input.text and turn.input.kind in {"speech", "text"}:
            expected.append((Role.USER, turn.input.text, turn.id))
        expected.extend((Role.ASSISTANT, output.heard, turn.id) for output in turn.output if output.heard.strip())
    said = [(m.role, m.text, m.turn_id) for m in messages if m.role is not Role.INSTRUCTION]
    if said == expected[max(0, len(expected) - len(said)) :]:
        return []
    return [Violation("memory", f"remembered is {said}, stored is {expected}")]


def check_lines(messages: Sequence[Message], lines: Sequence[MessageDocument]) -> list[Violation]:
    """As `check_memory`, of a conversation without turns: what is remembered are the lines that are stored, in their order."""
    said = [(m.role.value, m.text) for m in messages if m.role is not Role.INSTRUCTION]
    stored = [(line.role, line.text) for line in lines]
    if said == stored[max(0, len(stored) - len(said)) :]:
        return []
    return [Violation("memory", f"remembered is {said}, stored is {stored}")]
