"""C12: a tool that raises, runs out of time or does not exist is answered once, and the conversation goes on (not d)."""

import json

import pytest
import trio

from engine.elements import InputText, JsonObject
from engine.testing.scripted import ScriptedModel, answer, echo, final, interim
from engine.testing.stage import ScriptedManager
from tests.cases.support import Tools
from tests.scenarios.support import open_scene


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
    manager = ScriptedManager(tool_box=Tools({"raises": raises, "hangs": hangs}))
    async with open_scene(model=ScriptedModel(echo), manager=manager) as stage:
        session = stage.model.session
        session.say(interim(), final("do it"))
        session.call_tool("c1", name, "{}", "r1")
        await trio.sleep(60)
        assert [(settled.call_id, settled.is_error) for settled in session.settled] == [("c1", True)]
        assert json.loads(session.settled[0].output) == {"error": error}
        assert stage.client.at(lambda e: getattr(e, "name", "") == "tool-start") == [0.0]
        assert stage.client.at(lambda e: getattr(e, "name", "") == "tool-error") == [after]
        answer(session, "That did not work.", "r1")
        await stage.client.wait_for_command("exit")
        await stage.client.send(InputText("never mind"))
        await trio.sleep(1)
        assert stage.client.sentences[-1] == "You said never mind."
