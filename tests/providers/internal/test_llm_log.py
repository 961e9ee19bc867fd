"""The speaking model's calls are in the session's LLM log: completed, cancelled and failed ones; and nowhere else."""

import logging
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from engine.elements import JsonObject
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import ChatUsage, Context, SessionLog, TokenUsage
from engine.store.documents import LogKind
from engine.testing.chat import Script, call, tokens
from tests.providers.internal.fakes import FakeTool, make_context, open_rig, user


@attrs.define(eq=False)
class KeptLog(SessionLog):
    entries: list[tuple[JsonObject, dict[str, Any]]] = attrs.field(factory=list[tuple[JsonObject, dict[str, Any]]])

    def record(
        self,
        kind: LogKind,
        content: JsonObject,
        *,
        component: str = "",
        model: str = "",
        turn_id: str = "",
        usage: TokenUsage | None = None,
        seconds: float | None = None,
    ) -> None:
        if kind is not LogKind.CHAT:
            return  # the engine's own entries, of the tools
        assert seconds is not None
        about = {"component": component, "turn_id": turn_id, "usage": usage, "seconds": round(seconds, 6)}
        self.entries.append((content, about))


def logging_context() -> tuple[Context, KeptLog]:
    context, log = make_context(), KeptLog()
    context.log = log
    context.turn_id = "turn-1"
    return context, log


async def test_an_answer_with_a_tool_is_two_calls(autojump_clock: MockClock) -> None:
    context, log = logging_context()
    first: Script = ["Let me look.", call("look", "c1"), ChatUsage(10, 5)]
    second = [*tokens("It is open.", 0.1), ChatUsage(20, 6, 8)]
    async with open_rig(first, second, tools=[FakeTool("look", 1.0)], context=context) as rig:
        await rig.send(user("Is it open?"))
        await trio.sleep(10)
    (asked, about), (told, about_it) = log.entries
    assert asked["messages"] == [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "Is it open?"},
    ]
    assert (asked["outcome"], asked["answer"], asked["tools"]) == ("completed", "Let me look.", ["look"])
    assert asked["toolCalls"] == [{"callId": "c1", "name": "look", "arguments": "{}"}]
    assert about == {"component": "speaker", "turn_id": "turn-1", "usage": TokenUsage(10, 5), "seconds": 0.0}
    assert (told["answer"], told["repeated"]) == ("It is open.", 2)
    assert [message["role"] for message in told["messages"]] == ["assistant", "tool"]
    assert about_it == {"component": "speaker", "turn_id": "turn-1", "usage": TokenUsage(20, 6, 8), "seconds": 0.3}
    assert (rig.session.usage.input, rig.session.usage.output, rig.session.usage.cached) == (30, 11, 8)


async def test_a_barge_in_is_recorded_as_cancelled(autojump_clock: MockClock) -> None:
    context, log = logging_context()
    async with open_rig(tokens("One two three four five.", 0.5), tokens("Yes."), context=context) as rig:
        await rig.send(user("Count."))
        await trio.sleep(1.2)
        await rig.interrupt()
        await trio.testing.wait_all_tasks_blocked()
        ((content, about),) = log.entries
        assert (content["outcome"], content["answer"]) == ("cancelled", "One two ")
        assert about["seconds"] == 1.2
        await rig.send(user("Stop."))
        await trio.sleep(1)
    assert [content["outcome"] for content, _ in log.entries] == ["cancelled", "completed"]


async def test_a_failure_is_recorded(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    context, log = logging_context()
    failure = RealtimeException(ErrorCode.PROVIDER_QUOTA, "The chat endpoint has no quota left for this account.")
    with pytest.RaisesGroup(pytest.RaisesExc(RealtimeException), flatten_subgroups=True):
        async with open_rig(["Well,", 0.5, failure], context=context) as rig:
            await rig.send(user("A secret."))
            await trio.sleep(10)
    ((content, about),) = log.entries
    assert (content["outcome"], content["error"], content["answer"]) == ("failed", "provider_quota", "Well,")
    assert about["seconds"] == 0.5
    assert "A secret." not in caplog.text


async def test_two_sessions_share_the_part_and_not_the_log(autojump_clock: MockClock) -> None:
    logs: list[KeptLog] = []
    for text in ("First.", "Second."):
        context, log = logging_context()
        logs.append(log)
        async with open_rig(tokens("Yes."), context=context) as rig:
            await rig.send(user(text))
            await trio.sleep(1)
    assert [[content["messages"][1]["text"] for content, _ in log.entries] for log in logs] == [["First."], ["Second."]]
    assert [content["repeated"] for log in logs for content, _ in log.entries] == [0, 0]
