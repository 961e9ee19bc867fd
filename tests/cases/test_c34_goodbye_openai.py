"""C34 on the OpenAI provider, the goodbye: who speaks into it is not hung up on, and without that the session ends."""

import pytest
import trio

from engine.elements import InstructionType, OutCommand, RealtimeInstruction
from engine.interfaces import Context, Emit, PlanningManager, TurnInput
from engine.testing.scripted import final, interim
from engine.texts import Sentence, say
from providers.openai.simulator import Asked, Pace, Reply, Say, Script, Utterance
from tests.providers.openai.scene import Scene, open_scene, properties

GOODBYE = "Thank you, goodbye."
NOT_ENDED = say(Sentence.GOODBYE_CUT, "en")


class Ends(PlanningManager):
    """Two seconds after somebody wants to leave, the session is to end."""

    async def process(self, context: Context, turn: TurnInput, emit: Emit) -> None:
        if "bye" in turn.text:
            await trio.sleep(2.0)
            await emit(RealtimeInstruction(GOODBYE, InstructionType.INSTRUCTION, id="bye", ends_session=True))


def script() -> Script:
    def answer(asked: Asked) -> Reply:
        if GOODBYE in asked.text:
            pace = Pace(token_seconds=0.4, audio_speed=1.0, delta_ms=100)
            return Reply([Say(GOODBYE, audio_ms=1800)], created_after=0.2, pace=pace)
        return Reply("Of course." if "wait" in asked.text else "One moment.")

    return Script(answer=answer)


async def speak(scene: Scene, mode: str, text: str) -> None:
    match mode:
        case "voice":
            scene.service.speak(Utterance(text, seconds=0.7, transcribed_after=0.1))
        case "recognizer":
            scene.recognizer.hear(interim())
            await trio.sleep(0.7)
            scene.recognizer.hear(final(text))
        case _:
            await scene.type(text)


def names(scene: Scene) -> list[str]:
    return [e.name for e in scene.client.elements if isinstance(e, OutCommand)]


@pytest.mark.parametrize("at", [0.1, 0.3, 0.7, 1.5])
@pytest.mark.parametrize("mode", ["voice", "recognizer", "typed"])
async def test_c34_the_user_speaks_into_the_goodbye(
    mode: str, at: float, autojump_clock: trio.testing.MockClock
) -> None:
    stt = "Scripted" if mode == "recognizer" else "None"
    async with open_scene(script(), openai=properties(stt_provider=stt), planner=Ends()) as scene:
        await scene.type("bye then")
        await trio.sleep_until(2.0 + at)
        await speak(scene, mode, "wait, one more thing")
        await trio.sleep(5)
        assert "sessionShouldEnd" not in names(scene)
        assert scene.sentences[-1] == "Of course."
        assert scene.ends() == ["completed", "cancelled", "completed"]
        assert scene.at("session-end") == []
        items = [event["item"] for event in scene.received("conversation.item.create")]
        notes = [item for item in items if item["content"][0].get("text") == NOT_ENDED]
        assert len(notes) == 1
        if mode != "voice":
            after = items[items.index(notes[0]) + 1]
            assert after["content"][0]["text"] == "wait, one more thing", "the model knows before it hears the user"
        scene.check_history()
        await scene.type("bye now")
        await scene.client.wait_for_command("session-end")
        assert scene.at("sessionShouldEnd") != []


async def test_c34_b_the_goodbye_is_heard(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(script(), planner=Ends()) as scene:
        await scene.type("bye then")
        await scene.client.wait_for_command("session-end")
        order = [name for name in names(scene) if name in ("sessionShouldEnd", "response-end", "exit", "session-end")]
        assert order == ["response-end", "sessionShouldEnd", "response-end", "exit", "session-end"]
        assert scene.ends() == ["completed", "completed"]
        (goodbye_at,) = scene.at("sessionShouldEnd")
        assert scene.at("session-end")[0] >= goodbye_at


async def test_c34_c_it_stands_once_it_was_said(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(script(), planner=Ends()) as scene:
        await scene.type("bye then")
        await scene.client.wait_for_command("sessionShouldEnd")
        await trio.sleep(0.01)
        scene.service.speak(Utterance("wait, one more thing", seconds=0.7))
        await scene.client.wait_for_command("session-end")
        assert scene.ends() == ["completed", "completed"]
        assert "Of course." not in scene.sentences
