"""What passes a boundary is on the tape as it was, and nothing that is wrong with it reaches the session."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from random import Random
from typing import Any
from zlib import adler32

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.boundary import Note, Outlet, Outside
from engine.capsule.codec import Reader, plain
from engine.capsule.file import Kind, Record, records_of
from engine.capsule.keeper import MemoryCapsules
from engine.capsule.tape import CHUNK_BYTES, SECRET, Tape, TapedBoundary, seeded, shown
from engine.config import PipelineConfiguration
from engine.elements import ControlToken, InputAudio, InputText, OutCommand, OutSpeech, OutText
from engine.errors import ErrorCode, RemoteError
from engine.interfaces import Environment, ToolError
from engine.session.outside import store_at
from engine.store.memory import MemoryStore
from engine.testing.stage import scripted_environment
from providers.link import LinkClosedError

SEED = bytes(16)


@pytest.fixture
async def boundary() -> TapedBoundary:
    await trio.lowlevel.checkpoint()
    return TapedBoundary(Tape(trio.current_time(), 1 << 20), SEED)


def records(boundary: TapedBoundary) -> list[Record]:
    """What has been kept; nothing is kept after that."""
    boundary.tape.finish()
    return [record for chunk in boundary.tape.chunks for record in records_of(*chunk)]


def lines(boundary: TapedBoundary) -> list[tuple[Any, ...]]:
    """Times, kinds and fields, with what stands in the fields as values again."""
    return [(round(each.at, 6), each.kind, *map(Reader(["tests"]).value, each.fields)) for each in records(boundary)]


def same(error: object, kind: type[Exception], words: str) -> bool:
    return type(error) is kind and str(error) == words


# --- questions --------------------------------------------------------------------------------------------------------


async def test_an_answer(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def ask() -> tuple[str, int]:
        await trio.sleep(1.5)
        return "a", 2

    assert await boundary.ask(Outside.STORE, "get", ask, {"id": ("x",)}) == ("a", 2)
    assert lines(boundary) == [
        (0.0, Kind.BEGAN, 1, "store", "get", {"id": ("x",)}),
        (1.5, Kind.DONE, 1, ("a", 2)),
    ]


async def test_a_failure(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def ask() -> None:
        await trio.lowlevel.checkpoint()
        raise RemoteError(ErrorCode.NOT_FOUND, "none")

    with pytest.raises(RemoteError):
        await boundary.ask(Outside.CATALOG, "agent", ask)
    _, failed = lines(boundary)
    assert failed[:3] == (0.0, Kind.FAILED, 1)
    assert same(failed[3], RemoteError, "none")


async def test_a_cancellation(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    with trio.move_on_after(2):
        await boundary.ask(Outside.STORE, "get", trio.sleep_forever)
    assert [line[:3] for line in lines(boundary)] == [(0.0, Kind.BEGAN, 1), (2.0, Kind.LEFT, 1)]


async def test_a_cancellation_in_a_nursery_of_its_own(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def ask() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    with trio.move_on_after(2):
        await boundary.ask(Outside.STORE, "get", ask)
    assert lines(boundary)[1] == (2.0, Kind.LEFT, 1)


async def test_questions_at_once_have_numbers(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def ask(seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    async with trio.open_nursery() as nursery:
        for seconds in (3.0, 1.0, 2.0):
            await wait_all_tasks_blocked()
            nursery.start_soon(boundary.ask, Outside.STORE, f"{seconds}", lambda seconds=seconds: ask(seconds))
    found = lines(boundary)
    assert [line[2:5] for line in found[:3]] == [(1, "store", "3.0"), (2, "store", "1.0"), (3, "store", "2.0")]
    assert [line[2:] for line in found[3:]] == [(2, 1.0), (3, 2.0), (1, 3.0)]


# --- what is inside ---------------------------------------------------------------------------------------------------


async def every_way(boundary: TapedBoundary) -> str:
    """Whatever a part may do at a boundary."""

    async def answer() -> str:
        await trio.lowlevel.checkpoint()
        return "x"

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Any]:
        send, receive = trio.open_memory_channel[str](1)
        with send, receive:
            yield receive

    @asynccontextmanager
    async def linked() -> AsyncGenerator[Any]:
        yield FakeLink([])

    async def make(to: Outlet[str]) -> None:
        await trio.lowlevel.checkpoint()
        to.started()
        to.hand("h")

    await boundary.ask(Outside.STORE, "n", answer)
    boundary.know(Outside.MODEL, "n", lambda: 1)
    async with boundary.stream(Outside.CHAT, "n", opened), boundary.connect(Outside.LINK, "n", linked):
        pass
    send, receive = trio.open_memory_channel[str](1)
    with send, receive:
        await boundary.produce(Outside.MODEL, "n", Outlet(send), make)
    return "done"


async def test_what_is_asked_inside_is_not_kept(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def ask() -> str:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(every_way, boundary)
        return await every_way(boundary)

    await boundary.ask(Outside.TOOL, "book", ask)
    assert [line[1:] for line in lines(boundary)] == [(Kind.BEGAN, 1, "tool", "book", None), (Kind.DONE, 1, "done")]


async def test_what_is_asked_behind_it_is_kept_again(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ToolError("no")

    with pytest.raises(ToolError):
        await boundary.ask(Outside.TOOL, "book", fail)
    with pytest.raises(ToolError):
        boundary.know(Outside.TOOL, "book", lambda: (_ for _ in ()).throw(ToolError("no")).__next__())
    await every_way(boundary)
    assert len([line for line in lines(boundary) if line[1] is Kind.BEGAN]) == 7


async def test_what_is_handed_over_belongs_to_the_session_again(
    boundary: TapedBoundary, autojump_clock: MockClock
) -> None:
    """The task of a tool that a model calls asks for itself, and so does whoever waits for the start."""
    environment = boundary.environment(scripted_environment())
    ids: list[str] = []

    async def answer() -> str:
        await trio.lowlevel.checkpoint()
        ids.append(environment.new_id("call"))
        return "x"

    async with trio.open_nursery() as nursery:

        def start(name: str) -> None:
            ids.append(environment.new_id("call"))
            nursery.start_soon(boundary.ask, Outside.TOOL, name, answer)

        async def model(to: Outlet[str]) -> None:
            ids.append(environment.new_id("call"))
            to.started()
            to.hand("book")
            ids.append(environment.new_id("call"))
            await trio.sleep(1)

        send, receive = trio.open_memory_channel[str](1)
        with send, receive:
            await boundary.produce(Outside.MODEL, "m", Outlet(send, lambda: start("at the start"), start), model)
    kinds = [line[1:5] for line in lines(boundary) if line[1] in (Kind.BEGAN, Kind.HANDED)]
    assert (Kind.BEGAN, 2, "tool", "book") in kinds or (Kind.BEGAN, 3, "tool", "book") in kinds
    assert (Kind.BEGAN, 2, "tool", "at the start") in kinds or (Kind.BEGAN, 3, "tool", "at the start") in kinds
    alone = seeded(scripted_environment(), SEED)
    assert [ids[1], ids[2]] == [alone.new_id("call"), alone.new_id("call")], "the session's own count goes on by itself"
    assert len(set(ids)) == len(ids)


# --- streams and connections ------------------------------------------------------------------------------------------


async def test_a_stream(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[Any]:
        send, receive = trio.open_memory_channel[Any](4)
        await trio.sleep(1)
        for item in (OutText("a", "t", "r"), "b"):
            send.send_nowait(item)
        send.close()
        with receive:
            yield receive

    async with boundary.stream(Outside.CHAT, "speaker", opened, {"n": 1}) as items:
        with pytest.raises(trio.WouldBlock):
            trio.open_memory_channel[int](0)[1].receive_nowait()
        assert items.receive_nowait() == OutText("a", "t", "r")
        assert [item async for item in items] == ["b"]
        with pytest.raises(trio.EndOfChannel):
            items.receive_nowait()
    assert [line[1:] for line in lines(boundary)] == [
        (Kind.BEGAN, 1, "chat", "speaker", {"n": 1}), (Kind.OPENED, 1), (Kind.ITEM, 1, OutText("a", "t", "r")),
        (Kind.ITEM, 1, "b"), (Kind.DONE, 1, None), (Kind.CLOSED, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["opening", "receiving", "leaving"])
@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_stream_that_breaks(boundary: TapedBoundary, autojump_clock: MockClock, where: str, how: str) -> None:
    async def here(place: str) -> None:
        if place == where:
            if how == "failed":
                raise ToolError(place)
            await trio.sleep_forever()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Any]:
        await here("opening")
        yield Breaking(here)
        await here("leaving")

    with trio.move_on_after(1):
        with pytest.raises(ToolError, match=where) if how == "failed" else nullcontext():
            async with boundary.stream(Outside.CHAT, "speaker", opened) as items:
                await items.receive()
    *found, closed = lines(boundary)
    assert closed == (0.0 if how == "failed" else 1.0, Kind.CLOSED, 1)
    if how == "failed":
        assert found[-1][:3] == (0.0, Kind.FAILED, 1)
        assert same(found[-1][3], ToolError, where)
    else:
        assert all(line[1] is not Kind.FAILED for line in found)


@attrs.define
class Breaking:
    _here: Callable[[str], Awaitable[None]]

    async def receive(self) -> str:
        await self._here("receiving")
        return "x"


async def test_a_stream_that_is_left_early(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[Any]:
        send, receive = trio.open_memory_channel[Any](4)
        with send, receive:
            yield receive

    async with boundary.stream(Outside.CHAT, "speaker", opened) as items:
        with trio.move_on_after(1):
            await items.receive()
    assert [line[:3] for line in lines(boundary)][1:] == [(0.0, Kind.OPENED, 1), (1.0, Kind.CLOSED, 1)]


@attrs.define
class FakeLink:
    answers: list[Any]
    got: list[str] = attrs.field(factory=list[str])

    def send(self, frame: str) -> None:
        self.got.append(frame)

    async def receive(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await trio.sleep_forever()
        return answer


async def test_a_connection(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    link = FakeLink(['{"type":"hello"}', b"\0\1", LinkClosedError(1006, "lost")])

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Any]:
        yield link

    sound = '{"type":"input_audio_buffer.append","audio":"' + "A" * 4000 + '"}'
    with pytest.raises(LinkClosedError):
        async with boundary.connect(Outside.LINK, "OpenAI", opened) as duplex:
            duplex.send("{}")
            duplex.send(sound)
            duplex.send(sound)
            while True:
                await duplex.receive()
    *found, closed = lines(boundary)
    assert closed[1] is Kind.CLOSED
    assert link.got == ["{}", sound, sound], "what is sent is whole"
    run = [sound[:64], 2, 2 * len(sound), adler32(2 * sound[-64:].encode())]
    *found, failed, left = found
    assert [line[1:] for line in found] == [
        (Kind.BEGAN, 1, "link", "OpenAI", None), (Kind.OPENED, 1), (Kind.SENT, 1, "{}"),
        (Kind.ITEM, 1, '{"type":"hello"}'), (Kind.ITEM, 1, b"\0\1"),
    ]  # fmt: skip
    assert failed[1] is Kind.FAILED
    assert (failed[3].code, failed[3].reason) == (1006, "lost")
    assert left[1:] == (Kind.SENT, 1, run)


async def test_a_connection_that_is_cancelled(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[Any]:
        yield FakeLink([None])

    with trio.move_on_after(3):
        async with boundary.connect(Outside.LINK, "OpenAI", opened) as duplex:
            await duplex.receive()
    assert lines(boundary)[-1] == (3.0, Kind.CLOSED, 1)


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_what_is_produced(boundary: TapedBoundary, autojump_clock: MockClock, end: str) -> None:
    async def produce(to: Outlet[str]) -> None:
        await trio.sleep(1)
        to.started()
        await to.items.send("a")
        to.hand({"call": 1})
        to.items.send_nowait("b")
        with to.items.clone() as copy:
            await copy.send("c")
        with pytest.raises(trio.WouldBlock):
            to.items.send_nowait("not taken")
        if end == "failed":
            raise ToolError("no")
        if end == "cancelled":
            await trio.sleep_forever()

    send, receive = trio.open_memory_channel[str](3)
    handed: list[Any] = []
    with send, receive, trio.move_on_after(4):
        try:
            await boundary.produce(Outside.MODEL, "m", Outlet(send, lambda: None, handed.append), produce, "why")
        except ToolError:
            assert end == "failed"
        assert [receive.receive_nowait() for _ in range(3)] == ["a", "b", "c"]
    found = [line[1:] for line in lines(boundary)]
    assert handed == [{"call": 1}]
    assert found[:-1] == [
        (Kind.BEGAN, 1, "model", "m", "why"), (Kind.OPENED, 1), (Kind.ITEM, 1, "a"), (Kind.HANDED, 1, {"call": 1}),
        (Kind.ITEM, 1, "b"), (Kind.ITEM, 1, "c"),
    ]  # fmt: skip
    assert found[-1][0] is {"done": Kind.DONE, "failed": Kind.FAILED, "cancelled": Kind.LEFT}[end]


async def test_what_is_known(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    assert boundary.know(Outside.SYNTHESIS, "Local", lambda: 24000) == 24000
    with pytest.raises(ToolError):
        boundary.know(Outside.SYNTHESIS, "Local", lambda: (_ for _ in ()).throw(ToolError("no")).__next__())
    found = lines(boundary)
    assert found[1][1:] == (Kind.DONE, 1, 24000)
    assert found[3][1:3] == (Kind.FAILED, 2)


async def test_the_client_and_the_rest(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    boundary.received(InputAudio(b"\1\2"))
    boundary.received(InputText("hi"))
    boundary.told(OutText("a", "t", "r"))
    boundary.told(OutSpeech(b"\1\2" * 50, 24000, "t", "r", text="hi"))
    boundary.took()
    boundary.took_back("r", "t")
    boundary.note(Note.CANCELLED, {"scope": "s"})
    boundary.event({"type": "x"})
    boundary.cut_off("taken over", RemoteError(ErrorCode.TAKEN_OVER, "o"), is_taken_over=True)
    boundary.cut_off("stop", None, is_taken_over=False)
    boundary.input_ended()
    boundary.vanished()
    boundary.ended("CLOSED", "end")
    found = [line[1:] for line in lines(boundary)]
    assert same(found[8][2], RemoteError, "o")
    del found[8]
    assert found == [
        (Kind.IN, b"\1\2"), (Kind.IN, InputText("hi")), (Kind.OUT, OutText("a", "t", "r")),
        (Kind.OUT, shown(OutSpeech(b"\1\2" * 50, 24000, "t", "r", text="hi"))), (Kind.TOOK,), (Kind.CUT, "r", "t"),
        (Kind.NOTE, "cancelled", {"scope": "s"}), (Kind.EVENT, {"type": "x"}), (Kind.CUT_OFF, "stop", None, False),
        (Kind.END_OF_INPUT,), (Kind.VANISHED,), (Kind.END, "CLOSED", "end"),
    ]  # fmt: skip
    assert b"\1\2" * 50 not in b"".join(b"".join(chunk) for chunk in boundary.tape.chunks), "no sound that was told"


# --- the end of a tape ------------------------------------------------------------------------------------------------


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Hostile(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise OSError("the disk of a tool")

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


UNKEEPABLE = {"endless": endless(), "hostile": Hostile(), "huge": [bytes(20 << 20)]}


@pytest.mark.parametrize("value", UNKEEPABLE.values(), ids=UNKEEPABLE)
async def test_what_cannot_be_kept_ends_the_tape_and_not_the_session(
    boundary: TapedBoundary, autojump_clock: MockClock, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer() -> Any:
        await trio.lowlevel.checkpoint()
        return value

    boundary.took()
    assert await boundary.ask(Outside.TOOL, "t", answer) is value
    boundary.told(OutCommand("x", {"a": value}))
    boundary.received(OutCommand("x", {"a": value}))
    boundary.note(Note.HAPPENED, {"a": value})
    boundary.event({"a": value})
    assert boundary.know(Outside.TOOL, "t", lambda: value) is value
    assert await boundary.ask(Outside.TOOL, "t", answer, value) is value
    assert [line[1:3] for line in lines(boundary)] == [
        (Kind.TOOK,), (Kind.BEGAN, 1), (Kind.FULL, "something could not be kept"),
    ]  # fmt: skip
    assert len(caplog.records) == 2, "and it is said once"


async def test_every_number_of_a_tool_is_kept(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    async def answer() -> Any:
        await trio.lowlevel.checkpoint()
        return {"n": 2**70, "t": "\ud800", "f": float("inf")}

    found = await boundary.ask(Outside.TOOL, "t", answer)
    assert lines(boundary)[1][3] == found


async def test_a_tape_has_a_bound(autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    boundary = TapedBoundary(Tape(trio.current_time(), 3 * CHUNK_BYTES), SEED)
    for _ in range(1000):
        boundary.received(InputAudio(bytes(1000)))
    found = records(boundary)
    assert [record.kind for record in found[:-1]] == [Kind.IN] * (len(found) - 1)
    assert found[-1].kind is Kind.FULL
    assert 3 * CHUNK_BYTES < sum(len(bulk) + len(data) for data, bulk in boundary.tape.chunks) < 3 * CHUNK_BYTES + 4000


async def test_a_disk_that_is_too_slow_ends_a_tape(autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    boundary = TapedBoundary(Tape(trio.current_time(), 1 << 30, most_waiting=2), SEED)
    for _ in range(1000):
        boundary.received(InputAudio(bytes(1000)))
    assert len(boundary.tape.chunks) == 3, "two, and the reason"
    assert records(boundary)[-1].fields == ("the disk is too slow",)


async def test_nothing_follows_the_end(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    boundary.ended("CLOSED", "")
    found = records(boundary)
    boundary.took()
    assert records(boundary) == found


# --- secrets ----------------------------------------------------------------------------------------------------------


def raw(boundary: TapedBoundary) -> bytes:
    return repr(records(boundary)).encode() + b"".join(b"".join(chunk) for chunk in boundary.tape.chunks)


async def test_an_authorization_is_not_kept(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    boundary.received(ControlToken("authorization", "Bearer hush", {"Bearer hush": "hush"}))
    boundary.received(ControlToken("locales", "cs"))
    assert b"hush" not in raw(boundary)
    assert lines(boundary)[0][2] == ControlToken("authorization", SECRET)


async def test_the_ref_of_an_anonymous_client_is_not_kept(autojump_clock: MockClock) -> None:
    """It opens its sessions."""
    capsules = MemoryCapsules()
    about = {"configuration": PipelineConfiguration(key="k", device_ref="hush", speaker_ref="hush2"), "mode": "x"}
    async with capsules.keep(about) as boundary:
        boundary.told(OutCommand("ready", {"deviceRef": "hush", "sessionId": "s"}))
        boundary.told(OutCommand("other", {"deviceRef": ""}))
    (capsule,) = capsules.capsules
    assert "hush" not in repr(capsule)
    assert Reader().value(capsule.head["configuration"]) == PipelineConfiguration(
        key="k", device_ref=SECRET, speaker_ref=SECRET
    )
    told = [Reader().value(record.fields[0]) for record in capsule.records]
    assert told == [
        OutCommand("ready", {"deviceRef": SECRET, "sessionId": "s"}),
        OutCommand("other", {"deviceRef": ""}),
    ]
    assert shown(OutCommand("ready", {"deviceRef": SECRET})) == shown(OutCommand("ready", {"deviceRef": "other"}))


async def test_what_a_store_is_told_is_not_kept(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    store = store_at(boundary, MemoryStore())
    now = scripted_environment().wall_clock()
    await store.use_once("hush", now=now, expires_at=now)
    assert b"hush" not in raw(boundary)


# --- ids --------------------------------------------------------------------------------------------------------------


async def test_ids_follow_the_seed(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    await trio.lowlevel.checkpoint()
    plain_environment = Environment(scripted_environment().wall_clock, lambda kind: kind, Random(0))
    one, same_seed = seeded(plain_environment, SEED), seeded(plain_environment, SEED)
    other = seeded(plain_environment, b"x" * 16)
    ids = [one.new_id(kind) for kind in ("turn", "call", "turn", "turn")]
    assert len(set(ids)) == 4
    assert [same_seed.new_id(kind) for kind in ("turn", "turn", "turn", "call")] == [ids[0], ids[2], ids[3], ids[1]]
    assert other.new_id("turn") != ids[0]
    assert one.random.random() == same_seed.random.random() != other.random.random()


async def test_ids_of_what_is_outside_are_its_own(boundary: TapedBoundary, autojump_clock: MockClock) -> None:
    environment = boundary.environment(scripted_environment())

    async def ask() -> str:
        await trio.lowlevel.checkpoint()
        return environment.new_id("turn")

    outside = await boundary.ask(Outside.TOOL, "t", ask)
    assert environment.new_id("turn") == seeded(scripted_environment(), SEED).new_id("turn") != outside


def test_what_was_told_is_compared_byte_for_byte() -> None:
    speech = OutSpeech(b"\1\2", 24000, "t", "r")
    for other in (b"\1\3", b"\1\2\0\0", b""):
        assert shown(attrs.evolve(speech, data=other)) != shown(speech)
    assert shown(attrs.evolve(speech, visemes=({"id": 1},))) != shown(speech)
    assert shown(OutText("a", "t", "r")) == plain(OutText("a", "t", "r"))
