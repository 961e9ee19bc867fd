"""C35: however a session ends, its clean-up runs to its end, and within its bound."""

from collections.abc import Callable

import pytest
import trio

from engine.elements import SpeechItem, Token
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.scripted import final, interim, speech
from engine.testing.stage import ScriptedManager, Stage
from tests.scenarios.support import open_scene


def slow(call: StoreCall) -> Fault | float | None:
    return 0.5 if call.operation.startswith(("save", "append")) else None


async def in_mid_answer(stage: Stage) -> None:
    await stage.client.wait_for_command("ready")  # a slow store is waited for before
    await trio.sleep(0.1)
    stage.model.session.say(interim(), final("tell me"))
    stage.model.session.say(Token("A long story begins here.", "r1"), SpeechItem(speech(3000), 24000, "r1"))
    await trio.sleep(1)


async def test_c35_a_the_client_vanishes(autojump_clock: trio.testing.MockClock) -> None:
    store = FaultyStore(slow)
    async with open_scene(store=store, manager=ScriptedManager(disconnect_seconds=0.5)) as stage:
        await in_mid_answer(stage)
        began = trio.current_time()
        stage.vanish()
        await stage.over.wait()
        assert trio.current_time() - began <= 2.0
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(store.written_usage) == 1
        assert [what for _, what in stage.manager.ran] == ["disconnected"]
        assert [turn.interrupted for turn in store.turns] == [True]


async def test_c35_b_the_input_ends_while_an_answer_is_owed(autojump_clock: trio.testing.MockClock) -> None:
    async with open_scene() as stage:
        began = trio.current_time()
        stage.model.session.say(interim(), final("are you there"))
        await trio.sleep(5)
        stage.client.end()
        await stage.over.wait()
        assert trio.current_time() - began == 20, (
            "the silent model's answer ends by the idle rule, here before the watchdog"
        )
        stored = await stage.store.get_session("session-1")
        assert stored is not None
        assert stored.state is SessionState.CLOSED


async def test_c35_b_the_output_is_force_closed_20_seconds_after_the_input(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_scene() as stage:
        stage.model.session.say(interim(), final("are you there"))
        await trio.sleep(5)
        stage.client.end()
        for _ in range(30):  # a model that is never silent and never done
            await trio.sleep(1)
            if stage.over.is_set():
                break
            stage.model.session.say(Token(" and", "r1"))
        assert stage.ended_at == 25
        assert stage.client.commands("session-end")[0]["state"] == "CLOSED"


@pytest.mark.parametrize("hangs", ["disconnect", "save"])
async def test_c35_c_d_what_hangs_or_raises_stops_nothing_else(
    hangs: str, autojump_clock: trio.testing.MockClock
) -> None:
    def crash(call: StoreCall) -> Fault | None:
        return Fault.CRASH if call.operation == "save_session" and call.at > 0 else None

    plan: Callable[[StoreCall], Fault | float | None] = crash if hangs == "save" else slow
    store = FaultyStore(plan)
    manager = ScriptedManager(disconnect_seconds=3600 if hangs == "disconnect" else 0.5)
    breaks = {"once": "the store takes no session"} if hangs == "save" else None
    async with open_scene(store=store, manager=manager, breaks=breaks) as stage:
        await in_mid_answer(stage)
        began = trio.current_time()
        stage.vanish()
        await stage.over.wait()
        assert trio.current_time() - began <= 10
        assert len(store.written_usage) == 1
        assert len(store.turns) == 1
        if hangs == "save":
            assert [what for _, what in manager.ran] == ["disconnected"]
        else:
            assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
