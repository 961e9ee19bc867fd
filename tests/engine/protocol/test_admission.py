"""Who is let in, and what the others are told."""

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.admission import (
    RETRY_AFTER_SECONDS,
    RETRY_SPREAD,
    Admission,
    NoPlaceError,
    Reason,
    Refusal,
)


def test_as_many_are_let_in_as_there_are_places() -> None:
    admission = Admission(places=2, max_lateness=0.1)
    with admission.enter(), admission.enter():
        assert (admission.taken, admission.load) == (2, 1)
        with pytest.raises(NoPlaceError, match="All lines are busy") as caught, admission.enter():
            pass
        assert caught.value.refusal == Refusal(Reason.FULL, RETRY_AFTER_SECONDS)
        assert admission.refusal(has_place=True) is None
    assert (admission.taken, admission.load) == (0, 0)
    assert admission.refusal() is None
    assert Admission(places=0, max_lateness=0.1).load == 1


def test_a_place_is_given_back_whatever_happens_at_it() -> None:
    admission = Admission(places=1, max_lateness=0.1)
    with pytest.raises(RuntimeError, match="on purpose"), admission.enter():
        raise RuntimeError("on purpose")
    with admission.enter():
        assert admission.taken == 1


def test_nobody_is_let_in_while_those_inside_are_served_late() -> None:
    lateness = 0.1
    admission = Admission(places=2, max_lateness=0.1, lateness=lambda: lateness)
    assert admission.refusal() is None
    lateness = 0.11
    for has_place in (False, True):
        refusal = admission.refusal(has_place=has_place)
        assert refusal is not None
        assert (refusal.reason, refusal.message) == (
            Reason.LATE,
            "This server is too busy now; try again shortly.",
        )
    lateness = 0.0
    assert admission.refusal() is None


def test_nobody_is_let_in_by_a_server_that_stops() -> None:
    stopping = False
    admission = Admission(places=2, max_lateness=0.1, is_stopping=lambda: stopping)
    with admission.enter():
        stopping = True
        for has_place in (False, True):
            refusal = admission.refusal(has_place=has_place)
            assert refusal is not None
            assert refusal.reason is Reason.STOPPING
            assert refusal.message == "This server is stopping; connect again."


def test_those_who_are_refused_together_do_not_come_back_together() -> None:
    admission = Admission(places=0, max_lateness=0.1)
    told = [refusal.retry_after for _ in range(3 * RETRY_SPREAD) if (refusal := admission.refusal())]
    assert told == 3 * list(range(RETRY_AFTER_SECONDS, RETRY_AFTER_SECONDS + RETRY_SPREAD))


@given(st.integers(0, 5), st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.05, 0.2]), st.booleans())))
def test_the_cap_holds_whatever_comes_and_goes(places: int, events: list[tuple[bool, float, bool]]) -> None:
    lateness, stopping = 0.0, False
    admission = Admission(places, 0.1, lambda: lateness, lambda: stopping)
    inside: list[ExitStack] = []
    for comes, lateness, stopping in events:
        if comes:
            stack = ExitStack()
            try:
                stack.enter_context(admission.enter())
            except NoPlaceError as error:
                refusal = error.refusal
                assert (refusal.reason is Reason.STOPPING) == stopping
                assert (refusal.reason is Reason.FULL) == (not stopping and len(inside) >= places)
                assert stopping or len(inside) >= places or lateness > 0.1
            else:
                assert not stopping
                assert lateness <= 0.1
                inside.append(stack)
        elif inside:
            inside.pop().close()
        assert admission.taken == len(inside) <= max(places, 0)
