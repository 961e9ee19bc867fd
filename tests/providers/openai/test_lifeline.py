"""When a connection is tried for again, and when it is replaced: without any connection."""

import pytest

from providers.openai.lifeline import (
    FIRST_PAUSE,
    FORCE_SECONDS,
    JITTER,
    RECONNECT_SECONDS,
    RENEW_AGAIN_SECONDS,
    RENEW_SECONDS,
    START_SECONDS,
    STEADY_SECONDS,
    Renewal,
    Tries,
)


def failing(
    tries: Tries, now: float, *, seconds: float = 0.0, retry_after: float | None = None, elsewhere: bool = False
) -> list[float]:
    """When each try begins, as each fails after so long."""
    begun: list[float] = []
    again: float | None = now
    while again is not None:
        begun.append(round(again - now, 6))
        tries.begin()
        again = tries.failed(again + seconds, retry_after=retry_after, elsewhere=elsewhere, jitter=0.0)
    return begun


@pytest.mark.parametrize(("attempts", "times"), [(0, [0]), (1, [0, 0.25]), (4, [0, 0.25, 0.75, 1.75, 3.75])])
def test_the_first_connection(attempts: int, times: list[float]) -> None:
    tries = Tries(attempts)
    tries.start(100)
    assert failing(tries, 100) == times


@pytest.mark.parametrize(
    ("attempts", "times"), [(0, None), (1, [0]), (2, [0, 0.25]), (10, [0, 0.25, 0.75, 1.75, 3.75])]
)
def test_a_lost_connection(attempts: int, times: list[float] | None) -> None:
    """At once, then with pauses, and not for longer than 5 s."""
    tries = Tries(attempts)
    tries.start(0)
    tries.begin()
    tries.connected(0)
    assert tries.lost(100) == (times is not None)
    if times is not None:
        assert failing(tries, 100) == times
    assert tries.give_up_at == 100 + RECONNECT_SECONDS


def test_tries_that_take_their_time() -> None:
    tries = Tries(10)
    tries.start(0)
    assert failing(tries, 0, seconds=4) == [0, 4.25, 8.75]
    assert tries.give_up_at == START_SECONDS


def test_pauses_are_scattered() -> None:
    tries = Tries(2)
    tries.start(0)
    tries.begin()
    again = tries.failed(0, retry_after=None, elsewhere=False, jitter=1.0)
    assert again == FIRST_PAUSE * (1 + JITTER)


def test_what_the_service_asks_for() -> None:
    tries = Tries(2)
    tries.start(0)
    assert failing(tries, 0, retry_after=2.0) == [0, 2, 4]
    tries.start(0)
    assert failing(tries, 0, retry_after=60.0) == [0], "it is not waited for so long"


def test_another_place_is_tried_at_once() -> None:
    tries = Tries(0, places=3)
    tries.start(0)
    assert failing(tries, 0, elsewhere=True, retry_after=60.0) == [0, 0, 0]


def test_connections_that_do_not_last_are_one_trouble() -> None:
    tries = Tries(2)
    tries.start(0)
    tries.begin()
    tries.connected(0)
    assert tries.lost(1)
    tries.begin()
    tries.connected(1)
    assert tries.lost(2)
    tries.begin()
    tries.connected(2)
    assert not tries.lost(3)


def test_a_connection_that_lasts_is_a_new_one() -> None:
    tries = Tries(1)
    tries.start(0)
    tries.begin()
    for now in range(0, 1000, 100):
        tries.connected(now)
        assert tries.lost(now + STEADY_SECONDS)
        tries.begin()
    tries.connected(1000)
    assert not tries.lost(1000 + STEADY_SECONDS - 1)


def due(renewal: Renewal, *, is_quiet: bool, until: float) -> float | None:
    """When a replacement is due, looking only at the deadlines."""
    now = 0.0
    while now <= until:
        if renewal.is_due(now, is_quiet=is_quiet):
            return now
        deadline = renewal.deadline(now)
        if deadline is None:
            return None
        assert deadline > now
        now = deadline
    return None


@pytest.mark.parametrize(
    ("seconds_left", "quiet", "forced"),
    [
        (3600.0, 3600 - RENEW_SECONDS, 3600 - FORCE_SECONDS),
        (400.0, 200.0, 400 - FORCE_SECONDS),
        (40.0, 20.0, 30.0),
        (0.0, None, None),
        (-5.0, None, None),
        (None, None, None),
    ],
)
def test_when_it_is_renewed(seconds_left: float | None, quiet: float | None, forced: float | None) -> None:
    renewal = Renewal()
    assert due(renewal, is_quiet=True, until=1e6) is None
    renewal.connected(0, seconds_left)
    assert due(renewal, is_quiet=True, until=1e6) == quiet
    assert due(renewal, is_quiet=False, until=1e6) == forced


def test_in_vain() -> None:
    renewal = Renewal()
    renewal.connected(0, 1000)
    renewal.failed(800)
    assert not renewal.is_due(801, is_quiet=True)
    assert renewal.deadline(801) == 800 + RENEW_AGAIN_SECONDS
    assert renewal.is_due(800 + RENEW_AGAIN_SECONDS, is_quiet=True)
    renewal.connected(820, None)
    assert not renewal.is_due(1e6, is_quiet=True)
