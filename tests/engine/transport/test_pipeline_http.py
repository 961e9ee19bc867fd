"""One turn over HTTP, through the real stack and the real engine with a scripted model, on virtual time."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import h11
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.config import PipelineConfiguration, Settings
from engine.elements import (
    OutEvaluation,
    OutSpeech,
    OutText,
    ResponseEnd,
    SpeechItem,
    Token,
)
from engine.interfaces import Role
from engine.pipeline.line import ClientLine
from engine.principal import Principal, ProjectAccess
from engine.protocol.parameters import PARAMETERS
from engine.session.services import Services
from engine.session.start import SessionEnd
from engine.session.windowing import run_connection
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore, StoreCall
from engine.testing.scripted import ScriptedModel, ScriptedRecognizer, answer, echo, final, speech
from engine.testing.stage import ScriptedManager, scripted_services
from engine.transport.app import create_app
from engine.transport.messages import OUTPUTS
from engine.transport.pipeline_http import READERS, PipelineDoors, RunTurn
from engine.transport.problems import STATUS
from engine.transport.server import BoundAddress, run_server
from tests.cases.support import Tools
from tests.engine.transport.http_call import HttpCall, messages, text
from tests.engine.transport.stack import HOST, Stack, ask, open_stack
from tests.engine.transport.test_app import events_of

TURN = "/api/pipeline/agent:tester/turn"
MINE = TURN + "?sessionId=S&deviceRef=mine"


@attrs.define(eq=False)
class Scene:
    """A server with one agent."""

    stack: Stack
    services: Services
    model: ScriptedModel
    manager: ScriptedManager
    store: FaultyStore

    def call(self, **how: bool) -> HttpCall:
        return HttpCall(self.stack.dial(**how))

    async def turn(
        self, *sent: Mapping[str, Any], path: str = MINE, headers: Mapping[str, str] | None = None
    ) -> list[Any]:
        """A whole turn; its lines."""
        call = self.call()
        await call.ask(path, messages(*sent), headers)
        assert await call.head() == 200, await call.document()
        lines = await call.lines()
        await call.stream.aclose()
        return lines

    async def state(self) -> tuple[SessionState, str]:
        document = await self.store.get_session("S")
        assert document is not None
        return document.state, document.end_reason

    async def wait_idle(self) -> None:
        """Until nothing of any call is left."""
        await self.stack.wait_idle()
        assert self.services.admission.taken == 0
        assert len(self.services.live) == 0


@asynccontextmanager
async def open_scene(
    *,
    model: ScriptedModel | None = None,
    manager: ScriptedManager | None = None,
    store: FaultyStore | None = None,
    turn: RunTurn | None = None,
    **parts: Any,
) -> AsyncGenerator[Scene]:
    model, manager, store = model or ScriptedModel(echo), manager or ScriptedManager(), store or FaultyStore()
    services = scripted_services(model=model, managers=[manager], store=store, **parts)
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_stack(run_connection, services=services) as stack:
        if turn is not None:
            stack.app.pipelines = PipelineDoors(services, turn)
        yield Scene(stack, services, model, manager, store)
    assert trio.lowlevel.current_statistics().tasks_living == before, "a task outlived its call"


def kinds(lines: Iterable[Any]) -> list[str]:
    """What the lines are, in short."""
    return [line["name"] if line["type"] == "command" else line["type"] for line in lines]


def sentences(lines: Iterable[Any]) -> list[str]:
    return [line["text"] for line in lines if line["type"] == "text"]


# --- a turn ------------------------------------------------------------------------------------------------------------


async def test_a_turn_is_answered_until_its_exit_and_the_session_is_left_idle(autojump_clock: MockClock) -> None:
    manager = ScriptedManager(evaluations=[(1, OutEvaluation("late"))])
    async with open_scene(manager=manager) as scene:
        call = scene.call()
        await call.ask(MINE, messages(text("hi")))
        assert await call.head() == 200
        assert call.headers["content-type"] == "application/x-ndjson"
        assert call.headers["cache-control"] == "no-store"
        lines = await call.lines()
        told = kinds(lines)
        assert (told[0], told[-3:]) == ("ready", ["speech", "response-end", "exit"])
        assert sentences(lines) == ["You said hi."]
        assert lines[0]["parameters"]["sessionId"] == "S"
        assert lines[-1]["parameters"] == {
            "turnId": lines[-1]["parameters"]["turnId"],
            "sessionId": "S",
            "userId": lines[0]["parameters"]["userId"],
            "saved": True,
        }
        assert await scene.state() == (SessionState.IDLE, "the client ended the session")
        await call.stream.aclose()
        await scene.wait_idle()
        assert trio.current_time() == 0
    assert "evaluation" not in [what for _, what in manager.ran]


async def test_the_next_call_resumes_the_session_with_its_history(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = scene.call()
        for words in ("one", "two", "three"):  # on one connection
            await call.ask(MINE, messages(text(words)))
            assert await call.head() == 200
            assert sentences(await call.lines()) == [f"You said {words}."]
            call.again()
        said = [(message.role, message.text) for message in scene.manager.contexts[-1].messages]
        assert said[:4] == [
            (Role.USER, "one"),
            (Role.ASSISTANT, "You said one."),
            (Role.USER, "two"),
            (Role.ASSISTANT, "You said two."),
        ]
        assert [turn.index for turn in scene.store.turns] == [0, 1, 2]
        await call.stream.aclose()
        await scene.wait_idle()


async def test_a_client_without_a_name_gets_one_with_which_it_comes_back(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        ready = (await scene.turn(text("one"), path=TURN))[0]["parameters"]
        back = f"{TURN}?sessionId={ready['sessionId']}&deviceRef={ready['deviceRef']}"
        assert sentences(await scene.turn(text("two"), path=back)) == ["You said two."]
        assert scene.manager.contexts[-1].is_reconnect
        await scene.wait_idle()


async def test_an_array_is_as_good_as_lines(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        body = b'[{"type":"text","text":"hi"}, 5, {"type":"sensory","data":{}}]'
        call = scene.call()
        await call.ask(MINE, body, {"content-type": "Application/JSON; charset=utf-8"})
        assert await call.head() == 200
        lines = await call.lines()
        assert sentences(lines) == ["You said hi."]
        assert [line["code"] for line in lines if line["type"] == "error"] == ["bad_json"]


async def test_a_bad_line_is_answered_in_its_place_and_the_rest_goes_on(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        body = b'{\n{"type":"x"}\n' + messages(
            {"type": "token", "text": "#locales:cs,en"},
            {"type": "token", "text": "#locales:?"},
            {"type": "token", "text": "#authorization:Bearer x"},
            {"type": "token", "text": "#end"},
            {"type": "action", "name": "dance"},
            {"type": "image", "mediaType": "image/png", "data": "AAA="},
            {"type": "sensory", "data": {"place": "here"}},
            text("hi"),
        )
        call = scene.call()
        await call.ask(MINE, body)
        await call.head()
        lines = await call.lines()
        errors = [(line["code"], line["recoverable"]) for line in lines if line["type"] == "error"]
        codes = ["bad_json", "unknown_type", "bad_element", "unauthorized", "bad_element", "unknown_action"]
        assert errors == [(code, True) for code in codes]
        assert sentences(lines) == ["You said hi."]
        assert kinds(lines)[-1] == "exit"
        context = scene.manager.contexts[-1]
        assert context.configuration.locales == ("cs", "en")
        assert (context.sensory, len(context.images)) == ({"place": "here"}, 1)


async def test_of_two_texts_the_second_cuts_the_first(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        lines = await scene.turn(text("one"), text("two"))
        assert "You said two." in sentences(lines)
        assert kinds(lines)[-1] == "exit"
        assert lines[-1]["parameters"]["turnId"] == next(
            line["turnId"] for line in reversed(lines) if line["type"] == "text"
        )


async def test_what_asks_for_no_answer_ends_with_the_session_end(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        rating: Mapping[str, Any] = {"type": "action", "name": "rating", "parameters": {"value": 5}}
        sensory: Mapping[str, Any] = {"type": "sensory", "data": {}}
        for sent in ((), (sensory,), (rating, sensory)):
            lines = await scene.turn(*sent)
            assert kinds(lines) == ["ready", "session-end"]
            assert lines[-1]["parameters"]["state"] == "IDLE"
        document = await scene.store.get_session("S")
        assert document is not None
        assert document.rating == 5
        assert trio.current_time() == 0


async def test_the_opening_can_be_asked_for(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        lines = await scene.turn({"type": "action", "name": "intro"})
        assert sentences(lines) == ["Hello."]
        assert kinds(lines)[-1] == "exit"


async def test_spoken_words_end_with_the_body(autojump_clock: MockClock) -> None:
    recognizer = ScriptedRecognizer(flushes="two coffees")
    async with open_scene(recognizer=recognizer) as scene:
        audio = {"type": "audio", "data": "AAABAAIAAwA="}
        lines = await scene.turn(audio, audio, path=MINE + "&inputSampleRate=16000")
        assert sentences(lines) == ["You said two coffees."]
        assert kinds(lines)[-1] == "exit"
        assert len(recognizer.pcm) == 16


async def test_the_wire_is_json_whatever_is_asked_for(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        lines = await scene.turn(
            text("hi"), path=MINE + "&wire=binary&outputEncoding=mulaw", headers={"X-Locales": "cs"}
        )
        assert lines[0]["parameters"]["warnings"] == ["wire is ignored: the answer to a turn over HTTP is JSON."]
        assert {line["encoding"] for line in lines if line["type"] == "speech"} == {"mulaw"}
        assert scene.manager.contexts[-1].configuration.locales == ("cs",)


async def test_lines_come_as_they_are_said(autojump_clock: MockClock) -> None:
    model = ScriptedModel()
    async with open_scene(model=model) as scene:
        call = scene.call()
        await call.ask(MINE + "&tokens=true", messages(text("hi")))
        await call.head()
        assert kinds([await call.line()]) == ["ready"]
        await wait_all_tasks_blocked()
        model.session.say(final("hi", "Client"))
        while (await call.line())["type"] != "transcript" or (await call.line())["isInterim"]:
            pass
        model.session.say(Token("One", "r1"))
        assert (await call.line())["text"] == "One"
        await trio.sleep(5)
        model.session.say(Token(" two.", "r1"), ResponseEnd("r1"))
        assert (await call.line())["text"] == " two."
        assert trio.current_time() == 5
        assert kinds(await call.lines())[-1] == "exit"


async def test_the_first_call_is_taken_over_by_a_second_for_the_same_session(autojump_clock: MockClock) -> None:
    async with open_scene(manager=ScriptedManager(extraction_seconds=5)) as scene:
        first = scene.call()
        await first.ask(MINE, messages(text("one")))
        await first.head()
        await trio.sleep(1)
        second = await scene.turn(text("two"))
        assert sentences(second) == ["You said two."]
        lines = await first.lines()
        assert [line["code"] for line in lines if line["type"] == "error"] == ["taken_over"]
        assert lines[-1]["parameters"]["state"] == "DISCONNECTED"
        assert (await scene.state())[0] is SessionState.IDLE
        await first.stream.aclose()
        await scene.wait_idle()


# --- refusals ------------------------------------------------------------------------------------------------------------


async def problem(scene: Scene, path: str = MINE, body: bytes = messages(text("hi")), **headers: str) -> HttpCall:
    call = scene.call()
    await call.ask(path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    await call.head()
    document = await call.document()
    assert call.headers["content-type"] == "application/problem+json"
    assert document["status"] == call.status
    assert document["detail"]
    return call


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/pipeline/agent:nobody/turn", 404),
        ("/api/pipeline/nothing:x/turn", 404),
        ("/api/pipeline/realtime:/turn", 404),
        ("/api/pipeline/nonsense/turn", 404),
    ],
)
async def test_what_does_not_exist(path: str, status: int, autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        assert (await problem(scene, path)).status == status
        await scene.stack.wait_idle()
        assert len(scene.services.live) == 0


async def test_a_session_of_somebody_else_is_forbidden(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        await scene.turn(text("hi"))
        assert (await problem(scene, TURN + "?sessionId=S&deviceRef=other")).status == 403
        assert await scene.state() == (SessionState.IDLE, "the client ended the session")


async def test_wrong_credentials_are_challenged(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = await problem(scene, authorization="Bearer nonsense")
        assert call.status == 401
        assert call.headers["www-authenticate"].startswith("Bearer")
        assert scene.store.turns == []


async def test_a_private_project_and_used_up_minutes(autojump_clock: MockClock) -> None:
    async with open_scene(access=ProjectAccess("test", is_public=False)) as scene:
        assert (await problem(scene)).status in (403, 404)
    async with open_scene(access=ProjectAccess("test", is_public=True, minutes_per_month=0)) as scene:
        assert (await problem(scene)).status == 429


async def test_a_full_and_a_stopping_server_say_when_to_come_back(autojump_clock: MockClock) -> None:
    async with open_scene(settings=Settings(max_sessions=1)) as scene:
        client = await scene.stack.connect("/api/pipeline/agent:tester")
        call = await problem(scene)
        assert call.status == 503
        assert int(call.headers["retry-after"]) > 0
        await client.aclose()
    async with open_scene() as scene:
        scene.services.live.refuse_new()
        assert (await problem(scene)).status == 503


async def test_a_turn_takes_a_place_as_a_connection_does(autojump_clock: MockClock) -> None:
    async with open_scene(settings=Settings(max_sessions=1), manager=ScriptedManager(extraction_seconds=5)) as scene:
        first = scene.call()
        await first.ask(MINE, messages(text("hi")))
        await first.head()
        assert (await problem(scene)).status == 503
        await first.lines()
        assert sentences(await scene.turn(text("now"))) == ["You said now."]


async def test_a_store_that_fails_and_a_manager_that_fails(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(ScriptedManager):
        async def on_session_start(self, context: Any) -> None:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("on purpose")

    async with open_scene(manager=Broken()) as scene:
        assert (await problem(scene)).status == 500
        assert (await scene.state())[0] is SessionState.DISCONNECTED
    assert "could not be started" in caplog.text


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_only_post(method: str, autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = scene.call()
        await call.begin(MINE, {"content-length": "0"}, method=method)
        await call.finish()
        assert await call.head() == 405
        assert call.headers["allow"] == "POST"
        assert (await call.document())["status"] == 405
        call.again()
        await call.ask(MINE, messages(text("hi")))  # nothing was left behind on the connection
        assert await call.head() == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": ""},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-encoding": "gzip"},
    ],
)
async def test_a_body_of_another_kind(headers: dict[str, str], autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = scene.call()
        await call.ask(MINE, messages(text("hi")), headers)
        assert await call.head() == 415


async def test_a_body_that_is_no_array(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        assert (await problem(scene, content_type="application/json")).status == 422
        assert (await problem(scene, body=b"[" + b"1," * 5000 + b"1]", content_type="application/json")).status == 422


async def test_pages_of_other_origins_are_refused(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        assert (await problem(scene, origin="https://evil.example")).status == 403


# --- bodies that are too large or too slow ---------------------------------------------------------------------------------


async def test_a_body_that_says_it_is_too_large_is_refused_and_read_on_for_a_while(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = scene.call()
        await call.begin(MINE, {"content-length": str((1 << 20) + 1)})
        for _ in range(16):
            await call.put(bytes(1 << 16))
        await call.put(b" ")
        await call.finish()
        assert await call.head() == 413
        assert (await call.document())["detail"] == "A body may have up to 1048576 bytes; use the WebSocket for more."
        await call.stream.aclose()
        await scene.wait_idle()
        assert trio.current_time() == 0


async def test_a_body_that_never_ends_is_cut_in_bounded_memory(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = scene.call()
        await call.begin(MINE)
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await call.put(bytes(1 << 19))
                await trio.sleep(1 / 8)
        assert trio.current_time() == 2 / 8 + 2 + 1 / 8
        await scene.wait_idle()
        assert scene.store.calls == []


async def test_a_body_of_just_the_limit_is_read(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        body = messages(text("hi"))
        call = scene.call()
        await call.begin(MINE)
        await call.put(body + bytes(0) + b"\n" * ((1 << 20) - len(body)))
        await call.finish()
        assert await call.head() == 200
        assert sentences(await call.lines()) == ["You said hi."]


async def test_a_slow_body_is_given_up_after_30_s_and_holds_no_place(autojump_clock: MockClock) -> None:
    async with open_scene(settings=Settings(max_sessions=1)) as scene:
        slow = scene.call()
        await slow.begin(MINE, {"content-length": "1000"})

        async def drip() -> None:
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await slow.put(b" ")
                    await trio.sleep(1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            await trio.sleep(5)
            assert sentences(await scene.turn(text("hi"))) == ["You said hi."]
            assert await slow.head() == 408
            assert trio.current_time() == 30
        await scene.wait_idle()
        assert trio.current_time() == 33


async def test_a_client_that_leaves_in_the_middle_of_its_body_was_never_there(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        call = scene.call()
        await call.begin(MINE, {"content-length": "1000"})
        await call.put(b'{"type":')
        await trio.sleep(3)
        await call.stream.aclose()
        await scene.wait_idle()
        assert trio.current_time() == 3
        assert scene.store.calls == []


# --- leaving -------------------------------------------------------------------------------------------------------------


async def slow_tool(_: object) -> str:
    await trio.sleep(100)
    return "late"


def slow_store(call: StoreCall) -> float | None:
    return {"open_session": 2.0, "append_turns": 3.0, "save_session": 1.0}.get(call.operation)


async def opening(scene: Scene) -> None:
    await trio.sleep(1)


async def starting(scene: Scene) -> None:
    await trio.sleep(3)


async def connecting(scene: Scene) -> None:
    await trio.sleep(5)


async def answering(scene: Scene) -> None:
    await trio.sleep(7)
    scene.model.session.say(final("hi", "Client"), Token("A long story", "r1"), SpeechItem(speech(3000), 24000, "r1"))
    await trio.sleep(0.5)


async def tool_running(scene: Scene) -> None:
    await answering(scene)
    scene.model.session.call_tool("c1", "slow", "{}")
    await trio.sleep(0.5)


async def extracting(scene: Scene) -> None:
    await trio.sleep(7)
    scene.model.session.say(final("hi", "Client"))
    answer(scene.model.session, "Here it is.", "r1")
    await trio.sleep(0.5)


async def saving(scene: Scene) -> None:
    scene.manager.extraction_seconds = 0
    await extracting(scene)
    await trio.sleep(1)


Step = Callable[[Scene], Awaitable[None]]
STAGES: dict[Step, int] = {
    opening: 0,
    starting: 0,
    connecting: 0,
    answering: 1,
    tool_running: 1,
    extracting: 1,
    saving: 1,
}
"""Each with how many turns are stored afterwards."""


@pytest.mark.parametrize("reach", STAGES, ids=lambda step: step.__name__)
async def test_a_client_that_leaves_is_a_client_that_vanishes(reach: Step, autojump_clock: MockClock) -> None:
    manager = ScriptedManager(start_seconds=2, extraction_seconds=60, tool_box=Tools({"slow": slow_tool}))
    async with open_scene(model=ScriptedModel(ready_after=1), manager=manager, store=FaultyStore(slow_store)) as scene:
        call = scene.call()
        await call.ask(MINE, messages(text("hi")))
        await reach(scene)
        left = trio.current_time()
        await call.stream.aclose()
        await scene.wait_idle()
        assert trio.current_time() - left <= scene.services.settings.cleanup_seconds
        assert await scene.state() == (SessionState.DISCONNECTED, "the client vanished")
        assert len(scene.store.turns) == STAGES[reach]


async def test_a_client_that_does_not_wait_for_the_save_after_exit_leaves_it_idle(autojump_clock: MockClock) -> None:
    async with open_scene(store=FaultyStore(slow_store)) as scene:
        call = scene.call()
        await call.ask(MINE, messages(text("hi")))
        await call.head()
        while kinds([await call.line()]) != ["exit"]:
            pass
        await call.stream.aclose()
        await scene.wait_idle()
        assert await scene.state() == (SessionState.IDLE, "the client ended the session")


async def test_a_server_that_stops_saves_the_session(autojump_clock: MockClock) -> None:
    async with open_scene(manager=ScriptedManager(extraction_seconds=60)) as scene:
        call = scene.call()
        await call.ask(MINE, messages(text("hi")))
        await call.head()
        await trio.sleep(1)
        scene.stack.server.hurry.set()
        with pytest.raises(h11.RemoteProtocolError, match="without sending complete message"):
            await call.lines()
        await scene.wait_idle()
        assert trio.current_time() == 1
        assert (await scene.state())[0] is SessionState.DISCONNECTED


# --- slow readers ----------------------------------------------------------------------------------------------------------


class Firehose:
    """Says more than any client will ever take, as fast as it may."""

    def __init__(self) -> None:
        self.cancelled_at: float | None = None
        self.most_unsent_ms = 0.0

    async def __call__(
        self, configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> SessionEnd:
        try:
            while True:
                for _ in range(20):
                    line.put_output(OutSpeech(bytes(4800), 24000, "t1", "r1"))
                self.most_unsent_ms = max(self.most_unsent_ms, line.outbox.unsent_speech_ms)
                await trio.sleep(1 / 8)
        finally:
            self.cancelled_at = trio.current_time()


async def test_a_client_that_takes_nothing_is_given_up_after_exactly_10_s(autojump_clock: MockClock) -> None:
    firehose = Firehose()
    async with open_scene(turn=firehose) as scene:
        call = scene.call(takes_nothing=True)
        await call.ask(MINE, messages(text("hi")))
        await scene.wait_idle()
        assert firehose.cancelled_at == 10
        assert trio.current_time() == 12  # the server's own bound, which cuts the connection
        assert firehose.most_unsent_ms <= 120_000


async def test_a_client_that_takes_a_little_is_not_slow_until_the_very_end(autojump_clock: MockClock) -> None:
    firehose = Firehose()
    async with open_scene(turn=firehose) as scene:
        call = scene.call(takes_nothing=True)
        await call.ask(MINE, messages(text("hi")))
        await call.head()
        with pytest.raises(h11.RemoteProtocolError, match="without sending complete message"):
            while True:
                await trio.sleep(7)
                assert (await call.line())["type"] == "speech"
        await scene.wait_idle()
        assert firehose.cancelled_at == 120  # the turn's limit
        assert trio.current_time() == 147  # and that of everything, 140 s, with the piece that was under way then


# --- the turn's limit --------------------------------------------------------------------------------------------------------


async def test_a_turn_may_take_longer_than_the_end_of_a_session(autojump_clock: MockClock) -> None:
    async with open_scene(manager=ScriptedManager(extraction_seconds=110)) as scene:
        lines = await scene.turn(text("hi"))
        assert kinds(lines)[-1] == "exit"
        assert trio.current_time() == 110


async def test_a_turn_that_takes_too_long_is_ended_and_told(autojump_clock: MockClock) -> None:
    async with open_scene(manager=ScriptedManager(extraction_seconds=1000)) as scene:
        lines = await scene.turn(text("hi"))
        assert trio.current_time() == 120
        assert kinds(lines)[-3:] == ["error", "exit", "session-end"]
        assert (lines[-3]["code"], lines[-3]["message"]) == (
            "session_limit",
            "The turn was not over in 120 s and was ended.",
        )
        assert [turn.input.text for turn in scene.store.turns] == ["hi"]
        assert await scene.state() == (SessionState.DISCONNECTED, "the turn took too long")
        scene.manager.extraction_seconds = 0
        assert sentences(await scene.turn(text("again"))) == ["You said again."]
        assert scene.manager.contexts[-1].is_reconnect


async def test_a_session_that_does_not_even_begin_in_time(autojump_clock: MockClock) -> None:
    manager = ScriptedManager(start_seconds=50)
    async with open_scene(manager=manager, settings=Settings(http_turn_seconds=20, session_start_seconds=60)) as scene:
        assert (await problem(scene)).status == 504
        assert trio.current_time() == 20
        await scene.stack.wait_idle()
        assert (await scene.state())[0] is SessionState.DISCONNECTED


# --- faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["Hello."]])
async def test_a_failure_is_told_and_stays_in_its_call(
    words: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> SessionEnd:
        for each in words:
            line.put_output(OutText(each, "t1", "r1"))
        await trio.sleep(1)
        raise RuntimeError("on purpose")

    async with open_scene(turn=fail) as scene:
        if words:
            lines = await scene.turn(text("hi"))
            assert kinds(lines) == ["text", "error"]
            assert (lines[1]["code"], lines[1]["whose"]) == ("internal", "server")
        else:
            assert (await problem(scene)).status == 500
        await scene.stack.wait_idle()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["a turn failed"]


async def test_a_failure_with_a_full_outbox_ends_the_answer_all_the_same(autojump_clock: MockClock) -> None:
    async def fill(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> SessionEnd:
        await trio.lowlevel.checkpoint()
        for _ in range(101):
            line.put_output(OutText("a", "t1", "r1"))
        raise AssertionError

    async with open_scene(turn=fill, settings=Settings(outbox_elements=100)) as scene:
        assert kinds(await scene.turn(text("hi"))) == ["text"] * 100


async def test_silence_is_a_fault_of_ours(autojump_clock: MockClock) -> None:
    async def say_nothing(
        configuration: PipelineConfiguration, line: ClientLine, services: Services, *, principal: Principal
    ) -> SessionEnd:
        await trio.lowlevel.checkpoint()
        return SessionEnd("S", SessionState.IDLE, "")

    async with open_scene(turn=say_nothing) as scene:
        assert (await problem(scene)).status == 500


# --- the description -------------------------------------------------------------------------------------------------------


async def test_both_calls_are_described(autojump_clock: MockClock) -> None:
    async with open_scene() as scene:
        described = (await scene.stack.request("/openapi.json")).json
    turn = described["paths"]["/api/pipeline/{key}/turn"]["post"]
    one, several = "#/components/schemas/InputMessage", "#/components/schemas/InputMessages"
    bodies = {name: body["schema"]["$ref"] for name, body in turn["requestBody"]["content"].items()}
    assert bodies == {"application/x-ndjson": one, "application/json": several}
    assert set(bodies) == set(READERS)
    line = turn["responses"]["200"]["content"]["application/x-ndjson"]["schema"]
    assert line == {"$ref": "#/components/schemas/OutputMessage"}
    said = [each["$ref"].rpartition("/")[2] for each in described["components"]["schemas"]["OutputMessage"]["oneOf"]]
    assert said == [model.__name__ for model in OUTPUTS]
    event = described["paths"]["/api/pipeline/{key}"]["post"]
    accepted = described["components"]["schemas"]["ChatEventAccepted"]
    assert (accepted["required"], accepted["properties"]["deviceRef"]["type"]) == (["sessionId"], "string")
    for call, left_out in ((turn, {"wire"}), (event, set[str]())):
        names = [parameter["name"] for parameter in call["parameters"]]
        assert names == ["key", *(parameter.name for parameter in PARAMETERS if parameter.name not in left_out)]
        told = {int(status) for status in call["responses"]}
        assert set(STATUS.values()) - {400} <= told | {504}
        assert {405, 415} < told


# --- other servers, and sockets ----------------------------------------------------------------------------------------------


async def test_a_turn_with_plain_asgi(autojump_clock: MockClock) -> None:
    services = scripted_services(model=ScriptedModel(echo), managers=[ScriptedManager()], store=FaultyStore())
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/pipeline/agent:tester/turn",
        "query_string": b"",
        "headers": [(b"host", HOST.encode()), (b"content-type", b"application/x-ndjson")],
    }
    body = messages(text("hi"))
    sent = await events_of(
        create_app(services),
        scope,
        [
            {"type": "http.request", "body": body[:5], "more_body": True},
            {"type": "http.request", "body": body[5:]},
        ],
    )
    assert (sent[0]["type"], sent[0]["status"]) == ("http.response.start", 200)
    assert b'"exit"' in sent[-2]["body"]
    assert [event.get("more_body", False) for event in sent[1:]] == [True] * (len(sent) - 2) + [False]


@pytest.mark.sockets
async def test_turns_over_real_sockets() -> None:
    services = scripted_services(model=ScriptedModel(echo), managers=[ScriptedManager()], store=FaultyStore())
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            serve = partial(run_server, create_app(services), HOST, 0, settings=services.settings)
            bound: BoundAddress = await nursery.start(serve)
            call = HttpCall(await trio.open_tcp_stream(HOST, bound.port))
            for words in ("one", "two"):
                await call.ask(MINE, messages(text(words)))
                assert await call.head() == 200
                lines = await call.lines()
                assert sentences(lines) == [f"You said {words}."]
                assert kinds(lines)[-1] == "exit"
                call.again()
            await call.stream.aclose()
            refused = await ask(
                await trio.open_tcp_stream(HOST, bound.port),
                "/api/pipeline/agent:nobody/turn",
                method="POST",
                headers={"content-type": "application/x-ndjson"},
                body=messages(text("hi")),
            )
            assert refused.status == 404
            nursery.cancel_scope.cancel()
    assert services.admission.taken == len(services.live) == 0
