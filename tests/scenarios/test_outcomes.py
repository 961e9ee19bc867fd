"""Every row of the outcome table (SPEC L6): how a session ends decides what it is saved as and what is done about it, at
whatever stage the end comes."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from engine.config import PipelineConfiguration
from engine.elements import (
    Action,
    ControlToken,
    InputText,
    OutCommand,
    OutEvaluation,
    RealtimeCommand,
    RealtimeInstruction,
    ResponseEnd,
    SpeechItem,
    Token,
    Transcript,
    UserSpeech,
)
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import Context, SessionInput
from engine.pipeline.line import open_line
from engine.session.run import SessionMode, run_session
from engine.store.documents import SessionState
from engine.testing.faults import Fault, FaultyStore, StoreCall
from engine.testing.scripted import ScriptedModel, ScriptedSession, answer, echo, final, interim, speech
from engine.testing.stage import TESTER, ScriptedAgent, ScriptedManager, Stage, scripted_services
from tests.cases.support import Tools
from tests.scenarios.support import open_scene

LONGEST = 30.0
"""Seconds: the longest any end may take here: the session-end timeout and the clean-up limit."""


# --- stages of a session ----------------------------------------------------------------------------------------------


async def opening(stage: Stage) -> None:
    """The store takes 2 s to open the session."""
    await trio.sleep(1)


async def starting(stage: Stage) -> None:
    """The manager's start hook takes 2 s."""
    await trio.sleep(3)


async def connecting(stage: Stage) -> None:
    """The provider takes 2 s."""
    await trio.sleep(5)


async def waiting(stage: Stage) -> None:
    await trio.sleep(7)


async def user_speaking(stage: Stage) -> None:
    await waiting(stage)
    stage.model.session.say(interim())
    await trio.sleep(0.5)


async def answer_owed(stage: Stage) -> None:
    await waiting(stage)
    stage.model.session.say(interim(), final("tell me"))
    await trio.sleep(0.5)


async def in_mid_answer(stage: Stage) -> None:
    await answer_owed(stage)
    stage.model.session.say(Token("A long story", "r1"), SpeechItem(speech(3000), 24000, "r1"))
    await trio.sleep(0.5)


async def tool_running(stage: Stage) -> None:
    await in_mid_answer(stage)
    stage.model.session.call_tool("c1", "slow", "{}")
    await trio.sleep(0.5)


async def extracting(stage: Stage) -> None:
    """The extraction of the turn takes 5 s."""
    await answer_owed(stage)
    answer(stage.model.session, "Here it is.", "r1")
    await trio.sleep(1)


async def saving(stage: Stage) -> None:
    """The turn's write takes 1 s."""
    await extracting(stage)
    await trio.sleep(4.5)


STAGES = [
    opening,
    starting,
    connecting,
    waiting,
    user_speaking,
    answer_owed,
    in_mid_answer,
    tool_running,
    extracting,
    saving,
]


async def slow_tool(_: object) -> str:
    await trio.sleep(60)
    return "done"


def slow_store(call: StoreCall) -> float | None:
    return {"open_session": 2.0, "append_turns": 1.0}.get(call.operation)


# --- ways to end ------------------------------------------------------------------------------------------------------


async def says_end(stage: Stage) -> None:
    await stage.client.send(ControlToken("end"))


async def says_exit(stage: Stage) -> None:
    """And closes after that, as a client in good order does."""
    await stage.client.send(ControlToken("exit"))
    stage.client.end()


async def just_ends(stage: Stage) -> None:
    stage.client.end()
    await trio.lowlevel.checkpoint()


async def vanishes(stage: Stage) -> None:
    stage.vanish()
    await trio.lowlevel.checkpoint()


Step = Callable[[Stage], Awaitable[None]]


async def stored_state(stage: Stage) -> SessionState:
    session = await stage.store.get_session("S")
    assert session is not None
    return session.state


