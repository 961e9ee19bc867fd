"""C13: empty, cut-off or non-object tool arguments run nothing wrong and poison nothing later."""

import json
from collections.abc import Callable

import pytest
import trio

from agents.tools import FunctionToolBox
from engine.elements import ResponseEnd, Token
from engine.testing.scripted import final, interim
from engine.testing.stage import ScriptedManager, Stage
from tests.scenarios.support import open_scene


def tools(calls: list[tuple[str, object]]) -> FunctionToolBox:
    async def book(city: str, nights: int) -> str:
        """Book a room."""
        await trio.lowlevel.checkpoint()
        calls.append(("book", (city, nights)))
        return "booked"

    async def ping() -> str:
        """Answer."""
        await trio.lowlevel.checkpoint()
        calls.append(("ping", ()))
        return "pong"

    functions: list[Callable[..., object]] = [book, ping]
    return FunctionToolBox(functions)


async def ordinary_turn(stage: Stage, calls: list[tuple[str, object]]) -> None:
    session = stage.model.session
    session.say(interim(), final("two nights in Brno"))
    session.call_tool("last", "book", '{"city": "Brno", "nights": 2}', "r9")
    await trio.sleep(1)
    assert calls[-1] == ("book", ("Brno", 2))
    assert session.settled[-1].output == "booked"
    session.say(Token("Done.", "r9"), ResponseEnd("r9"))
    await trio.sleep(1)
    assert stage.client.sentences[-1] == "Done."


@pytest.mark.parametrize("arguments", ["", "null"])
async def test_c13_no_arguments(arguments: str, autojump_clock: trio.testing.MockClock) -> None:
    calls: list[tuple[str, object]] = []
    async with open_scene(manager=ScriptedManager(tool_box=tools(calls))) as stage:
        stage.model.session.say(interim(), final("are you there"))
        stage.model.session.call_tool("c1", "ping", arguments, "r1")
        await trio.sleep(1)
        assert calls == [("ping", ())]
        stage.model.session.say(Token("Yes.", "r1"), ResponseEnd("r1"))
        await trio.sleep(1)
        await ordinary_turn(stage, calls)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": "Brno',
        '["Brno", 2]',
        '{"city": "Brno", "nights": NaN}',
        '{"city": "Brno", "nights": "two"}',
    ],
)
async def test_c13_invalid_calls_run_nothing(arguments: str, autojump_clock: trio.testing.MockClock) -> None:
    calls: list[tuple[str, object]] = []
    async with open_scene(manager=ScriptedManager(tool_box=tools(calls))) as stage:
        session = stage.model.session
        session.say(interim(), final("book it"))
        session.call_tool("c1", "book", arguments, "r1")
        await trio.sleep(1)
        assert calls == []
        assert session.settled[0].is_error
        assert json.loads(session.settled[0].output)["error"]
        assert len(stage.client.commands("tool-error")) == 1
        session.say(Token("Once more, please.", "r1"), ResponseEnd("r1"))
        await trio.sleep(1)
        await ordinary_turn(stage, calls)
        for turn in await stage.store.get_turns("session-1", limit=10):
            json.loads(turn.model_dump_json(), parse_constant=pytest.fail)
