"""C48: date, weekday and time are the user's own, at each turn end, around midnight and on the day the clocks change."""

from datetime import UTC, datetime

import pytest
import trio

from agents.basic import BasicAgentInteractionManager
from agents.moment import describe, local_now, zone
from engine.elements import InstructionType, RealtimeInstruction
from tests.agents.support import MODEL, Clock, make_agent, make_context

MANAGER = BasicAgentInteractionManager()

# The server's zone, the wall clock's, is UTC throughout.
BEFORE_THE_CHANGE = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
AFTER_THE_CHANGE = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
IN_JUNE = datetime(2026, 6, 2, 2, 10, tzinfo=UTC)

MOMENTS = [
    ("Europe/Prague", BEFORE_THE_CHANGE, "Sunday, 29 March 2026, 00:30 (2026-03-29T00:30+01:00, Europe/Prague)"),
    ("Europe/Prague", AFTER_THE_CHANGE, "Sunday, 29 March 2026, 03:30 (2026-03-29T03:30+02:00, Europe/Prague)"),
    ("America/Los_Angeles", IN_JUNE, "Monday, 1 June 2026, 19:10 (2026-06-01T19:10-07:00, America/Los_Angeles)"),
    ("Asia/Kathmandu", IN_JUNE, "Tuesday, 2 June 2026, 07:55 (2026-06-02T07:55+05:45, Asia/Kathmandu)"),
    ("UTC", IN_JUNE, "Tuesday, 2 June 2026, 02:10 (2026-06-02T02:10+00:00, UTC)"),
]


@pytest.mark.parametrize(("time_zone", "now", "expected"), MOMENTS)
async def test_the_prompt_and_the_context_are_in_the_users_zone(time_zone: str, now: datetime, expected: str) -> None:
    context = make_context(make_agent(), clock=Clock(now), time_zone=time_zone)
    steered: list[RealtimeInstruction] = []

    async def steer(instruction: RealtimeInstruction) -> None:
        await trio.lowlevel.checkpoint()
        steered.append(instruction)

    await MANAGER.on_session_start(context)
    prompt = await MANAGER.get_system_prompt(context, MODEL)
    await MANAGER.turn_end(context, steer)

    assert expected in prompt.text
    assert expected in prompt.context
    assert [instruction.type for instruction in steered] == [InstructionType.SUPPORTING_CONTEXT]
    assert steered[0].text == f"It is {expected} where the user is now."


async def test_each_turn_end_says_the_time_of_that_turn() -> None:
    clock = Clock(BEFORE_THE_CHANGE)
    context = make_context(make_agent(), clock=clock, time_zone="Europe/Prague")
    steered: list[str] = []

    async def steer(instruction: RealtimeInstruction) -> None:
        await trio.lowlevel.checkpoint()
        steered.append(instruction.text)

    await MANAGER.turn_end(context, steer)
    clock.now = AFTER_THE_CHANGE
    await MANAGER.turn_end(context, steer)

    assert "00:30" in steered[0]
    assert "+01:00" in steered[0]
    assert "03:30" in steered[1]
    assert "+02:00" in steered[1]


def test_time_between_two_moments_is_real_time() -> None:
    """Of two local times of one zone, the difference is that of their clocks, an hour off here; so it is taken in UTC."""
    before = local_now(make_context(clock=Clock(BEFORE_THE_CHANGE), time_zone="Europe/Prague"))
    after = local_now(make_context(clock=Clock(AFTER_THE_CHANGE), time_zone="Europe/Prague"))

    assert (after.astimezone(UTC) - before.astimezone(UTC)).total_seconds() == 2 * 3600


@pytest.mark.parametrize(
    "name", ["Nowhere/Nothing", "", "../../etc/passwd", "/etc/localtime", "Europe", "a" * 300, "\0"]
)
def test_what_is_no_zone_is_utc(name: str) -> None:
    assert zone(name) is UTC
    assert (
        describe(datetime(2026, 1, 1, tzinfo=zone(name)))
        == "Thursday, 1 January 2026, 00:00 (2026-01-01T00:00+00:00, UTC)"
    )
