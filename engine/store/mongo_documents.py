"""The MongoDB store's statements about managed documents and about memory.

Everything here blocks.
"""

from collections.abc import Collection
from contextlib import suppress

from bson import ObjectId
from pymongo import ASCENDING, DESCENDING, MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import DuplicateKeyError

from engine.store.documents import MemoryDocument, Resource, ResourceKind
from engine.store.mongo_appends import Transactions, free
from engine.store.mongo_schema import Row, Tables, document_of, json_of, key
from engine.store.rules import next_revision, next_version, require_version

# --- managed documents -----------------------------------------------------------------------------------------------
# Each write is one statement that names the one it follows (`write`; versions begin again when a document was deleted).


def get_resource(tables: Tables, kind: ResourceKind, resource_id: str) -> Resource | None:
    row = tables["resources"].find_one({"_id": _row_id(kind, resource_id)})
    return None if row is None else document_of(Resource, row)


def get_resources(tables: Tables, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
    keys = [_row_id(kind, resource_id) for resource_id in set(resource_ids)]
    return [document_of(Resource, row) for row in tables["resources"].find({"_id": {"$in": keys}})]


def list_resources(tables: Tables, kind: ResourceKind, limit: int, after: str) -> list[Resource]:
    if limit <= 0:
        return []
    within = {"$gt": _row_id(kind, after), "$lt": f"{kind.value}0"}  # "0" comes right after "/"
    return [
        document_of(Resource, row)
        for row in tables["resources"].find({"_id": within}).sort("_id", ASCENDING).limit(limit)
    ]


def put_resource(tables: Tables, resource: Resource, expected: int | None) -> Resource:
    resources = tables["resources"]
    row_id = _row_id(resource.kind, resource.id)
    while True:
        found = resources.find_one({"_id": row_id})
        new = next_version(None if found is None else document_of(Resource, found), resource, expected)
        row = {"_id": row_id, "version": new.version, "write": ObjectId(), "document": json_of(new)}
        if found is not None:
            if resources.replace_one({"_id": row_id, "write": found["write"]}, row).matched_count:
                return new
        else:
            with suppress(DuplicateKeyError):
                resources.insert_one(row)
                return new


def delete_resource(tables: Tables, kind: ResourceKind, resource_id: str, expected: int | None) -> bool:
    row_id = _row_id(kind, resource_id)
    while True:
        found = tables["resources"].find_one({"_id": row_id}, {"version": True, "write": True})
        require_version(0 if found is None else found["version"], expected)
        if found is None:
            return False
        if tables["resources"].delete_one({"_id": row_id, "write": found["write"]}).deleted_count:
            return True


def _row_id(kind: ResourceKind, resource_id: str) -> str:
    """In the order of the ids within a kind; no kind has a slash in it."""
    return f"{kind.value}/{resource_id}"


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
