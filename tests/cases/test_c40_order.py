"""C40: each incoming event gets its own task, so audio chunks overtake each other and speech is garbled."""

from random import Random

import trio
from trio.testing import MockClock

from engine.elements import ControlToken, InputAudio, InputElement
from engine.pipeline.line import ClientLine
from tests.engine.transport.stack import Recorder, hear, open_stack, repeat, say

CHUNKS = 500
CHUNK_BYTES = 640  # 20 ms at 16 kHz
TOKENS = {200: "#locales:cs", 400: "#authorization:Bearer x"}


def chunk(number: int) -> bytes:
    return number.to_bytes(2, "little") * (CHUNK_BYTES // 2)


def flattened(seen: list[InputElement]) -> list[int | str]:
    """Chunk numbers and token names in the order the session saw them, whatever was joined on the way."""
    found: list[int | str] = []
    audio = b""
    for element in seen:
        match element:
            case InputAudio(data):
                audio += data
                while len(audio) >= CHUNK_BYTES:
                    piece, audio = audio[:CHUNK_BYTES], audio[CHUNK_BYTES:]
                    number = int.from_bytes(piece[:2], "little")
                    assert piece == chunk(number)
                    found.append(number)
            case ControlToken(name):
                assert audio == b""  # a token cuts no chunk in two
                found.append(name)
            case _:
                raise AssertionError(element)
    return found


async def test_websocket_chunks_and_tokens_keep_their_order(autojump_clock: MockClock) -> None:
    random = Random(40)

    async def consume(element: InputElement, line: ClientLine) -> None:
        await trio.sleep(random.uniform(0, 0.030))

    recorder = Recorder(consume)
    async with open_stack(recorder) as stack:
        client = await stack.connect()
        for number in range(1, CHUNKS + 1):
            await client.send_message(chunk(number))
            if number % 7 == 0:
                await trio.sleep(random.uniform(0, 0.030))
            if number in TOKENS:
                await say(client, type="token", text=TOKENS[number])
        await say(client, type="token", text="#end")
        await stack.wait_idle()
    expected: list[int | str] = list(range(1, CHUNKS + 1))
    expected.insert(400, "authorization")
    expected.insert(200, "locales")
    assert flattened(recorder.seen) == [*expected, "end"]


async def test_websocket_answers_keep_their_order_too(autojump_clock: MockClock) -> None:
    random = Random(40)

    async def echo(element: InputElement, line: ClientLine) -> None:
        await trio.sleep(random.uniform(0, 0.030))
        repeat(element, line)

    async with open_stack(Recorder(echo)) as stack:
        client = await stack.connect()
        for number in range(CHUNKS):
            await say(client, type="text", text=str(number))
        assert [(await hear(client))["text"] for _ in range(CHUNKS)] == [str(number) for number in range(CHUNKS)]
