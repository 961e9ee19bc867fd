"""The Internal provider in the whole engine: conversations with scripted parts, in virtual time."""

import random
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from engine.config import Settings
from engine.elements import (
    Action,
    ControlToken,
    InputText,
    OnInterruption,
    OutError,
)
from engine.testing.chat import Script, Step, call, tokens
from tests.providers.internal.fakes import FakeSynthesizer, FakeTool, clock, instruction
from tests.providers.internal.scene import Planner, Scene, joined, open_scene

# --- turns ------------------------------------------------------------------------------------------------------------


async def test_a_spoken_turn(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(tokens("We open at nine. See you.", 0.1)) as scene:
        await trio.sleep(1)
        await scene.say("When do you open?")
        await trio.sleep(5)
        assert [(t.text, t.is_interim, t.provider) for t in scene.client.transcripts] == [
            (".", True, "Scripted"),
            ("When do you open?", False, "Scripted"),
        ]
        assert scene.client.sentences == ["We open at nine.", "See you."]
        assert scene.client.speech_ms("response-1") == 6 * 250
        assert scene.ends() == [("response-1", "completed")]
        assert scene.at("response-end") == scene.at("exit") == [1.6]
        assert (
            scene.remembered
            == scene.told
            == [("user", "When do you open?"), ("assistant", "We open at nine. See you.")]
        )


async def test_a_typed_turn(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(["Yes."]) as scene:
        await scene.client.send(InputText("Open?"))
        await trio.sleep(1)
        assert [(t.text, t.is_interim, t.provider) for t in scene.client.transcripts][1:] == [
            ("Open?", False, "Client")
        ]
        assert scene.remembered == scene.told == [("user", "Open?"), ("assistant", "Yes.")]


async def test_the_opening(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(["Hello."]) as scene:
        await scene.client.send(Action("intro"))
        await trio.sleep(1)
        assert [(t.text, t.is_synthetic) for t in scene.client.transcripts if not t.is_interim] == [("#intro", True)]
        assert scene.remembered == [("assistant", "Hello.")]
        assert [turn.input.kind for turn in scene.store.turns] == ["action"]


async def test_without_speech(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene(tokens("We open at nine. See you soon.", 0.5), text_only=True) as scene:
        await scene.client.send(InputText("When?"))
        await trio.sleep(2.6)
        await scene.client.send(InputText("And?"))
        await trio.sleep(5)
        assert scene.synthesizer.spoken == []
        assert scene.remembered == scene.told
        assert scene.remembered[:2] == [("user", "When?"), ("assistant", "We open at nine.")]


@pytest.mark.parametrize("seed", range(5))
async def test_typing_faster_than_the_agent_answers(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    async with open_scene(tokens("One two three.", 0.1), unwind_seconds=0.3, seed=seed) as scene:
        for index in range(6):
            await scene.client.send(InputText(f"line {index}"))
            await trio.sleep(0.15)
        await trio.sleep(5)
        assert scene.client.sentences[-1] == "One two three."
        users = [text for role, text in scene.told if role == "user"]
        assert users == [f"line {index}" for index in range(6)]
        assert scene.remembered[-2:] == [("user", "line 5"), ("assistant", "One two three.")]


# --- what was heard ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [24000, 8000])
@pytest.mark.parametrize("heard", range(14))
async def test_what_was_heard_is_known_to_the_word(
    autojump_clock: trio.testing.MockClock, heard: int, rate: int
) -> None:
    """Clauses, sentences and a piece without sound; each word takes 250 ms, and the user cuts in in the middle of one."""
    words = "Of course I can do that, if you want. Hm. Which day? And when?"
    synthesizer = FakeSynthesizer(silent=lambda text: text == "Hm.")
    async with open_scene([words], ["Yes."], synthesizer=synthesizer, output_sample_rate=rate) as scene:
        await scene.say("a table, please")
        await trio.sleep(0.125 + heard * 0.25)
        await scene.say("stop")
        await trio.sleep(1)
        aloud = [word for word in words.split() if word != "Hm."]
        said = " ".join(text for role, text in scene.remembered if role == "assistant").removesuffix("Yes.")
        assert [word for word in said.split() if word != "Hm."] == aloud[:heard]
        assert joined(scene.remembered) == joined(scene.told)


# --- anything ---------------------------------------------------------------------------------------------------------

SENTENCES = [
    "Yes.",
    "We open at nine, and on Sundays at ten.",
    "Let me have a look at that, it will not take long at all.",
    "There are three tables left. One is by the window. Which one would you like?",
    "sure, no problem. see you then.",
    "你好。我是助手。",
]


def random_script(rng: random.Random) -> Script:
    steps: list[Step] = list(tokens(rng.choice(SENTENCES), rng.choice([0.0, 0.02, 0.2])))
    if rng.random() < 0.2:
        steps = []
    for name in rng.sample(["quick", "slow", "going on", "shielded", "unknown"], rng.choice([0, 0, 1, 2])):
        steps.append(call(name, rng.choice(["", f"c{rng.randrange(5)}"])))
    return [rng.choice([0.0, 0.3, 1.5]), *steps]


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_the_user_does(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    """Random conversations, each with its schedule. Whatever is heard keeps the rules; the engine and the model agree on it."""
    rng = random.Random(seed)
    tools = [
        FakeTool("quick", 0.1),
        FakeTool("slow", 2.0),
        FakeTool("going on", 1.0, on_interruption=OnInterruption.CONTINUE),
        FakeTool("shielded", 1.0, on_interruption=OnInterruption.SHIELD),
    ]
    synthesizer = FakeSynthesizer(
        first_seconds=rng.choice([0.0, 0.3]),
        chunk_seconds=rng.choice([0.0, 0.1]),
        silent=lambda text: text == "see you then.",
        unwind_seconds=rng.choice([0.0, 0.1]),
    )
    plans = [[(rng.random() * 2, instruction(f"plan {n}"))] if rng.random() < 0.4 else [] for n in range(20)]
    async with open_scene(
        *(random_script(rng) for _ in range(40)),
        tools=tools,
        synthesizer=synthesizer,
        planner=Planner(list(plans)),
        unwind_seconds=rng.choice([0.0, 0.0, 0.2]),
        seed=seed,
        text_only=rng.random() < 0.15,
        settings=rng.choice([Settings(), Settings(element_channel=1, model_input_channel=1)]),
    ) as scene:
        kinds = rng.choice([["say", "say", "speak", "noise", "wait"], ["type", "wait"]])
        for step in range(15):
            await act(scene, rng, step, kinds)
        await trio.sleep(30)
        scene.chat.scripts = [["The end."]]
        await scene.say("Are you there?")
        await trio.sleep(30)
        assert scene.client.sentences[-1] == "The end."
        assert joined(scene.remembered) == joined(scene.told)
        assert not any(isinstance(e, OutError) and not e.recoverable for e in scene.client.elements)
        await scene.client.send(ControlToken("end"))
        await trio.sleep(30)
        assert scene.is_over
    assert clock() < 600


async def act(scene: Scene, rng: random.Random, step: int, kinds: Sequence[str]) -> None:
    match rng.choice(kinds):
        case "say":
            await scene.say(f"words {step}")
        case "speak":
            scene.begin_to_speak()
            await trio.sleep(rng.random())
            scene.finish(f"long words {step}")
        case "noise":
            await scene.noise()
        case "type":
            await scene.client.send(InputText(f"typed {step}"))
        case _:
            await trio.sleep(rng.random() * 5)
    await trio.sleep(rng.choice([0.0, rng.random(), rng.random() * 4]))
