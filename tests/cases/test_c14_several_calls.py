"""C14: several tool calls in one response: each is answered under its own id, and the model goes on once."""

import attrs
import trio

from engine.elements import JsonObject, RealtimeInstruction, ResponseEnd, Token
from engine.interfaces import SessionInput, ToolError, ToolSettled
from engine.testing.scripted import ScriptedModel, ScriptedSession, final, interim
from engine.testing.stage import ScriptedManager
from tests.cases.support import Tools
from tests.scenarios.support import open_scene


@attrs.define
class StrictModel:
    """Goes on when the last call is answered, and counts how often it was asked to; refuses an answer to no call."""

    open_calls: set[str] = attrs.field(factory=lambda: {"c1", "c2", "c3"})
    requests: int = 0

    def react(self, session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
        if isinstance(item, ToolSettled):
            self.open_calls.remove(item.call_id)
            if not self.open_calls:
                self.requests += 1
                session.say(Token("It is warm.", item.response_id), ResponseEnd(item.response_id))


async def test_c14_three_calls_one_continuation(autojump_clock: trio.testing.MockClock) -> None:
    seconds = {"Brno": 0.5, "Praha": 0.9, "Plzen": 0.2}

    async def weather(arguments: JsonObject) -> str:
        city = str(arguments["city"])
        await trio.sleep(seconds[city])
        if city == "Praha":
            raise ToolError("no station in Praha")
        return f"warm in {city}"

    strict = StrictModel()
    manager = ScriptedManager(tool_box=Tools({"weather": weather}))
    async with open_scene(model=ScriptedModel(strict.react), manager=manager) as stage:
        session = stage.model.session
        session.say(interim(), final("how is the weather"))
        for call_id, city in (("c1", "Brno"), ("c2", "Praha"), ("c3", "Plzen")):
            session.call_tool(call_id, "weather", f'{{"city": "{city}"}}', "r1")
        await trio.sleep(5)
        outputs = [(settled.call_id, settled.output) for settled in session.settled]
        assert outputs == [
            ("c3", "warm in Plzen"),
            ("c1", "warm in Brno"),
            ("c2", '{"error": "no station in Praha"}'),
        ]
        assert strict.requests == 1
        assert stage.client.sentences == ["It is warm."]
        assert {start["callId"] for start in stage.client.commands("tool-start")} == {"c1", "c2", "c3"}
        assert [done["callId"] for done in stage.client.commands("tool-success")] == ["c3", "c1"]
        assert [failed["callId"] for failed in stage.client.commands("tool-error")] == ["c2"]
        assert len(stage.client.commands("exit")) == 1
