"""Every mishap at every boundary, at the exact time."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from engine.config import PipelineConfiguration
from engine.elements import BadInput, InputAudio, InputText, JsonObject, Partial, Transcript
from engine.errors import ErrorCode, RealtimeException
from engine.interfaces import (
    ChatMessage,
    ChatRequest,
    ChatText,
    Context,
    RecognitionElement,
    RecognizerInput,
    ToolBox,
    ToolError,
    ToolResult,
    ToolSpecification,
)
from engine.store.contract import StoreError
from engine.store.documents import SessionDocument
from engine.testing.boundaries import (
    ShakyChat,
    ShakyRecognizer,
    ShakyStream,
    ShakyTools,
    client_passage,
    half_of_input,
    shaky_store,
)
from engine.testing.chat import ScriptedChat
from engine.testing.faults import FaultyStore
from engine.testing.mishaps import ClosedByMishapError, Happened, Mishap, Mishaps, Passage, no_mishaps
from engine.testing.scripted import ScriptedProperties, ScriptedRecognizer, final, interim
from engine.testing.stage import EPOCH, scripted_environment

SESSION = SessionDocument(id="s1", created_at=EPOCH, updated_at=EPOCH)


async def passed(mishaps: Mishaps, *messages: str) -> list[tuple[float, str]]:
    """What arrives, and when."""
    arrived: list[tuple[float, str]] = []

    async def deliver(message: str) -> None:
        await trio.lowlevel.checkpoint()
        arrived.append((round(trio.current_time(), 6), message))

    passage = Passage(mishaps, deliver, lambda message: message[:1])
    for message in messages:
        await passage.put(message)
    await passage.flush()
    return arrived


@pytest.mark.parametrize(
    ("mishap", "arrived"),
    [
        (Mishap.DELAY, [(0, "one"), (0.2, "two"), (0.2, "three")]),
        (Mishap.STALL, [(0, "one"), (6, "two"), (6, "three")]),
        (Mishap.DROP, [(0, "one"), (0, "three")]),
        (Mishap.DUPLICATE, [(0, "one"), (0, "two"), (0, "two"), (0, "three")]),
        (Mishap.REORDER, [(0, "one"), (0, "three"), (0, "two")]),
        (Mishap.PARTIAL, [(0, "one"), (0, "t"), (0, "three")]),
    ],
)
async def test_one_message_and_what_follows_it(mishap: Mishap, arrived: Any, autojump_clock: MockClock) -> None:
    mishaps = Mishaps.at({2: mishap})
    assert await passed(mishaps, "one", "two", "three") == arrived
    assert mishaps.happened == [Happened(0, "", 2, mishap)]


async def test_what_closes_is_the_last(autojump_clock: MockClock) -> None:
    with pytest.raises(ClosedByMishapError, match="the boundary was closed"):
        await passed(Mishaps.at({1: Mishap.CLOSE}), "one")
    assert await passed(Mishaps.at({1: Mishap.REORDER}), "one") == [(0, "one")], "nothing overtakes it, and it arrives"


async def test_chance_follows_its_seed(autojump_clock: MockClock) -> None:
    messages = [str(number) for number in range(300)]
    runs = [await passed(Mishaps.often(seed, drop=0.1, duplicate=0.1), *messages) for seed in (1, 2, 1)]
    assert runs[0] == runs[2] != runs[1]
    counted = Mishaps.often(1, drop=0.1, duplicate=0.2)
    await passed(counted, *messages * 4)
    kinds = [each.mishap for each in counted.happened]
    assert 90 < kinds.count(Mishap.DROP) < 150
    assert 190 < kinds.count(Mishap.DUPLICATE) < 290
    with pytest.raises(ValueError, match="noise"):
        Mishaps.often(1, noise=0.1)


async def test_plan_and_chance_together(autojump_clock: MockClock) -> None:
    both = Mishaps.at({2: Mishap.DUPLICATE}) | Mishaps.often(0, drop=1.0)
    assert [text for _, text in await passed(both, "one", "two", "three")] == ["two", "two"]


async def test_the_door_of_a_client(autojump_clock: MockClock) -> None:
    arrived: list[Any] = []

    async def put(element: Any) -> None:
        await trio.lowlevel.checkpoint()
        arrived.append(element)

    passage = client_passage(Mishaps.at({1: Mishap.PARTIAL, 2: Mishap.PARTIAL}), put)
    await passage.put(InputAudio(b"12345678"))
    await passage.put(InputText("hello"))
    assert arrived == [InputAudio(b"1234"), BadInput(ErrorCode.BAD_JSON, "The frame ends in the middle.")]
    assert half_of_input(InputAudio(b"123")) == InputAudio(b"1")
    assert [each.boundary for each in passage.mishaps.happened] == ["client", "client"]


async def test_a_link_of_bytes(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    shaky = ShakyStream(ours, Mishaps.at({2: Mishap.DROP, 3: Mishap.PARTIAL}))
    await shaky.wait_send_all_might_not_block()
    await shaky.send_all(b"first")
    await shaky.send_all(b"lost")
    with pytest.raises(trio.BrokenResourceError, match="in the middle"):
        await shaky.send_all(bytearray(b"half"))
    assert await theirs.receive_some() == b"firstha"
    assert await theirs.receive_some() == b""
    await shaky.aclose()
    ours, theirs = memory_stream_pair()
    async with ShakyStream(ours, Mishaps.at({1: Mishap.CLOSE})) as shaky:
        await theirs.send_all(b"hello")
        assert await shaky.receive_some(2) == b"he"
        with pytest.raises(trio.BrokenResourceError, match="link was closed"):
            await shaky.send_all(b"first")


async def recognized(mishaps: Mishaps, *elements: RecognitionElement) -> list[tuple[float, RecognitionElement]]:
    inner = ScriptedRecognizer()
    shaky = ShakyRecognizer(inner, mishaps)
    feed, audio = trio.open_memory_channel[RecognizerInput](0)
    said, heard = trio.open_memory_channel[RecognitionElement](8)
    results: list[tuple[float, RecognitionElement]] = []

    async def recognize() -> None:
        with said:
            await shaky.run(audio, said)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(recognize)
        await trio.testing.wait_all_tasks_blocked()
        inner.hear(*elements)
        feed.close()
        results.extend([(round(trio.current_time(), 6), element) async for element in heard])
    return results


async def test_recognition(autojump_clock: MockClock) -> None:
    partial, words = Partial("book a"), final("book a table")
    plan = Mishaps.at({1: Mishap.DELAY, 2: Mishap.PARTIAL, 3: Mishap.PARTIAL})
    assert await recognized(plan, interim(), partial, words) == [
        (0.2, interim()),
        (0.2, Partial("boo")),
        (0.2, Transcript("book a", provider="Scripted")),
    ]
    assert await recognized(Mishaps.at({1: Mishap.PARTIAL, 2: Mishap.REORDER}), interim(), words) == [(0.2, words)]
    with pytest.RaisesGroup(RealtimeException, flatten_subgroups=True):
        await recognized(Mishaps.at({1: Mishap.CLOSE}), interim())


async def test_a_shaky_part_is_a_part_as_any_other() -> None:
    """Logs name the parts that they are about, and the one that stands in front knows when the other is ready."""
    for part in (
        ShakyChat(ScriptedChat(lambda _: ()), no_mishaps()),
        ShakyRecognizer(ScriptedRecognizer(), no_mishaps()),
    ):
        assert part.name == "Shaky"
        assert part.is_ready
        await part.load()


async def chatted(mishaps: Mishaps, *script: Any) -> list[Any]:
    request = ChatRequest((ChatMessage("user", "hello"),))
    inner = ScriptedChat(lambda _: script)
    shaky = ShakyChat(inner, mishaps)
    async with shaky.open_stream(request) as deltas:
        found = [delta async for delta in deltas]
    assert inner.open_streams == 0
    return [delta.text for delta in found if isinstance(delta, ChatText)]


async def test_a_chat_stream(autojump_clock: MockClock) -> None:
    assert await chatted(Mishaps.at({}), "Good ", "morning.") == ["Good ", "morning."]
    assert await chatted(Mishaps.at({1: Mishap.REORDER, 2: Mishap.PARTIAL}), "Good ", "morning.") == ["morn", "Good "]
    with pytest.raises(RealtimeException) as broken:
        await chatted(Mishaps.at({2: Mishap.CLOSE}), "Good ", "morning.")
    assert broken.value.code is ErrorCode.CHAT_FAILED
    with pytest.raises(RuntimeError, match="by itself"):
        await chatted(Mishaps.at({}), "Good ", RuntimeError("by itself"))


async def test_a_reader_of_a_chat_stream_may_leave(autojump_clock: MockClock) -> None:
    inner = ScriptedChat(lambda _: ["Good ", 1.0, "morning."])
    async with ShakyChat(inner, Mishaps.at({1: Mishap.STALL})).open_stream(ChatRequest(())) as deltas:
        with trio.move_on_after(1):
            await deltas.receive()
    assert (inner.open_streams, trio.current_time()) == (0, 1)


class Bell(ToolBox):
    """Counts how often it is rung."""

    rung = 0

    @property
    def specifications(self) -> Sequence[ToolSpecification]:
        return [ToolSpecification("ring", "Rings.", {"type": "object"})]

    async def call(self, name: str, arguments: JsonObject, context: Context) -> ToolResult:
        await trio.lowlevel.checkpoint()
        self.rung += 1
        return ToolResult("rung")


@pytest.mark.parametrize(
    ("mishap", "rung", "seconds", "failure"),
    [
        (Mishap.DELAY, 1, 0.2, None),
        (Mishap.REORDER, 1, 0.2, None),
        (Mishap.STALL, 1, 6.0, None),
        (Mishap.DUPLICATE, 2, 0.0, None),
        (Mishap.PARTIAL, 1, 0.0, ToolError),
        (Mishap.CLOSE, 0, 0.0, RuntimeError),
        (Mishap.DROP, 0, 60.0, None),
    ],
)
async def test_tools(
    mishap: Mishap, rung: int, seconds: float, failure: type[Exception] | None, autojump_clock: MockClock
) -> None:
    bell = Bell()
    tools = ShakyTools(bell, Mishaps.at({1: mishap}))
    assert [each.name for each in tools.specifications] == ["ring"]
    context = Context(PipelineConfiguration(), SESSION, ScriptedProperties(), scripted_environment())
    with trio.move_on_after(60):
        if failure is not None:
            with pytest.raises(failure):
                await tools.call("ring", {}, context)
        else:
            await tools.call("ring", {}, context)
    assert (bell.rung, trio.current_time()) == (rung, seconds)


@pytest.mark.parametrize("mishap", Mishap)
async def test_the_store(mishap: Mishap, autojump_clock: MockClock) -> None:
    store = FaultyStore(shaky_store(Mishaps.at({1: mishap})))
    opened = await store.open_session(SESSION)
    closed = opened.model_copy(update={"end_reason": "over"})
    fails = mishap in {Mishap.REORDER, Mishap.PARTIAL, Mishap.CLOSE, Mishap.DUPLICATE}
    with trio.move_on_after(60) as limit:
        if fails:
            with pytest.raises(StoreError):
                await store.save_session(closed)
        else:
            await store.save_session(closed)
    assert limit.cancelled_caught == (mishap is Mishap.DROP)
    is_done = await store.get_session("s1") == closed
    assert is_done == (mishap in {Mishap.DELAY, Mishap.STALL, Mishap.DUPLICATE}), "done, and the answer may be lost"
