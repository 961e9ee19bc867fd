"""The connection to MongoDB: from a URL to a database that can be used, and calls to it from worker threads.

pymongo's blocking client is used, as its other one needs asyncio. Every call is bounded twice: pymongo gives up first, and
where it cannot (a name server that does not answer) the caller is told all the same, and the thread left to end by itself.
No error or log entry repeats the URL, which may hold a password, or a document.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import pymongo
import pymongo.errors
import trio
from pydantic import ValidationError
from pymongo import MongoClient
from pymongo.driver_info import DriverInfo
from pymongo.uri_parser import parse_uri

from engine.errors import ConfigurationError
from engine.store.contract import StoreError
from engine.store.group_writer import CLOSE_SECONDS, Write
from engine.store.mongo_schema import COMMITTED, DURABLE, PRIMARY, Row, Tables, prepare, probe

T = TypeVar("T")
Work = Callable[[Tables], T]

logger = logging.getLogger(__name__)

DATABASE = "souffleur"
"""The database of a URL that names none."""
START_SECONDS = 5.0
"""The longest a server may take to show itself at the start."""
SCHEMA_SECONDS = 60.0
"""The longest making collections and indexes may take: the first ones take seconds on a slow disk."""
OPERATION_SECONDS = 5.0
"""The longest one operation takes, tries again included. A failover takes up to twelve: its callers try again by themselves."""
GRACE_SECONDS = 1.0
"""How much later than pymongo, which ought to have given up by then, a caller stops waiting."""
THREADS = 12
"""Calls at a time. Each is a fraction of a millisecond of work and some milliseconds of waiting for the server."""
CONNECTIONS = THREADS + 4
"""One for each thread, and for the transactions' two lanes what each may use at a time: its own, and one to look around."""

# At DEBUG pymongo logs every command with its documents. Whoever wants that has to ask for this very logger.
logging.getLogger("pymongo.command").disabled = True


class MongoLink:
    """Calls to the database. Made by `open_link`."""

    def __init__(self, client: MongoClient[Row], tables: Tables, nursery: trio.Nursery) -> None:
        self.client = client
        self.tables = tables
        self._nursery = nursery
        self._limiter = trio.CapacityLimiter(THREADS)
        self._is_closed = False

    def close(self) -> None:
        """Take no more calls."""
        self._is_closed = True

    async def ready(self) -> None:
        """A checkpoint. Raises StoreError when the store is closed."""
        await trio.lowlevel.checkpoint()
        if self._is_closed:
            raise StoreError("The store is closed.")

    async def read(self, work: Work[T]) -> T:
        """Do it in a thread. A caller that is cancelled walks away at once.

        Raises:
            StoreError: it could not be done, or not in time.
        """
        await self.ready()
        return await self.call(work, self._limiter)

    async def write(self, work: Work[T], limiter: trio.CapacityLimiter | None = None) -> T:
        """As `read`, but whoever has begun to wait may walk away and it happens all the same, also while the store is closed."""
        await self.ready()
        write = Write[Tables, T](work)
        self._nursery.start_soon(self._settle, write, limiter or self._limiter, name="store write")
        await write.settled.wait()
        if write.error is not None:
            raise write.error
        return cast("T", write.result)

    async def call(self, work: Work[T], limiter: trio.CapacityLimiter) -> T:
        """Do it in a thread of that limiter, in bounded time."""
        with trio.move_on_after(OPERATION_SECONDS + GRACE_SECONDS):
            return await trio.to_thread.run_sync(
                self._attempt, work, thread_name="store", limiter=limiter, abandon_on_cancel=True
            )
        raise StoreError("The database did not answer in time.")

    async def _settle(self, write: Write[Tables, Any], limiter: trio.CapacityLimiter) -> None:
        with trio.CancelScope(shield=True):  # bounded by `call`
            try:
                write.result = await self.call(write.work, limiter)
            except Exception as exc:  # a border: the error is raised by the waiter
                write.error = exc
            write.settled.set()

    def _attempt(self, work: Work[T]) -> T:
        try:
            with pymongo.timeout(OPERATION_SECONDS):
                return work(self.tables)
        except (pymongo.errors.PyMongoError, ValidationError) as exc:
            error = store_error(exc)
        raise error  # out here, where the other is not its context: that one may hold a document


@asynccontextmanager
async def open_link(url: str) -> AsyncGenerator[MongoLink]:
    """The database of that URL, ready to be used. Leaving the context lets writes that are under way end, and closes it.

    Raises:
        ConfigurationError: the URL is not one, or its database cannot be used; the sentence says why and what to do.
    """
    client = await _at_start(lambda: _client(url), START_SECONDS)
    try:
        tables = await _at_start(lambda: _tables(client), START_SECONDS)
        await _at_start(lambda: _prepare(tables), SCHEMA_SECONDS)
        async with trio.open_nursery() as nursery:
            link = MongoLink(client, tables, nursery)
            try:
                yield link
            finally:
                link.close()
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True) as bound:
            await trio.to_thread.run_sync(_close, client, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)
        if bound.cancelled_caught:
            logger.error("the connections to the database could not be closed in %s s", CLOSE_SECONDS)


