"""A chat event over HTTP, with the real engine behind it, and what each error is as a status."""

import json
import logging
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from engine.config import PipelineConfiguration, Settings
from engine.elements import JsonObject
from engine.errors import ErrorCode, NotFoundError, RemoteError
from engine.principal import Principal, ProjectAccess
from engine.session.services import Services
from engine.session.windowing import run_connection
from engine.store.documents import SessionState
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, echo
from engine.testing.stage import ScriptedManager, scripted_services
from engine.transport.pipeline_http import PipelineDoors, call_of
from engine.transport.problems import STATUS, problem_of
from tests.engine.transport.stack import Answer, Recorder, Stack, open_stack

EVENT = "/api/pipeline/agent:tester"
MINE = EVENT + "?sessionId=S&deviceRef=mine"


async def post(stack: Stack, event: object, path: str = MINE, **headers: str) -> Answer:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    fields = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await stack.request(path, method="POST", headers=fields, body=body)


def services(manager: ScriptedManager, **parts: Any) -> Services:
    return scripted_services(model=ScriptedModel(echo), managers=[manager], store=FaultyStore(), **parts)


async def test_an_event_reaches_the_manager_and_the_session_is_left_idle(autojump_clock: MockClock) -> None:
    manager = ScriptedManager()
    process = services(manager)
    async with open_stack(run_connection, services=process) as stack:
        for event in ({"kind": "file", "name": "menu.pdf"}, {}):
            answer = await post(stack, event)
            assert (answer.status, answer.json) == (202, {"sessionId": "S"})
            assert answer.headers["content-type"] == "application/json"
        await stack.wait_idle()
        document = await process.store.get_session("S")
    assert manager.events == [("S", {"kind": "file", "name": "menu.pdf"}), ("S", {})]
    assert document is not None
    assert document.state is SessionState.IDLE
    assert len(process.live) == 0


async def test_a_client_without_a_name_is_told_the_one_it_gets(autojump_clock: MockClock) -> None:
    manager = ScriptedManager()
    async with open_stack(run_connection, services=services(manager)) as stack:
        first = (await post(stack, {"a": 1}, EVENT)).json
        back = f"{EVENT}?sessionId={first['sessionId']}&deviceRef={first['deviceRef']}"
        assert (await post(stack, {"a": 2}, back)).json == {"sessionId": first["sessionId"]}
        assert (await post(stack, {"a": 3}, f"{EVENT}?sessionId={first['sessionId']}&deviceRef=other")).status == 403
    assert [event for _, event in manager.events] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("path", ["/api/pipeline/agent:nobody", "/api/pipeline/other:x", "/api/pipeline/x"])
async def test_what_does_not_exist(path: str, autojump_clock: MockClock) -> None:
    async with open_stack(run_connection, services=services(ScriptedManager())) as stack:
        answer = await post(stack, {}, path)
        assert answer.status == answer.json["status"] == 404
        assert answer.headers["content-type"] == "application/problem+json"


async def test_the_usual_refusals(autojump_clock: MockClock) -> None:
    manager = ScriptedManager()
    access = ProjectAccess("test", is_public=True, minutes_per_month=0)
    async with open_stack(run_connection, services=services(manager, access=access)) as stack:
        assert (await post(stack, {})).status == 429
        assert (await post(stack, {}, authorization="Bearer x")).status == 401
        assert (await post(stack, {}, origin="https://evil.example")).status == 403
        assert (await post(stack, {}, content_type="text/plain")).status == 415
        assert (await post(stack, {}, content_type="application/x-ndjson")).status == 415
        assert (await post(stack, b"x" * (1 << 20) + b"x")).status == 413
        for body in (b"", b"{", b"[]", b"5", b'"a"', b"null", b'{"a":1,"a":2}', b"[" * 100_000, b"{\xff}"):
            answer = await post(stack, body)
            assert (answer.status, answer.json["title"]) == (422, "Unprocessable Entity"), body
        assert (await stack.request(EVENT)).headers["allow"] == "POST"
    assert manager.events == []


