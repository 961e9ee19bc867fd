"""The rules of what passes over, element by element."""

import pytest

from engine.elements import OutCommand, OutputElement, OutText, OutTranscript
from engine.simulate.exchange import GRACE_SECONDS, Deliver, Do, Exchange, HangUp, Limits, Open
from engine.simulate.report import Ending, Side

AGENT, TESTER = Side.AGENT, Side.TESTER
LIMITS = Limits(max_turns=2, max_seconds=100.0, silence_seconds=20.0, patience_seconds=5.0)


def words(text: str, response: str = "r1") -> OutText:
    return OutText(text, "t1", response)


def response_end(status: str = "completed") -> OutCommand:
    return OutCommand("response-end", {"responseId": "r1", "status": status}, "t1")


def turn_exit(turn_id: str = "t1") -> OutCommand:
    return OutCommand("exit", {"turnId": turn_id}, turn_id)


def final(turn_id: str = "t1") -> OutTranscript:
    return OutTranscript("…", False, False, False, "", turn_id)


def session_end(state: str = "CLOSED", reason: str = "it is over") -> OutCommand:
    return OutCommand("session-end", {"sessionId": "s", "state": state, "reason": reason})


GOODBYE = OutCommand("sessionShouldEnd", {"turnId": "t1"}, "t1")


def begun(limits: Limits = LIMITS, *, is_spoken: bool = False) -> Exchange:
    """Both are there, at 0."""
    exchange = Exchange(limits, is_spoken)
    assert exchange.deadline is None
    assert exchange.take(TESTER, OutCommand("ready", {}), 0.0) == []
    assert exchange.take(AGENT, OutCommand("ready", {}), 0.0) == [Open()]
    return exchange


def feed(exchange: Exchange, side: Side, *elements: OutputElement, now: float = 1.0) -> list[Do]:
    return [do for element in elements for do in exchange.take(side, element, now)]


def answered(exchange: Exchange, turn_id: str = "t1", *, now: float = 1.0) -> list[Do]:
    """The agent answers in one turn."""
    return feed(exchange, AGENT, final(turn_id), words("Yes?"), response_end(), turn_exit(turn_id), now=now)


def test_a_whole_turn_is_handed_over() -> None:
    exchange = begun()
    assert feed(exchange, AGENT, final(), words(" One. "), response_end(), words("Two.", "r2"), response_end()) == []
    assert feed(exchange, AGENT, turn_exit()) == [Deliver(TESTER, "One. Two.")]
    assert feed(exchange, TESTER, final("u1"), words("Three."), words("Four.")) == []
    assert feed(exchange, TESTER, response_end()) == [Deliver(AGENT, "Three. Four.")]
    assert feed(exchange, TESTER, turn_exit("u1")) == []
    assert exchange.turns == 1


def test_patience() -> None:
    exchange = begun()
    feed(exchange, AGENT, final(), words("One."), response_end(), now=2.0)
    assert exchange.deadline == 7.0
    feed(exchange, AGENT, words("Two.", "r2"), now=6.0)  # it speaks again: it is let finish
    assert exchange.deadline == 26.0
    feed(exchange, AGENT, response_end(), now=8.0)
    assert exchange.tick(12.9) == []
    assert exchange.tick(13.0) == [Deliver(TESTER, "One. Two.")]
    assert feed(exchange, AGENT, turn_exit(), now=14.0) == []


def test_without_patience_each_response_is_a_message() -> None:
    exchange = begun(Limits(patience_seconds=0.0))
    assert feed(exchange, AGENT, final(), words("One."), response_end()) == [Deliver(TESTER, "One.")]
    assert feed(exchange, AGENT, words("Two.", "r2"), response_end()) == [Deliver(TESTER, "Two.")]
    assert feed(exchange, AGENT, turn_exit()) == []


def test_what_was_out_of_a_cut_response_goes_with_what_follows() -> None:
    exchange = begun()
    answered(exchange)
    assert feed(exchange, TESTER, words("I said."), response_end("cancelled")) == []
    assert feed(exchange, TESTER, words("And say."), response_end()) == [Deliver(AGENT, "I said. And say.")]


@pytest.mark.parametrize("status", ["failed", "idle", "incomplete"])
def test_what_came_of_a_broken_response_is_handed_over(status: str) -> None:
    exchange = begun()
    feed(exchange, AGENT, final(), words("I think"), response_end(status))
    assert feed(exchange, AGENT, turn_exit()) == [Deliver(TESTER, "I think")]


def test_a_side_that_says_nothing_is_given_up_after_the_silence() -> None:
    exchange = begun()
    assert answered(exchange) == [Deliver(TESTER, "Yes?")]
    assert feed(exchange, TESTER, response_end(), now=3.0) == []
    assert exchange.turns == 0
    assert exchange.deadline == 23.0
    assert exchange.tick(23.0) == [HangUp(Ending.SILENCE, "nobody said anything any more")]


def test_the_limit_of_turns_lets_the_agent_answer_the_last_one() -> None:
    exchange = begun()
    for turn in ("t1", "t2"):
        assert answered(exchange, turn) == [Deliver(TESTER, "Yes?")]
        assert feed(exchange, TESTER, words("No."), response_end()) == [Deliver(AGENT, "No.")]
    assert answered(exchange, "t3") == [HangUp(Ending.TURN_LIMIT, "the simulated user had no turns left")]


