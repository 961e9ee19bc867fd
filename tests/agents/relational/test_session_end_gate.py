"""Whether planning ends the session, explored whole (SPEC R9)."""

from itertools import product

import pytest

from agents.relational.session_end_gate import SessionEndGate

# What may happen in a turn, in its order: what the model calls, what the pass decides, how it ends.
CALLS = ("nothing", "asks", "asks twice")
ANSWERS = ("nothing", "results", "goodbye", "results, goodbye", "goodbye, results")
ENDINGS = ("over", "cut")
"""Planning has come to its end, or the user has spoken into it: into the goodbye, when there was one."""


def play(turns: tuple[tuple[str, str, str], ...]) -> list[str]:
    """One session, turn by turn, as the planner drives the gate. Returns what was said for each turn: "said", "goodbye", both in
    their order, or nothing; the session ends with a goodbye that was not cut."""
    gate = SessionEndGate()
    told: list[str] = []
    for number, (call, answer, ending) in enumerate(turns):
        turn = f"turn-{number}"
        said: list[str] = []
        for _ in range({"nothing": 0, "asks": 1, "asks twice": 2}[call]):
            assert not gate.ask(turn), "an approval that was cut or has ended the session is not left behind"
        assert gate.is_asked(turn) == (call != "nothing")
        decision = gate.begin(turn)
        assert decision.is_requested == (call != "nothing")
        assert not gate.is_asked(turn), "one pass only"
        for part in answer.split(", "):
            if part == "nothing" or decision.is_ending:
                continue
            decision.answer(ends_session=part == "goodbye")
            said.append("said" if part == "results" else "goodbye")
            assert gate.ask(turn) == decision.is_ending, "the model that calls again is told that the end is approved"
            if not decision.is_ending:
                gate.begin(turn).close()  # the planner answers that with a further pass
        if ending == "over" and decision.needs_fallback:
            decision.answer(ends_session=True)
            said.append("goodbye")
        assert said.count("goodbye") <= 1
        if ending == "over" and call != "nothing":
            assert said, "the model that waits is always answered"
        decision.close()
        told.append(", ".join(said))
        if ending == "over" and "goodbye" in said:
            break
    return told


def test_every_session_of_three_turns() -> None:
    turns = list(product(CALLS, ANSWERS, ENDINGS))
    assert len(turns) == 30
    for session in product(turns, repeat=3):
        told = play(session)
        for (call, answer, ending), said in zip(session, told, strict=False):
            expected = [part.replace("results", "said") for part in answer.split(", ") if part != "nothing"]
            if "goodbye" in expected:
                expected = expected[: expected.index("goodbye") + 1]
            elif not expected and call != "nothing" and ending == "over":
                expected = ["goodbye"]
            assert said == ", ".join(expected)


def test_a_request_of_an_earlier_turn_is_overtaken() -> None:
    """The user spoke before its pass began: the new words are an ordinary turn."""
    gate = SessionEndGate()
    gate.ask("turn-1")
    assert not gate.begin("turn-2").is_requested
    assert not gate.is_asked("turn-1")


def test_a_model_that_calls_before_it_says_the_approved_goodbye_is_reminded() -> None:
    gate = SessionEndGate()
    decision = gate.begin("turn-1")
    decision.answer(ends_session=True)
    assert gate.ask("turn-1")
    assert not gate.is_asked("turn-1"), "planning is not asked again"


@pytest.mark.parametrize("how", ["cut", "the next pass begins"])
def test_an_approval_that_was_not_used_is_cleared(how: str) -> None:
    gate = SessionEndGate()
    decision = gate.begin("turn-1")
    decision.answer(ends_session=True)
    if how == "cut":
        decision.close()
    else:
        gate.begin("turn-2")
    assert not gate.ask("turn-2")


def test_an_old_pass_does_not_clear_a_newer_approval() -> None:
    gate = SessionEndGate()
    old = gate.begin("turn-1")
    old.answer(ends_session=True)
    new = gate.begin("turn-2")
    new.answer(ends_session=True)
    old.close()
    assert gate.ask("turn-2")
