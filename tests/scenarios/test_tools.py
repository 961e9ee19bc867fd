"""What a tool takes and gives is JSON that can be sent and stored, or the call fails; nothing of it ends a conversation."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from engine.elements import InputText, JsonObject, ResponseEnd, Token
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, echo, final, interim
from engine.testing.stage import ScriptedManager
from tests.cases.support import Tools
from tests.scenarios.support import open_scene


def deep(levels: int) -> object:
    value: object = "bottom"
    for _ in range(levels):
        value = [value]
    return value


UNSTORABLE: dict[str, Callable[[], object]] = {
    "half a character": lambda: "\ud800",
    "half a character inside": lambda: {"name": "\udfff"},
    "not a number": lambda: {"price": float("nan")},
    "no JSON": lambda: {"when": object()},
    "a set": lambda: {1, 2},
    "bottomless": lambda: deep(100_000),
    "deeper than a store can write": lambda: deep(300),
}


@pytest.mark.parametrize("what", UNSTORABLE)
async def test_a_result_that_cannot_be_told_is_an_error(autojump_clock: MockClock, what: str) -> None:
    async def odd(_: JsonObject) -> object:
        await trio.lowlevel.checkpoint()
        return UNSTORABLE[what]()

    store = FaultyStore()
    manager = ScriptedManager(tool_box=Tools({"odd": odd}))
    async with open_scene(model=ScriptedModel(echo), manager=manager, store=store) as stage:
        session = stage.model.session
        session.say(interim(), final("do it", response_id="r1"))
        session.call_tool("c1", "odd", "{}", "r1")
        await trio.sleep(1)
        assert [settled.is_error for settled in session.settled] == [True]
        session.say(Token("That did not work.", "r1"), ResponseEnd("r1"))
        await stage.client.send(InputText("never mind"))
        await trio.sleep(1)
        assert stage.client.sentences[-1] == "You said never mind."
        assert [turn.tools[0].error for turn in store.turns[:1]] == ["Tool odd returned a result that cannot be read."]
