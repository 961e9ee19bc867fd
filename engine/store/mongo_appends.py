"""Appending to sessions: one transaction for everything that waits, which is exact about fences.

A transaction writes its rows and then counts the append on each session's row, if the fence there is not higher (`fence <= f`).
Opening a session raises the fence on the same row. MongoDB lets no two transactions, nor a transaction and a single write,
change one row at once: whichever comes second sees what the first has committed, or has to begin again. So an append is
committed before an opening is, or finds the fence raised, changes no row and is taken back whole. A count and not just a look
at the row, as a look conflicts with nothing; and it comes last, so that the row is held for no longer than the commit takes.

A process that is killed between the two leaves its transaction open, and what it holds held, until the server ends it (after
60 s, unless told otherwise). Nobody has to wait for that: all transactions of a process run under one server session, whose id
stands on each row they have changed before (`writer`), and whoever finds a row held ends that session's open transaction
(`killSessions`). Should its process be alive after all, it begins its transaction again.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import attrs
import pymongo
from pymongo import MongoClient, ReplaceOne, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.errors import BulkWriteError, ConnectionFailure, DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from engine.store.contract import StoreError, TakenOverError
from engine.store.mongo_link import store_error
from engine.store.mongo_schema import DURABLE, PRIMARY, Row, Rows, Tables
from engine.store.rules import require_fence

T = TypeVar("T")

logger = logging.getLogger(__name__)

FREE_AT_TRY = 6
"""The try of a transaction, about 50 ms after the first, before which the rows it needs are taken to be held by a dead process."""
TRIES = 12
"""Tries of a transaction, about 0.6 s with pymongo's pauses in between."""
DUPLICATE = 11000
"""MongoDB's code for a row that is there already, which a replacement finds when two make it at once."""
HELD_SECONDS = 1.0
"""How long a single write waits for a row that a transaction holds: those hold it for some milliseconds."""


class HeldError(StoreError):
    """Others hold what a transaction needs, one after the other or for ever."""


class Transactions:
    """A lane for transactions: one at a time, all under one server session."""

    def __init__(self, client: MongoClient[Row]) -> None:
        self._session = client.start_session(causal_consistency=False)
        self.writer: object = self._session.session_id["id"]
        """What rows are marked with that were changed here."""

    def run(self, work: Callable[[ClientSession], T], free: Callable[[], None]) -> T:
        """Do the work in a transaction, again while others are in the way. `free` ends what may hold its rows.

        Raises:
            HeldError: others are always in the way.
            PyMongoError: it failed, or it is not known whether it was committed.
        """
        tries = 0

        def attempt(session: ClientSession) -> T:
            nonlocal tries
            tries += 1
            if tries == FREE_AT_TRY:
                free()
            if tries > TRIES:
                raise HeldError("The database could not do it: others are writing the same.")
            return work(session)

        return self._session.with_transaction(
            attempt, read_concern=ReadConcern("snapshot"), write_concern=DURABLE, read_preference=PRIMARY
        )


def free(rows: Rows, ids: Collection[object]) -> None:
    """End the transactions that are open in the sessions which last changed these rows in one."""
    found = rows.find({"_id": {"$in": list(ids)}, "writer": {"$exists": True}}, {"writer": True})
    writers = {row["writer"] for row in found}
    if not writers:
        return
    try:
        rows.database.client.admin.command("killSessions", [{"id": writer} for writer in writers])
    except OperationFailure as exc:  # some hosted servers allow it to nobody: then it takes as long as the server wants
        logger.warning("what a process may have left open cannot be ended: error %s", exc.code)


def unheld(rows: Rows, row_id: object, write: Callable[[], T]) -> T:
    """Do a single write of that row, whoever holds it."""
    try:
        with pymongo.timeout(HELD_SECONDS):
            return write()
    except PyMongoError as exc:
        if not exc.timeout:
            raise
    free(rows, [row_id])
    return write()


