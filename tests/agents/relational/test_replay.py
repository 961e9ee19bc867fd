"""A relational agent's conversation is kept and run again: its planner's prompts, plans and whispers are made anew, its models are not
asked."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from agents.relational.manager import RelationalAgentInteractionManager
from engine.capsule.file import Capsule, Kind
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.replay import replay
from engine.interfaces import PartFactory
from engine.session.services import Parts
from engine.testing.chat import call
from engine.testing.schedule import run_repeatably
from providers.internal.model import InternalRealtimeModel
from tests.scenarios.play import Play, in_turn, open_play

DAY = '{"supportingContext": "Ask for the day."}'
BYE = '{"results": "Thank you, goodbye.", "endSession": true}'


def find(group: str, name: str) -> PartFactory:
    raise AssertionError(f"{name} of {group} was looked for")


def parts() -> Parts:
    return Parts(models={"Internal": InternalRealtimeModel(find)}, managers=[RelationalAgentInteractionManager(find)])


async def a_table(play: Play) -> None:
    await play.say("A table, please.")
    await play.exits(1)
    await play.say("For two.")
    await trio.sleep(0.7)
    await play.say("No, three.")
    await play.exits(2)


async def goodbye(play: Play) -> None:
    await play.say("Goodbye.")
    await play.client.wait_for_command("session-end")


async def gone(play: Play) -> None:
    await play.say("A table, please.")
    await trio.sleep(0.4)
    play.connection.cancel(reason="the client vanished")
    await trio.sleep(15)


CONVERSATIONS: dict[str, tuple[Callable[[Play], Awaitable[None]], Callable[[], dict[str, Any]]]] = {
    "whispers, and a planner that is cut": (
        a_table,
        lambda: {
            "speaker": in_turn(["Gladly.", 0.3, " When?"], ["For which day?"], ["Three."], then=("Yes.",)),
            "planner": in_turn([0.5, f"Open. {DAY}"], [2.0, f"Again. {DAY}"], [0.2, "Done. {}"], then=("{}",)),
        },
    ),
    "a goodbye that planning approves": (
        goodbye,
        lambda: {
            "speaker": in_turn([call("finish_session")], ["Thank you, goodbye."], then=("Yes.",)),
            "planner": in_turn([0.4, BYE], then=("{}",)),
        },
    ),
    "a client that vanishes while the planner thinks": (
        gone,
        lambda: {"speaker": in_turn(["Gladly."]), "planner": in_turn([3.0, f"Open. {DAY}"])},
    ),
}


def keep(name: str) -> Capsule:
    talk, scripts = CONVERSATIONS[name]
    capsules = MemoryCapsules()

    async def converse() -> None:
        async with open_play(**scripts(), keep=capsules.keep) as play:
            await talk(play)

    run_repeatably(1, converse)
    (capsule,) = capsules.capsules
    return capsule


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_it_does_the_same(name: str) -> None:
    capsule = keep(name)
    result = replay(capsule, parts())
    assert result.divergence is None
    assert result.told == result.expected > 5


def test_another_plan_whispers_something_else() -> None:
    capsule = keep("whispers, and a planner that is cut")
    records = [
        type(each)(each.at, each.kind, _other(each.fields), each.step)
        if each.kind is Kind.ITEM and "day" in str(each.fields[1])
        else each
        for each in capsule.records
    ]
    result = replay(type(capsule)(capsule.head, tuple(records), capsule.is_whole), parts())
    assert result.divergence is not None
    assert result.divergence.what == "the client is told something else"
    assert "hour" in str(result.divergence.found)
    assert "day" in str(result.divergence.expected)


def _other(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    number, item = fields
    return number, {**item, "of": {"text": item["of"]["text"].replace("day", "hour")}}


def test_every_conversation_has_asked_its_models() -> None:
    kept = partial(keep, "whispers, and a planner that is cut")
    asked = [record.fields[2] for record in kept().records if record.kind is Kind.BEGAN and record.fields[1] == "chat"]
    assert {"speaker", "planner"} <= set(asked)
