"""What the scenario tests share: a stage whose schedule is fixed, and which leaves no task behind."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from engine.testing.faults import FaultyStore
from engine.testing.schedule import seed_schedule
from engine.testing.stage import Stage, open_stage


@asynccontextmanager
async def open_scene(*, seed: int = 0, store: FaultyStore | None = None, **parts: Any) -> AsyncGenerator[Stage]:
    """A stage whose schedule is fixed; leaving it ends the connection, holds it against the contract, and finds no task left. `parts` are
    those of `open_stage`."""
    seed_schedule(seed)
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_stage(store=store, **parts) as stage:
        yield stage
    assert trio.lowlevel.current_statistics().tasks_living == before, "a task outlived its session"
