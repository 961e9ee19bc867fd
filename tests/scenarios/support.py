"""What the scenario tests share: a stage that is judged by every invariant when it is closed."""

from collections.abc import AsyncGenerator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any

import trio

from engine.elements import OutCommand, OutputElement
from engine.testing.faults import FaultyStore
from engine.testing.invariants import Violation, check_memory, check_stream, check_turns, require
from engine.testing.schedule import seed_schedule
from engine.testing.stage import Stage, open_stage


@asynccontextmanager
async def open_scene(*, seed: int = 0, store: FaultyStore | None = None, **parts: Any) -> AsyncGenerator[Stage]:
    """A stage whose schedule is fixed and whose store keeps what was written; leaving it ends the connection, and everything
    that was said and stored must then keep the rules. `parts` are those of `open_stage`."""
    seed_schedule(seed)
    store = store or FaultyStore()
    earlier = {turn.id for turn in store.turns}
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_stage(store=store, **parts) as stage:
        yield stage
    assert trio.lowlevel.current_statistics().tasks_living == before, "a task outlived its session"
    require(
        check_stream(stage.client.heard, has_turns=False) if parts.get("turnless") else judge(stage, store, earlier)
    )


def judge(stage: Stage, store: FaultyStore, earlier: AbstractSet[str] = frozenset()) -> list[Violation]:
    """Everything that is wrong with what was said, stored and remembered on a stage that is closed; `earlier` are the turns that
    were stored before."""
    heard = stage.client.heard
    violations = check_stream(heard)
    parts = sessions_of(heard)
    for number, (context, part) in enumerate(zip(stage.manager.contexts, parts, strict=False)):
        later = {turn_id for other in parts[number + 1 :] for turn_id in exits_of(other)}
        turns = [turn for turn in store.turns if turn.session_id == context.session.id and turn.id not in later]
        violations += check_turns([turn for turn in turns if turn.id not in earlier], part)
        violations += check_memory(context.messages, turns)
        earlier = earlier | {turn.id for turn in turns}
    return violations


def exits_of(heard: Sequence[tuple[float, OutputElement]]) -> list[str]:
    """The turns that were acknowledged."""
    return [str(e.parameters["turnId"]) for _, e in heard if isinstance(e, OutCommand) and e.name == "exit"]


def sessions_of(heard: Sequence[tuple[float, OutputElement]]) -> list[list[tuple[float, OutputElement]]]:
    """A connection's stream, session by session."""
    parts: list[list[tuple[float, OutputElement]]] = []
    for item in heard:
        _, element = item
        if isinstance(element, OutCommand) and element.name == "ready":
            parts.append([])
        if parts:
            parts[-1].append(item)
    return parts
