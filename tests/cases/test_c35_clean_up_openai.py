"""C35 on the OpenAI provider: however a session ends, its clean-up runs to its end, and nothing of it is left."""

import pytest
import trio

from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall
from providers.link import CLOSE_SECONDS
from providers.openai.simulator import REAL_TIME, Reply, Script, Stall, Utterance
from tests.providers.openai.scene import open_scene

STORY = Script(replies=[Reply("A long story begins here, and goes on, and on.", pace=REAL_TIME)])


def slow(call: StoreCall) -> Fault | float | None:
    return 0.5 if call.operation.startswith(("save", "append")) and call.at > 0 else None


def crashing(call: StoreCall) -> Fault | None:
    return Fault.CRASH if call.operation == "save_session" and call.at > 0 else None


@pytest.mark.parametrize("plan", [slow, crashing])
async def test_c35_a_d_the_client_vanishes(plan: object, autojump_clock: trio.testing.MockClock) -> None:
    store = FaultyStore(slow if plan is slow else crashing)
    breaks = {"once": "the store takes no session"} if plan is crashing else None
    async with open_scene(STORY, store=store, breaks=breaks) as scene:
        await scene.type("tell me")
        await trio.sleep(1)
        scene.vanish()
        await scene.over.wait()
        assert scene.ended_at is not None
        assert scene.ended_at <= 1 + CLOSE_SECONDS
        if plan is slow:
            assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(store.written_usage) == 1
        assert [what for _, what in scene.manager.ran] == ["disconnected"]
        assert [turn.interrupted for turn in store.turns] == [True]


@pytest.mark.parametrize("mode", ["typed", "voice"])
async def test_c35_b_the_input_ends_while_an_answer_is_owed(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    """The service stays silent: its answer ends by the idle rule, and the session with it."""
    async with open_scene(Script(replies=[Reply(mishaps=[Stall()])])) as scene:
        if mode == "typed":
            await scene.type("are you there")
        else:
            scene.service.speak(Utterance("are you there", seconds=0.0))
        await trio.sleep(5)
        scene.client.end()
        await scene.over.wait()
        assert scene.ended_at is not None
        assert scene.ended_at <= 25
        assert scene.store.saved_sessions[-1].state is SessionState.CLOSED


async def test_c35_b_the_input_ends_while_the_user_speaks(autojump_clock: trio.testing.MockClock) -> None:
    """What was said is answered: silence follows the audio, so that the service finds its end."""
    script = Script(utterances=[Utterance("are you there")], replies=[Reply("Yes.", created_after=0.2)])
    async with open_scene(script) as scene:
        await scene.send_audio(1.0, silent=False)
        scene.client.end()
        await scene.over.wait()
        assert scene.sentences == ["Yes."]
        assert scene.lines == [("user", "are you there"), ("assistant", "Yes.")]
        assert scene.ended_at is not None
        assert scene.ended_at < 5
