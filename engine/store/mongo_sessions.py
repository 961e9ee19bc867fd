"""The MongoDB store's statements about sessions: their documents, what was said in them, and what they used.

Everything here blocks. Each write is one statement that holds its own check, and names what was found before it: one that comes
late, when its caller has given up and gone on, finds something else and changes nothing.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from pymongo import ASCENDING, DESCENDING, ReturnDocument
from pymongo.errors import DuplicateKeyError

from engine.config import CamelModel
from engine.store.contract import SessionFilter
from engine.store.documents import (
    LogEntry,
    MessageDocument,
    SessionDocument,
    SessionState,
    TurnDocument,
    UsageDocument,
)
from engine.store.mongo_appends import unheld
from engine.store.mongo_schema import Row, Rows, Tables, document_of, from_micros, int64, json_of, key, micros
from engine.store.rules import redacted, reopened, require_fence

D = TypeVar("D", bound=CamelModel)

Ordered = Literal["turns", "messages", "log"]
"""The collections of documents that have a place in their session."""

# --- the documents ---------------------------------------------------------------------------------------------------

IS_THERE = {"document": {"$exists": True}}
IS_NOT_THERE = {"document": {"$exists": False}}
"""A session that was appended to has a row, with a fence, before it has a document."""


def open_session(tables: Tables, document: SessionDocument, writer: object) -> SessionDocument:
    sessions = tables["sessions"]
    first = _row(reopened(None, document)) | {"writer": writer}
    again = {"state": SessionState.OPEN.value, "updated_at": micros(document.updated_at), "writer": writer}

    def attempt() -> SessionDocument:
        while True:
            stored = get_session(tables, document.id)
            opened = reopened(stored, document)
            if stored is None:
                if _put_first(sessions, document.id, first):
                    return opened
            else:
                row = sessions.find_one_and_update(
                    {"_id": document.id, "owner": stored.owner, "fence": stored.fence, **IS_THERE},
                    {"$set": again, "$inc": {"fence": 1}},
                    return_document=ReturnDocument.AFTER,
                )
                if row is not None:
                    return _session(row)  # and not `opened`: it may have been saved in between

    return unheld(sessions, document.id, attempt)


def save_session(tables: Tables, document: SessionDocument) -> None:
    sessions = tables["sessions"]
    row = _row(document)
    changes = {field: value for field, value in row.items() if field not in ("owner", "saves")}

    def attempt() -> None:
        while True:
            stored = sessions.find_one({"_id": document.id, **IS_THERE}, {"fence": True, "saves": True})
            if stored is None:
                if _put_first(sessions, document.id, row):
                    return
            else:
                require_fence(stored["fence"], document.fence)
                where = {"_id": document.id, "fence": {"$lte": document.fence}, "saves": stored["saves"]}
                if sessions.update_one(where, {"$set": changes, "$inc": {"saves": 1}}).matched_count:
                    return

    unheld(sessions, document.id, attempt)


def get_session(tables: Tables, session_id: str) -> SessionDocument | None:
    row = tables["sessions"].find_one({"_id": session_id, **IS_THERE})
    return None if row is None else _session(row)


def list_sessions(tables: Tables, which: SessionFilter, limit: int, after: str) -> list[SessionDocument]:
    sessions = tables["sessions"]
    wanted = {"owner": which.owner, "agent": which.agent, "state": "" if which.state is None else which.state.value}
    where: Row = {field: value for field, value in wanted.items() if value} | IS_THERE
    if which.project_refs is not None:
        where["project_ref"] = {"$in": sorted(which.project_refs)}
    if after:
        last = sessions.find_one({"_id": after, **IS_THERE}, {"created_at": True})
        if last is None:
            return []
        moment = last["created_at"]
        where["created_at"] = {"$lte": moment}  # for the index; the rest says the same more exactly
        where["$or"] = [{"created_at": {"$lt": moment}}, {"created_at": moment, "_id": {"$lt": after}}]
    if limit <= 0:
        return []
    found = sessions.find(where).sort([("created_at", DESCENDING), ("_id", DESCENDING)]).limit(limit)
    return [_session(row) for row in found]


def fences(tables: Tables, session_ids: Collection[str]) -> dict[str, int]:
    found = tables["sessions"].find({"_id": {"$in": list(session_ids)}, **IS_THERE}, {"fence": True})
    return {row["_id"]: row["fence"] for row in found}


def _put_first(sessions: Rows, session_id: str, row: Row) -> bool:
    """Write a session's first document; False when it has one."""
    try:
        sessions.update_one({"_id": session_id, **IS_NOT_THERE}, {"$set": row}, upsert=True)
    except DuplicateKeyError:
        return False
    return True


