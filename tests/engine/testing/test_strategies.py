"""Drawn conversations keep the contract; what breaks it shrinks to the little that matters."""

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from engine.elements import ControlToken, OutCommand
from engine.pipeline.line import ClientLine
from engine.testing.conversation import Conversation, Listen, Move, Noise, Say, Send, Wait, hold
from engine.testing.mishaps import Mishap
from engine.testing.speaker import Use
from engine.testing.strategies import Moves, answers, conversations, mishap_plans, plans, users

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SEARCH = settings(QUICK, max_examples=2000)


@QUICK
@given(conversations())
def test_a_drawn_conversation_keeps_the_contract(conversation: Conversation) -> None:
    found = hold(conversation)
    assert found.violations == [], found.timeline


@QUICK
@given(conversations(mishaps=False, user=users(aloud=True)))
def test_so_does_one_that_is_spoken(conversation: Conversation) -> None:
    found = hold(conversation)
    assert found.violations == [], found.timeline
    assert found.mishaps == []


def test_the_same_conversation_is_the_same_byte_for_byte() -> None:
    conversation = Conversation(
        (Say("Hello?"), Wait(0.2), Say("Stop.", aloud=True), Listen()), (("One.", 0.5, "Two."),)
    )
    assert hold(conversation).digest == hold(conversation).digest
    assert [e.name for _, e in hold(conversation).record.heard if isinstance(e, OutCommand)][-1] == "session-end"


def test_a_planted_fault_shrinks_to_a_minimal_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that takes nothing back when the user interrupts: for that a sentence is needed, and somebody who speaks into it."""

    def cut_nothing(self: ClientLine, response_id: str, turn_id: str) -> None:
        return

    monkeypatch.setattr(ClientLine, "cut_response", cut_nothing)

    def is_broken(conversation: Conversation) -> bool:
        return any(violation.rule == "barge-in" for violation in hold(conversation).violations)

    drawn = conversations(user=users(most=3), model=answers(uses_tools=False), mishaps=False)
    minimal = find(drawn, is_broken, settings=SEARCH)
    said = [move for move in minimal.user if isinstance(move, Say)]
    assert len(said) == 2
    assert len(minimal.user) <= 4
    assert sum(len(answer) for answer in minimal.answers) <= 1
    assert (minimal.plans, minimal.tools) == ((), ())
    assert minimal.schedule == 0


ALOUD, TYPED, ANYHOW = users(aloud=True), users(aloud=False), users()


@pytest.mark.parametrize(
    ("drawn", "wanted"),
    [
        (ALOUD, Noise()),
        (TYPED, Say(" ")),
        (TYPED, Say("No, three.")),
        (ALOUD, Say("Mhm", aloud=True)),
        (TYPED, Say("73")),
        (ANYHOW, Wait(21.0)),
        (ANYHOW, Send(ControlToken("locales", "cs"))),
    ],
    ids=["noise", "mumble", "correction", "backchannel", "digits", "silence", "oddity"],
)
def test_every_mood_is_drawn(drawn: st.SearchStrategy[Moves], wanted: Move) -> None:
    moves = find(drawn, lambda moves: wanted in moves, settings=SEARCH)
    assert len(moves) <= 4


def test_so_is_what_the_others_do() -> None:
    assert find(answers(), lambda steps: any(isinstance(step, Use) for step in steps), settings=SEARCH) == (
        Use("cancel"),
    )
    goodbye = find(plans(), lambda plan: any(whisper.ends_session for whisper in plan), settings=SEARCH)
    assert [whisper.after for whisper in goodbye] == [0.0]
    assert find(mishap_plans(), lambda plan: Mishap.CLOSE in plan.values(), settings=SEARCH) == {1: Mishap.CLOSE}
