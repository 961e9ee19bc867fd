"""The points of a session at which something may happen to it: each step of each of its tasks, counted and known by name."""

import inspect
from collections.abc import Callable, Collection

import attrs
import trio

CONNECTION = "connection"
"""The name of the task that holds a connection; its session is that task and all that it starts."""
TRIOS_OWN = frozenset({"__aenter__", "__aexit__", "acquire", "acquire_on_behalf_of"})
"""Methods of Trio that wait in the middle of what they do, and raise nothing there: a nursery's end, and what is acquired."""


@attrs.frozen
class Checkpoint:
    """One step of a task of the session, counted from 0 in the order of the run."""

    number: int
    at: float
    """Seconds of virtual time."""
    task: str
    where: str
    """What the task does next, by module and line; empty when it has not begun."""
    can_crash: bool
    """Something was awaited here that may raise: no task that begins, and nothing in the middle of Trio's own clean-up."""
    is_live: bool
    """There is a session that can be cut, or taken over."""

    def __str__(self) -> str:
        return f"checkpoint {self.number} at {self.at:g} s, {self.task}: {self.where or 'begins'}"


@attrs.define(eq=False)
class Steps(trio.abc.Instrument):
    """Counts the steps of a session's tasks, and calls `act` before those of `planned`, or before all when nothing is planned."""

    act: Callable[[Checkpoint, trio.lowlevel.Task], None]
    """Called between two steps."""
    is_live: Callable[[], bool]
    planned: Collection[int] = ()
    is_armed: bool = False
    """The next connection that is opened is the one."""
    failure: Exception | None = None
    """What `act` has raised: Trio puts an instrument away that raises, and goes on."""
    _count: int = 0
    _tasks: set[trio.lowlevel.Task] = attrs.field(factory=set[trio.lowlevel.Task])

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if self.is_armed and task.name == CONNECTION:
            self.is_armed = False
            self._tasks.add(task)
        elif task.parent_nursery is not None and task.parent_nursery.parent_task in self._tasks:
            self._tasks.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._tasks.discard(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task not in self._tasks:
            return
        number = self._count
        self._count += 1
        if self.planned and number not in self.planned:
            return
        try:
            self.act(self._checkpoint(number, task), task)
        except Exception as error:
            self.failure = error

    def _checkpoint(self, number: int, task: trio.lowlevel.Task) -> Checkpoint:
        has_begun = inspect.iscoroutine(task.coro) and inspect.getcoroutinestate(task.coro) != inspect.CORO_CREATED
        where, can_crash = "", has_begun
        for frame, line in task.iter_await_frames() if has_begun else ():
            module = str(frame.f_globals.get("__name__", ""))
            if not module.startswith(("trio.", "contextlib")):
                where = f"{module}:{line} {frame.f_code.co_name}"
            elif frame.f_code.co_name in TRIOS_OWN:
                can_crash = False
        return Checkpoint(number, trio.current_time(), task.name, where, can_crash, self.is_live())
