"""How long the planner thinks does not show in how fast the speaking model answers."""

import trio
import trio.testing

from engine.elements import OutSpeech
from engine.testing.chat import Script as ChatScript
from providers.openai.simulator import Asked, Pace, Reply, Say, Script, Utterance
from tests.providers.openai.relational import planned, scene_with

PACE = Pace(token_seconds=0.1, audio_speed=4.0, delta_ms=100)


def script() -> Script:
    def answer(asked: Asked) -> Reply:
        return Reply([Say("Gladly, for which day?", audio_ms=1500)], created_after=0.3, pace=PACE)

    return Script(answer=answer)


async def first_audio(seconds: float) -> list[float]:
    """When the first audio of each of three answers comes, while the planner thinks so long."""
    passes: list[ChatScript] = [[seconds, f'{{"supportingContext": "Thought {n}."}}'] for n in range(9)]
    async with scene_with(script(), planned(*passes)) as scene:
        with trio.fail_after(60):
            await scene.client.wait_for_command("ready")
        began = trio.current_time()
        for _ in range(3):
            scene.service.speak(Utterance("A table, please.", seconds=0.7, transcribed_after=0.1))
            await trio.sleep(6)
        found: dict[str, float] = {}
        for at, element in scene.client.heard:
            if isinstance(element, OutSpeech) and element.data:
                found.setdefault(element.response_id, round(at - began, 6))
        return list(found.values())


async def test_the_first_audio_comes_at_the_same_instant(autojump_clock: trio.testing.MockClock) -> None:
    quick, slow = await first_audio(0.0), await first_audio(10.0)
    assert len(quick) == 3
    assert quick == slow
