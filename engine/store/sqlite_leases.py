"""The embedded store's statements about leases, keys that are used once, and deliveries.

Everything here blocks. Writes are called inside a transaction, which also holds their checks. Each new row takes a few old ones
with it that nobody needs any more.
"""

import sqlite3
from datetime import datetime, timedelta

from engine.store.documents import Delivery, Lease
from engine.store.rules import DELIVERIES_KEPT, LEASES_KEPT, PURGED_AT_ONCE, acquired, holds, renewed
from engine.store.sqlite_file import from_micros, micros

# --- leases ----------------------------------------------------------------------------------------------------------


def acquire_lease(connection: sqlite3.Connection, name: str, token: str, now: datetime, seconds: float) -> Lease | None:
    stored = _lease(connection, name)
    asked = Lease(name=name, token=token, fence=0, expires_at=now + timedelta(seconds=seconds))
    lease = acquired(stored, asked, now)
    if lease is None:
        return None
    if stored is not None and holds(stored, lease):
        _extend(connection, lease)
        return lease
    connection.execute("DELETE FROM leases WHERE name = ?", (name,))
    connection.execute(
        "DELETE FROM leases WHERE fence IN (SELECT fence FROM leases WHERE expires_at < ? ORDER BY expires_at LIMIT ?)",
        (micros(now - LEASES_KEPT), PURGED_AT_ONCE),
    )
    inserted = connection.execute(
        "INSERT INTO leases (name, token, expires_at) VALUES (?, ?, ?)", (name, token, micros(lease.expires_at))
    )
    return lease.model_copy(update={"fence": inserted.lastrowid})


def renew_lease(connection: sqlite3.Connection, lease: Lease, now: datetime, seconds: float) -> Lease:
    kept = renewed(_lease(connection, lease.name), lease, now + timedelta(seconds=seconds))
    _extend(connection, kept)
    return kept


def release_lease(connection: sqlite3.Connection, lease: Lease) -> None:
    if holds(_lease(connection, lease.name), lease):
        connection.execute("DELETE FROM leases WHERE fence = ?", (lease.fence,))


def _lease(connection: sqlite3.Connection, name: str) -> Lease | None:
    row = connection.execute("SELECT token, fence, expires_at FROM leases WHERE name = ?", (name,)).fetchone()
    return None if row is None else Lease(name=name, token=row[0], fence=row[1], expires_at=from_micros(row[2]))


def _extend(connection: sqlite3.Connection, lease: Lease) -> None:
    connection.execute("UPDATE leases SET expires_at = ? WHERE fence = ?", (micros(lease.expires_at), lease.fence))


# --- what has to happen once -----------------------------------------------------------------------------------------


def use_once(connection: sqlite3.Connection, key: str, now: datetime, expires_at: datetime) -> bool:
    inserted = connection.execute(
        "INSERT INTO used_keys (key, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING", (key, micros(expires_at))
    )
    if inserted.rowcount == 0:
        return False
    connection.execute(
        "DELETE FROM used_keys WHERE key IN (SELECT key FROM used_keys WHERE expires_at < ? ORDER BY expires_at LIMIT ?)",
        (micros(now), PURGED_AT_ONCE),
    )
    return True


# --- deliveries ------------------------------------------------------------------------------------------------------


def put_delivery(connection: sqlite3.Connection, delivery: Delivery, document: str) -> None:
    connection.execute(
        """DELETE FROM deliveries WHERE id IN
           (SELECT id FROM deliveries WHERE done = 1 AND expires_at < ? ORDER BY expires_at LIMIT ?)""",
        (micros(delivery.due_at - DELIVERIES_KEPT), PURGED_AT_ONCE),
    )
    connection.execute(
        """INSERT INTO deliveries (id, done, due_at, expires_at, document) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET done = excluded.done, due_at = excluded.due_at, expires_at = excluded.expires_at,
           document = excluded.document""",
        (delivery.id, delivery.done, micros(delivery.due_at), micros(delivery.expires_at), document),
    )


def due_deliveries(connection: sqlite3.Connection, now: datetime, limit: int) -> list[Delivery]:
    rows = connection.execute(
        "SELECT document FROM deliveries WHERE done = 0 AND due_at <= ? ORDER BY due_at, id LIMIT ?",
        (micros(now), max(limit, 0)),
    ).fetchall()
    return [Delivery.model_validate_json(document) for (document,) in rows]
