"""One engine of the process and the thread that uses it.

An engine (a model in memory) is loaded once, when it is first needed, and used by one thread at a time. A job whose caller was
cancelled is left to itself: the caller goes on at once, the job is told to stop and stops at its next chance, and until it has
nobody else gets the engine. So cancelling is quick and never leaves two threads in one engine.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

_EngineT = TypeVar("_EngineT")
_ResultT = TypeVar("_ResultT")


class Stopped(Exception):
    """The job was told to stop; nobody waits for its result."""


class Stop:
    """Tells a job in another thread to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._act: Callable[[], None] | None = None

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            act, self._act = self._act, None
        if act is not None:
            act()

    def check(self) -> None:
        """Raises Stopped when the job was told to stop."""
        if self._is_set:
            raise Stopped

    def on_stop(self, act: Callable[[], None] | None) -> None:
        """What interrupts the work under way; None once it is done. At once when the job was already told to stop."""
        with self._lock:
            self._act = None if self._is_set else act
            is_set = self._is_set
        if is_set and act is not None:
            act()


class Worker(Generic[_EngineT]):
    """An engine, its loading, and the order of those who want it: first come, first served."""

    def __init__(self, name: str, load: Callable[[], _EngineT]) -> None:
        self._name = name
        self._load = load
        self._engine: _EngineT | None = None
        self._in_use = threading.Lock()
        # Trio's limiter makes the waiting fair and cancellable, but belongs to one run of Trio; the lock holds across runs.
        self._limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar(name)

    @property
    def is_loaded(self) -> bool:
        return self._engine is not None

    @property
    def is_busy(self) -> bool:
        """Whether a job given now would have to wait."""
        return self._turnstile().available_tokens == 0

    async def run(self, job: Callable[[_EngineT, Stop], _ResultT]) -> _ResultT:
        """Do a job in the engine's thread, loading the engine first if need be.

        Raises:
            Exception: what loading or the job raised. A failed loading is tried again by the next job.
        """
        stop = Stop()

        def work() -> _ResultT:
            with self._in_use:
                stop.check()
                if self._engine is None:
                    self._engine = self._load()
                return job(self._engine, stop)

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._turnstile())
        finally:
            stop.set()

    def _turnstile(self) -> trio.CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(1)
            self._limiter.set(limiter)
            return limiter
