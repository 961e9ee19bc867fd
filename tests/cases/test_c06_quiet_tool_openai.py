"""C06 on the OpenAI provider: a quiet pause while a tool runs is not the end of the answer."""

import pytest
import trio

from engine.elements import JsonObject
from providers.openai.simulator import Call, Reply, Script
from tests.cases.support import Tools
from tests.providers.openai.scene import open_scene


@pytest.mark.parametrize("seconds", [17.8, 21.0])
async def test_c06_the_answer_goes_on_after_the_tool(seconds: float, autojump_clock: trio.testing.MockClock) -> None:
    async def lookup(arguments: JsonObject) -> str:
        await trio.sleep(seconds)
        return "today"

    script = Script(replies=[Reply(["Let me check.", Call("lookup")], starts_after=0.2), Reply("It arrives today.")])
    async with open_scene(script, tool_box=Tools({"lookup": lookup}, timeout_seconds=60)) as scene:
        await scene.type("find my order")
        await trio.sleep(60)
        assert scene.at("response-end") == [0.2 + seconds], "one end, and no synthetic one while the tool runs"
        assert scene.ends() == ["completed"]
        assert scene.sentences == ["Let me check.", "It arrives today."]
        assert len(scene.at("exit")) == len(scene.at("tool-start")) == len(scene.at("tool-success")) == 1
        assert len(scene.simulator.connections) == 1
        scene.check_history()