def test_the_limit_of_time() -> None:
    exchange = begun()
    for now in range(10, 100, 10):
        feed(exchange, AGENT, final(), now=now)
    assert exchange.deadline == 100.0
    assert exchange.tick(100.0) == [HangUp(Ending.TIME_LIMIT, "the conversation took too long")]
    assert exchange.tick(200.0) == []
    assert feed(exchange, AGENT, words("Hello?"), response_end(), turn_exit(), now=200.0) == []


def test_the_agent_ends_it() -> None:
    """Its goodbye is for nobody to answer, and no limit holds while it is judged."""
    exchange = begun()
    assert feed(exchange, AGENT, final(), words("Bye."), GOODBYE, response_end(), turn_exit()) == []
    assert exchange.deadline is None
    assert feed(exchange, AGENT, session_end(), now=90.0) == [HangUp(Ending.AGENT, "it is over")]


def test_the_agents_goodbye_was_cut() -> None:
    exchange = begun()
    feed(exchange, AGENT, final(), words("Bye."), GOODBYE, response_end("cancelled"))
    assert exchange.deadline is not None
    assert feed(exchange, AGENT, final("t2"), words("Yes?"), response_end(), turn_exit("t2")) == [
        Deliver(TESTER, "Bye. Yes?")
    ]


def test_an_answer_that_crosses_with_the_goodbye_is_not_delivered() -> None:
    exchange = begun(Limits(patience_seconds=0.0))
    feed(exchange, AGENT, final(), words("Yes?"), response_end())
    feed(exchange, AGENT, words("Bye.", "r2"), GOODBYE, response_end())
    assert feed(exchange, TESTER, words("A table."), response_end()) == []


def test_the_simulated_user_ends_it_with_words() -> None:
    exchange = begun()
    answered(exchange)
    assert feed(exchange, TESTER, words("Bye."), GOODBYE, response_end()) == [Deliver(AGENT, "Bye.")]
    assert feed(exchange, TESTER, session_end(reason="enough"), now=2.0) == []
    assert exchange.has_left(TESTER)
    assert not exchange.has_left(AGENT)
    assert feed(exchange, AGENT, turn_exit("t1"), now=3.0) == []  # of the turn before
    assert answered(exchange, "t2", now=4.0) == [HangUp(Ending.TESTER, "enough")]


def test_the_simulated_user_leaves_and_the_agent_says_nothing() -> None:
    exchange = begun()
    answered(exchange)
    feed(exchange, TESTER, words("Bye."), response_end(), session_end(), now=2.0)
    assert feed(exchange, AGENT, final("t2"), response_end(), turn_exit("t2")) == [HangUp(Ending.TESTER, "it is over")]


def test_the_simulated_user_leaves_and_the_agent_hangs() -> None:
    exchange = begun()
    answered(exchange)
    feed(exchange, TESTER, words("Bye."), response_end(), session_end(), now=2.0)
    assert exchange.tick(22.0) == [HangUp(Ending.TESTER, "it is over")]


def test_the_simulated_user_ends_it_without_a_word() -> None:
    exchange = begun()
    answered(exchange)
    assert feed(exchange, TESTER, GOODBYE, response_end(), session_end()) == [HangUp(Ending.TESTER, "it is over")]


def test_a_session_that_breaks() -> None:
    exchange = Exchange(LIMITS)
    assert feed(exchange, AGENT, session_end("DISCONNECTED", "No key.")) == [
        HangUp(Ending.ERROR, "The agent's session broke: No key.")
    ]
    exchange = begun()
    assert feed(exchange, TESTER, session_end("DISCONNECTED", "No key.")) == [
        HangUp(Ending.ERROR, "The simulated user's session broke: No key.")
    ]


def test_it_is_stopped_from_outside() -> None:
    exchange = begun()
    exchange.stop(Ending.INTERRUPTED, "enough")
    exchange.stop(Ending.ERROR, "too late")
    assert (exchange.ending, exchange.reason, exchange.deadline) == (Ending.INTERRUPTED, "enough", None)


def test_in_voice_words_pass_as_sound() -> None:
    exchange = begun(is_spoken=True)
    assert answered(exchange) == []
    exchange.hear(15.0)
    assert exchange.deadline == 35.0
    assert feed(exchange, TESTER, words("No."), response_end(), now=16.0) == []
    assert exchange.turns == 1
    assert answered(exchange, "t2", now=17.0) == []
    feed(exchange, TESTER, words("No."), response_end(), now=18.0)
    assert answered(exchange, "t3", now=19.0) == [HangUp(Ending.TURN_LIMIT, "the simulated user had no turns left")]


def test_in_voice_the_agent_has_time_to_take_up_the_last_words() -> None:
    exchange = begun(is_spoken=True)
    answered(exchange)
    feed(exchange, TESTER, words("Bye."), response_end(), session_end(), now=2.0)
    assert exchange.deadline == 2.0 + GRACE_SECONDS
    assert exchange.tick(7.0) == [HangUp(Ending.TESTER, "it is over")]
    exchange = begun(is_spoken=True)
    answered(exchange)
    feed(exchange, TESTER, words("Bye."), response_end(), session_end(), now=2.0)
    assert answered(exchange, "t2", now=4.0) == [HangUp(Ending.TESTER, "it is over")]
