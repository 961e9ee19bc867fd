"""What a session leaves behind besides its documents: a recording, and webhook calls that are owed (SPEC L6, L10)."""

import json
from datetime import datetime

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.elements import ControlToken, InputAudio, InputText, OutEvaluation
from engine.recording import SessionRecorder
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, answer, echo, final, interim, speech
from engine.testing.stage import EPOCH, ScriptedAgent, ScriptedManager
from tests.scenarios.support import open_scene


@attrs.define(eq=False)
class FakeRecorder(SessionRecorder):
    file_name: str
    heard: list[tuple[str, float, object]] = attrs.field(factory=list[tuple[str, float, object]])

    def user_audio(self, pcm: bytes, rate: int, at: float) -> None:
        self.heard.append(("user", at, (len(pcm), rate)))

    def agent_audio(self, pcm: bytes, rate: int, at: float, response_id: str) -> None:
        self.heard.append(("agent", at, response_id))

    def cut(self, response_id: str, at: float) -> None:
        self.heard.append(("cut", at, response_id))

    def stop(self, at: float) -> None:
        self.heard.append(("stop", at, None))

    async def run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.heard.append(("written", trio.current_time(), None))

    async def aclose(self) -> None:
        await trio.sleep(0.5)
        self.heard.append(("closed", trio.current_time(), None))


@attrs.define(eq=False)
class Shelf:
    recorders: list[FakeRecorder] = attrs.field(factory=list[FakeRecorder])

    def open(
        self, *, session_id: str, run: int, user_rate: int, agent_rate: int, began: datetime, max_seconds: float
    ) -> SessionRecorder:
        assert (user_rate, agent_rate, began, max_seconds) == (24000, 24000, EPOCH, 3620)
        self.recorders.append(FakeRecorder(f"{session_id}-{run}.wav"))
        return self.recorders[-1]


async def test_a_conversation_is_recorded_as_it_is_received_and_sent(autojump_clock: MockClock) -> None:
    shelf, store = Shelf(), FaultyStore()
    agent = ScriptedAgent(recording=True)
    async with open_scene(agent=agent, store=store, session_id="S", open_recorder=shelf.open) as stage:
        await stage.client.send(InputAudio(speech(20)))
        await trio.sleep(1)
        stage.model.session.say(interim(), final("tell me"))
        answer(stage.model.session, "One two three four.", "r1", ms=200)
        await trio.sleep(0.1)
        stage.model.session.say(interim())
        await trio.sleep(0.1)
        await stage.client.send(ControlToken("end"))
        await stage.over.wait()
        (recorder,) = shelf.recorders
        assert recorder.heard == [
            ("user", 0, (960, 24000)),
            ("agent", 1, "r1"),
            ("agent", 1, "r1"),
            ("cut", 1.1, "r1"),
            ("written", recorder.heard[-2][1], None),
            ("closed", recorder.heard[-2][1] + 0.5, None),
        ]
        assert stage.client.line.recorder is None
    session = await store.get_session("S")
    assert session is not None
    assert session.recordings == ["S-1.wav"]


async def test_a_client_that_vanishes_hears_no_more(autojump_clock: MockClock) -> None:
    shelf = Shelf()
    async with open_scene(agent=ScriptedAgent(recording=True), session_id="S", open_recorder=shelf.open) as stage:
        stage.model.session.say(interim(), final("tell me"))
        answer(stage.model.session, "One two three four.", "r1", ms=2000)
        await trio.sleep(1)
        stage.vanish()
        await stage.over.wait()
    assert [what for what, *_ in shelf.recorders[0].heard][-4:] == ["written", "stop", "cut", "closed"]


async def test_nobody_is_recorded_who_is_not_to_be(autojump_clock: MockClock) -> None:
    shelf = Shelf()
    async with open_scene(open_recorder=shelf.open) as stage:
        await stage.client.send(InputAudio(speech(20)))
        await trio.sleep(1)
    assert shelf.recorders == []


@attrs.frozen
class Target:
    url: str
    secret: str | None = None


HOOKS = (Target("https://one.example/hook", "env:HOOK"), Target("https://two.example/hook"))


async def test_a_conversation_that_came_to_its_end_owes_its_webhooks(autojump_clock: MockClock) -> None:
    store = FaultyStore()
    manager = ScriptedManager(evaluations=[(1, OutEvaluation("satisfaction", 0.5))])
    agent = ScriptedAgent(post_session_webhooks=HOOKS)
    async with open_scene(
        agent=agent, manager=manager, store=store, session_id="S", model=ScriptedModel(echo)
    ) as stage:
        await stage.client.send(InputText("hello"))
        await trio.sleep(1)
        await stage.client.send(ControlToken("end"))
        await stage.over.wait()
        environment = stage.services.environment
        owed = await store.due_deliveries(now=environment.wall_clock(), limit=10)
    assert [(each.url, each.secret, each.session_id) for each in owed] == [
        ("https://one.example/hook", "env:HOOK", "S"),
        ("https://two.example/hook", "", "S"),
    ]
    body = json.loads(owed[0].body)
    assert (body["sessionId"], body["state"], body["turnCount"]) == ("S", "CLOSED", 1)
    assert [each["name"] for each in body["evaluations"]] == ["satisfaction"]
    assert "hello" not in owed[0].body


@pytest.mark.parametrize("how", ["vanishes", "fails"])
async def test_one_that_did_not_owes_none(how: str, autojump_clock: MockClock) -> None:
    store = FaultyStore()
    async with open_scene(agent=ScriptedAgent(post_session_webhooks=HOOKS), store=store, session_id="S") as stage:
        if how == "vanishes":
            stage.vanish()
        else:
            stage.model.session.fail(RuntimeError("broken"))
        await stage.over.wait()
        now = stage.services.environment.wall_clock()
    assert await store.due_deliveries(now=now, limit=10) == []
    session = await store.get_session("S")
    assert session is not None
    assert session.state is SessionState.DISCONNECTED
