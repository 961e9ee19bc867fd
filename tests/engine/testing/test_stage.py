"""Every stage is judged when it is left, and what a test breaks on purpose has to be broken."""

import pytest
from trio.testing import MockClock

from engine.elements import RealtimeCommand
from engine.testing.stage import Stage, open_stage

NO_START = RealtimeCommand("tool-success", {"callId": "c1", "name": "find"})
WHY = {"tools": "a model of somebody's settles what nobody started"}


async def settle(stage: Stage) -> None:
    stage.model.session.say(NO_START)
    await stage.client.wait_for_command("tool-success")


async def test_a_broken_promise_fails_the_test(autojump_clock: MockClock) -> None:
    stages: list[Stage] = []
    with pytest.raises(AssertionError, match="tools: tool-success of call c1"):
        async with open_stage() as stage:
            stages.append(stage)
            await settle(stage)
    assert [violation.rule for violation in stages[0].violations] == ["tools"]


async def test_one_may_be_broken_on_purpose_and_no_other(autojump_clock: MockClock) -> None:
    async with open_stage(breaks=WHY) as stage:
        await settle(stage)
    with pytest.raises(AssertionError, match="tools"):
        async with open_stage(breaks={"exit": "of another kind"}) as stage:
            await settle(stage)
            stage.model.session.say(RealtimeCommand("exit", {"turnId": "t9"}))
            await stage.client.wait_for_command("exit", turnId="t9")


async def test_it_has_to_be_broken_then(autojump_clock: MockClock) -> None:
    with pytest.raises(AssertionError, match="nothing has broken tools"):
        async with open_stage(breaks=WHY):
            pass


async def test_somebody_else_may_judge(autojump_clock: MockClock) -> None:
    async with open_stage(unjudged="this test does") as stage:
        await settle(stage)
    assert stage.violations == []
