"""A client that leaves at the very moment at which it is answered."""

import pytest
import trio

from engine.testing.schedule import seed_schedule
from providers.openai.simulator import Refusal, Script, Simulator

REQUEST = (
    b"GET /v1/realtime?model=gpt-realtime HTTP/1.1\r\nHost: service.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer key\r\n\r\n"
)


@pytest.mark.parametrize("refusal", [None, Refusal(503, "overloaded")])
@pytest.mark.parametrize("seed", range(6))
async def test_while_the_handshake_is_answered(
    autojump_clock: trio.testing.MockClock, seed: int, refusal: Refusal | None
) -> None:
    """Whoever comes first, the connection is over, and the next one is served."""
    seed_schedule(seed)
    simulator = Simulator(Script(refusal=refusal, accepts_after=1.0))
    async with trio.open_nursery() as nursery:
        stream = simulator.connect(nursery)
        await stream.send_all(REQUEST)
        await trio.sleep_until(1.0)
        await trio.aclose_forcefully(stream)
        await trio.sleep(1.0)
        assert simulator.connection.ended.is_set()
