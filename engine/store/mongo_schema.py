"""What the MongoDB store keeps, and where: its collections, their indexes, and how a document becomes a row.

Each row holds its document as the JSON text every store keeps, so that it comes back exactly: field names may hold dots and
dollar signs, numbers have any size, times have their microseconds. Beside it stand the fields it is found by, and those that
are changed in place, which count instead of what the text says of them. Times in them are microseconds since 1970, except
`forget_at` and `done_at`, which are for the server's own deleting and are told from the server's own clock. `saves`, `writes`
and `write` tell one write from the next, so that one that comes late can be told.

    sessions          also `appends` and `writer`, see `engine.store.mongo_appends`
    turns, messages, log, usage     keyed by session and id
    resources         keyed by kind and id
    memory            the newest revision of each scope and name
    memory_revisions  all of them
    leases, used_keys, deliveries
    store             the version of all this
"""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from pymongo import ASCENDING, DESCENDING, IndexModel, ReadPreference, ReturnDocument, WriteConcern
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern

from engine.config import CamelModel
from engine.errors import ConfigurationError
from engine.store.rules import DELIVERIES_KEPT

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = Collection[Row]
Tables: TypeAlias = Database[Row]

D = TypeVar("D", bound=CamelModel)

VERSION = 1
"""Of the collections as described above. A program refuses what a newer one has written."""

DURABLE = WriteConcern(w="majority", j=True)
"""A write is acknowledged when most of the replica set has it on disk: no failover takes it back."""
COMMITTED = ReadConcern("majority")
"""Reads see only what no failover takes back."""
PRIMARY = ReadPreference.PRIMARY

DOCUMENT_BYTES = 15 << 20
"""The longest JSON text of a document. MongoDB takes rows of 16 MiB; the fields beside the text are short."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = [("session", ASCENDING), ("position", ASCENDING), ("id", ASCENDING)]
_NEWEST = [("created_at", DESCENDING), ("_id", DESCENDING)]

INDEXES: dict[str, list[IndexModel]] = {
    "sessions": [
        IndexModel(_NEWEST),
        *(IndexModel([(field, ASCENDING), *_NEWEST]) for field in ("owner", "project_ref", "agent", "state")),
    ],
    "turns": [IndexModel(_PLACE)],
    "messages": [IndexModel(_PLACE)],
    "log": [IndexModel(_PLACE)],
    "usage": [
        IndexModel([("session", ASCENDING), ("created_at", ASCENDING), ("id", ASCENDING)]),
        # Holds all that is summed, so that the sum of a project's month reads nothing else.
        IndexModel(
            [("project_ref", ASCENDING), ("created_at", ASCENDING), ("active_seconds", ASCENDING)],
            partialFilterExpression={"test_mode": False},
        ),
    ],
    "memory": [IndexModel([("scope", ASCENDING), ("name", ASCENDING)])],
    "memory_revisions": [
        IndexModel([("scope", ASCENDING), ("name", ASCENDING), ("revision", DESCENDING)], unique=True),
        IndexModel([("scope", ASCENDING), ("name", ASCENDING), ("id", ASCENDING)], unique=True),
    ],
    "leases": [IndexModel("forget_at", expireAfterSeconds=0)],
    "used_keys": [IndexModel("forget_at", expireAfterSeconds=0)],
    "deliveries": [
        IndexModel([("due_at", ASCENDING), ("_id", ASCENDING)], partialFilterExpression={"done": False}),
        IndexModel("done_at", expireAfterSeconds=int(DELIVERIES_KEPT.total_seconds())),
    ],
}
"""Every collection a transaction writes to stands here, as not every server makes collections inside one."""


def prepare(tables: Tables) -> None:
    """Make the collections and indexes that are not there; any number of processes may do so at once.

    Raises:
        ConfigurationError: a newer version of this program has written the database.
    """
    version = _stored_version(tables)
    if version > VERSION:
        raise ConfigurationError(
            f"The database of the store URL was written by a newer version of this program (schema {version}, this one"
            f" knows {VERSION}). Install that version, or choose another database."
        )
    for name, indexes in INDEXES.items():
        tables[name].create_indexes(indexes)


def probe(tables: Tables) -> None:
    """Write something, to know that writing works."""
    tables["store"].update_one({"_id": "probe"}, {"$inc": {"count": 1}}, upsert=True)


def _stored_version(tables: Tables) -> int:
    while True:
        try:
            row = tables["store"].find_one_and_update(
                {"_id": "schema"},
                {"$setOnInsert": {"version": VERSION}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except DuplicateKeyError:  # another process has just written it
            continue
        return VERSION if row is None else int(row["version"])


# --- documents and rows ----------------------------------------------------------------------------------------------


def key(*parts: str) -> str:
    """A row's id, made of several. They stand in front as they are, so that rows of one session or scope stand together; their
    lengths stand behind, as any of them may hold any character."""
    return "/".join([*parts, *(str(len(part)) for part in parts[:-1])])


def json_of(document: CamelModel) -> str:
    """The text that is stored of a document.

    Raises:
        ValueError: it cannot be stored: it holds half a surrogate pair, or is too long.
    """
    text = document.model_dump_json(by_alias=True)
    if len(text) > DOCUMENT_BYTES // 4 and len(text.encode()) > DOCUMENT_BYTES:
        raise ValueError(f"a {type(document).__name__} of more than {DOCUMENT_BYTES >> 20} MiB cannot be stored")
    return text


def document_of(kind: type[D], row: Row, **counted: Any) -> D:
    """The document of a row; `counted` are the fields that the row knows better than its text."""
    document = kind.model_validate_json(row["document"])
    return document.model_copy(update=counted) if counted else document


def int64(number: int) -> int:
    """The number, which a row can hold.

    Raises:
        OverflowError: it has more than 64 bits.
    """
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError("a number of more than 64 bits cannot be a position or fence")
    return number


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)


def millis(span: timedelta) -> int:
    """A span of time as the server adds it to its own clock."""
    return span // timedelta(milliseconds=1)
