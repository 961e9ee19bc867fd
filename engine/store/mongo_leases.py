"""The MongoDB store's statements about leases, keys that are used once, and deliveries.

Everything here blocks. Each write is one statement that holds its own check. One that comes late, when its caller has given up,
takes a lease for a holder who does not know, until its time, or uses a key that nobody will; a delivery it leaves alone.
"""

from contextlib import suppress
from datetime import datetime, timedelta

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from engine.store.contract import LeaseLostError
from engine.store.documents import Delivery, Lease
from engine.store.mongo_schema import Row, Tables, document_of, from_micros, json_of, micros, millis
from engine.store.rules import LEASES_KEPT

# --- leases ----------------------------------------------------------------------------------------------------------


def acquire_lease(tables: Tables, name: str, token: str, now: datetime, seconds: float) -> Lease | None:
    """A new holder's fence is one more, and at least the microseconds of `now`: so it has grown also where the row of the
    holder before was forgotten, a day ago."""
    expires_at = micros(now + timedelta(seconds=seconds))
    its_own = {"$eq": ["$token", {"$literal": token}]}
    grown = {"$max": [{"$add": ["$fence", 1]}, micros(now)]}
    try:
        row = tables["leases"].find_one_and_update(
            {"_id": name, "$or": [{"token": token}, {"expires_at": {"$lte": micros(now)}}]},
            [
                {
                    "$set": {
                        "token": {"$literal": token},
                        "fence": {"$cond": [its_own, "$fence", grown]},
                        "expires_at": {"$cond": [its_own, {"$max": ["$expires_at", expires_at]}, expires_at]},
                        "forget_at": _forget_at(seconds),
                    }
                }
            ],
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
    except DuplicateKeyError:  # there is one, and it is another's
        return None
    return None if row is None else _lease(row)


def renew_lease(tables: Tables, lease: Lease, now: datetime, seconds: float) -> Lease:
    expires_at = micros(now + timedelta(seconds=seconds))
    row = tables["leases"].find_one_and_update(
        _held(lease),
        [{"$set": {"expires_at": {"$max": ["$expires_at", expires_at]}, "forget_at": _forget_at(seconds)}}],
        return_document=ReturnDocument.AFTER,
    )
    if row is None:
        raise LeaseLostError("The lease was taken by another, or given back.")
    return _lease(row)


def release_lease(tables: Tables, lease: Lease) -> None:
    """The row stays for a while, so that the next fence is higher."""
    tables["leases"].update_one(_held(lease), {"$unset": {"token": ""}, "$set": {"expires_at": 0}})


def _held(lease: Lease) -> Row:
    return {"_id": lease.name, "token": lease.token, "fence": lease.fence}


def _forget_at(seconds: float) -> Row:
    """When the server deletes the row: that much later by its own clock, whatever time the callers have. Never earlier."""
    return {"$max": ["$forget_at", {"$add": ["$$NOW", millis(timedelta(seconds=seconds) + LEASES_KEPT)]}]}


def _lease(row: Row) -> Lease:
    return Lease(name=row["_id"], token=row["token"], fence=row["fence"], expires_at=from_micros(row["expires_at"]))


# --- what has to happen once -----------------------------------------------------------------------------------------


def use_once(tables: Tables, key: str, now: datetime, expires_at: datetime) -> bool:
    """Kept for that long by the server's own clock."""
    kept = {"$ifNull": ["$forget_at", {"$add": ["$$NOW", millis(expires_at - now)]}]}
    try:
        used = tables["used_keys"].update_one({"_id": key}, [{"$set": {"forget_at": kept}}], upsert=True)
    except DuplicateKeyError:
        return False
    return used.upserted_id is not None


# --- deliveries ------------------------------------------------------------------------------------------------------


def delivery_row(delivery: Delivery) -> Row:
    return {"document": json_of(delivery), "done": delivery.done, "due_at": micros(delivery.due_at)}


def put_delivery(tables: Tables, delivery_id: str, row: Row) -> None:
    deliveries = tables["deliveries"]
    changes = {"$set": row, "$inc": {"writes": 1}}
    if row["done"]:
        changes["$currentDate"] = {"done_at": True}
    else:
        changes["$unset"] = {"done_at": ""}
    while True:
        stored = deliveries.find_one({"_id": delivery_id}, {"writes": True})
        writes: Row = {"$exists": False} if stored is None else {"$eq": stored["writes"]}
        with suppress(DuplicateKeyError):
            put = deliveries.update_one({"_id": delivery_id, "writes": writes}, changes, upsert=stored is None)
            if put.matched_count or put.upserted_id is not None:
                return


def due_deliveries(tables: Tables, now: datetime, limit: int) -> list[Delivery]:
    if limit <= 0:
        return []
    found = tables["deliveries"].find({"done": False, "due_at": {"$lte": micros(now)}}, {"document": True})
    return [document_of(Delivery, row) for row in found.sort(["due_at", "_id"]).limit(limit)]
