"""Whole conversations, in virtual time: who speaks when, what passes over, how it ends, and what is left."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from engine.elements import OutEvaluation
from engine.errors import ErrorCode, RealtimeException
from engine.simulate.report import Ending, RunReport, Side
from engine.simulate.run import Plan, SimulatedRun
from engine.store.contract import SessionFilter
from engine.store.documents import SessionState
from engine.testing.chat import call
from tests.engine.simulate.scene import PLAN, Cast, WhisperingPlanner, cast, line_by_line, plan, said_by_user


async def perform(played: Cast, wanted: Plan = PLAN, *, cut_after: float | None = None) -> RunReport:
    """One run; nothing of it may be left."""
    before = trio.lowlevel.current_statistics().tasks_living
    async with played.open() as services:
        run = SimulatedRun(wanted, services)
        with trio.CancelScope() as scope:
            if cut_after is not None:
                scope.deadline = trio.current_time() + cut_after
            await run.hold()
        assert len(services.live) == 0
        report = await run.report()
        stored = await services.store.list_sessions(SessionFilter(), limit=10)
        assert {each.id for each in stored} == {report.agent.session_id, report.tester.session_id}
        assert all(each.test_mode for each in stored)
    assert trio.lowlevel.current_statistics().tasks_living == before
    assert played.agent.open_streams == played.tester.open_streams == 0
    return report


def conversation(report: RunReport) -> list[tuple[float, str, str]]:
    return [(line.at, line.side.value, line.text) for line in report.transcript]


async def test_a_conversation_that_the_agent_ends(autojump_clock: MockClock, tmp_path: Path) -> None:
    verdict = OutEvaluation("goal", 0.9, ("The table was booked.",))
    agent = line_by_line(
        [1.0, "Café. ", "How can I help?"],
        [0.5, "For when?"],
        ["It is booked. ", "Goodbye.", call("finish_session", "f1")],
    )
    tester = line_by_line([2.0, "A table, please."], [1.0, "For tonight."])
    played = cast(tmp_path, agent, tester, evaluations=[verdict], judging_seconds=2.0)

    report = await perform(played)

    assert conversation(report) == [
        (1.0, "agent", "Café. How can I help?"),
        (3.0, "tester", "A table, please."),
        (3.5, "agent", "For when?"),
        (4.5, "tester", "For tonight."),
        (4.5, "agent", "It is booked. Goodbye."),
    ]
    assert said_by_user(played.agent.requests[0]) == ["#intro"]
    assert said_by_user(played.tester.requests[1]) == ["Café. How can I help?", "For when?"]
    assert (report.ended, report.turns, report.passed) == (Ending.AGENT, 2, True)
    assert report.seconds == 6.5  # the judges take two seconds, and the agent's session ends behind them
    assert report.agent.first_words == [1.0, 0.5, 0.0]
    assert report.tester.first_words == [2.0, 1.0]
    assert [(each.name, each.score, each.reasons) for each in report.evaluations] == [
        ("goal", 0.9, ["The table was booked."])
    ]
    assert [(each.name, each.outcome, each.side) for each in report.tools] == [
        ("finish_session", "success", Side.AGENT)
    ]
    assert (report.agent.state, report.tester.state) == (SessionState.CLOSED, SessionState.CLOSED)
    assert report.agent.usage.components["speaker"].calls == len(played.agent.requests)
    assert report.agent.usage.provider == "Internal"
    assert not report.errors
    assert not report.interruptions


async def test_what_the_planner_finds_is_waited_for(autojump_clock: MockClock, tmp_path: Path) -> None:
    agent = line_by_line(["Hello."], ["The soup is lentil."], ["Bye.", call("finish_session", "f1")])
    played = cast(tmp_path, agent, line_by_line(["What next?"]), planner=WhisperingPlanner([(4.0, "Say the soup.")]))

    report = await perform(played)

    assert conversation(report) == [
        (0.0, "agent", "Hello."),
        (4.0, "agent", "The soup is lentil."),
        (4.0, "tester", "What next?"),
        (4.0, "agent", "Bye."),
    ]
    assert said_by_user(played.tester.requests[0]) == ["Hello. The soup is lentil."]
    (whisper,) = report.steering
    assert (whisper.at, whisper.text, whisper.instruction_type) == (4.0, "Say the soup.", "INSTRUCTION")
    assert (whisper.instruction_id, whisper.spoken_at) == ("whisper-1", 4.0)
    assert (report.whispers_used, report.whispers_given) == (1, 1)


async def test_patience_ends(autojump_clock: MockClock, tmp_path: Path) -> None:
    """The simulated user answers, and what was being planned is cut off, as by any user."""
    agent = line_by_line(["Hello."], ["Bye.", call("finish_session", "f1")])
    played = cast(tmp_path, agent, line_by_line(["Hi."]), planner=WhisperingPlanner([(4.0, "Say the soup.")]))

    report = await perform(played, plan(patience_seconds=3.0))

    assert conversation(report) == [(0.0, "agent", "Hello."), (3.0, "tester", "Hi."), (3.0, "agent", "Bye.")]
    assert report.steering == []


async def test_what_comes_later_is_a_further_message(autojump_clock: MockClock, tmp_path: Path) -> None:
    agent = line_by_line(["Hello."], ["The soup is lentil."], ["Bye.", call("finish_session", "f1")])
    tester = line_by_line([2.0, "I would like to eat something. ", "And ", 5.0, "to drink."], ["Lentil then."])
    played = cast(tmp_path, agent, tester, planner=WhisperingPlanner([(4.0, "Say the soup.")]))

    report = await perform(played, plan(patience_seconds=0.0))

    assert conversation(report) == [
        (0.0, "agent", "Hello."),
        (2.0, "tester", "I would like to eat something."),
        (4.0, "agent", "The soup is lentil."),
        (4.0, "tester", "Lentil then."),
        (4.0, "agent", "Bye."),
    ]
    assert [(each.side, each.at, each.heard) for each in report.interruptions] == [
        (Side.TESTER, 4.0, "I would like to eat something.")
    ]
    assert (
        said_by_user(played.agent.requests[2])[-1] == "I would like to eat something. Lentil then."
    )  # what was out is not lost
    assert said_by_user(played.tester.requests[1]) == ["Hello.", "The soup is lentil."]


async def test_the_simulated_user_hangs_up(autojump_clock: MockClock, tmp_path: Path) -> None:
    agent = line_by_line(["Hello."], [3.0, "What a pity."])
    tester = line_by_line(["No, thank you. Bye.", call("hang_up", "h1")])
    report = await perform(cast(tmp_path, agent, tester))
    assert conversation(report)[-1] == (3.0, "agent", "What a pity.")
    assert (report.ended, report.passed, report.seconds) == (Ending.TESTER, True, 3.0)
    assert report.agent.state == report.tester.state == SessionState.CLOSED
    assert [(each.name, each.side) for each in report.tools] == [("hang_up", Side.TESTER)]


async def test_a_limit_of_turns(autojump_clock: MockClock, tmp_path: Path) -> None:
    verdict = OutEvaluation("goal", 0.1)
    played = cast(tmp_path, lambda _: ["Yes?"], lambda _: ["No."], evaluations=[verdict])
    report = await perform(played, plan(max_turns=3))
    assert [line.text for line in report.transcript] == ["Yes?", "No.", "Yes?", "No.", "Yes?", "No.", "Yes?"]
    assert (report.ended, report.passed, report.turns) == (Ending.TURN_LIMIT, False, 3)
    assert report.failures == ["Neither side ended it within 3 turns of the simulated user."]
    assert [each.score for each in report.evaluations] == [0.1]  # it is judged all the same


async def test_a_limit_of_time(autojump_clock: MockClock, tmp_path: Path) -> None:
    played = cast(tmp_path, lambda _: [5.0, "Yes?"], lambda _: [5.0, "No."])
    report = await perform(played, plan(max_seconds=42.0))
    assert (report.ended, report.passed, report.seconds) == (Ending.TIME_LIMIT, False, 42.0)
    assert report.failures == ["Neither side ended it within 0.7 minutes."]


async def test_nobody_speaks_any_more(autojump_clock: MockClock, tmp_path: Path) -> None:
    report = await perform(cast(tmp_path, line_by_line(["Hello."]), lambda _: ()), plan(silence_seconds=15.0))
    assert (report.ended, report.passed, report.seconds) == (Ending.SILENCE, False, 15.0)
    assert report.failures == ["Neither side said anything for 15 s."]


async def test_a_provider_that_fails(autojump_clock: MockClock, tmp_path: Path) -> None:
    fault = RealtimeException(ErrorCode.PROVIDER_AUTH, "The key was refused.")
    report = await perform(cast(tmp_path, line_by_line(["Hello."], [1.0, fault]), line_by_line(["Hi."])))
    assert (report.ended, report.passed) == (Ending.ERROR, False)
    assert report.failures == ["The agent's session broke: The key was refused."]
    (error,) = report.errors
    assert (error.at, error.side, error.code, error.whose) == (1.0, Side.AGENT, "provider_auth", "provider")
    assert (report.agent.state, report.tester.state) == (SessionState.DISCONNECTED, SessionState.CLOSED)


async def test_the_tester_fails(autojump_clock: MockClock, tmp_path: Path) -> None:
    fault = RealtimeException(ErrorCode.CHAT_FAILED, "The model is out.")
    report = await perform(cast(tmp_path, line_by_line(["Hello."]), line_by_line([fault])))
    assert report.failures == ["The simulated user's session broke: The model is out."]
    assert (report.agent.state, report.tester.state) == (SessionState.CLOSED, SessionState.DISCONNECTED)


@pytest.mark.parametrize("at", [0.0, 0.5, 1.5, 2.5, 3.25])
async def test_it_is_stopped_in_the_middle(autojump_clock: MockClock, tmp_path: Path, at: float) -> None:
    """Both sessions are saved, and the report has what there was."""
    played = cast(tmp_path, lambda _: [1.0, "Yes?"], lambda _: [2.0, "No."])
    report = await perform(played, cut_after=at) if at else await _cut_at_once(played)
    assert (report.ended, report.passed, report.seconds) == (Ending.INTERRUPTED, False, at)
    assert report.failures == ["It was stopped before its end."]
    assert [line.text for line in report.transcript] == ["Yes?", "No."][: (at >= 1.0) + (at >= 3.0)]
    if at:
        assert report.agent.state == report.tester.state == SessionState.DISCONNECTED


async def _cut_at_once(played: Cast) -> RunReport:
    async with played.open() as services:
        run = SimulatedRun(PLAN, services)
        with trio.CancelScope() as scope:
            scope.cancel(reason="before it began")
            await run.hold()
        return await run.report()


async def test_an_agent_that_hides_its_steering(autojump_clock: MockClock, tmp_path: Path) -> None:
    """Whoever runs a simulation may see it; it is told from the stored turns."""
    agent = line_by_line(["Hello."], ["The soup is lentil."], ["Bye.", call("finish_session", "f1")])
    played = cast(tmp_path, agent, line_by_line(["Hi."]), planner=WhisperingPlanner([(1.0, "Say the soup.")]))
    played.shows_steering = False
    report = await perform(played)
    assert [(each.at, each.text) for each in report.steering] == [(None, "Say the soup.")]


async def test_they_speak(autojump_clock: MockClock, tmp_path: Path) -> None:
    """Four words take a second to be said, and half a second of silence ends an utterance."""
    agent = line_by_line(["How can I help?"], ["Booked. Goodbye.", call("finish_session", "f1")])
    played = cast(tmp_path, agent, line_by_line(["A table for two."]), judging_seconds=2.0)

    report = await perform(played, plan(is_spoken=True))

    assert [line.text for line in report.transcript] == ["How can I help?", "A table for two.", "Booked. Goodbye."]
    assert [(each.side, each.text) for each in report.understood] == [
        (Side.TESTER, "How can I help?"),
        (Side.AGENT, "A table for two."),
        (Side.TESTER, "Booked. Goodbye."),
    ]
    assert report.tester.first_words == [0.48]
    assert report.agent.stalls == report.tester.stalls == 0
    assert report.agent.first_words == [0.0, 0.48]
    assert (report.ended, report.passed, report.interruptions) == (Ending.AGENT, True, [])


async def test_a_barge_in(autojump_clock: MockClock, tmp_path: Path) -> None:
    """They begin to speak at almost the same time: the agent, which was later, hears it first and stops."""
    agent = line_by_line(
        ["Hello there."], ["The soup today is lentil, and very good."], ["Bye.", call("finish_session", "f1")]
    )
    tester = line_by_line([1.01, "I want a table."])
    planner = WhisperingPlanner([(2.05, "Say the soup.")])
    played = cast(tmp_path, agent, tester, planner=planner, ears_notice_after_ms=600)

    report = await perform(played, plan(is_spoken=True))

    assert [(line.at, line.text, line.heard) for line in report.transcript] == [
        (0.0, "Hello there.", "Hello there."),
        (2.01, "I want a table.", "I want a table."),
        (2.05, "The soup today is lentil, and very good.", "The soup"),
        (3.5, "Bye.", "Bye."),
    ]
    (cut,) = report.interruptions
    assert (cut.side, cut.at, cut.heard) == (Side.AGENT, 2.62, "The soup")
    assert (report.ended, report.whispers_used) == (Ending.AGENT, 1)
