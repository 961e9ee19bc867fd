"""C06: a quiet pause while a tool runs is not the end of the answer."""

import pytest
import trio

from engine.elements import JsonObject, RealtimeInstruction, ResponseEnd, SpeechItem, Token
from engine.interfaces import SessionInput, ToolSettled
from engine.testing.scripted import ScriptedModel, ScriptedSession, final, interim, speech
from engine.testing.stage import ScriptedManager
from tests.cases.support import Tools
from tests.scenarios.support import open_scene


def go_on(session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
    """After the tool's result the model goes on in the same engine response."""
    if isinstance(item, ToolSettled):
        session.say(Token(" It arrives today.", item.response_id), ResponseEnd(item.response_id))


@pytest.mark.parametrize("seconds", [17.8, 21.0])
async def test_c06_the_answer_goes_on_after_the_tool(seconds: float, autojump_clock: trio.testing.MockClock) -> None:
    async def lookup(arguments: JsonObject) -> str:
        await trio.sleep(seconds)
        return "today"

    manager = ScriptedManager(tool_box=Tools({"lookup": lookup}, timeout_seconds=60))
    async with open_scene(model=ScriptedModel(go_on), manager=manager) as stage:
        session = stage.model.session
        session.say(interim(), final("find my order"))
        await trio.sleep(0.2)
        session.say(Token("Let me check.", "r1"))
        session.call_tool("c1", "lookup", "{}", "r1")
        await trio.sleep(60)
        ends = stage.client.at(lambda e: getattr(e, "name", "") == "response-end")
        assert ends == [0.2 + seconds], "one end, and no synthetic one while the tool runs"
        assert stage.client.sentences == ["Let me check.", "It arrives today."]
        assert len(stage.client.commands("exit")) == 1
        assert len(stage.client.commands("tool-start")) == len(stage.client.commands("tool-success")) == 1


async def test_c06_c_gaps_between_audio_end_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """The provider's own idle end (after 1.1 s) is one ResponseEnd; audio that still comes is delivered."""
    async with open_scene() as stage:
        say = stage.model.session.say
        say(interim(), final("tell me"))
        say(SpeechItem(speech(500), 24000, "r1"))
        await trio.sleep(0.9)
        assert stage.client.commands("response-end") == []
        say(SpeechItem(speech(500), 24000, "r1"))
        await trio.sleep(1.0)
        say(ResponseEnd("r1", is_synthetic=True))
        await trio.sleep(0.1)
        say(SpeechItem(speech(500), 24000, "r2"), ResponseEnd("r2"))
        await trio.sleep(1.0)
        assert stage.client.speech_ms("r1") == 1000
        assert stage.client.speech_ms("r2") == 500
        assert [end["responseId"] for end in stage.client.commands("response-end")] == ["r1", "r2"]
