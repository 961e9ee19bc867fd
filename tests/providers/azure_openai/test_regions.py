"""Whose turn it is, who is left out and who comes back: without any connection."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.azure_openai.regions import (
    COOL_DOWN_SECONDS,
    LONGEST_COOL_DOWN_SECONDS,
    PROBE_SECONDS,
    Regions,
)
from providers.openai.lifeline import STEADY_SECONDS
from providers.openai.targets import Target

A, B, C = TARGETS = [Target(f"wss://{name}.test/") for name in "abc"]


def regions(count: int = 3) -> Regions:
    return Regions([(target.url, target) for target in TARGETS[:count]])


def asked(places: Regions, now: float, times: int) -> list[Target]:
    return [places.next(now) for _ in range(times)]


def test_they_take_turns() -> None:
    places = regions()
    assert places.count == 3
    assert asked(places, 0, 7) == [A, B, C, A, B, C, A]


def test_one_that_fails_is_left_out_and_comes_back_with_one_session() -> None:
    places = regions()
    assert places.next(0) == A
    assert places.failed(A, 0.5, None)
    back = 0.5 + COOL_DOWN_SECONDS
    assert asked(places, back - 0.01, 4) == [B, C, B, C]
    assert asked(places, back, 4) == [A, B, C, B]
    places.connected(A, back + 1)
    assert asked(places, back + 1, 3) == [C, A, B]


def test_a_probe_that_tells_nothing_is_given_up() -> None:
    places = regions(2)
    places.failed(A, 0, None)
    assert asked(places, 5, 3) == [A, B, B]
    assert asked(places, 5 + PROBE_SECONDS, 3) == [A, B, B]


def test_it_stays_away_longer_each_time() -> None:
    places = regions(2)
    now, away = 0.0, list[float]()
    for _ in range(10):
        places.failed(A, now, None)
        since = now
        while places.next(now) is not A:
            now += 1
        away.append(now - since)
    assert away == [5, 10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert max(away) == LONGEST_COOL_DOWN_SECONDS


def test_it_stays_away_as_long_as_it_asked() -> None:
    places = regions(2)
    places.failed(A, 0, 60)
    places.failed(A, 1, 2)  # of a session that was sent there before
    assert asked(places, 59.9, 2) == [B, B]
    assert A in asked(places, 60, 2)


def test_what_worked_for_a_while_counts_anew() -> None:
    places = regions(2)
    for time in (0, 5):
        places.failed(A, time, None)
    assert A in asked(places, 15, 2)
    places.connected(A, 15)
    places.failed(A, 15 + STEADY_SECONDS, None)
    assert A in asked(places, 15 + STEADY_SECONDS + COOL_DOWN_SECONDS, 2)


def test_what_accepts_and_drops_at_once_stays_away_longer() -> None:
    places = regions(2)
    places.failed(A, 0, None)
    assert A in asked(places, 5, 2)
    places.connected(A, 5)
    places.failed(A, 6, None)
    assert asked(places, 6 + 9.9, 2) == [B, B]


def test_sessions_that_fail_together_are_one_failure() -> None:
    places = regions(2)
    for number in range(50):
        places.failed(A, number / 100, None)
    assert A in asked(places, 0.49 + COOL_DOWN_SECONDS, 2)


def test_a_session_that_was_let_in_before_says_nothing_of_now() -> None:
    places = regions(2)
    asked(places, 0, 4)
    places.failed(A, 1, 60)
    places.connected(A, 1.1)
    assert asked(places, 2, 2) == [B, B]


def test_when_all_are_out_the_first_to_come_back_is_tried() -> None:
    places = regions()
    assert places.failed(A, 0, 60)
    assert places.failed(B, 0, 20)
    assert not places.failed(C, 0, 40)
    assert places.next(1) == B
    assert not places.failed(B, 2, None)
    places.connected(places.next(21), 22)
    assert asked(places, 23, 2) == [B, B]


def test_failing_in_vain_moves_on_to_the_next() -> None:
    places = regions(2)
    places.failed(A, 0, None)
    places.failed(B, 1, None)
    assert places.next(3) == A
    assert not places.failed(A, 3, None)
    assert places.next(3) == B


def test_a_refusal_does_not_hide_that_another_is_only_busy() -> None:
    places = regions()
    places.failed(A, 0, 60)
    places.failed(B, 0, 60)
    assert places.failed(C, 0, None, is_final=True)
    assert places.next(1) == A
    assert not places.failed(A, 1, 60)


def test_all_refuse() -> None:
    places = regions()
    assert places.failed(A, 0, None, is_final=True)
    assert places.failed(B, 0, None, is_final=True)
    assert not places.failed(C, 0, None, is_final=True)
    assert places.next(1) in TARGETS


def test_a_single_one_is_always_tried() -> None:
    places = regions(1)
    for time in range(5):
        assert places.next(time) == A
        assert not places.failed(A, time, 60, is_final=time % 2 == 0)


def test_nothing_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    target = Target("wss://a.test/?api-key=hidden", lambda: {"api-key": "hidden"})
    places = Regions([("sweden", target)])
    places.failed(target, 0, 7, is_final=True)
    places.next(10)
    places.connected(target, 10)
    assert caplog.messages == ["region sweden refuses us; it is left out for 7 s", "region sweden is back"]
    assert "hidden" not in repr(Target("wss://a.test/", lambda: {"api-key": "hidden"}))


# --- properties -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Step:
    """A session asks; what it finds is told `later` seconds after, unless it leaves before."""

    wait: float
    later: float
    leaves: bool


STEPS = st.lists(
    st.builds(
        Step,
        wait=st.floats(0, 20, allow_nan=False),
        later=st.floats(0, PROBE_SECONDS - 0.1, allow_nan=False),
        leaves=st.booleans(),
    ),
    max_size=80,
)


@attrs.define
class World:
    """Regions, some of which fail, and sessions that ask."""

    places: Regions
    fails: frozenset[Target]
    retry_after: float | None = None
    now: float = 0.0
    pending: list[tuple[float, Target]] = attrs.field(factory=list[tuple[float, Target]])
    handed: list[tuple[float, Target]] = attrs.field(factory=list[tuple[float, Target]])
    known_at: tuple[float, int] | None = None
    """When the first failure was told, and how many had been handed out by then."""

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.move(step.wait)
            target = self.places.next(self.now)
            self.handed.append((self.now, target))
            if not step.leaves:
                self.pending.append((self.now + step.later, target))

    def move(self, seconds: float) -> None:
        self.now += seconds
        for at, target in sorted((each for each in self.pending if each[0] <= self.now), key=lambda each: each[0]):
            if target in self.fails:
                self.places.failed(target, at, self.retry_after)
                self.known_at = self.known_at or (at, len(self.handed))
            else:
                self.places.connected(target, at)
        self.pending = [each for each in self.pending if each[0] > self.now]


@given(STEPS)
def test_healthy_ones_share_alike(steps: list[Step]) -> None:
    world = World(regions(), frozenset())
    world.run(steps)
    for end in range(len(world.handed)):
        counts = Counter(target for _, target in world.handed[: end + 1])
        assert max(counts.values()) - min(counts[target] for target in TARGETS) <= 1


@given(STEPS, st.none() | st.floats(0, 100, allow_nan=False))
def test_a_failing_one_gets_one_session_for_a_cool_down(steps: list[Step], retry_after: float | None) -> None:
    """From the moment that it is known."""
    world = World(regions(), frozenset([A]), retry_after)
    world.run(steps)
    if world.known_at is not None:
        known, before = world.known_at
        handed = [at for at, target in world.handed[before:] if target is A]
        pause = max(COOL_DOWN_SECONDS, retry_after or 0.0)
        assert all(at >= known + pause for at in handed)
        assert all(second - first >= min(pause, PROBE_SECONDS) for first, second in pairwise(handed))


@given(STEPS, st.sets(st.sampled_from(TARGETS), max_size=2))
def test_a_healthy_one_is_never_passed_over(steps: list[Step], fails: set[Target]) -> None:
    world = World(regions(), frozenset(fails))
    world.run(steps)
    healthy = set(TARGETS) - fails
    for start in range(len(world.handed) - 2):
        window = [target for _, target in world.handed[start : start + 3]]
        assert healthy <= set(window) or any(target in fails for target in window)
    for start in range(len(world.handed) - 5):
        assert healthy & {target for _, target in world.handed[start : start + 6]}


@given(STEPS, st.sets(st.sampled_from(TARGETS)))
def test_one_that_recovers_gets_its_share_again(steps: list[Step], fails: set[Target]) -> None:
    world = World(regions(), frozenset(fails), 10.0)
    world.run(steps)
    world.move(PROBE_SECONDS + LONGEST_COOL_DOWN_SECONDS)
    world.fails = frozenset()
    for _ in range(3):
        world.run([Step(wait=0.1, later=0.0, leaves=False)] * 3)
    world.move(1)
    world.handed.clear()
    world.run([Step(0.1, 0.0, leaves=False)] * 9)
    assert Counter(target for _, target in world.handed) == {A: 3, B: 3, C: 3}
