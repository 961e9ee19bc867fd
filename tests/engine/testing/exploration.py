"""The command behind `scripts/simulate`: many generated conversations, on several processes, and what was found."""

import argparse
import gc
import logging
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import attrs

from engine.testing.explore import Found, explore
from tests.engine.testing.door_world import explore_door
from tests.engine.testing.internal_world import explore_internal
from tests.engine.testing.relational_world import explore_relational
from tests.providers.openai.faults import explore as explore_openai

HELD, VIOLATED = 0, 1
COLLECT_EVERY = 100
"""Sessions between collections of garbage: while one runs there is little of it."""


@attrs.frozen
class Outcome:
    """What came of one seed, for the report."""

    seed: int
    world: str
    seconds: float
    """Of virtual time; 0 where it is not known."""
    cpu: float
    rules: tuple[str, ...] = ()
    """What was violated; empty when everything held."""
    story: str = ""
    """What a person needs to find it."""


def _judge(found: Found) -> tuple[tuple[str, ...], str]:
    rules = tuple(violation.rule for violation in found.violations)
    return rules, found.timeline if rules else ""


WORLDS: dict[str, Callable[[int], Found]] = {
    "scripted": explore,
    "door": explore_door,
    "internal": explore_internal,
    "openai": explore_openai,
    "relational": explore_relational,
}
"""A model that converses by itself, bare and behind the WebSocket door; the Internal provider on a chat model; the OpenAI provider on a
simulated service; a relational agent on chat models."""
ALL = "all"
MOST_STORIES = 10
"""Violations that are shown with their timelines; the others only count."""


def world_of(seed: int, wanted: str = "") -> str:
    """Of ten seeds six are of the cheapest world, which has the most faults; of `all` as many are of each."""
    if wanted == ALL:
        return tuple(WORLDS)[seed % len(WORLDS)]
    return wanted or {6: "door", 7: "internal", 8: "relational", 9: "openai"}.get(seed % 10, "scripted")


def run_seed(seed: int, world: str = "") -> Outcome:
    """One conversation. Whatever it raises is a violation too."""
    world = world_of(seed, world)
    began = time.process_time()
    seconds, rules, story = 0.0, tuple[str, ...](), ""
    try:
        found = WORLDS[world](seed)
        seconds = found.seconds
        rules, story = _judge(found)
    except Exception as error:
        rules, story = (f"raised {_innermost(error)}",), traceback.format_exc(limit=4)[-3000:]
    return Outcome(seed, world, seconds, time.process_time() - began, rules, story)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return type(error).__name__


@contextmanager
def _few_collections() -> Generator[Callable[[int], None]]:
    """Garbage is collected between conversations and not in them."""
    gc.collect()
    gc.freeze()
    gc.disable()

    def tidy(number: int) -> None:
        if number % COLLECT_EVERY == 0:
            gc.collect()

    try:
        yield tidy
    finally:
        gc.enable()
        gc.unfreeze()


def run_share(share: tuple[Sequence[int], str]) -> list[Outcome]:
    """Some seeds, in this process."""
    seeds, world = share
    outcomes: list[Outcome] = []
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _few_collections() as tidy:
            for number, seed in enumerate(seeds):
                outcomes.append(run_seed(seed, world))
                tidy(number)
    finally:
        logging.disable(disabled)
    return outcomes


def run_all(seeds: range, workers: int, world: str = "") -> Iterator[Outcome]:
    """All seeds, as they come."""
    size = max(1, min(50, len(seeds) // workers))
    shares = [(seeds[start : start + size], world) for start in range(0, len(seeds), size)]
    if workers == 1:
        for share in shares:
            yield from run_share(share)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for outcomes in pool.imap_unordered(run_share, shares):
            yield from outcomes


def main(arguments: Sequence[str], description: str = "") -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many conversations (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first (default %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument(
        "--world",
        choices=[*WORLDS, ALL],
        default="",
        help="only this kind, or each in turn (default: by the seed, six of ten scripted)",
    )
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.seeds)
    began = time.monotonic()
    done: list[Outcome] = []
    stories = 0
    for outcome in run_all(seeds, options.workers, options.world):
        done.append(outcome)
        stories += bool(outcome.rules)
        if outcome.rules and stories <= MOST_STORIES:
            again = f"scripts/simulate --seeds 1 --seed {outcome.seed}" + (
                f" --world {options.world}" if options.world else ""
            )
            _say(f"\nseed {outcome.seed} ({outcome.world}): {', '.join(sorted(set(outcome.rules)))}")
            _say(f"{outcome.story}\n            again: {again}")
    for line in report(done, time.monotonic() - began):
        _say(line)
    return VIOLATED if any(outcome.rules for outcome in done) else HELD


def report(done: Sequence[Outcome], wall: float) -> list[str]:
    """The speeds by world, the violations by kind, and the result as the last line."""
    lines = [""]
    for world in sorted({outcome.world for outcome in done}):
        of_world = [outcome for outcome in done if outcome.world == world]
        seconds, cpu = sum(each.seconds for each in of_world), sum(each.cpu for each in of_world)
        speed = f", {seconds / len(of_world):.0f} s long, {seconds / cpu:,.0f} times real time" if seconds else ""
        lines.append(f"{world}: {len(of_world)} sessions, {len(of_world) / cpu:.1f} a second and core{speed}")
    kinds = Counter(rule for outcome in done for rule in sorted(set(outcome.rules)))
    lines += [f"{rule}: {count} sessions" for rule, count in kinds.most_common()]
    wrong = sorted(outcome.seed for outcome in done if outcome.rules)
    what = f"{len(done)} sessions in {wall:.0f} s ({len(done) / max(wall, 1e-9):.1f} a second)"
    if wrong:
        return [*lines, f"violated: {len(wrong)} of {what}; seeds {wrong[:20]}"]
    return [*lines, f"held: {what}"]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
