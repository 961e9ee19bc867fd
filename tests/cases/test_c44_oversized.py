"""C44: one oversized or very frequent message takes memory or time from everybody, or drops the client without a reason."""

import logging
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock
from trio_websocket import ConnectionClosed, WebSocketConnection

from engine.config import Settings
from engine.elements import InputAudio, InputElement, InputText
from engine.pipeline.line import ClientLine
from tests.engine.transport.stack import Recorder, Stack, close_of, hear, hear_all, open_stack, repeat, say

MIB = 1 << 20


async def talk_normally(client: WebSocketConnection, turns: int) -> None:
    """Client 2: says something every 1/8 s, and is answered at once."""
    for number in range(turns):
        start = trio.current_time()
        await say(client, type="text", text=str(number))
        assert (await hear(client))["text"] == str(number)
        assert trio.current_time() == start
        await trio.sleep(1 / 8)


async def echo(element: InputElement, line: ClientLine) -> None:
    await trio.lowlevel.checkpoint()
    repeat(element, line)


@pytest.mark.parametrize("message", ["a" * (16 * MIB), bytes(16 * MIB)], ids=["a: text", "b: binary"])
async def test_16_mib_is_closed_with_the_size_reason(
    message: str | bytes, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    recorder = Recorder(echo)
    async with open_stack(recorder) as stack:
        second = await stack.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk_normally, second, 40)
            await trio.sleep(1)
            first = await stack.connect()
            with suppress(ConnectionClosed):
                await first.send_message(message)
            (error,) = await hear_all(first)
            assert (error["type"], error["code"], error["whose"]) == ("error", "too_large", "client")
            assert (await close_of(first))[0] == 1009
            # the session was cut off, which its own side saves as disconnected; the other one goes on
            assert recorder.ends == [("cancelled", 1)]
        assert len(recorder.ends) == 1
    assert [record.message for record in caplog.records if "1009" in record.message] == [
        f"a connection ended with 1009: a message has at most {MIB} bytes"
    ]


async def flood(stack: Stack) -> None:
    client = await stack.connect()
    for number in range(10_000):
        await client.send_message(number.to_bytes(2, "little") * 5)
        if number % 100 == 99:
            await trio.sleep(1 / 1024)  # 100 ms in all
    await say(client, type="token", text="#end")
    await hear_all(client)


async def test_10_000_tiny_frames_are_served_in_order_and_bounded_memory(autojump_clock: MockClock) -> None:
    """c: while the session is busy for a second, they wait joined together."""

    most_elements = most_bytes = 0

    async def busy(element: InputElement, line: ClientLine) -> None:
        nonlocal most_elements, most_bytes
        if isinstance(element, InputAudio):
            await trio.sleep(1)
        most_elements = max(most_elements, len(line.inbox))
        most_bytes = max(most_bytes, line.inbox.waiting_bytes)

    recorder = Recorder(busy)
    async with open_stack(recorder) as stack:
        await flood(stack)
    heard = b"".join(element.data for element in recorder.seen if isinstance(element, InputAudio))
    assert heard == b"".join(number.to_bytes(2, "little") * 5 for number in range(10_000))
    assert most_elements <= 2
    assert most_bytes <= len(heard) + 256  # the token behind them counts too


async def test_a_flood_does_not_hold_up_the_other_client(autojump_clock: MockClock) -> None:
    async def answer_words(element: InputElement, line: ClientLine) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(element, InputText):
            repeat(element, line)

    async with open_stack(Recorder(answer_words)) as stack:
        second = await stack.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk_normally, second, 8)
            await flood(stack)


async def test_1_mib_of_audio_in_one_message_is_accepted_in_order(autojump_clock: MockClock) -> None:
    """e: 30 s of speech at 16 kHz, between two small chunks."""
    speech = bytes(range(256)) * (MIB // 256)
    recorder = Recorder(echo)
    async with open_stack(recorder, settings=Settings()) as stack:
        client = await stack.connect()
        for data in (b"\x01\x02", speech, b"\x03\x04"):
            await client.send_message(data)
        await say(client, type="token", text="#end")
        await hear_all(client)
    audio = [element.data for element in recorder.seen if isinstance(element, InputAudio)]
    assert b"".join(audio) == b"\x01\x02" + speech + b"\x03\x04"
