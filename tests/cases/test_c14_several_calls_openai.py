"""C14 on the OpenAI provider: several tool calls in one response; each is answered under its own id, and the model goes on once."""

import trio

from engine.elements import JsonObject
from engine.interfaces import ToolError
from providers.openai.simulator import Call, Reply, Script
from tests.cases.support import Tools
from tests.providers.openai.scene import open_scene

SECONDS = {"Brno": 0.5, "Praha": 0.9, "Plzen": 0.2}


async def weather(arguments: JsonObject) -> str:
    city = str(arguments["city"])
    await trio.sleep(SECONDS[city])
    if city == "Praha":
        raise ToolError("no station in Praha")
    return f"warm in {city}"


async def test_c14_three_calls_one_continuation(autojump_clock: trio.testing.MockClock) -> None:
    calls = [Call("weather", {"city": city}, f"c{number}") for number, city in enumerate(SECONDS, 1)]
    script = Script(replies=[Reply(calls), Reply("It is warm.")])
    async with open_scene(script, tool_box=Tools({"weather": weather})) as scene:
        await scene.type("how is the weather")
        await trio.sleep(5)
        sent = [(each.at, each.event) for each in scene.service.received if each.event]
        outputs = [
            (at, event["item"]["call_id"], event["item"]["output"])
            for at, event in sent
            if event.get("item", {}).get("type") == "function_call_output"
        ]
        assert outputs == [
            (0.2, "c3", "warm in Plzen"),
            (0.5, "c1", "warm in Brno"),
            (0.9, "c2", '{"error": "no station in Praha"}'),
        ]
        assert [at for at, event in sent if event["type"] == "response.create"] == [0.0, 0.9]
        assert scene.service.broken == []
        assert scene.sentences == ["It is warm."]
        assert {each["callId"] for each in scene.client.commands("tool-start")} == {"c1", "c2", "c3"}
        assert [each["callId"] for each in scene.client.commands("tool-success")] == ["c3", "c1"]
        assert [each["callId"] for each in scene.client.commands("tool-error")] == ["c2"]
        assert {each["name"] for each in scene.client.commands("tool-start")} == {"weather"}
        assert len(scene.at("exit")) == 1
