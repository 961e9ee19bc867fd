"""C44 over HTTP: one oversized, endless or very frequent request takes memory or time from everybody, or is dropped without a reason."""

from pathlib import Path

import trio
from trio.testing import MockClock

from engine.transport.http import BODY_BYTES, BODY_SECONDS
from tests.cases.test_c44_oversized import echo, talk_normally
from tests.engine.transport.managed import Managed, agent, furnish, open_managed
from tests.engine.transport.stack import Recorder, ask, open_stack

MIB = 1 << 20
HEADERS = {"X-API-Key": "admin", "Content-Type": "application/json"}


async def send_all_it_takes(stream: trio.abc.SendStream, head: bytes, piece: bytes, pieces: int) -> None:
    """Send, as a client does that does not look at answers meanwhile."""
    try:
        await stream.send_all(head)
        for _ in range(pieces):
            await stream.send_all(piece)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        await trio.lowlevel.checkpoint()  # it was not waited for


async def answer_of(stream: trio.abc.ReceiveStream) -> tuple[int, bytes]:
    """Status and everything that came until the connection was closed."""
    received = bytearray()
    with trio.fail_after(60):
        async for chunk in stream:
            received += chunk
    return int(bytes(received).split(b" ")[1]), bytes(received)


def head(length: str, *lines: str) -> bytes:
    fields = [f"{name}: {value}" for name, value in HEADERS.items()]
    return "\r\n".join(
        ["POST /api/agents HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *fields, length, *lines, "", ""]
    ).encode()


async def test_16_mib_is_refused_with_the_reason(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Announced or not."""
    async with open_managed(tmp_path) as managed:
        for start, piece in (
            (head(f"Content-Length: {16 * MIB}"), b"x" * MIB),
            (head("Transfer-Encoding: chunked"), b"%x\r\n" % MIB + b"x" * MIB + b"\r\n"),
        ):
            stream = managed.stack.dial()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send_all_it_takes, stream, start, piece, 16)
                status, received = await answer_of(stream)
                assert status == 413
                assert b"application/problem+json" in received
                await stream.aclose()
        await managed.stack.wait_idle()
        assert BODY_BYTES == MIB


async def test_a_body_without_an_end_is_not_waited_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        stream = managed.stack.dial()
        await stream.send_all(head("Content-Length: 100") + b'{"ref": ')
        status, _ = await answer_of(stream)
        assert status == 408
        assert BODY_SECONDS <= trio.current_time() <= BODY_SECONDS + 2
        await stream.aclose()
        await managed.stack.wait_idle()


async def test_bombs_are_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        await furnish(managed)
        for bomb in (
            b"[" * MIB,
            b'{"a":' * (MIB // 5),
            b"[" + b"[]," * (MIB // 4) + b"[]]",
            b'{"ref": ' + b"9" * (MIB - 20) + b"}",
            b'{"ref": 1e' + b"9" * 1000 + b"}",
            b'{"' + b'":1,"'.join(b"%d" % number for number in range(60_000)) + b'":1}',
            b'"' + b"\\u0000" * (MIB // 7) + b'"',
        ):
            answer = await managed.ask("POST", "/api/agents", raw=bomb)
            assert answer.status == 400, bomb[:20]
        many = agent("x", **{f"field{number}": 1 for number in range(20_000)})
        answer = await managed.ask("POST", "/api/agents", many)
        assert answer.status == 422
        assert len(answer.json["errors"]) == 50
        assert len(answer.body) < 20_000


async def test_those_who_may_not_send_are_not_read(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A bomb of somebody unknown costs nothing but its bytes."""
    async with open_managed(tmp_path) as managed:
        for key, status in {"": 401, "wrong": 401, "mia": 403}.items():
            answer = await managed.ask("POST", "/api/agents", raw=b"[" * (MIB // 2), key=key)
            assert answer.status == status


async def test_client_2_notices_nothing(autojump_clock: MockClock) -> None:
    """It talks, while client 1 asks and sends without a pause."""

    async with open_stack(Recorder(echo)) as stack:
        second = await stack.connect()

        async def insist() -> None:
            for _ in range(100):
                await ask(stack.dial(), "/api/agents?limit=1")
                await ask(stack.dial(), "/api/sessions", method="POST", body=b"x" * 10_000)
                await trio.sleep(1 / 64)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk_normally, second, 12)
            nursery.start_soon(insist)


async def test_many_at_once_are_all_answered(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_managed(tmp_path) as managed:
        statuses: list[int] = []

        async def read(managed: Managed, number: int) -> None:
            path = ("/api/projects", "/api/agents", "/api/sessions", "/nothing")[number % 4]
            statuses.append((await managed.ask("GET", path)).status)

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(read, managed, number)
        assert sorted(statuses) == [200] * 150 + [404] * 50
