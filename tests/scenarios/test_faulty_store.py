"""A store that fails, crashes or hangs at any of its calls: the conversation goes on, and what can be saved is."""

import pytest
import trio
from trio.testing import MockClock

from engine.elements import Action, ControlToken, InputText, OutError
from engine.errors import ErrorCode
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.scripted import ScriptedModel, echo
from engine.testing.stage import ScriptedManager, Stage, open_stage
from tests.scenarios.support import open_scene

CLEANUP_SECONDS = 10
TOLD = {Fault.FAIL, Fault.DONE_AND_LOST}
"""Faults that a store may have: it says so."""


async def converse(stage: Stage) -> None:
    """Two turns and a rating; then the client leaves."""
    await stage.client.send(InputText("one"))
    await trio.sleep(3)
    await stage.client.send(Action("rating", {"value": "5"}), InputText("two"))
    await trio.sleep(10)
    await stage.client.send(ControlToken("exit"))
    await stage.client.wait_for_command("session-end")


async def test_the_calls_of_a_conversation(autojump_clock: MockClock) -> None:
    """Those that the other tests make fail, one by one."""
    store = FaultyStore()
    async with open_scene(model=ScriptedModel(echo), store=store) as stage:
        await converse(stage)
    start = ["open_session", "save_session", "get_turns"]
    turns = ["append_turns", "append_log", "save_session", "append_turns"]
    assert [call.operation for call in store.calls][:7] == start + turns
    assert sorted(call.operation for call in store.calls[7:]) == ["save_session", "save_usage"]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", range(1, 10))
async def test_any_call_may_fail(autojump_clock: MockClock, number: int, fault: Fault) -> None:
    """Once: the session is had, both turns are answered and acknowledged, the end comes within its bound and stops nothing."""

    def plan(call: StoreCall) -> Fault | None:
        return fault if call.number == number else None

    store = FaultyStore(plan)
    breaks = {"once": "the usage hangs, at the end"} if number >= 8 and fault is Fault.HANG else None
    async with open_stage(model=ScriptedModel(echo), store=store, breaks=breaks) as stage:
        with trio.move_on_after(60):
            await converse(stage)  # a session that was refused is not there to leave
        operation = store.calls[number - 1].operation
        started = {"open_session", "save_session", "get_turns"}
        if number == 1 or (number <= 3 and fault not in TOLD):  # before the conversation: the session is refused
            assert operation in started
            (error,) = [element for element in stage.client.elements if isinstance(element, OutError)]
            assert (error.code, error.recoverable) == (ErrorCode.INTERNAL, False)
            assert len(stage.client.commands("session-end")) == 1
            assert stage.ended_at == (30 if fault is Fault.HANG else 0)
            return
        assert stage.client.sentences == ["You said one.", "You said two."]
        exits = stage.client.commands("exit")
        assert len(exits) == 2
        assert len(stage.client.commands("session-end")) == 1
        ended = stage.client.heard[-1][0]
        assert ended <= 13 + CLEANUP_SECONDS
        assert [what for _, what in stage.manager.ran].count("disconnected") == 1
        if operation == "append_turns":
            assert [turn.input.text for turn in store.turns][-1] == "two"
        # What could not be written is tried again until it is, in the ten seconds of the clean-up; what crashes once, too.
        if fault is not Fault.HANG or operation != "save_usage":
            assert len({usage.id for usage in store.written_usage}) == 1, "writing it again is no other record"
        if fault is not Fault.HANG or number < 8 or operation == "save_usage":
            assert store.saved_sessions[-1].state is SessionState.CLOSED
        assert [session.rating for session in store.saved_sessions][-1] == 5


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_store_that_is_gone_for_good(autojump_clock: MockClock, fault: Fault) -> None:
    """From the first turn on nothing can be written: every exit says so, and the end comes within its bound."""
    store = FaultyStore(lambda call: fault if call.number > 3 else None)
    is_written = fault is Fault.DONE_AND_LOST
    broken = [] if is_written else ["stored-turns", "memory", "once"]
    breaks = dict.fromkeys(broken, "nothing can be written")
    async with open_stage(model=ScriptedModel(echo), store=store, breaks=breaks) as stage:
        await converse(stage)
        assert stage.client.sentences == ["You said one.", "You said two."]
        assert [leave["saved"] for leave in stage.client.commands("exit")] == [False, False]
        assert stage.client.heard[-1][0] <= 13 + CLEANUP_SECONDS
        assert [what for _, what in stage.manager.ran].count("disconnected") == 1


async def test_turns_that_cannot_be_saved_take_nothing_from_the_other_legs(autojump_clock: MockClock) -> None:
    """A client vanishes while the store hangs at turns: the session, the usage and the hook have their time all the same."""
    store = FaultyStore(lambda call: Fault.HANG if call.operation == "append_turns" else None)
    manager = ScriptedManager(disconnect_seconds=3)
    breaks = dict.fromkeys(["stored-turns", "memory"], "no turn can be written")
    async with open_stage(model=ScriptedModel(echo), store=store, manager=manager, breaks=breaks) as stage:
        await stage.client.send(InputText("one"))
        await trio.sleep(1)
        stage.vanish()
        await stage.over.wait()
        assert stage.ended_at == 11
        assert store.saved_sessions[-1].state is SessionState.DISCONNECTED
        assert len(store.written_usage) == 1
        assert (6, "disconnected") in manager.ran, "after 2 s for the exit and 3 of its own"
