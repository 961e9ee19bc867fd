"""Several runs: seeds, clocks, who may take part, and stopping in the middle."""

import signal
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from engine.elements import OutEvaluation
from engine.interfaces import ChatRequest, Environment
from engine.session.services import Services
from engine.simulate.clock import FIRST_MORNING, run_environment, run_in_virtual_time
from engine.simulate.conduct import Clock, Order, WrongUsageError, simulate
from engine.simulate.report import Ending, Report
from engine.testing.chat import Script, Step, call
from tests.engine.simulate.scene import PLAN, Cast, cast, plan

VIRTUAL = Order(PLAN, clock=Clock.VIRTUAL)


def ignore(report: Report) -> None:
    """Nobody watches."""


def by_count(answers: int, *last: Step) -> Callable[[ChatRequest], Script]:
    """So that a run is the same whichever went before it: what is said depends on what was said in it."""

    def answer(request: ChatRequest) -> Script:
        count = sum(message.role == "user" for message in request.messages)
        return [1.5, f"Answer {count}.", *(last if count > answers else ())]

    return answer


def steady(directory: Path, evaluations: Sequence[OutEvaluation] = ()) -> Cast:
    return cast(directory, by_count(3, call("finish_session", "f1")), by_count(99), evaluations=evaluations)


def test_a_seed_gives_the_same_report_byte_for_byte(tmp_path: Path) -> None:
    order = attrs.evolve(VIRTUAL, runs=3, seed=7)
    first, second = (simulate(order, steady(tmp_path).open, on_run=ignore).model_dump_json() for _ in range(2))
    assert first == second
    other = simulate(attrs.evolve(order, seed=70), steady(tmp_path).open, on_run=ignore)
    assert other.runs[0].agent.session_id not in first


def test_a_run_does_not_depend_on_those_before_it(tmp_path: Path) -> None:
    series = simulate(attrs.evolve(VIRTUAL, runs=3, seed=7), steady(tmp_path).open, on_run=ignore)
    alone = simulate(attrs.evolve(VIRTUAL, seed=9), steady(tmp_path).open, on_run=ignore)
    assert alone.runs[0].model_copy(update={"index": 2}) == series.runs[2]
    assert [run.seed for run in series.runs] == [7, 8, 9]


def test_ids_without_a_seed_are_not_guessable(tmp_path: Path) -> None:
    ids = {simulate(VIRTUAL, steady(tmp_path).open, on_run=ignore).runs[0].agent.session_id for _ in range(2)}
    assert len(ids) == 2


def test_sessions_that_are_kept_have_ids_of_their_own(tmp_path: Path) -> None:
    order = attrs.evolve(VIRTUAL, seed=7, is_kept=True)
    reports = [simulate(order, steady(tmp_path).open, on_run=ignore) for _ in range(2)]
    assert len({report.runs[0].agent.session_id for report in reports}) == 2
    assert reports[0].runs[0].transcript[0].text == reports[1].runs[0].transcript[0].text


def test_a_score_under_the_least(tmp_path: Path) -> None:
    evaluations = [OutEvaluation("goal", 0.4), OutEvaluation("tone", 0.9), OutEvaluation("other")]
    order = attrs.evolve(VIRTUAL, runs=2, plan=plan(min_score=0.5))
    report = simulate(order, steady(tmp_path, evaluations=evaluations).open, on_run=ignore)
    assert (report.passed, report.min_score) == (0, 0.5)
    assert report.runs[0].failures == ["The judge goal gives 0.4, less than 0.5."]
    assert report.runs[0].ended is Ending.AGENT
    assert report.means.scores == {"goal": 0.4, "tone": 0.9}
    assert (report.means.turns, report.means.first_word) == (3.0, 1.5)


@pytest.mark.parametrize(
    ("agent", "tester", "sentence"),
    [
        (
            "agent:nobody",
            "agent:caller",
            "there is no agent:nobody; the project files have agent:barista, agent:caller",
        ),
        (
            "agent:barista",
            "agent:nobody",
            "there is no agent:nobody; the project files have agent:barista, agent:caller",
        ),
        ("agent:barista", "agent:barista", "--tester has to name an agent of type test; barista is none"),
        ("barista", "agent:caller", "'barista' is no agent's key; it looks like agent:barista"),
        ("realtime:", "agent:caller", "'realtime:' is no agent's key; it looks like agent:barista"),
        ("agent:", "agent:caller", "'agent:' is no agent's key; it looks like agent:barista"),
    ],
)
def test_wrong_usage(tmp_path: Path, agent: str, tester: str, sentence: str) -> None:
    order = Order(attrs.evolve(PLAN, agent=agent, tester=tester))
    with pytest.raises(WrongUsageError, match=f"^{sentence}$"):
        simulate(order, steady(tmp_path).open, on_run=ignore)


