"""C02 on the OpenAI provider: a cough cancels the reply, and the agent does not stay silent for good."""

import pytest
import trio

from engine.testing.scripted import final, interim
from providers.openai.simulator import Reply, Script, Utterance
from tests.providers.openai.scene import open_scene, properties

BOOKING = "book it for nine"


def users(lines: list[tuple[str, str]]) -> list[str]:
    return [text for role, text in lines if role == "user"]


async def test_c02_the_service_hears_the_cough(autojump_clock: trio.testing.MockClock) -> None:
    """It answers again by itself, though nothing was said."""
    script = Script(
        replies=[
            Reply("Booked.", created_after=0.1, starts_after=2.0),
            Reply("Booked for nine."),
            Reply("Yes, I am here."),
        ]
    )
    async with open_scene(script) as scene:
        scene.service.speak(Utterance(BOOKING, seconds=0.0))
        await trio.sleep_until(0.3)
        scene.service.speak(Utterance("", seconds=0.2, transcribed_after=0.1))
        await trio.sleep_until(25.0)
        scene.service.speak(Utterance("hello?", seconds=0.3))
        await trio.sleep_until(27.0)
        assert scene.sentences == ["Booked for nine.", "Yes, I am here."]
        assert users(scene.lines) == [BOOKING, "hello?"]
        assert scene.ends() == ["cancelled", "completed", "completed"]
        assert scene.at("response-end")[0] <= 20.4
        assert scene.at("exit")[1] < 2.0, "the turn without words does not wait for any"


async def test_c02_a_cough_whose_end_is_never_found(autojump_clock: trio.testing.MockClock) -> None:
    """Nobody is stuck in "the user is speaking": after the longest utterance there is, the answer is asked for again."""
    script = Script(
        replies=[
            Reply("Booked.", created_after=0.1, starts_after=2.0),
            Reply("Booked for nine."),
            Reply("Yes, I am here."),
        ]
    )
    async with open_scene(script) as scene:
        scene.service.speak(Utterance(BOOKING, seconds=0.0))
        await trio.sleep_until(0.3)
        scene.service.speak(Utterance("", ends=False))
        await trio.sleep_until(25.0)
        scene.service.speak(Utterance("hello?", seconds=0.3))
        await trio.sleep_until(27.0)
        assert scene.ends()[0] == "cancelled"
        assert scene.at("response-end")[0] == 0.3
        assert scene.sentences[-1] in ("Booked for nine.", "Yes, I am here.")
        assert users(scene.lines)[:1] == [BOOKING]
        assert users(scene.lines).count(BOOKING) == 1


@pytest.mark.parametrize("shown", [0.3, 0.0])
async def test_c02_the_engine_hears_the_cough(shown: float, autojump_clock: trio.testing.MockClock) -> None:
    script = Script(
        replies=[
            Reply("Booked.", created_after=0.1, starts_after=shown),
            Reply("Booked for nine."),
            Reply("Yes, I am here."),
        ]
    )
    async with open_scene(script, openai=properties(stt_provider="Scripted")) as scene:
        scene.recognizer.hear(interim(), final(BOOKING))
        await trio.sleep_until(0.3)
        scene.recognizer.hear(interim())
        await trio.sleep_until(25.0)
        scene.recognizer.hear(interim(), final("hello?"))
        await trio.sleep_until(27.0)
        assert scene.sentences[-2:] == ["Booked for nine.", "Yes, I am here."]
        assert users(scene.lines) == [BOOKING, "hello?"]
        scene.check_history()
