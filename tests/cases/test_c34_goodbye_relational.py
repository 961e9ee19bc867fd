"""C34 with a relational agent on the OpenAI provider: the model asks for the end, planning decides, and who speaks is heard.

C16 too: what planning wants said waits for what is being said.
"""

import pytest
import trio
import trio.testing

from engine.elements import OutCommand
from engine.texts import Sentence, say
from providers.openai.simulator import Asked, Call, Pace, Reply, Say, Script, Utterance
from tests.providers.openai.relational import planned, scene_with
from tests.providers.openai.scene import Scene

NEUTRAL, GOODBYE = "I see. One moment.", "Thank you, goodbye."
BYE = '{"results": "Thank you, goodbye.", "endSession": true}'
REQUESTED, SUPERSEDED = say(Sentence.END_REQUESTED, "en"), say(Sentence.END_SUPERSEDED, "en")


def script() -> Script:
    """Asks for the end of the session when the user says goodbye; says what it is told to."""

    def answer(asked: Asked) -> Reply:
        if GOODBYE in asked.text:
            return Reply(
                [Say(GOODBYE, audio_ms=1800)],
                created_after=0.2,
                pace=Pace(token_seconds=0.4, audio_speed=1.0, delta_ms=100),
            )
        if REQUESTED in asked.text:
            return Reply(NEUTRAL)
        if "bye" in asked.text:
            return Reply([Call("finish_session", {})])
        return Reply("Of course." if "wait" in asked.text else "One moment.")

    return Script(answer=answer)


async def speak(scene: Scene, mode: str, text: str) -> None:
    if mode == "voice":
        scene.service.speak(Utterance(text, seconds=0.7, transcribed_after=0.1))
    else:
        await scene.type(text)


def told(scene: Scene) -> list[str]:
    """The system items and the user's words that the service was given, in order."""
    items = [event["item"] for event in scene.received("conversation.item.create")]
    return [item["content"][0].get("text", "") for item in items if item.get("type") == "message"]


def names(scene: Scene, *wanted: str) -> list[str]:
    return [e.name for e in scene.client.elements if isinstance(e, OutCommand) and e.name in wanted]


async def ready(scene: Scene) -> None:
    with trio.fail_after(60):
        await scene.client.wait_for_command("ready")
    await trio.sleep(1)


@pytest.mark.parametrize("mode", ["voice", "typed"])
async def test_the_end_is_asked_for_approved_and_said(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    async with scene_with(script(), planned([2.0, BYE])) as scene:
        await ready(scene)
        await speak(scene, mode, "bye then")
        with trio.fail_after(60):
            await scene.client.wait_for_command("session-end")
        assert scene.sentences == ["I see.", "One moment.", GOODBYE]
        order = names(scene, "response-end", "sessionShouldEnd", "exit", "session-end")
        assert order == ["response-end", "sessionShouldEnd", "response-end", "exit", "session-end"]
        assert SUPERSEDED not in told(scene)


@pytest.mark.parametrize("at", [0.1, 0.7, 1.5])
@pytest.mark.parametrize("mode", ["voice", "typed"])
async def test_words_into_the_goodbye(mode: str, at: float, autojump_clock: trio.testing.MockClock) -> None:
    async with scene_with(script(), planned([2.0, BYE], ["Nothing."], [2.0, BYE])) as scene:
        await ready(scene)
        await scene.type("bye then")
        with trio.fail_after(60):
            await scene.client.wait_for_command("realtime-instruction", instructionType="INSTRUCTION")
        await trio.sleep(at)
        await speak(scene, mode, "wait, one more thing")
        await trio.sleep(8)
        assert names(scene, "sessionShouldEnd", "session-end") == []
        assert scene.sentences[-1] == "Of course."
        await scene.type("bye now")
        with trio.fail_after(60):
            await scene.client.wait_for_command("session-end")
        assert scene.sentences[-1] == GOODBYE


@pytest.mark.parametrize("mode", ["voice", "typed"])
async def test_words_before_planning_has_decided(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    """The model is told right before it hears them, and the end is not approved."""
    async with scene_with(script(), planned([5.0, BYE])) as scene:
        await ready(scene)
        await scene.type("bye then")
        await trio.sleep(3)
        await speak(scene, mode, "wait, one more thing")
        await trio.sleep(10)
        assert names(scene, "sessionShouldEnd", "session-end") == []
        assert scene.sentences[-1] == "Of course."
        notes = told(scene)
        assert notes.count(SUPERSEDED) == 1
        if mode == "typed":
            assert notes[notes.index(SUPERSEDED) + 1] == "wait, one more thing"
        assert GOODBYE not in scene.sentences


async def test_a_planner_that_is_silent_keeps_nobody_on_the_line(autojump_clock: trio.testing.MockClock) -> None:
    async with scene_with(script(), planned(["Nothing at all."])) as scene:
        await ready(scene)
        await scene.type("bye then")
        with trio.fail_after(60):
            await scene.client.wait_for_command("session-end")
        assert any(say(Sentence.END_FALLBACK, "en") in text for text in told(scene))
        assert names(scene, "sessionShouldEnd") == ["sessionShouldEnd"]


async def test_two_results_are_said_one_after_the_other(autojump_clock: trio.testing.MockClock) -> None:
    """Case C16, from the planner's stream to the service."""
    output = '{"results": "Mention the discount."} {"results": "Ask for the date."}'
    async with scene_with(script(), planned([0.1, output])) as scene:
        await ready(scene)
        await scene.type("hello")
        await trio.sleep(10)
        assert scene.ends() == ["completed"] * 3
        assert names(scene, "response-end", "response-instruction-end", "exit") == [
            "response-end",
            *("response-end", "response-instruction-end") * 2,
            "exit",
        ]
        spoken = [text for text in told(scene) if text.startswith("Instruction:")]
        assert spoken == ["Instruction: Mention the discount.", "Instruction: Ask for the date."]
