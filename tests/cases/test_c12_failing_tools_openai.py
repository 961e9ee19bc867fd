"""C12 on the OpenAI provider: a tool that raises, runs out of time or does not exist is answered once, and the model goes on (not d)."""

import json

import pytest
import trio

from engine.elements import JsonObject
from providers.openai.simulator import Call, Reply, Script
from tests.cases.support import Tools
from tests.providers.openai.scene import open_scene


async def raises(arguments: JsonObject) -> str:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("the secret of the database")


async def hangs(arguments: JsonObject) -> str:
    await trio.sleep(3600)
    return "too late"


@pytest.mark.parametrize(
    ("name", "after", "error"),
    [
        ("raises", 0.0, "Tool raises failed."),
        ("hangs", 30.0, "Tool hangs did not answer in 30 seconds."),
        ("no_such_tool", 0.0, "Tool no_such_tool does not exist."),
    ],
)
async def test_c12_every_call_is_answered_once(
    name: str, after: float, error: str, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script(replies=[Reply([Call(name)]), Reply("That did not work.")])
    async with open_scene(script, tool_box=Tools({"raises": raises, "hangs": hangs})) as scene:
        await scene.type("do it")
        await trio.sleep(60)
        outputs = [
            (each.at, each.event["item"])
            for each in scene.service.received
            if each.event and each.event.get("item", {}).get("type") == "function_call_output"
        ]
        ((at, output),) = outputs
        assert at == after
        assert json.loads(output["output"]) == {"error": error}
        assert len(scene.received("response.create")) == 2
        assert scene.at("tool-start") == [0.0]
        assert scene.at("tool-error") == [after]
        assert scene.sentences == ["That did not work."]
        await scene.type("never mind")
        await trio.sleep(1)
        assert scene.sentences[-1] == "You said: never mind"
