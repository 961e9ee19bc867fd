"""Sampled sessions are held against the contract as they are sent: what is broken is counted and logged, and changes nothing."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.config import PipelineConfiguration, Settings
from engine.elements import (
    ControlToken,
    OutCommand,
    OutputElement,
    OutText,
    RealtimeCommand,
    ResponseEnd,
    SpeechItem,
    Token,
)
from engine.observation import Observer, Observers
from engine.observe.metrics import make_metrics
from engine.pipeline.contract_watch import ContractWatch, is_sampled
from engine.pipeline.line import ClientLine, open_line
from engine.session.windowing import run_connection
from engine.testing.scripted import ScriptedModel, final, interim, speech
from engine.testing.stage import ScriptedManager, Stage, open_stage, scripted_services
from tests.engine.observe.test_metrics import value
from tests.engine.transport.stack import hear, open_stack, say

END = OutCommand("session-end", {})


def ready(session_id: str = "s1") -> OutCommand:
    return OutCommand("ready", {"sessionId": session_id})


def leave(turn: str) -> OutCommand:
    return OutCommand("exit", {"turnId": turn}, turn)


@attrs.define(eq=False)
class Counting(Observer):
    judged: int = 0
    broken: list[str] = attrs.field(factory=list[str])

    def contract_judged(self) -> None:
        self.judged += 1

    def contract_broken(self, rule: str) -> None:
        self.broken.append(rule)


# --- which


def test_a_share_of_the_sessions_is_sampled() -> None:
    ids = [f"session-{number}" for number in range(10_000)]
    for rate in (0.0, 0.01, 0.3, 1.0):
        share = sum(is_sampled(session_id, rate) for session_id in ids) / len(ids)
        assert share == pytest.approx(rate, abs=0.02 if 0 < rate < 1 else 0)
    some = [session_id for session_id in ids if is_sampled(session_id, 0.01)]
    assert some == [session_id for session_id in ids if is_sampled(session_id, 0.01)], "the same each time"
    assert all(is_sampled(session_id, 0.3) for session_id in some), "a higher rate adds to them"
    assert is_sampled("\udc80", 1.0)


# --- what it tells


def watch(*elements: OutputElement, is_over: bool = True) -> Counting:
    counting = Counting()
    watching = ContractWatch("s1", Observers([counting]))
    for number, element in enumerate(elements):
        watching.sent(element, float(number))
    if is_over:
        watching.over()
    return counting


def test_a_broken_promise_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    words = OutText("The secret word.", "t1", "r1" * 100)
    assert watch(ready(), words, leave("t1"), words, words, END).broken == ["response-end", "exit"]
    assert [record.getMessage() for record in caplog.records] == [
        f"session s1: the promise 'response-end' was broken in turn 't1', response '{'r1' * 40}'",
        f"session s1: the promise 'exit' was broken in turn 't1', response '{'r1' * 40}'",
    ]
    assert "secret" not in caplog.text


def test_each_session_of_the_connection_is_one() -> None:
    told = watch(ready(), leave("t1"), END, ready("s2"), leave("t2"), leave("t1"), END)
    assert told.judged == 2
    assert told.broken == ["exit", "exit", "isolation"]


def test_what_is_left_of_a_session_before_is_none_of_its() -> None:
    assert watch(leave("t0"), END, ready("s0"), leave("t0"), END, ready("s1"), END).broken == []
    assert watch(leave("t0")).judged == 0


def test_what_is_missing_is_missing_only_at_the_end() -> None:
    assert watch(ready(), is_over=False).broken == []
    assert watch(ready()).broken == ["session-end"]


def test_a_judge_that_fails_is_dismissed(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Counting):
        def contract_broken(self, rule: str) -> None:
            raise ValueError("of the secret word")

    for elements in ([ready(), leave("t1"), leave("t1"), ready("s2")], [ready()]):
        faulty = Faulty()
        watching = ContractWatch("s1", faulty)
        for element in elements:
            watching.sent(element, 0.0)
        watching.over()
        assert faulty.judged == 1
        assert [record.getMessage() for record in caplog.records] == ["the contract cannot be judged: ValueError"]
        caplog.clear()


# --- on the line


async def take_all(line: ClientLine) -> list[OutputElement]:
    taken: list[OutputElement] = []
    while (element := await line.take_output()) is not None:
        taken.append(element)
    return taken


async def test_it_hears_what_is_taken() -> None:
    counting = Counting()
    line = open_line(PipelineConfiguration(), Settings())
    line.contract = ContractWatch("s1", counting)
    line.put_output(ready())
    line.put_output(leave("t1"))
    assert counting.broken == []
    line.end_output()
    assert await take_all(line) == [ready(), leave("t1")]
    assert counting.broken == ["exit", "session-end"]
    assert await take_all(line) == [], "nothing is told twice"


async def test_a_client_that_was_given_up_is_owed_its_end() -> None:
    counting = Counting()
    line = open_line(PipelineConfiguration(), Settings(outbox_elements=100))
    line.contract = ContractWatch("s1", counting)
    line.put_output(ready())
    with pytest.raises(Exception, match="slowly"):
        for _ in range(200):
            line.put_output(OutCommand("language", {}))
    line.put_output(END)
    line.end_output()
    assert len(await take_all(line)) == 100
    assert (counting.judged, counting.broken) == (1, [])


# --- in sessions


async def converse(stage: Stage) -> None:
    stage.model.session.say(interim(), final("hello"), Token("Good morning.", "r1"))
    stage.model.session.say(SpeechItem(speech(300), 24000, "r1"), ResponseEnd("r1"))
    await trio.sleep(1)


@pytest.mark.parametrize(("rate", "judged"), [(0.0, 0), (1.0, 1)])
async def test_a_session_is_judged(rate: float, judged: int, autojump_clock: MockClock) -> None:
    counting = Counting()
    settings = Settings(contract_sample_rate=rate)
    async with open_stage(observer=counting, settings=settings) as stage:
        await converse(stage)
        stage.client.line.end_input()
        await stage.over.wait()
    assert (counting.judged, counting.broken) == (judged, [])


async def test_so_is_the_next_one(autojump_clock: MockClock) -> None:
    counting = Counting()
    async with open_stage(observer=counting, settings=Settings(contract_sample_rate=1)) as stage:
        await converse(stage)
        await stage.client.send(ControlToken("ready", "key=agent:tester", {"key": "agent:tester"}))
        await trio.sleep(1)
        await converse(stage)
        stage.client.line.end_input()
        await stage.over.wait()
    assert (counting.judged, counting.broken) == (2, [])


async def test_it_is_in_the_metrics_that_are_served() -> None:
    """A model of somebody's settles a call that nobody started. In real time: what is served is put together in a thread."""
    metrics, model = make_metrics(), ScriptedModel()
    services = scripted_services(
        model=model,
        managers=[ScriptedManager()],
        observer=metrics,
        settings=Settings(contract_sample_rate=1),
    )
    with trio.fail_after(10):
        async with open_stack(run_connection, services=services, metrics=metrics, client="127.0.0.1") as stack:
            client = await stack.connect("/api/pipeline/agent:tester")
            assert (await hear(client))["name"] == "ready"
            model.session.say(RealtimeCommand("tool-success", {"callId": "c1", "name": "find", "result": "secret"}))
            assert (await hear(client))["name"] == "tool-success"
            await say(client, type="token", text="#end")
            while (await hear(client)).get("name") != "session-end":
                pass
            answer = await stack.request("/metrics")
    told = answer.body.decode()
    assert "souffleur_contract_sessions_total 1.0" in told
    assert 'souffleur_contract_violations_total{rule="tools"} 1.0' in told
    assert "secret" not in told
    assert value(metrics, "contract_violations_total", rule="exit") is None
