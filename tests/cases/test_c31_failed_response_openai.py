"""C31 on the OpenAI provider: it ends a response as failed or incomplete; the user is told, and apologies come to an end."""

import pytest
import trio

from engine.elements import ControlToken
from engine.errors import ErrorCode
from providers.openai.conversation import MAX_APOLOGIES
from providers.openai.simulator import Failed, Incomplete, Reply, Say, Script, Utterance
from providers.openai.texts import APOLOGIZE
from tests.providers.openai.scene import Scene, open_scene

SORRY = f"Instruction: {APOLOGIZE}"
RATE_LIMIT = Reply(ends=Failed("rate_limit_exceeded"), created_after=0.3)


def apologies(scene: Scene) -> int:
    items = [event["item"] for event in scene.received("conversation.item.create")]
    return sum(item["type"] == "message" and item["content"][0].get("text") == SORRY for item in items)


async def ask(scene: Scene, mode: str) -> None:
    if mode == "typed":
        await scene.type("can I move my booking")
    else:
        scene.service.speak(Utterance("can I move my booking", seconds=0.1, transcribed_after=0.1))


@pytest.mark.parametrize("mode", ["typed", "voice"])
async def test_c31_the_answer_fails(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[RATE_LIMIT, Reply("Sorry, once more, please.")])
    async with open_scene(script) as scene:
        await ask(scene, mode)
        await trio.sleep(10)
        assert scene.finals == ["can I move my booking"]
        assert apologies(scene) == 1
        assert [(error.code, error.recoverable) for error in scene.errors] == [(ErrorCode.PROVIDER_UNAVAILABLE, True)]
        assert scene.sentences == ["Sorry, once more, please."]
        assert scene.ends() == ["completed"]
        assert len(scene.at("exit")) == 1
        assert scene.lines == [("user", "can I move my booking"), ("assistant", "Sorry, once more, please.")]


@pytest.mark.parametrize("mode", ["typed", "voice"])
async def test_c31_b_everything_fails(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    script = Script(answer=lambda asked: RATE_LIMIT)
    async with open_scene(script) as scene:
        await ask(scene, mode)
        await trio.sleep(300)
        assert apologies(scene) == MAX_APOLOGIES
        assert len(scene.errors) == MAX_APOLOGIES + 1
        assert all(error.recoverable for error in scene.errors)
        assert scene.ends() == ["failed"]
        assert len(scene.at("exit")) == 1
        assert scene.finals == ["can I move my booking"]
        await scene.type("hello?")  # the user is waited for, and heard
        await trio.sleep(60)
        assert scene.ends() == ["failed", "failed"]
        await scene.client.send(ControlToken("exit"))
        await scene.client.wait_for_command("session-end")


async def test_c31_c_the_answer_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[Reply([Say("You can mo", audio_ms=500)], ends=Incomplete())])
    async with open_scene(script) as scene:
        await scene.type("can I move my booking")
        await trio.sleep(30)
        assert scene.sentences == ["You can mo"]
        assert scene.ends() == ["incomplete"]
        assert scene.errors == []
        assert len(scene.received("response.create")) == 1
        assert len(scene.at("exit")) == 1


async def test_c31_the_answer_fails_while_it_speaks(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[Reply([Say("You can mo", audio_ms=500)], ends=Failed("server_error")), Reply("Sorry.")])
    async with open_scene(script) as scene:
        await scene.type("can I move my booking")
        await trio.sleep(10)
        assert scene.sentences == ["You can mo", "Sorry."]
        assert scene.ends() == ["failed", "completed"]
        assert apologies(scene) == 1


async def test_c31_the_quota_is_used_up(autojump_clock: trio.testing.MockClock) -> None:
    """Nothing that would pass: the session ends, and the client knows why."""
    async with open_scene(Script(replies=[Reply(ends=Failed("insufficient_quota"))]), locales=("de",)) as scene:
        await scene.type("can I move my booking")
        await trio.sleep(10)
        assert [(error.code, error.message, error.recoverable) for error in scene.errors] == [
            (ErrorCode.PROVIDER_QUOTA, "Das Kontingent des Sprachdienstes ist aufgebraucht.", False)
        ]
        assert scene.ends() == ["failed"]
        assert apologies(scene) == 0
