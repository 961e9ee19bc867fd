"""The bytes on a connection: HTTP as it is spoken, and the ways in which a connection is lost. In memory and in virtual time."""

from typing import Any

import h11
import orjson
import pytest
import trio
import trio.testing

from providers.chat.simulator import (
    COMMENT,
    ChatSimulator,
    Disconnect,
    Drop,
    Faults,
    Pace,
    Place,
    Raw,
    Reply,
    Script,
    ScriptError,
    Stall,
)
from tests.providers.chat_simulator.conftest import MakeSimulator

HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
HEADERS = [("host", "simulator"), ("authorization", "Bearer k"), ("content-type", "application/json")]


class Peer:
    """A client that speaks HTTP by hand."""

    def __init__(self, simulator: ChatSimulator, nursery: trio.Nursery) -> None:
        self.stream = simulator.connect(nursery)
        self.http = h11.Connection(h11.CLIENT)

    async def send(self, *more: tuple[str, str], **body: Any) -> None:
        data = orjson.dumps({**HI, **body})
        headers = [*HEADERS, ("content-length", str(len(data))), *more]
        request = h11.Request(method="POST", target="/v1/chat/completions", headers=headers)
        for event in (request, h11.Data(data=data), h11.EndOfMessage()):
            await self.stream.send_all(self.http.send(event) or b"")

    async def next_event(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(bytes(await self.stream.receive_some()))
        return event

    async def receive(self) -> tuple[int, bytes]:
        """The status and the body of a whole answer."""
        head = await self.next_event()
        while isinstance(head, h11.InformationalResponse):
            head = await self.next_event()
        data = b""
        while isinstance(part := await self.next_event(), h11.Data):
            data += part.data
        assert isinstance(part, h11.EndOfMessage)
        return head.status_code, data

    async def rest(self) -> bytes:
        """Everything to the end of the connection, as it is."""
        data = b""
        while part := await self.stream.receive_some():
            data += part
        return data


async def test_one_connection_serves_many_requests(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator()
    peer = Peer(simulator, nursery)
    for _ in range(3):
        await peer.send(stream=True)
        status, body = await peer.receive()
        assert status == 200
        assert body.endswith(b"data: [DONE]\n\n")
        peer.http.start_next_cycle()
    assert (simulator.accepted, simulator.connections, len(simulator.requests)) == (1, 1, 3)
    await peer.stream.aclose()
    await simulator.wait_connections(0)


async def test_a_client_that_says_nothing_is_closed_after_a_while(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    peer = Peer(make_simulator(), nursery)
    assert await peer.rest() == b""
    assert trio.current_time() == 75


async def test_a_request_that_comes_early_is_served_when_its_turn_comes(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script(["one", "two"], pace=Pace(first_after=2)))
    peer = Peer(simulator, nursery)
    await peer.send()
    data = orjson.dumps(HI)
    head = "".join(f"{name}: {value}\r\n" for name, value in [*HEADERS, ("content-length", str(len(data)))])
    await peer.stream.send_all(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + data)
    assert b'"one"' in (await peer.receive())[1]
    assert trio.current_time() == 2
    await simulator.wait_requests(2)
    await simulator.wait_over(simulator.requests[1])
    assert trio.current_time() == 4
    assert [request.outcome for request in simulator.requests] == ["answered", "answered"]


async def test_a_client_may_ask_whether_to_go_on(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    peer = Peer(make_simulator(), nursery)
    await peer.send(("expect", "100-continue"))
    assert (await peer.receive())[0] == 200


@pytest.mark.parametrize("data", [b"HELO there\r\n\r\n", b"GET /v1/models HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"])
async def test_what_is_no_http_is_hung_up_on(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, data: bytes
) -> None:
    simulator = make_simulator()
    peer = Peer(simulator, nursery)
    await peer.stream.send_all(data + b"\r\n\r\n")
    assert await peer.rest() == b""
    assert not simulator.requests


@pytest.mark.parametrize("how", Drop)
@pytest.mark.parametrize("place", [Place.HEADERS, 0, 1, Place.FINISH, Place.DONE, Place.END])
async def test_a_connection_is_lost_in_every_way_at_every_place(
    make_simulator: MakeSimulator,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    how: Drop,
    place: Place | int,
) -> None:
    simulator = make_simulator(Script([Reply("one two", mishaps=[Disconnect(place, how)])]))
    peer = Peer(simulator, nursery)
    await peer.send(stream=True)
    data = await peer.rest()
    assert simulator.requests[0].outcome == "lost"
    heard = [text for text in (b'"one"', b'" two"', b'"stop"', b"[DONE]") if text in data]
    torn = how is Drop.TORN and place is not Place.END
    assert len(heard) == {Place.HEADERS: 0, 0: 0, 1: 1, Place.FINISH: 2, Place.DONE: 3, Place.END: 4}[place]
    assert (data == b"") == (place is Place.HEADERS and not torn)
    assert data.endswith(b"\r\n0\r\n\r\n") == (how is Drop.CLEAN and place is not Place.HEADERS)
    if place is not Place.HEADERS:
        assert data.endswith(b"\n\r\n") != torn or how is Drop.CLEAN
    await simulator.wait_connections(0)


async def test_a_comment_and_any_bytes_come_as_they_are(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script([Reply("a", mishaps=[Raw(COMMENT, 0), Raw(b"data: \xff\n\n")])]))
    peer = Peer(simulator, nursery)
    await peer.send(stream=True)
    _, body = await peer.receive()
    assert body.startswith(COMMENT)
    assert b"data: \xff\n\n" in body
    assert len(simulator.requests[0].events) == 3


async def test_a_script_that_contradicts_a_request_is_the_tests_mistake(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script([Reply("no JSON")]))
    with pytest.RaisesGroup(ScriptError):
        async with trio.open_nursery() as nursery:
            peer = Peer(simulator, nursery)
            await peer.send(
                response_format={
                    "type": "json_schema",
                    "json_schema": {
                        "name": "v",
                        "strict": True,
                        "schema": {"type": "object", "additionalProperties": False},
                    },
                }
            )
            await trio.sleep(1)
    assert trio.current_time() == 0


async def test_a_stall_ends_with_its_client_or_with_its_server(
    make_simulator: MakeSimulator, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(Script([Reply("a", mishaps=[Stall(0)]), Reply("b", mishaps=[Stall(0)])]))
    async with trio.open_nursery() as nursery:
        gone, stays = Peer(simulator, nursery), Peer(simulator, nursery)
        await gone.send(stream=True)
        await stays.send(stream=True)
        await simulator.wait_requests(2)
        await gone.stream.aclose()
        await simulator.wait_connections(1)
        nursery.cancel_scope.cancel()
    assert simulator.connections == 0
    assert [request.outcome for request in simulator.requests] == ["left", "left"]


async def test_only_the_newest_requests_are_kept(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    simulator = make_simulator(keeps=2, keeps_events=False)
    peer = Peer(simulator, nursery)
    for _ in range(5):
        await peer.send()
        await peer.receive()
        peer.http.start_next_cycle()
    assert [request.number for request in simulator.requests] == [3, 4]
    assert simulator.received == 5
    assert not simulator.requests[0].sent


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_by_chance_a_client_sees_an_end(
    make_simulator: MakeSimulator, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, seed: int
) -> None:
    chances: dict[str, Any] = dict.fromkeys(
        ("refuse", "delay", "stall", "drop", "garbage", "error", "duplicate", "comment"), 0.1
    )
    script = Script(seed=seed, pace=Pace(0.1, 0.2, 0.05, 0.5))
    simulator = make_simulator(script, faults=Faults(seed, **chances), is_odd=True)
    for number in range(10):
        peer = Peer(simulator, nursery)
        await peer.send(stream=seed % 2 == 0)
        with trio.fail_after(300):
            await simulator.wait_requests(number + 1)
            await simulator.wait_over(simulator.requests[number])
        await peer.stream.aclose()
    await simulator.wait_connections(0)
    assert {request.outcome for request in simulator.requests} <= {"answered", "lost"}
