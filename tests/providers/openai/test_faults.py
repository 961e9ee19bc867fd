"""The first of the conversations with faults (`tests/providers/openai/faults.py`, which explores any number of them)."""

import pytest

from tests.providers.openai import faults

BLOCK = 10


@pytest.mark.parametrize("first", range(0, 60, BLOCK))
def test_conversations_with_faults(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            faults.run(seed)
        except BaseException as error:
            error.add_note(f"python -m tests.providers.openai.faults 1 {seed}")
            raise
