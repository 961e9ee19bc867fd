"""The pytest plugin. A test that asks for `souffleur` opens stages with it, and runs on a virtual clock, in the order of a seed:

    async def test_an_answer(souffleur):
        async with souffleur("Good morning.") as stage:
            await stage.client.says("Hello?")
            await stage.client.hears("Good morning")

Nothing else is needed: no event loop, no clock, no marker. `--souffleur-seed N` sets the seed. What goes on is judged by every promise of
the contract when a stage is closed; a test that fails prints its seed and a timeline.

pytest imports this in every project that has Souffleur installed, so it imports nothing heavy itself. A test that asks for a clock of its
own (`autojump_clock`, `mock_clock`, `virtual_clock`) is left to whatever runs it.
"""

import inspect
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from engine.testing.kit import Kit

FIXTURE = "souffleur"
CLOCKS = frozenset({"autojump_clock", "mock_clock", "virtual_clock"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("souffleur", "simulated conversations")
    group.addoption(
        "--souffleur-seed", type=int, default=0, metavar="N", help="the seed of the schedule and of what is by chance"
    )


@pytest.fixture
def souffleur_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run."""
    return int(request.config.option.souffleur_seed)


@pytest.fixture
def virtual_clock() -> Any:
    """A clock that jumps to the next deadline whenever nobody has anything to do, for runners that take a clock (pytest-trio)."""
    from engine.testing.schedule import virtual_clock as make_clock  # pytest imports this module everywhere

    return make_clock()


@pytest.fixture
def souffleur(souffleur_seed: int) -> "Generator[Kit]":
    """Opens stages: see `engine.testing.kit.Kit`."""
    from engine.testing.kit import Kit  # as above
    from engine.testing.schedule import repeatable

    with repeatable(souffleur_seed):
        yield Kit(souffleur_seed)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other plugins that run async tests leave ours alone."""
    for item in items:
        if _is_ours(item):
            item.own_markers[:] = [mark for mark in item.own_markers if mark.name not in {"trio", "anyio", "asyncio"}]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not _is_ours(pyfuncitem):
        return None
    import trio  # as above

    from engine.testing.schedule import virtual_clock as make_clock

    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    test: Callable[..., Any] = pyfuncitem.obj
    try:
        trio.run(partial(test, **arguments), clock=make_clock())
    except BaseExceptionGroup as group:
        raise _alone(group) from None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    kit = getattr(item, "funcargs", {}).get(FIXTURE)
    if report.failed and report.when == "call" and kit is not None:
        report.sections.append(("souffleur", kit.story()))
    return report


def _alone(error: BaseException) -> BaseException:
    """The one failure in groups of one, as nurseries wrap it: that is what a person wants to read."""
    found = error
    while isinstance(found, BaseExceptionGroup):
        inside = cast("list[BaseException]", [*found.exceptions])
        if len(inside) > 1:
            return error
        found = inside.pop()
    return found


def _is_ours(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    names = set(item.fixturenames)
    return FIXTURE in names and not names & CLOCKS and inspect.iscoroutinefunction(item.obj)