def _row(document: SessionDocument) -> Row:
    return {
        "document": json_of(document),
        "saves": 0,
        "fence": int64(document.fence),
        "owner": document.owner,
        "project_ref": document.project_ref,
        "agent": document.agent,
        "state": document.state.value,
        "created_at": micros(document.created_at),
        "updated_at": micros(document.updated_at),
    }


def _session(row: Row) -> SessionDocument:
    return document_of(
        SessionDocument,
        row,
        fence=row["fence"],
        owner=row["owner"],
        state=SessionState(row["state"]),
        updated_at=from_micros(row["updated_at"]),
    )


# --- what was said ---------------------------------------------------------------------------------------------------


def turn_rows(turns: Sequence[TurnDocument]) -> list[Row]:
    return [_placed(turn.session_id, turn.id, turn.index, turn) for turn in turns]


def message_rows(messages: Sequence[MessageDocument]) -> list[Row]:
    return [_placed(message.session_id, message.id, message.position, message) for message in messages]


def log_rows(entries: Sequence[LogEntry]) -> list[Row]:
    """With what is left of each when it is redacted, so that this is one statement for all of them."""
    return [
        {**_placed(entry.session_id, entry.id, entry.position, entry), "redacted": json_of(redacted(entry))}
        for entry in entries
    ]


def _placed(session_id: str, document_id: str, position: int, document: CamelModel) -> Row:
    return {
        "_id": key(session_id, document_id),
        "session": session_id,
        "id": document_id,
        "position": int64(position),
        "document": json_of(document),
    }


def page(tables: Tables, table: Ordered, kind: type[D], session_id: str, limit: int, last: bool, after: int) -> list[D]:
    if limit <= 0:
        return []
    direction = DESCENDING if last else ASCENDING
    found = (
        tables[table]
        .find({"session": session_id, "position": {"$gt": after}}, {"document": True})
        .sort([("position", direction), ("id", direction)])
        .limit(limit)
    )
    documents = [document_of(kind, row) for row in found]
    return documents[::-1] if last else documents


def redact_log(tables: Tables, session_id: str) -> int:
    """Entry by entry, so that one may see it half done; done again after a failure, it does the rest."""
    return tables["log"].update_many({"session": session_id}, [{"$set": {"document": "$redacted"}}]).matched_count


# --- what was used ---------------------------------------------------------------------------------------------------


def usage_row(usage: UsageDocument) -> Row:
    return {
        "_id": key(usage.session_id, usage.id),
        "session": usage.session_id,
        "id": usage.id,
        "project_ref": usage.project_ref,
        "test_mode": usage.test_mode,
        "active_seconds": usage.active_seconds,
        "created_at": micros(usage.created_at),
        "document": json_of(usage),
    }


def get_usage(tables: Tables, session_id: str) -> list[UsageDocument]:
    found = tables["usage"].find({"session": session_id}, {"document": True}).sort(["created_at", "id"])
    return [document_of(UsageDocument, row) for row in found]


def active_seconds(tables: Tables, project_ref: str, since: datetime) -> float:
    found = tables["usage"].aggregate(
        [
            {"$match": {"project_ref": project_ref, "created_at": {"$gte": micros(since)}, "test_mode": False}},
            {"$group": {"_id": None, "total": {"$sum": "$active_seconds"}}},
        ]
    )
    return float(next((row["total"] for row in found), 0.0))
