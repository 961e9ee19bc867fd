"""Every store in turn, for the contract suite and the races between processes."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from engine.store.contract import Store
from tests.engine.store.secantus import SHARED
from tests.engine.store.stores import SHARED_STORES, STORES

Opener = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture(scope="session", autouse=True)
def shared_server() -> Generator[None]:
    """Ends the server that the first test of the MongoDB store started."""
    try:
        yield
    finally:
        SHARED.stop()


@pytest.fixture(params=STORES)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one of the stores."""
    return partial(STORES[request.param], tmp_path)


@pytest.fixture
async def store(opener: Opener) -> AsyncGenerator[Store]:
    """One of the stores, open and empty."""
    async with opener() as opened:
        yield opened


@pytest.fixture(params=SHARED_STORES)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """The `--store` URL of one of the stores that processes can share, which is empty."""
    with SHARED_STORES[request.param](tmp_path) as url:
        yield url
