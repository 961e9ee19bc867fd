"""The order in which Trio runs what is ready at the same time: random by design, repeatable here."""

import random

import trio


def seed_schedule(seed: int) -> None:
    """Make the order of tasks that are ready at the same instant follow `seed`; another seed explores another order.

    It holds for the whole process, from now on. Where the tasks are compared by their age first (pytest-trio switches that on),
    the same seed gives the same run.
    """
    scheduler: random.Random = trio._core._run._r  # pyright: ignore[reportPrivateUsage] - trio has no public name for it
    scheduler.seed(seed)