def _close(client: MongoClient[Row]) -> None:
    with pymongo.timeout(GRACE_SECONDS):  # it tells the server, which may not answer
        client.close()


# --- the start -------------------------------------------------------------------------------------------------------


async def _at_start(work: Callable[[], T], seconds: float) -> T:
    """Do it in a thread, in so many seconds. Raises ConfigurationError."""

    def attempt() -> T:
        try:
            with pymongo.timeout(seconds):
                return work()
        except pymongo.errors.PyMongoError as exc:
            error = ConfigurationError(_start_sentence(exc))
        raise error

    with trio.move_on_after(seconds + GRACE_SECONDS):
        return await trio.to_thread.run_sync(attempt, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)
    raise ConfigurationError(_UNREACHABLE)


def _client(url: str) -> MongoClient[Row]:
    """A client, not connected yet.

    An option that is unknown or misspelt is refused, and not just warned of, as pymongo does: without its tls=true a URL would
    send passwords and documents in the clear.
    """
    try:
        parse_uri(url, warn=False, connect_timeout=START_SECONDS)
        return MongoClient(
            url,
            connect=False,
            driver=DriverInfo("souffleur"),
            maxPoolSize=CONNECTIONS,
            connectTimeoutMS=int(START_SECONDS * 1000),
            retryReads=True,
            retryWrites=True,
        )
    except (TypeError, ValueError):  # beside pymongo's own errors
        error: Exception = pymongo.errors.InvalidURI()
    except OSError:
        error = ConfigurationError("A file that the store URL names for TLS cannot be read, or is not a certificate.")
    raise error


def _tables(client: MongoClient[Row]) -> Tables:
    """The database, from a server that can do what the store needs."""
    tables = client.get_default_database(
        DATABASE, read_preference=PRIMARY, write_concern=DURABLE, read_concern=COMMITTED
    )
    hello = client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise ConfigurationError(
            "The MongoDB server of the store URL is not part of a replica set, without which there are no transactions."
            " Start it with --replSet and run rs.initiate() once; one member is enough."
        )
    return tables


def _prepare(tables: Tables) -> None:
    prepare(tables)
    probe(tables)


_UNREACHABLE = (
    "The MongoDB server of the store URL does not answer. Check that it runs, that the address is right, and that no"
    " firewall is in between."
)
_REFUSALS = {
    13: "does not let the user of the store URL do what the store needs. Give it the role readWrite on its database.",
    18: "refuses the user name or password of the store URL. Check both, and the option authSource: the database the user"
    " was created in.",
}
"""By MongoDB's error code."""


def _start_sentence(exc: pymongo.errors.PyMongoError) -> str:
    """What an operator is told. Nothing of the URL: what a misspelt one makes of a password may be a host or an option."""
    match exc:
        case pymongo.errors.ConnectionFailure() if "SSL" in str(exc) or "certificate" in str(exc):
            return "The MongoDB server of the store URL and this program do not agree about TLS. Check the tls options."
        case pymongo.errors.ConnectionFailure():
            return _UNREACHABLE
        case pymongo.errors.OperationFailure(code=code) if code in _REFUSALS:
            return f"The MongoDB server of the store URL {_REFUSALS[code]}"
        case _ if exc.timeout:
            return _UNREACHABLE
        case pymongo.errors.OperationFailure():
            return f"The MongoDB server of the store URL cannot be used ({_named(exc)})."
        case _:
            return (
                "The store URL is not a MongoDB URL that can be used. Check its host and its options, that a mongodb+srv host"
                " is known to the name server, and that the characters :/?#[]@% of a user name or password are"
                " percent-encoded."
            )


# --- errors ----------------------------------------------------------------------------------------------------------


def store_error(exc: Exception) -> StoreError:
    """The failure in the store's own words. What MongoDB says of it is left out, as it may quote documents."""
    match exc:
        case StoreError():
            return exc
        case ValidationError():
            return StoreError(f"A stored {exc.title} cannot be read: {exc.error_count()} of its fields do not fit.")
        case pymongo.errors.InvalidOperation():
            return StoreError("The store is closed.")
        case pymongo.errors.ServerSelectionTimeoutError():
            return StoreError("The database cannot be reached.")
        case pymongo.errors.PyMongoError() if exc.timeout:
            return StoreError("The database did not answer in time.")
        case pymongo.errors.ConnectionFailure():
            return StoreError("The connection to the database was lost.")
        case _:
            return StoreError(f"The database could not do it ({_named(exc)}).")


def _named(exc: Exception) -> str:
    """The name and number of an error, which say nothing of what was written."""
    code = exc.code if isinstance(exc, pymongo.errors.OperationFailure) else None
    return type(exc).__name__ if code is None else f"{type(exc).__name__} {code}"
