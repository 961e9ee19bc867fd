"""C10 on the OpenAI provider: two utterances are transcribed in parallel and finish in the wrong order."""

import pytest
import trio

from engine.elements import OutPartial
from providers.openai.simulator import Reply, Script, Trouble, Utterance
from tests.providers.openai.scene import open_scene


@pytest.mark.parametrize("fails", [False, True])
async def test_c10_an_answer_was_heard_in_between(fails: bool, autojump_clock: trio.testing.MockClock) -> None:
    script = Script(replies=[Reply("Where to, please?"), Reply("For two, then.")])
    async with open_scene(script, partials=True) as scene:
        failure = Trouble("audio_unintelligible") if fails else None
        scene.service.speak(
            Utterance(
                "I need a taxi",
                seconds=0.5,
                pieces=["I need a ta", "xi"],
                piece_seconds=0.4,
                transcribed_after=1.6,
                failure=failure,
            )
        )
        await trio.sleep_until(0.9)
        scene.service.speak(Utterance("for two", seconds=0.5, pieces=["for", " two"], transcribed_after=0.3))
        await trio.sleep_until(20)
        assert scene.finals == (["for two"] if fails else ["I need a taxi", "for two"])
        partials = [e.text for e in scene.client.elements if isinstance(e, OutPartial)]
        assert all(text in ("I need a ta", "I need a taxi", "for", "for two") for text in partials)
        assert scene.sentences[-1] == "For two, then."
        assert scene.errors == []


async def test_c10_the_user_goes_on_before_anything_was_answered(autojump_clock: trio.testing.MockClock) -> None:
    """The client was told of one utterance, and gets the words of one, in their order."""
    script = Script(replies=[Reply("Never.", starts_after=2.0), Reply("For two, then.")])
    async with open_scene(script) as scene:
        scene.service.speak(Utterance("I need a taxi", seconds=0.5, transcribed_after=1.6))
        await trio.sleep_until(0.9)
        scene.service.speak(Utterance("for two", seconds=0.5, transcribed_after=0.3))
        await trio.sleep_until(10)
        assert scene.finals == ["I need a taxi for two"]
        assert scene.sentences == ["For two, then."]
        assert len(scene.at("exit")) == 1
        assert scene.at("exit")[0] < 4
