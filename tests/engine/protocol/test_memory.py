"""The conversation as it was heard, turn by turn, in the order in which it was spoken."""

from engine.elements import Transcript
from engine.interfaces import Message, Role
from engine.protocol.memory import ConversationMemory, is_action
from engine.protocol.turn import ResponseRecord, Turn
from engine.testing.scripted import final


def turn(turn_id: str, said: str = "", *answers: str, is_asked_again: bool = False) -> Turn:
    return Turn(
        turn_id,
        final=final(said) if said else None,
        is_asked_again=is_asked_again,
        responses=[ResponseRecord(f"{turn_id}-{n}", [answer]) for n, answer in enumerate(answers)],
    )


def lines(memory: ConversationMemory) -> list[str]:
    return [f"{message.role[0]}:{message.text}" for message in memory.messages]


def test_the_user_first_then_what_was_heard_of_the_answers() -> None:
    memory = ConversationMemory(100)
    memory.put_turn(turn("t1", "hello", "Hello.", " ", "How are you?"))
    memory.put_turn(turn("t2", "", "Are you there?"))
    assert lines(memory) == ["u:hello", "a:Hello.", "a:How are you?", "a:Are you there?"]
    assert memory.messages[0] == Message(Role.USER, "hello", "t1")


def test_a_turn_put_again_is_corrected_in_its_place() -> None:
    memory = ConversationMemory(100)
    first = turn("t1", "hello", "A long answer.")
    memory.put_turn(first)
    memory.put_instruction("Be brief.", "t1")
    memory.put_turn(turn("t2", "stop", "Yes."))
    first.responses[0].heard = "A long"
    memory.put_turn(first)
    assert lines(memory) == ["u:hello", "a:A long", "i:Be brief.", "u:stop", "a:Yes."]
    first.responses[0].heard = ""
    first.final = None
    memory.put_turn(first)
    assert lines(memory) == ["i:Be brief.", "u:stop", "a:Yes."]


def test_what_is_no_user_message() -> None:
    """An action, and the copy of a final whose answer was cut."""
    memory = ConversationMemory(100)
    intro = turn("t1", "", "Welcome.")
    intro.final = Transcript("#intro", is_synthetic=True)
    assert is_action(intro)
    memory.put_turn(intro)
    memory.put_turn(turn("t2", "book it", "Booked.", is_asked_again=True))
    memory.put_turn(turn("t3", "#5 please", "Fine."))
    assert lines(memory) == ["a:Welcome.", "a:Booked.", "u:#5 please", "a:Fine."]


def test_the_oldest_is_forgotten() -> None:
    memory = ConversationMemory(3)
    for number in range(3):
        memory.put_turn(turn(f"t{number}", f"question {number}", f"answer {number}"))
    assert lines(memory) == ["a:answer 1", "u:question 2", "a:answer 2"]
    memory.put_instruction("Be brief.", "t2")
    assert lines(memory) == ["u:question 2", "a:answer 2", "i:Be brief."]
    memory.put(Message(Role.USER, "one more"))
    assert lines(memory) == ["a:answer 2", "i:Be brief.", "u:one more"]