@pytest.mark.parametrize(("agent", "tester", "clock"), [(True, True, "virtual"), (True, False, "real")])
def test_the_clock_follows_the_parts(tmp_path: Path, agent: bool, tester: bool, clock: str) -> None:
    played = cast(tmp_path, lambda _: ["Bye.", call("finish_session", "f1")])
    played.agent.is_scripted, played.tester.is_scripted = agent, tester
    report = simulate(Order(PLAN), played.open, on_run=ignore)
    assert (report.clock, report.passed) == (clock, 1)


@pytest.mark.parametrize(
    "order", [Order(plan(is_spoken=True)), Order(PLAN, is_kept=True), Order(PLAN, clock=Clock.REAL)]
)
def test_real_time_for_what_needs_it(tmp_path: Path, order: Order) -> None:
    played = cast(tmp_path, lambda _: [call("finish_session", "f1")])
    played.agent.is_scripted = played.tester.is_scripted = True
    assert simulate(order, played.open, on_run=ignore).clock == "real"


@pytest.mark.parametrize("clock", [Clock.REAL, Clock.VIRTUAL])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_stopped_by_a_signal(tmp_path: Path, clock: Clock, number: signal.Signals) -> None:
    """In the second run: it is cut and saved, the third does not begin, and the report has both."""
    runs: list[int] = []

    def agent(request: ChatRequest) -> Script:
        opens = sum(message.role == "user" for message in request.messages) == 1
        if opens:
            runs.append(len(runs))
        if len(runs) == 2 and not opens:
            signal.raise_signal(number)
            return ["Wait.", 1000.0]
        return ["Hello."] if opens else ["Bye.", call("finish_session", "f1")]

    told: list[int] = []
    order = Order(PLAN, runs=3, clock=clock)
    played = cast(tmp_path, agent, lambda _: ["Hi."])
    report = simulate(order, played.open, on_run=lambda so_far: told.append(len(so_far.runs)))
    assert [run.ended for run in report.runs] == [Ending.AGENT, Ending.INTERRUPTED]
    assert (report.passed, report.asked_runs, told) == (1, 3, [1, 2])
    assert report.runs[1].agent.state == report.runs[1].tester.state == "DISCONNECTED"
    assert [line.text for line in report.runs[1].transcript[:2]] == ["Hello.", "Hi."]


def test_several_at_the_same_time(tmp_path: Path) -> None:
    played = cast(tmp_path, lambda _: ["Bye.", call("finish_session", "f1")])
    peaks = [0]
    running: set[int] = set()

    @asynccontextmanager
    async def counted(environment: Environment) -> AsyncGenerator[Services]:
        async with played.open(environment) as services:
            running.add(id(services))
            peaks.append(len(running))
            yield services
            running.discard(id(services))

    report = simulate(Order(PLAN, runs=5, parallel=3, clock=Clock.REAL), counted, on_run=ignore)
    assert [run.index for run in report.runs] == [0, 1, 2, 3, 4]
    assert (report.passed, max(peaks), running) == (5, 3, set())


def test_virtual_time_waits_for_threads() -> None:
    async def work() -> tuple[bool, float]:
        with trio.move_on_after(60) as limit:
            await trio.to_thread.run_sync(time.sleep, 0.02)
        worked_until = trio.current_time()
        await trio.sleep(3600)
        assert trio.current_time() == worked_until + 3600
        return limit.cancelled_caught, worked_until

    assert run_in_virtual_time(work, seed=1) == (False, 0.0)


def test_virtual_time_waits_for_sockets() -> None:
    async def work() -> float:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with trio.socket.from_stdlib_socket(ours) as listening, theirs:
            speaker = threading.Timer(0.02, theirs.send, [b"hello"])
            speaker.start()
            with trio.move_on_after(60):
                assert await listening.recv(5) == b"hello"
            speaker.join()
        return trio.current_time()

    assert run_in_virtual_time(work, seed=None) == 0.0


def test_the_environment_of_a_seeded_run() -> None:
    async def ask() -> list[str]:
        environment = run_environment(5, is_virtual=True, is_kept=False)
        await trio.sleep(90)
        assert (environment.wall_clock() - FIRST_MORNING).total_seconds() == 90
        return [environment.new_id("session"), environment.new_id("turn"), str(environment.random.random())]

    first, second = (run_in_virtual_time(ask, seed=5) for _ in range(2))
    assert first == second
    assert len(set(first)) == 3
