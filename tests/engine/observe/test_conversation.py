"""A whole conversation, as it is counted."""

from collections import Counter
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.elements import InputAudio, InputText, JsonObject, OutSpeech, SpeechItem
from engine.observation import Observer, Observers
from engine.observe.metrics import make_metrics
from engine.observe.store_meter import measured_store
from engine.store.memory import MemoryStore
from engine.testing.scripted import ScriptedModel, answer, final, interim, speech
from engine.testing.stage import ScriptedManager, open_stage
from tests.cases.support import Tools
from tests.engine.observe.test_metrics import value


async def order(arguments: JsonObject) -> str:
    await trio.sleep(0.75)
    return "ordered"


async def test_a_conversation_is_counted(autojump_clock: MockClock) -> None:
    metrics = make_metrics()
    manager = ScriptedManager(tool_box=Tools({"order": order}), extraction_seconds=0.5)
    store = measured_store(MemoryStore(), metrics)
    async with open_stage(model=ScriptedModel(), manager=manager, store=store, observer=metrics) as stage:
        session = stage.model.session
        assert value(metrics, "sessions", provider="Scripted") == 1
        session.say(interim())
        await trio.sleep(0.25)
        session.say(final("two coffees"))
        session.call_tool("c1", "order", "{}", "r1")
        await trio.sleep(1.25)
        answer(session, "Here they are.", "r1")
        await stage.client.wait_for_command("exit")
        session.say(final("and a cake"))
        await trio.sleep(1)
        session.say(SpeechItem(speech(500), 24000, "r2", provider="Scripted"))
        await trio.sleep(0.25)
        await stage.client.send(InputText("no, stop"))  # a barge-in
        await trio.sleep(0.25)
        session.say(final("no, stop", provider="Client"))
        answer(session, "As you like.", "r3")
        await trio.sleep(5)
        stage.client.end()
        await stage.over.wait()
    assert value(metrics, "sessions", provider="Scripted") == 0
    assert value(metrics, "sessions_opened_total", provider="Scripted") == 1
    assert value(metrics, "sessions_ended_total", provider="Scripted", state="CLOSED") == 1
    assert value(metrics, "turns_total", input="speech", interrupted="false") == 1
    assert value(metrics, "turns_total", input="speech", interrupted="true") == 1
    assert value(metrics, "turns_total", input="text", interrupted="false") == 1
    assert value(metrics, "barge_ins_total") == 1
    assert value(metrics, "tool_seconds_sum", tool="order", outcome="ok") == 0.75
    assert value(metrics, "leg_seconds_sum", leg="extraction", outcome="ok") == 2 * 0.5
    assert value(metrics, "turn_seconds_count", outcome="ok") == 2
    assert value(metrics, "turn_seconds_count", outcome="cancelled") == 1
    assert value(metrics, "session_seconds_count", outcome="ok") == 1
    assert value(metrics, "turn_stage_seconds_sum", stage="final_transcript") == 0.25
    assert value(metrics, "turn_stage_seconds_count", stage="first_audio") == 3
    assert value(metrics, "turn_stage_seconds_sum", stage="first_audio") == pytest.approx(1.25 + 1.0)
    assert (value(metrics, "store_seconds_count", operation="append_turns", outcome="ok") or 0) >= 2
    assert value(metrics, "turns_lost_total") == 0
    assert value(metrics, "store_failures_total") == 0


@attrs.define
class Listening(Observer):
    """Counts what it is told, of whatever kind."""

    told: Counter[str] = attrs.field(factory=Counter[str])

    def __getattribute__(self, name: str) -> Any:
        if hasattr(Observer, name) and not name.startswith("_"):
            self.told[name] += 1
        return super().__getattribute__(name)


async def test_a_frame_of_audio_touches_no_metric(autojump_clock: MockClock) -> None:
    listening = Listening()
    async with open_stage(observer=Observers([listening])) as stage:
        session = stage.model.session
        session.say(interim(), final("hello"), SpeechItem(speech(20), 24000, "r1", provider="Scripted"))
        await trio.sleep(0.1)
        before = listening.told.copy()
        assert before["began"] > 0
        for _ in range(100):
            await stage.client.send(InputAudio(speech(20)))
            session.say(SpeechItem(speech(20), 24000, "r1", provider="Scripted"))
            await trio.sleep(0.02)
        assert len(session.of_type(InputAudio)) == 100
        assert len([element for element in stage.client.elements if isinstance(element, OutSpeech)]) >= 21
        assert listening.told == before