@attrs.define(eq=False)
class Append:
    """Rows, at least one and all of one session; `fence` is None where any may write."""

    table: str
    rows: Sequence[Row]
    fence: int | None
    error: Exception | None = None
    """Why it was not written."""

    @property
    def session_id(self) -> str:
        return str(self.rows[0]["session"])


class Appender:
    """Commits appends, many at a time. Its calls come one after the other."""

    def __init__(self, client: MongoClient[Row], tables: Tables) -> None:
        self._tables = tables
        self._transactions = Transactions(client)
        self.writer = self._transactions.writer

    def commit(self, appends: Sequence[Append]) -> None:
        """Write all that can be written; the others have their `error` then. Raises nothing.

        It is one transaction for all, and where that fails, one for each half: nobody fails for another's sake.
        """
        try:
            left = appends
            while left and not self._transact(left):
                self._look_at_fences(left)
                left = [append for append in left if append.error is None]
        except Exception as exc:  # a border: the error is raised by the waiters
            left = [append for append in appends if append.error is None]
            if len(left) > 1 and not _is_everybodys(exc):
                self.commit(left[: len(left) // 2])
                self.commit(left[len(left) // 2 :])
            else:
                for append in left:
                    append.error = store_error(exc) if isinstance(exc, PyMongoError) else exc

    def _transact(self, appends: Sequence[Append]) -> bool:
        """False when nothing was written because a session has no row yet, or a higher fence, or because somebody else has just
        made one of the rows."""
        operations: dict[str, list[ReplaceOne[Row]]] = {}
        fences: dict[str, int] = {}
        for append in appends:
            operations.setdefault(append.table, []).extend(
                ReplaceOne({"_id": row["_id"], "session": row["session"]}, row, upsert=True) for row in append.rows
            )
            if append.fence is not None:
                fences[append.session_id] = min(append.fence, fences.get(append.session_id, append.fence))

        def work(session: ClientSession) -> None:
            for table, replacements in operations.items():
                self._tables[table].bulk_write(replacements, session=session)
            if fences and not self._count(fences, session):
                raise _FenceError

        try:
            self._transactions.run(work, lambda: free(self._tables["sessions"], fences))
        except (_FenceError, DuplicateKeyError):
            return False
        except BulkWriteError as exc:
            if any(error.get("code") != DUPLICATE for error in exc.details.get("writeErrors", ())):
                raise
            return False
        return True

    def _count(self, fences: Mapping[str, int], session: ClientSession) -> bool:
        """Count the append on the row of each of these sessions; False when one of them is not there under its fence."""
        count = {"$inc": {"appends": 1}, "$set": {"writer": self.writer}}
        counts = [UpdateOne({"_id": key, "fence": {"$lte": fence}}, count) for key, fence in fences.items()]
        return self._tables["sessions"].bulk_write(counts, session=session).matched_count == len(fences)

    def _look_at_fences(self, appends: Sequence[Append]) -> None:
        """Tell those who were taken over, and make the missing rows: a session without a document has fence 0.

        What is seen here decides nothing for the others, as they go through the transaction again. And who is taken over stays
        so, as fences never fall.
        """
        ids = {append.session_id for append in appends if append.fence is not None}
        found = self._tables["sessions"].find({"_id": {"$in": list(ids)}}, {"fence": True})
        fences: dict[str, int] = {row["_id"]: row["fence"] for row in found}
        for session_id in ids - fences.keys():
            with suppress(DuplicateKeyError):  # somebody else has made it
                self._tables["sessions"].insert_one({"_id": session_id, "fence": 0})
        for append in appends:
            if append.fence is not None:
                try:
                    require_fence(fences.get(append.session_id, 0), append.fence)
                except TakenOverError as exc:
                    append.error = exc


class _FenceError(Exception):
    """Takes a transaction back."""


def _is_everybodys(exc: Exception) -> bool:
    """Whether the others would meet the same: the server is not there, or there is no time left."""
    return isinstance(exc, ConnectionFailure) or (isinstance(exc, PyMongoError) and exc.timeout)