@pytest.mark.parametrize("reach", STAGES, ids=lambda step: step.__name__)
@pytest.mark.parametrize("end", [says_end, says_exit, just_ends, vanishes], ids=lambda step: step.__name__)
async def test_a_client_that_ends_at_a_stage(end: Step, reach: Step, autojump_clock: MockClock) -> None:
    store = FaultyStore(slow_store)
    verdict = OutEvaluation("satisfaction", 0.8, ("it was brief",))
    manager = ScriptedManager(
        tool_box=Tools({"slow": slow_tool}),
        start_seconds=2,
        extraction_seconds=5,
        disconnect_seconds=0.5,
        evaluations=[(0.25, verdict)],
    )
    async with open_scene(model=ScriptedModel(ready_after=2), manager=manager, store=store, session_id="S") as stage:
        await reach(stage)
        began = trio.current_time()
        await end(stage)
        await stage.over.wait()
        took = trio.current_time() - began

        completed = end is not vanishes
        has_run = completed or reach not in (opening, starting)
        assert await stored_state(stage) is (SessionState.CLOSED if completed else SessionState.DISCONNECTED)
        assert took <= (LONGEST if completed else 11), "the clean-up limit, beside a store that takes a second"
        names = [what for _, what in manager.ran if what in ("evaluation", "disconnected")]
        assert names == (["evaluation"] if completed else []) + (["disconnected"] if has_run else [])
        assert len(store.written_usage) == (1 if has_run else 0)
        shown = [e for e in stage.client.elements if isinstance(e, OutEvaluation)]
        assert shown == ([verdict] if completed else [])
        if completed:
            last = stage.client.elements[-1]
            assert isinstance(last, OutCommand)
            assert (last.name, last.parameters["state"]) == ("session-end", "CLOSED")
            session = await store.get_session("S")
            assert session is not None
            assert [(e.name, e.score, e.reasons) for e in session.evaluations] == [
                ("satisfaction", 0.8, ["it was brief"])
            ]
        assert len(stage.services.live) == 0


# --- the other rows -----------------------------------------------------------------------------------------------------


async def test_a_provider_that_dies_leaves_it_disconnected_and_unevaluated(autojump_clock: MockClock) -> None:
    async with open_scene(session_id="S") as stage:
        await in_mid_answer(stage)
        stage.model.session.fail(RealtimeException(ErrorCode.PROVIDER_UNAVAILABLE, "The provider died."))
        await stage.over.wait()
        assert await stored_state(stage) is SessionState.DISCONNECTED
        assert [what for _, what in stage.manager.ran] == ["disconnected"]
        assert stage.client.commands("session-end") == [
            {"sessionId": "S", "state": "DISCONNECTED", "reason": "The provider died."}
        ]


async def test_an_agent_that_ends_it_leaves_it_closed(autojump_clock: MockClock) -> None:
    async with open_scene(session_id="S", agent=ScriptedAgent(max_session_minutes=1)) as stage:
        await stage.over.wait()
        assert trio.current_time() == 60
        assert await stored_state(stage) is SessionState.CLOSED
        assert [what for _, what in stage.manager.ran] == ["evaluation", "disconnected"]


async def test_an_evaluation_that_hangs_is_stopped_and_what_it_had_is_kept(autojump_clock: MockClock) -> None:
    early, late = OutEvaluation("early", 1.0), OutEvaluation("late", 0.0)
    manager = ScriptedManager(evaluations=[(1, early), (1000, late)])
    async with open_scene(session_id="S", manager=manager) as stage:
        await trio.sleep(1)
        await says_end(stage)
        await stage.over.wait()
        assert trio.current_time() == 21
        assert [e for e in stage.client.elements if isinstance(e, OutEvaluation)] == [early]
        session = await stage.store.get_session("S")
        assert session is not None
        assert session.state is SessionState.CLOSED
        assert [each.name for each in session.evaluations] == ["early"]


