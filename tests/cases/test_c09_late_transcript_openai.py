"""C09 on the OpenAI provider: the recognised text of the user arrives after the reply."""

import trio

from providers.openai.simulator import Reply, Say, Script, Utterance
from tests.providers.openai.scene import open_scene


async def test_c09_the_turn_waits_for_both_halves(autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[Reply([Say("At nine.", audio_ms=0)])])
    async with open_scene(script) as scene:
        scene.service.speak(Utterance("when do you open", seconds=1.0, transcribed_after=0.4))
        await trio.sleep_until(1.399)
        assert scene.ends() == ["completed"]
        assert scene.manager.ran == []
        assert scene.at("exit") == []
        await trio.sleep_until(2.0)
        assert scene.manager.ran[0] == (1.4, "extracted 'when do you open'")
        assert scene.at("exit") == [1.4]
        assert scene.lines == [("user", "when do you open"), ("assistant", "At nine.")]
        assert scene.ends() == ["completed"]
        assert scene.received("response.create") == []
