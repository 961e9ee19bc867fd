"""C05 on the OpenAI provider: it stops in the middle of an answer without closing anything."""

import logging

import pytest
import trio

from engine.elements import OutText
from providers.openai.simulator import Reply, Say, Script, Stall, Utterance
from tests.providers.openai.scene import open_scene

HALF = Say(["We open at nine. ", "On Sund"], audio_ms=0)


async def test_c05_the_silent_response_ends_after_20_seconds(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(replies=[Reply([HALF], created_after=0.3, mishaps=[Stall(24.7)]), Reply("Also nine.")])
    async with open_scene(script) as scene:
        await scene.type("what are the opening hours")
        await trio.sleep_until(20.2)
        assert scene.ends() == []
        with caplog.at_level(logging.WARNING):
            await trio.sleep_until(20.35)
        assert "silent" in caplog.text
        assert scene.ends() == ["idle"]
        assert scene.at("response-end") == scene.at("exit") == [20.3]
        assert [(round(t, 6), e.text) for t, e in scene.client.heard if isinstance(e, OutText)][-1] == (20.3, "On Sund")
        heard = len(scene.client.heard)
        await trio.sleep_until(25.5)
        assert scene.service.sent_events("response.done") != []
        assert len(scene.client.heard) == heard, "the late end gives nothing"
        scene.service.speak(Utterance("and Monday?", seconds=0.5))
        await trio.sleep_until(28)
        assert scene.sentences[-1] == "Also nine."
        assert len(scene.at("exit")) == 2


async def test_c05_a_response_that_stalls_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[Reply([HALF], mishaps=[Stall()]), Reply("Also nine.")])
    async with open_scene(script) as scene:
        await scene.type("what are the opening hours")
        await trio.sleep_until(26)
        await scene.type("and Monday?")
        await trio.sleep_until(28)
        assert scene.ends() == ["idle", "completed"]
        assert scene.sentences[-1] == "Also nine."
