"""A store that tells how long its operations take."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import trio

from engine.errors import NotFoundError
from engine.observation import Observer
from engine.store.contract import ConflictError, LeaseLostError, Store, TakenOverError

P = ParamSpec("P")
T = TypeVar("T")

ANSWERS = (NotFoundError, TakenOverError, ConflictError, LeaseLostError)
"""What a store that works may say."""

HANGING_SECONDS = 1.0
"""An operation that was cancelled after this long counts as failed: a store that answers nobody is only ever seen like this. One
that was cancelled sooner had lost its caller."""


def measured_store(store: Store, observer: Observer) -> Store:
    """The same store; the time of each operation is told to the observer, by the operation's name.

    All operations of the contract are wrapped, whichever it has: none can be forgotten, and none is written twice.
    """
    operations = {
        name: staticmethod(_timed(name, getattr(store, name), observer)) for name in Store.__abstractmethods__
    }
    kind: type[Store] = type("MeasuredStore", (Store,), operations)
    return kind()


def _timed(name: str, operation: Callable[P, Awaitable[T]], observer: Observer) -> Callable[P, Awaitable[T]]:
    @wraps(operation)
    async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        began = trio.current_time()
        ok = False
        try:
            result = await operation(*args, **kwargs)
            ok = True
        except ANSWERS:
            ok = True
            raise
        except trio.Cancelled:
            ok = trio.current_time() - began < HANGING_SECONDS
            raise
        finally:
            observer.store_took(name, trio.current_time() - began, ok=ok)
        return result

    return timed
