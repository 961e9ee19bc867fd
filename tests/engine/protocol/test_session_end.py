"""The end of a session as the realtime model's session sees it."""

from collections.abc import Sequence
from itertools import product

import pytest

from engine.interfaces import ToolSettled
from engine.protocol.session_end import Ending, PlannedSessionEnd


def settled(**how: bool) -> ToolSettled:
    return ToolSettled("c", "finish_session", "r", "{}", **how)


REQUEST, FINISH, OTHER = settled(requests_end=True), settled(ends_session=True), settled()
FAILED = settled(requests_end=True, ends_session=True, is_error=True)
STOPPED = settled(requests_end=True, ends_session=True, interrupted=True)


def responses(*rounds: tuple[bool, Sequence[ToolSettled]], ends_session: bool = False) -> tuple[int, Ending]:
    """An answer whose responses each speak or not and make calls: after how many of them all is said."""
    ending = Ending(ends_session)
    for count, (has_spoken, calls) in enumerate(rounds, 1):
        for call in calls:
            ending.settle(call)
        if not calls or ending.is_said(has_spoken=has_spoken):
            return count, ending
        ending.asked_again()
    return len(rounds) + 1, ending


@pytest.mark.parametrize("call", [OTHER, FAILED, STOPPED])
def test_other_calls_are_always_answered(call: ToolSettled) -> None:
    count, ending = responses((True, [call]), (True, [call]), (False, [call]))
    assert count == 4
    assert not ending.ends_session
    assert not ending.has_asked


def test_a_goodbye_may_be_said_with_the_call_or_behind_it() -> None:
    assert responses((True, [FINISH]))[0] == 1
    assert responses((False, [FINISH]), (True, []))[0] == 2
    assert responses((False, [FINISH]), (False, [FINISH]))[0] == 2
    assert responses((True, [OTHER]), (False, [FINISH]), (False, []))[0] == 3


def test_the_neutral_sentence_is_said_behind_the_call() -> None:
    assert responses((True, [REQUEST]), (True, []))[0] == 2
    assert responses((False, [REQUEST]), (True, [REQUEST]))[0] == 2
    assert responses((False, [REQUEST]), (False, [REQUEST]))[0] == 2
    assert responses((False, [REQUEST]), (True, [OTHER]))[0] == 2
    assert responses((False, [REQUEST]), (False, [OTHER]), (True, [OTHER]))[0] == 3


def test_an_approved_goodbye_may_call_once_more() -> None:
    assert responses((True, [FINISH]), ends_session=True)[0] == 1
    assert responses((False, [FINISH]), (True, []), ends_session=True)[0] == 2
    assert responses((False, [OTHER]), (True, [OTHER]), ends_session=True)[0] == 2


EVENTS = ("request", "finish", "other", "instruct", "new input", "new answer")


def test_the_model_is_told_that_planning_was_overtaken_when_it_waits_and_only_then() -> None:
    for events in product(EVENTS, repeat=5):
        follow(events)


def follow(events: Sequence[str]) -> None:
    session_end, ending = PlannedSessionEnd(), Ending()
    is_awaited = asked = False
    for event in events:
        match event:
            case "request":
                session_end.settle(ending, REQUEST)
                is_awaited, asked = is_awaited or not asked, True
            case "finish" | "other":
                session_end.settle(ending, FINISH if event == "finish" else OTHER)
            case "instruct":
                session_end.instructed()
                is_awaited = False
            case "new input":
                assert session_end.supersede() == is_awaited, events
                is_awaited = False
            case _:
                ending, asked = Ending(), False
        assert session_end.is_awaited == is_awaited, events