async def test_a_full_and_a_stopping_server(autojump_clock: MockClock) -> None:
    process = services(ScriptedManager(), settings=Settings(max_sessions=1))
    async with open_stack(run_connection, services=process) as stack:
        client = await stack.connect(EVENT)
        answer = await post(stack, {})
        assert (answer.status, int(answer.headers["retry-after"]) > 0) == (503, True)
        await client.aclose()
    process = services(ScriptedManager())
    process.live.refuse_new()
    async with open_stack(run_connection, services=process) as stack:
        assert (await post(stack, {})).status == 503


# --- what an error is ----------------------------------------------------------------------------------------------------


def test_every_error_has_a_status() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert all(400 <= status < 600 for status in STATUS.values())


@attrs.define(eq=False)
class Fake:
    """What takes the event, in the place of the engine."""

    error: Exception | None = None
    seconds: float = 0
    taken: list[tuple[PipelineConfiguration, JsonObject, str]] = attrs.field(factory=list[Any])

    async def __call__(
        self, configuration: PipelineConfiguration, event: JsonObject, services: Services, *, principal: Principal
    ) -> str:
        self.taken.append((configuration, event, principal.owner))
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return "S2"


@pytest.mark.parametrize("code", ErrorCode)
async def test_an_error_is_a_problem_with_its_status(code: ErrorCode, autojump_clock: MockClock) -> None:
    async with open_stack(Recorder()) as stack:
        error = NotFoundError("Sorry.") if code is ErrorCode.NOT_FOUND else RemoteError(code, "Sorry.")
        stack.app.pipelines = PipelineDoors(stack.app.services, chat_event=Fake(error))
        answer = await post(stack, {})
        assert (answer.status, answer.json["detail"]) == (STATUS[code], "Sorry.")
        assert ("retry-after" in answer.headers) == (code is ErrorCode.TOO_BUSY)
        assert ("www-authenticate" in answer.headers) == (code is ErrorCode.UNAUTHORIZED)


async def test_a_fault_is_logged_once_and_nothing_of_it_is_told(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_stack(Recorder()) as stack:
        stack.app.pipelines = PipelineDoors(stack.app.services, chat_event=Fake(RuntimeError("secret")))
        answer = await post(stack, {})
        assert (answer.status, answer.json["detail"]) == (500, "Something went wrong on our side.")
        await stack.wait_idle()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["a chat event failed"]


async def test_an_event_is_worked_off_even_when_its_client_has_left(autojump_clock: MockClock) -> None:
    fake = Fake(seconds=5)
    async with open_stack(Recorder()) as stack:
        stack.app.pipelines = PipelineDoors(stack.app.services, chat_event=fake)
        stream = stack.dial()
        head = f"POST {MINE} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n"
        await stream.send_all(head.encode() + b'{"a":1}')
        await trio.sleep(1)
        await stream.aclose()
        await stack.wait_idle()
        assert trio.current_time() == 5
    ((configuration, event, owner),) = fake.taken
    assert (configuration.key, configuration.session_id, event, owner) == ("agent:tester", "S", {"a": 1}, "device:mine")


def test_a_problem_of_a_busy_server_says_when_to_come_back() -> None:
    assert problem_of(ErrorCode.TOO_BUSY, "Busy.").headers == {"Retry-After": "5"}
    assert problem_of(ErrorCode.INTERNAL, "Sorry.").headers == {}


@pytest.mark.parametrize(
    ("path", "key", "is_turn"),
    [
        (b"/api/pipeline/agent:a", "agent:a", False),
        (b"/api/pipeline/agent%3Aa%2Fb/turn?x=/turn", "agent:a/b", True),
        (b"/api/pipeline/agent:a/turn/turn", "agent:a/turn", True),
        (b"/api/pipeline/agent:turn", "agent:turn", False),
        (b"/api/pipeline/turn", "turn", False),
    ],
)
def test_paths(path: bytes, key: str, is_turn: bool) -> None:
    call = call_of(path)
    assert call is not None
    assert (call.key, call.is_turn) == (key, is_turn)


@pytest.mark.parametrize("path", [b"/api/pipeline", b"/api/pipeline/", b"/api/pipeline//turn", b"/api/agents", b"/"])
def test_other_paths(path: bytes) -> None:
    assert call_of(path) is None
