"""The simulator on streams in memory, under a mock clock: what a client sees of it, and what is left of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import orjson
import pybase64
import pytest
import trio
import trio.testing
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
)

from providers.openai.simulation.checks import Json
from providers.openai.simulator import (
    REAL_TIME,
    Disconnect,
    Drop,
    ErrorEvent,
    Observer,
    Refusal,
    Reply,
    Rule,
    Script,
    ScriptError,
    Simulator,
    Trouble,
    Utterance,
)
from tests.providers.openai.simulator.conftest import MakeSimulator
from tests.providers.openai.simulator.service import user

TARGET = "/v1/realtime?model=gpt-realtime"
BEARER = (b"Authorization", b"Bearer sk-1")


class Client:
    """A client of the simulator, in memory."""

    def __init__(self, websocket: WebSocketConnection) -> None:
        self.websocket = websocket

    async def send(self, event_type: str, **fields: object) -> None:
        await self.websocket.send_message(orjson.dumps({"type": event_type, **fields}).decode())

    async def receive(self, event_type: str = "") -> Json:
        """The next event, or the next of a type."""
        while True:
            event: Json = orjson.loads(await self.websocket.get_message())
            if event_type in ("", event["type"]):
                return event

    async def update(self, **session: object) -> None:
        await self.send("session.update", session={"type": "realtime", **session})
        await self.receive("session.updated")


@asynccontextmanager
async def connected(
    simulator: Simulator,
    target: str = TARGET,
    *headers: tuple[bytes, bytes],
    protocols: tuple[str, ...] = (),
) -> AsyncGenerator[Client]:
    """A client with its handshake done, in a nursery of its own; both ends are gone at the end."""
    async with trio.open_nursery() as nursery:
        stream = simulator.connect(nursery)
        websocket = await wrap_client_stream(
            nursery,
            cast("Any", stream),  # typed for sockets, made for any stream
            "simulator",
            target,
            extra_headers=[*(headers or (BEARER,))],
            subprotocols=protocols,
        )
        yield Client(websocket)
        with trio.move_on_after(1):
            await websocket.aclose()
        nursery.cancel_scope.cancel()


async def refused(simulator: Simulator, target: str = TARGET, *headers: tuple[bytes, bytes]) -> ConnectionRejected:
    """What a handshake is refused with."""
    caught: list[ConnectionRejected] = []
    with trio.move_on_after(60):
        try:
            async with connected(simulator, target, *headers):
                raise AssertionError("it was let in")
        except* ConnectionRejected as group:
            caught += [exc for exc in group.exceptions if isinstance(exc, ConnectionRejected)]
    return caught[0]


# --- sessions


async def test_a_conversation_in_memory(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator(wall_clock=lambda: 1_800_000_000.0)
    async with connected(simulator) as client:
        created = await client.receive()
        assert created["session"]["expires_at"] == 1_800_003_600
        await client.update(instructions="Be brief.")
        await client.send("conversation.item.create", item=user("hi"))
        await client.send("response.create")
        done = await client.receive("response.done")
        assert done["response"]["output"][0]["content"][0]["transcript"] == "You said: hi"
    (connection,) = simulator.connections
    assert [one.type for one in connection.received] == [
        "session.update",
        "conversation.item.create",
        "response.create",
    ]
    assert connection.events("conversation.item.create")[0]["item"] == user("hi")
    assert connection.sent_events("session.created") == [created]
    assert connection.counts["response.done"] == 1
    assert connection.broken == []
    assert connection.client_close is not None
    assert connection.client_close.code == 1000
    assert connection.ended.is_set()
    assert trio.current_time() == 0


async def test_speech_comes_at_its_time(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    script = Script(
        utterances=[Utterance("Which rooms?", at=0.5, seconds=1.5)],
        replies=[
            Reply("The blue room, by the river.", pace=REAL_TIME, barge_in=Utterance("And Friday?", at=1.0)),
            Reply("Free.", pace=REAL_TIME),
        ],
    )
    simulator = make_simulator(script)
    times: dict[str, list[float]] = {}
    async with connected(simulator) as client:
        await client.update()
        while len(times.get("response.done", [])) < 2:
            event = await client.receive()
            times.setdefault(event["type"], []).append(round(trio.current_time(), 3))
    assert times["input_audio_buffer.speech_started"] == [0.5, 3.0]
    assert times["input_audio_buffer.speech_stopped"] == [2.0, 4.0]
    assert times["response.created"] == [2.0, 4.0]
    assert times["response.done"] == [3.0, 4.3]
    assert len(times["response.output_audio.delta"]) == 50 + 15


async def test_a_test_speaks_and_breaks(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator()
    async with connected(simulator) as client:
        await client.update()
        for audio in (b"\1\0\2\0", b"\3\0"):
            await client.send("input_audio_buffer.append", audio=pybase64.b64encode(audio).decode())
        await trio.sleep(3)
        assert simulator.connection.appended_audio == b"\1\0\2\0\3\0"
        simulator.connection.speak(Utterance("hello", seconds=0.5))
        await client.receive("input_audio_buffer.speech_started")
        assert trio.current_time() == 3
        await client.receive("response.done")
        assert trio.current_time() == 3.5
        simulator.connection.happen(ErrorEvent(Trouble("server_overload")))
        assert (await client.receive("error"))["error"]["code"] == "server_overload"
        simulator.connection.expire()
        assert (await client.receive("error"))["error"]["code"] == "session_expired"
        with pytest.raises(ConnectionClosed) as caught:
            await client.receive()
        assert caught.value.reason is not None
        assert (caught.value.reason.code, caught.value.reason.reason) == (
            1001,
            "Your session hit the maximum duration of 60 minutes.",
        )
    assert simulator.connection.client_close is None


async def test_an_hour_passes(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator()
    async with connected(simulator) as client:
        await client.update()
        assert (await client.receive("error"))["error"]["code"] == "session_expired"
        assert trio.current_time() == 3600


async def test_tests_wait_for_what_comes_and_goes(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    simulator = make_simulator(Script(acknowledges_after=0.5))
    seen: list[tuple[str, float]] = []

    async def watch() -> None:
        connection = await simulator.wait_connection()
        for wait in (connection.wait_received("session.update", 2), connection.wait_sent("session.updated", 2)):
            message = await wait
            seen.append((message.type, message.at))

    nursery.start_soon(watch)
    await trio.testing.wait_all_tasks_blocked()
    async with connected(simulator) as client:
        await client.update()
        await trio.sleep(1)
        await client.update()
    assert seen == [("session.update", 1.5), ("session.updated", 2.0)]


async def test_broken_rules_are_told(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator()
    async with connected(simulator) as client:
        await client.update()
        await trio.sleep(2)
        await client.send("response.cancel", event_id="c1")
        await client.receive("error")
        await client.websocket.send_message(b"binary")
        await client.receive("error")
        await client.websocket.send_message("no json")
        await client.receive("error")
    broken = simulator.connection.broken
    assert [one.rule for one in broken] == [Rule.NOTHING_TO_CANCEL, Rule.FRAME, Rule.FRAME]
    assert broken[0].at == 2
    assert broken[0].event == {"type": "response.cancel", "event_id": "c1"}
    assert [one.type for one in simulator.connection.received][-2:] == ["", ""]


async def test_a_mistake_of_the_script_is_loud(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script(utterances=[Utterance("x", at=1.0)]))
    with pytest.RaisesGroup(ScriptError, flatten_subgroups=True):
        async with connected(simulator) as client:
            await client.update(audio={"input": {"turn_detection": None}})
            await trio.sleep_forever()


# --- handshakes


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_handshakes_are_refused(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, status: int
) -> None:
    simulator = make_simulator(Script(refusal=Refusal(status, "made_to_fail", retry_after=3)))
    rejected = await refused(simulator)
    assert rejected.status_code == status
    assert (b"retry-after", b"3") in rejected.headers
    assert orjson.loads(rejected.body or b"")["error"]["code"] == "made_to_fail"
    assert simulator.connection.ended.is_set()


async def test_keys_are_checked(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator(keys=["sk-1"])
    rejected = await refused(simulator, TARGET, (b"Authorization", b"Bearer sk-2"))
    assert rejected.status_code == 401
    assert isinstance(simulator.connection.outcome, Refusal)
    async with connected(simulator) as client:
        assert (await client.receive())["type"] == "session.created"


async def test_browsers_are_let_in(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator(keys=["ek_1"])
    protocols = ("realtime", "openai-insecure-api-key.ek_1")
    async with connected(simulator, TARGET, (b"Origin", b"https://page"), protocols=protocols) as client:
        assert client.websocket.subprotocol == "realtime"


async def test_the_beta_header_is_refused(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator()
    async with connected(simulator, TARGET, BEARER, (b"OpenAI-Beta", b"realtime=v1")) as client:
        assert (await client.receive())["error"]["code"] == "beta_api_shape_disabled"
        with pytest.raises(ConnectionClosed) as caught:
            await client.receive()
        assert caught.value.reason is not None
        assert caught.value.reason.code == 4000


@pytest.mark.parametrize(
    ("target", "header"),
    [
        ("/openai/v1/realtime?model=mine", (b"api-key", b"k")),
        ("/openai/realtime?api-version=2025-04-01-preview&deployment=mine", (b"api-key", b"k")),
        ("/openai/v1/realtime?model=mine", (b"Authorization", b"Bearer entra")),
    ],
)
async def test_azure_is_simulated(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, target: str, header: tuple[bytes, bytes]
) -> None:
    simulator = make_simulator()
    async with connected(simulator, target, header) as client:
        created = await client.receive()
        assert created["session"]["model"] == "mine"
        await client.send("response.create")
        part = await client.receive("response.content_part.done")
        assert part.get("content") == (None if "preview" in target else part["part"])


async def test_a_redirect_may_come_from_the_preview_path(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    location = ("location", "https://simulator/openai/v1/realtime?model=mine")
    simulator = make_simulator(Script(refusal=Refusal(302, headers=[location])))
    rejected = await refused(simulator, "/openai/realtime?api-version=2025-04-01-preview&deployment=mine")
    assert rejected.status_code == 302
    assert dict(rejected.headers)[b"location"] == location[1].encode()


async def test_a_handshake_is_answered_late(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script(accepts_after=2.0))
    async with connected(simulator):
        assert trio.current_time() == 2


async def test_a_handshake_is_never_answered(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    simulator = make_simulator(Script(accepts_after=None))
    with trio.move_on_after(30) as limit:
        async with connected(simulator):
            pass
    assert limit.cancelled_caught
    connection = simulator.connection
    assert connection.handshake is not None
    assert connection.ended.is_set()


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00\xff nonsense\r\n\r\n"])
async def test_what_is_no_handshake_ends(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery, data: bytes
) -> None:
    simulator = make_simulator()
    stream = simulator.connect(nursery)
    if data:
        await stream.send_all(data)
    await (await simulator.wait_connection()).ended.wait()
    assert trio.current_time() <= 10
    assert simulator.connection.core is None


async def test_a_client_leaves_before_its_handshake(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    simulator = make_simulator()
    stream = simulator.connect(nursery)
    await stream.aclose()
    await (await simulator.wait_connection()).ended.wait()
    assert trio.current_time() == 0


# --- the ways to lose a connection


async def test_a_close_frame(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator(Script(happens=[Disconnect(Drop.CLOSE, at=2.0, code=1011, reason="restarting")]))
    async with connected(simulator) as client:
        await client.update()
        with pytest.raises(ConnectionClosed) as caught:
            await client.receive()
        assert trio.current_time() == 2
        assert caught.value.reason is not None
        assert (caught.value.reason.code, caught.value.reason.reason) == (1011, "restarting")
        await simulator.connection.ended.wait()
        assert trio.current_time() == 2


async def test_no_close_frame(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator(Script(happens=[Disconnect(Drop.ABRUPT, at=2.0)]))
    async with connected(simulator) as client:
        await client.update()
        with pytest.raises(ConnectionClosed) as caught:
            await client.receive()
        assert trio.current_time() == 2
        assert caught.value.reason is not None
        assert caught.value.reason.code == 1006


async def test_silence(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    simulator = make_simulator(Script(happens=[Disconnect(Drop.SILENT, at=2.0)]))
    async with connected(simulator) as client:
        await client.update()
        with trio.move_on_after(100) as limit:
            await client.receive()
        assert limit.cancelled_caught
        await client.send("response.create")
        with trio.move_on_after(20) as limit:
            await client.websocket.ping()
        assert limit.cancelled_caught  # nobody answers
    assert simulator.connection.counts["response.create"] == 0


async def test_the_client_vanishes(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    simulator = make_simulator(Script(replies=[Reply("Long. " * 50, pace=REAL_TIME)]))
    stream = simulator.connect(nursery)
    async with trio.open_nursery() as inner:
        websocket = await wrap_client_stream(
            inner,
            cast("Any", stream),  # typed for sockets, made for any stream
            "simulator",
            TARGET,
            extra_headers=[BEARER],
        )
        await Client(websocket).send("response.create")
        await trio.sleep(1)
        inner.cancel_scope.cancel()
    await trio.aclose_forcefully(stream)
    await simulator.connection.ended.wait()
    assert trio.current_time() == pytest.approx(1, abs=0.05)
    assert simulator.connection.client_close is None or simulator.connection.client_close.code == 1006


# --- several connections


async def test_each_connection_has_its_script(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator([Script(refusal=Refusal(429)), Script(replies=[Reply("Second.")])])
    await refused(simulator)
    for _ in range(2):
        async with connected(simulator) as client:
            await client.send("response.create")
            done = await client.receive("response.done")
            assert done["response"]["output"][0]["content"][0]["transcript"] == "Second."
    assert [connection.number for connection in simulator.connections] == [0, 1, 2]


async def test_scripts_may_be_made(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    def script(number: int) -> Script:
        return Script(replies=[Reply(f"Number {number}.")])

    simulator = make_simulator(script)
    for number in range(2):
        async with connected(simulator) as client:
            await client.send("response.create")
            done = await client.receive("response.done")
            assert done["response"]["output"][0]["content"][0]["transcript"] == f"Number {number}."


async def test_without_records_nothing_is_kept(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[str] = []
    observer = Observer(
        sent=lambda connection, event_type, frame: seen.append(f"< {event_type} {connection.number}"),
        received=lambda connection, event: seen.append(f"> {event['type']}"),
    )
    simulator = make_simulator(keeps_records=False, keeps_audio=False, observer=observer)
    async with connected(simulator) as client:
        await client.update()
        connection = simulator.connection
        assert (connection.received, connection.sent) == ([], [])
        assert connection.counts == {"session.created": 1, "session.update": 1, "session.updated": 1}
    assert seen == ["< session.created 0", "> session.update", "< session.updated 0"]
    assert simulator.connections == []


async def test_a_ping_meets_the_end(make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock) -> None:
    """What comes while it closes is not answered, and nothing breaks."""
    simulator = make_simulator(Script(session_seconds=10))
    async with trio.open_nursery() as nursery:
        stream = cast("Any", simulator.connect(nursery))
        client = await wrap_client_stream(nursery, stream, "simulator", TARGET, extra_headers=[BEARER])
        await trio.sleep_until(trio.current_time() + 10)
        with trio.move_on_after(1), suppress(ConnectionClosed):
            await client.ping()
        with trio.fail_after(1):
            await simulator.connection.ended.wait()
        nursery.cancel_scope.cancel()
