"""What came before these tests is none of their business."""

from collections.abc import Iterator

import pytest

from tests.agents.mcp import support


@pytest.fixture(autouse=True)
def _forget_older_processes() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest finds it
    support.older = frozenset(support.all_processes())
    yield
    support.older = frozenset()