async def test_an_evaluation_that_fails_changes_nothing_else(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(ScriptedManager):
        async def evaluate(self, context: Context, emit: Callable[[OutEvaluation], None]) -> None:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("no judge today")

    async with open_scene(session_id="S", manager=Failing()) as stage:
        await says_end(stage)
        await stage.over.wait()
        assert await stored_state(stage) is SessionState.CLOSED
        assert [what for _, what in stage.manager.ran] == ["disconnected"]
        assert "the end-of-conversation evaluation failed" in caplog.text


async def test_a_client_that_vanishes_during_the_evaluation_has_closed_it_all_the_same(
    autojump_clock: MockClock,
) -> None:
    manager = ScriptedManager(evaluations=[(5, OutEvaluation("late"))])
    async with open_scene(session_id="S", manager=manager) as stage:
        await says_end(stage)
        await trio.sleep(1)
        stage.vanish()
        await stage.over.wait()
        assert await stored_state(stage) is SessionState.CLOSED
        assert [what for _, what in stage.manager.ran] == ["evaluation", "disconnected"]


async def test_a_rating_is_saved_at_once(autojump_clock: MockClock) -> None:
    async with open_scene(session_id="S", model=ScriptedModel(echo)) as stage:
        await stage.client.send(InputText("hello"))
        await trio.sleep(1)
        await stage.client.send(Action("rating", {"value": "4", "text": "good"}))
        await trio.testing.wait_all_tasks_blocked()
        session = await stage.store.get_session("S")
        assert session is not None
        assert (session.rating, session.rating_text, session.state) == (4, "good", SessionState.OPEN)


async def test_a_store_that_cannot_say_who_it_is_refuses_and_leaves_nothing(autojump_clock: MockClock) -> None:
    store = FaultyStore(lambda call: Fault.FAIL if call.operation == "open_session" else None)
    async with open_scene(session_id="S", store=store) as stage:
        await stage.over.wait()
        assert await stage.store.get_session("S") is None
        assert stage.model.sessions == []
        assert [e["state"] for e in stage.client.commands("session-end")] == ["DISCONNECTED"]


async def test_a_single_turn_leaves_it_idle_without_the_work_of_an_end(autojump_clock: MockClock) -> None:
    store, manager = FaultyStore(), ScriptedManager(evaluations=[(1, OutEvaluation("late"))])
    services = scripted_services(model=ScriptedModel(echo), managers=[manager], store=store)
    wishes = PipelineConfiguration(key="agent:tester", session_id="S", text_only=True)
    for number, text in enumerate(["one", "two"]):
        line = open_line(wishes, services.settings)
        await line.put_input(InputText(text))
        line.end_input()
        end = await run_session(wishes, line, services, principal=TESTER, mode=SessionMode.SINGLE_TURN)
        assert end.state is SessionState.IDLE
        session = await store.get_session("S")
        assert session is not None
        assert (session.state, session.turn_count) == (SessionState.IDLE, number + 1)
        assert manager.contexts[-1].is_reconnect == (number > 0)
    assert "evaluation" not in [what for _, what in manager.ran]


async def test_an_agent_that_ends_it_in_a_single_turn_leaves_it_closed(autojump_clock: MockClock) -> None:
    def say_goodbye(session: ScriptedSession, item: SessionInput | RealtimeInstruction) -> None:
        if isinstance(item, UserSpeech):
            session.say(Transcript(item.text, provider=item.provider), Token("Goodbye.", "r1"))
            session.say(RealtimeCommand("sessionShouldEnd", response_id="r1"), ResponseEnd("r1"))

    store, manager = FaultyStore(), ScriptedManager(evaluations=[(1, OutEvaluation("verdict"))])
    services = scripted_services(model=ScriptedModel(say_goodbye), managers=[manager], store=store)
    wishes = PipelineConfiguration(key="agent:tester", session_id="S", text_only=True)
    line = open_line(wishes, services.settings)
    await line.put_input(InputText("that is all"))
    line.end_input()
    end = await run_session(wishes, line, services, principal=TESTER, mode=SessionMode.SINGLE_TURN)
    assert end.state is SessionState.CLOSED
    assert "evaluation" in [what for _, what in manager.ran]


async def test_a_model_without_turns_answers_no_single_turn(autojump_clock: MockClock) -> None:
    services = scripted_services(model=ScriptedModel(), managers=[ScriptedManager()], turnless=True)
    wishes = PipelineConfiguration(key="agent:tester", text_only=True)
    line = open_line(wishes, services.settings)
    line.end_input()
    end = await run_session(wishes, line, services, principal=TESTER, mode=SessionMode.SINGLE_TURN)
    assert end.error is not None
    assert end.error.code is ErrorCode.SETUP_NOT_ALLOWED
