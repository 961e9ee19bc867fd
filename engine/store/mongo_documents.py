"""The MongoDB store's statements about managed documents and about memory.

Everything here blocks.
"""

from collections.abc import Collection

from pymongo import ASCENDING, DESCENDING, MongoClient, ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from engine.store.documents import MemoryDocument, Resource, ResourceKind
from engine.store.mongo_appends import Transactions, free
from engine.store.mongo_schema import Row, Tables, document_of, from_micros, json_of, key, micros
from engine.store.rules import next_revision, require_version

# --- managed documents: each write is one statement that holds its own check ------------------------------------------


def get_resource(tables: Tables, kind: ResourceKind, resource_id: str) -> Resource | None:
    row = tables["resources"].find_one({"_id": _row_id(kind, resource_id)})
    return None if row is None else _resource(row)


def get_resources(tables: Tables, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
    keys = [_row_id(kind, resource_id) for resource_id in set(resource_ids)]
    return [_resource(row) for row in tables["resources"].find({"_id": {"$in": keys}})]


def list_resources(tables: Tables, kind: ResourceKind, limit: int, after: str) -> list[Resource]:
    if limit <= 0:
        return []
    within = {"$gt": _row_id(kind, after), "$lt": f"{kind.value}0"}  # "0" comes right after "/"
    return [_resource(row) for row in tables["resources"].find({"_id": within}).sort("_id", ASCENDING).limit(limit)]


def put_resource(tables: Tables, resource: Resource, expected: int | None) -> Resource:
    row_id = _row_id(resource.kind, resource.id)
    where: Row = {"_id": row_id}
    if expected:
        where["version"] = expected
    elif expected == 0:
        where["version"] = {"$exists": False}  # so that it is inserted, or there is one with that id already
    changes = {
        "$set": {"document": json_of(resource), "updated_at": micros(resource.updated_at)},
        "$inc": {"version": 1},
        "$setOnInsert": {"created_at": micros(resource.created_at)},
    }
    while True:
        try:
            row = tables["resources"].find_one_and_update(
                where, changes, upsert=not expected, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:
            row = None
        if row is not None:
            return _resource(row)
        require_version(_version(tables, row_id), expected)  # raises ConflictError, unless it has that version by now


def delete_resource(tables: Tables, kind: ResourceKind, resource_id: str, expected: int | None) -> bool:
    row_id = _row_id(kind, resource_id)
    where: Row = {"_id": row_id} if expected is None else {"_id": row_id, "version": expected}
    while True:
        if tables["resources"].delete_one(where).deleted_count:
            return True
        current = _version(tables, row_id)
        if current == 0:
            require_version(0, expected)
            return False
        require_version(current, expected)  # raises ConflictError, unless it has that version by now


def _version(tables: Tables, row_id: str) -> int:
    """0 for what does not exist."""
    row = tables["resources"].find_one({"_id": row_id}, {"version": True})
    return 0 if row is None else int(row["version"])


def _row_id(kind: ResourceKind, resource_id: str) -> str:
    """In the order of the ids within a kind; no kind has a slash in it."""
    return f"{kind.value}/{resource_id}"


def _resource(row: Row) -> Resource:
    return document_of(
        Resource,
        row,
        version=row["version"],
        created_at=from_micros(row["created_at"]),
        updated_at=from_micros(row["updated_at"]),
    )


# --- memory ----------------------------------------------------------------------------------------------------------


class Memories:
    """Writes memory, in a lane of transactions: an append and a forgetting change the same row, so one sees the other."""

    def __init__(self, client: MongoClient[Row], tables: Tables) -> None:
        self._tables = tables
        self._transactions = Transactions(client)

    def append(self, document: MemoryDocument, expected: int | None) -> MemoryDocument:
        newest, revisions = self._tables["memory"], self._tables["memory_revisions"]
        name: Row = {"scope": document.scope, "name": document.name}
        head_id = key(document.scope, document.name)

        def work(session: ClientSession) -> MemoryDocument:
            earlier = revisions.find_one({**name, "id": document.id}, session=session)
            if earlier is not None:
                return document_of(MemoryDocument, earlier)
            head = newest.find_one({"_id": head_id}, {"revision": True}, session=session)
            stored = next_revision(0 if head is None else head["revision"], document, expected)
            row = {**name, "revision": stored.revision, "id": stored.id, "document": json_of(stored)}
            revision_id = key(document.scope, document.name, str(stored.revision))
            revisions.insert_one({"_id": revision_id, **row}, session=session)
            row["writer"] = self._transactions.writer
            newest.replace_one({"_id": head_id, "scope": document.scope}, row, upsert=True, session=session)
            return stored

        while True:
            try:
                return self._transactions.run(work, lambda: free(newest, [head_id]))
            except DuplicateKeyError:  # somebody else's first revision
                continue

    def forget(self, scope: str) -> int:
        newest, revisions = self._tables["memory"], self._tables["memory_revisions"]

        def work(session: ClientSession) -> int:
            count = revisions.delete_many({"scope": scope}, session=session).deleted_count
            newest.delete_many({"scope": scope}, session=session)
            return count

        def free_all() -> None:
            free(newest, [row["_id"] for row in newest.find({"scope": scope}, {"_id": True})])

        return self._transactions.run(work, free_all)


def get_memory(tables: Tables, scope: str, name: str) -> MemoryDocument | None:
    row = tables["memory"].find_one({"_id": key(scope, name)})
    return None if row is None else document_of(MemoryDocument, row)


def get_memory_revisions(tables: Tables, scope: str, name: str, limit: int) -> list[MemoryDocument]:
    if limit <= 0:
        return []
    found = tables["memory_revisions"].find({"scope": scope, "name": name}, {"document": True})
    return [document_of(MemoryDocument, row) for row in found.sort("revision", DESCENDING).limit(limit)]


def list_memory(tables: Tables, scope: str, limit: int, after: str) -> list[MemoryDocument]:
    if limit <= 0:
        return []
    found = tables["memory"].find({"scope": scope, "name": {"$gt": after}}, {"document": True})
    return [document_of(MemoryDocument, row) for row in found.sort("name", ASCENDING).limit(limit)]
