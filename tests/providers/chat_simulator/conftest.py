"""Simulators whose every frame is held against the SDK when the test is over, and clients of theirs in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import openai
import pytest
import trio
import trio.testing

from providers.chat.simulator import MEMORY_URL, ChatSimulator, MemoryTransport
from tests.providers.chat_simulator.gate import hold

MakeSimulator = Callable[..., ChatSimulator]
Connect = Callable[..., Awaitable[openai.AsyncOpenAI]]

KEY = "sk-test-0123456789"


@pytest.fixture
def make_simulator() -> Iterator[MakeSimulator]:
    made: list[tuple[ChatSimulator, bool]] = []

    def make(*args: Any, is_odd: bool = False, **options: Any) -> ChatSimulator:
        simulator = ChatSimulator(*args, **{"wall_clock": lambda: 1_800_000_000.0, **options})
        made.append((simulator, is_odd))
        return simulator

    yield make
    for simulator, is_odd in made:
        for request in simulator.requests:
            hold(request, is_odd=is_odd)


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Stands still until a client is connected, as the SDK's first request looks at the platform in a thread. Every test has to name
    it itself: a clock that only a fixture asks for is none to pytest-trio."""
    return trio.testing.MockClock()


@pytest.fixture
async def connect(nursery: trio.Nursery, clock: trio.testing.MockClock) -> AsyncIterator[Connect]:
    """The SDK's client over memory. From then on the clock jumps when nothing happens."""
    clients: list[openai.AsyncOpenAI] = []

    async def connect(simulator: ChatSimulator, *, max_retries: int = 0) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            api_key=KEY,
            base_url=MEMORY_URL,
            max_retries=max_retries,
            http_client=openai.DefaultAsyncHttpxClient(transport=MemoryTransport(simulator, nursery)),
        )
        clients.append(client)
        clock.autojump_threshold = float("inf")
        await client.models.list()
        simulator.requests.clear()
        clock.autojump_threshold = 0
        return client

    yield connect
    for client in clients:
        await client.close()
