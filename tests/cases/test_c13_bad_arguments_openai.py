"""C13 on the OpenAI provider: empty, cut-off or non-object arguments run nothing, and spoil nothing."""

import json

import pytest
import trio

from providers.openai.simulator import Call, Failed, Incomplete, Reply, Script
from tests.cases.test_c13_bad_arguments import tools
from tests.providers.openai.scene import Scene, open_scene

Calls = list[tuple[str, object]]


async def ordinary_turn(scene: Scene, calls: Calls) -> None:
    await scene.type("book two nights in Brno")
    await trio.sleep(1)
    assert calls[-1] == ("book", ("Brno", 2))
    assert scene.sentences[-1] == "It is booked."
    for turn in scene.store.turns:
        json.loads(turn.model_dump_json(), parse_constant=pytest.fail)


def script(first: Call) -> Script:
    valid = Call("book", {"city": "Brno", "nights": 2})
    return Script(replies=[Reply([first]), Reply("Hm."), Reply([valid]), Reply("It is booked.")])


@pytest.mark.parametrize("arguments", ["", "null"])
async def test_c13_no_arguments(arguments: str, autojump_clock: trio.testing.MockClock) -> None:
    calls: Calls = []
    async with open_scene(script(Call("ping", arguments)), tool_box=tools(calls)) as scene:
        await scene.type("are you there")
        await trio.sleep(1)
        assert calls == [("ping", ())]
        await ordinary_turn(scene, calls)


@pytest.mark.parametrize(
    "arguments",
    ['{"city": "Brno', '["Brno", 2]', '{"city": "Brno", "nights": NaN}', '{"city": "Brno", "nights": "two"}'],
)
async def test_c13_invalid_calls_run_nothing(arguments: str, autojump_clock: trio.testing.MockClock) -> None:
    calls: Calls = []
    async with open_scene(script(Call("book", arguments)), tool_box=tools(calls)) as scene:
        await scene.type("book it")
        await trio.sleep(1)
        assert calls == []
        (output,) = [
            event["item"]["output"]
            for event in scene.received("conversation.item.create")
            if event["item"]["type"] == "function_call_output"
        ]
        assert json.loads(output)["error"]
        assert len(scene.at("tool-error")) == 1
        await ordinary_turn(scene, calls)


@pytest.mark.parametrize("ends", [Incomplete(), Failed("server_error")])
async def test_c13_a_call_that_is_cut_off_by_the_service_is_none(
    ends: Incomplete | Failed, autojump_clock: trio.testing.MockClock
) -> None:
    calls: Calls = []
    cut = Reply([Call("book", '{"city": "Brno", "nights": 2')], ends=ends)
    valid = Call("book", {"city": "Brno", "nights": 2})
    replies = [cut, *([Reply("Sorry?")] if isinstance(ends, Failed) else []), Reply([valid]), Reply("It is booked.")]
    async with open_scene(Script(replies=replies), tool_box=tools(calls)) as scene:
        await scene.type("book it")
        await trio.sleep(1)
        assert calls == []
        assert scene.at("tool-start") == []
        await ordinary_turn(scene, calls)
