"""The embedded store's statements about managed documents and about memory.

Everything here blocks. Writes are called inside a transaction, which also holds their checks.
"""

import sqlite3
from collections.abc import Collection

from engine.store.documents import MemoryDocument, Resource, ResourceKind
from engine.store.rules import next_revision, next_version, require_version

# --- managed documents -----------------------------------------------------------------------------------------------


def get_resource(connection: sqlite3.Connection, kind: ResourceKind, resource_id: str) -> Resource | None:
    row = connection.execute(
        "SELECT document FROM resources WHERE kind = ? AND id = ?", (kind.value, resource_id)
    ).fetchone()
    return None if row is None else Resource.model_validate_json(row[0])


def get_resources(connection: sqlite3.Connection, kind: ResourceKind, resource_ids: Collection[str]) -> list[Resource]:
    found = (get_resource(connection, kind, resource_id) for resource_id in set(resource_ids))
    return [resource for resource in found if resource is not None]


def list_resources(connection: sqlite3.Connection, kind: ResourceKind, limit: int, after: str) -> list[Resource]:
    rows = connection.execute(
        "SELECT document FROM resources WHERE kind = ? AND id > ? ORDER BY id LIMIT ?",
        (kind.value, after, max(limit, 0)),
    ).fetchall()
    return [Resource.model_validate_json(document) for (document,) in rows]


def put_resource(connection: sqlite3.Connection, resource: Resource, expected: int | None) -> Resource:
    stored = next_version(get_resource(connection, resource.kind, resource.id), resource, expected)
    connection.execute(
        """INSERT INTO resources (kind, id, document) VALUES (?, ?, ?)
           ON CONFLICT DO UPDATE SET document = excluded.document""",
        (stored.kind.value, stored.id, stored.model_dump_json(by_alias=True)),
    )
    return stored


def delete_resource(connection: sqlite3.Connection, kind: ResourceKind, resource_id: str, expected: int | None) -> bool:
    stored = get_resource(connection, kind, resource_id)
    require_version(0 if stored is None else stored.version, expected)
    connection.execute("DELETE FROM resources WHERE kind = ? AND id = ?", (kind.value, resource_id))
    return stored is not None


# --- memory ----------------------------------------------------------------------------------------------------------


def append_memory(connection: sqlite3.Connection, document: MemoryDocument, expected: int | None) -> MemoryDocument:
    name = (document.scope, document.name)
    row = connection.execute(
        "SELECT document FROM memory WHERE scope = ? AND name = ? AND id = ?", (*name, document.id)
    ).fetchone()
    if row is not None:
        return MemoryDocument.model_validate_json(row[0])
    (newest,) = connection.execute(
        "SELECT ifnull(max(revision), 0) FROM memory WHERE scope = ? AND name = ?", name
    ).fetchone()
    stored = next_revision(newest, document, expected)
    connection.execute(
        "INSERT INTO memory (scope, name, revision, id, document) VALUES (?, ?, ?, ?, ?)",
        (*name, stored.revision, stored.id, stored.model_dump_json(by_alias=True)),
    )
    return stored


def get_memory_revisions(connection: sqlite3.Connection, scope: str, name: str, limit: int) -> list[MemoryDocument]:
    rows = connection.execute(
        "SELECT document FROM memory WHERE scope = ? AND name = ? ORDER BY revision DESC LIMIT ?",
        (scope, name, max(limit, 0)),
    ).fetchall()
    return [MemoryDocument.model_validate_json(document) for (document,) in rows]


def list_memory(connection: sqlite3.Connection, scope: str, limit: int, after: str) -> list[MemoryDocument]:
    """From name to name, so that it costs nothing how many revisions each has."""
    found: list[MemoryDocument] = []
    while len(found) < limit:
        row = connection.execute(
            "SELECT document FROM memory WHERE scope = ? AND name > ? ORDER BY name, revision DESC LIMIT 1",
            (scope, after),
        ).fetchone()
        if row is None:
            break
        found.append(MemoryDocument.model_validate_json(row[0]))
        after = found[-1].name
    return found


def forget_memory(connection: sqlite3.Connection, scope: str) -> int:
    return connection.execute("DELETE FROM memory WHERE scope = ?", (scope,)).rowcount
