"""C01 on the OpenAI provider: after the user cuts in, nothing of the cancelled answer is heard inside the next one."""

import pytest
import trio

from engine.elements import OutText
from providers.openai.simulator import Pace, Reply, Rule, Say, Script, Utterance
from tests.providers.openai.scene import Scene, open_scene, properties

PACE = Pace(token_seconds=0.1, audio_speed=1.0, delta_ms=100)
FIRST = Say("One moment. The first option is the blue room.", audio_ms=2000)


async def cut_in(scene: Scene) -> None:
    await trio.sleep_until(1.0)
    scene.service.speak(Utterance("stop, what about Friday", seconds=1.0, transcribed_after=0.1))
    await trio.sleep(3.0)


def check(scene: Scene, status: str) -> None:
    assert scene.speech_after(1.0, "response-1") == []
    texts = [e.text for e in scene.client.elements if isinstance(e, OutText) and e.response_id == "response-2"]
    assert texts == ["Friday is free."]
    assert scene.ends() == [status, "completed"]
    assert scene.errors == []
    scene.check_history()


async def test_c01_the_service_goes_on_for_a_while(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(pace=PACE, replies=[Reply([FIRST], cancel_lag=0.6), Reply("Friday is free.")])
    async with open_scene(script) as scene:
        await scene.type("what do you have")
        await cut_in(scene)
        check(scene, "cancelled")


async def test_c01_b_it_is_done_already(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[Reply([FIRST]), Reply("Friday is free.")])
    async with open_scene(script) as scene:
        await scene.type("what do you have")
        await cut_in(scene)
        check(scene, "completed")
        assert len(scene.received("conversation.item.truncate")) == 1


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1])
async def test_c01_b_the_cancel_comes_too_late(delay: float, autojump_clock: trio.testing.MockClock) -> None:
    """The engine hears the user: its cancellation meets a response that has just ended, and is refused."""
    script = Script(
        pace=Pace(token_seconds=(1.0 - delay) / 10, audio_speed=4.0), replies=[Reply([FIRST]), Reply("Friday is free.")]
    )
    async with open_scene(script, openai=properties(stt_provider="Scripted"), races=list(Rule)) as scene:
        await scene.type("what do you have")
        await trio.sleep(1.0)
        await scene.type("stop, what about Friday")
        await trio.sleep(3.0)
        assert scene.sentences[-1] == "Friday is free."
        assert scene.errors == []
        assert scene.received("session.update") != []
