"""Documents for the tests of the stores. Their times are whole milliseconds, which is what every store keeps."""

from datetime import UTC, datetime, timedelta
from typing import Any

from engine.store.documents import (
    Delivery,
    InstructionOutcome,
    InstructionRecord,
    LogEntry,
    LogKind,
    MemoryDocument,
    MessageDocument,
    Resource,
    ResourceKind,
    SessionDocument,
    TimingLog,
    ToolRecord,
    TurnDocument,
    TurnInputRecord,
    TurnOutputRecord,
    UsageDocument,
)

NOON = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)

UNSTORABLE = "\ud83d"
"""Half of a surrogate pair: no JSON text holds it."""

ODD_IDS = [
    "$where",
    "$",
    ".",
    "..",
    "a.b.c",
    "$set.a",
    "'; DROP TABLE sessions; --",
    '"quoted"',
    "back\\slash",
    "new\nline",
    "nu\0l",
    "100%_",
    "a/b:c?d#e",
    "case",
    "CASE",
    " case",
    "case ",
    "é",
    "e\u0301",
    "\uff5e",
    "👋🏽",
    "null",
    "0",
    "-1",
    "x" * 2000,
    "x" * 2001,
]
"""Ids that mean something to one database or another, or that a careless comparison takes for each other."""

ODD_BODY: dict[str, Any] = {
    "$set": {"a.b": 1, "$inc": {".": -1}},
    "a.b": {"c.$.d": "$$ROOT"},
    "": "no name",
    "_id": "mine",
    "__proto__": None,
    "quotes": "' \" ` \\ \0 \n \u2028",
    "script": "Řekni ahoj 👋🏽 e\u0301 \uff5e",
    "numbers": [0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, 1.0, -1e300, 5e-324],
    "others": [True, False, None, [], {}, [[[{"x": [1]}]]]],
    "looks like": {"$date": "2024-05-01T12:00:00Z", "$oid": "000000000000000000000000", "time": "2024-05-01T12:00:00Z"},
}
"""A body that a careless store changes or refuses."""


def session(session_id: str = "s1", owner: str = "alice", **fields: Any) -> SessionDocument:
    return SessionDocument.model_validate(
        {"id": session_id, "owner": owner, "created_at": NOON, "updated_at": NOON, **fields}
    )


def turn(index: int, session_id: str = "s1", *, turn_id: str = "", text: str = "hello") -> TurnDocument:
    return TurnDocument(
        id=turn_id or f"t{index}",
        session_id=session_id,
        index=index,
        started_at=NOON + timedelta(seconds=index % 60),
        input=TurnInputRecord(text=text, kind="speech"),
    )


def full_turn() -> TurnDocument:
    """A turn with something in every field, and text that is easily spoilt."""
    return TurnDocument(
        id="full'; DROP TABLE turns; --",
        session_id="s1",
        index=0,
        started_at=datetime(2024, 5, 1, 12, 0, 0, 123000, tzinfo=UTC),
        input=TurnInputRecord(text='Řekni "ahoj"\n\0 👋🏽', kind="text"),
        output=[TurnOutputRecord(text="Ahoj. Jak se máš?", heard="Ahoj.", response_id="r1", status="cancelled")],
        interrupted=True,
        tools=[ToolRecord(call_id="c1", name="weather", parameters={"city": ["Brno"]}, result={"t": 21.5, "n": None})],
        instructions=[
            InstructionRecord(type="INSTRUCTION", text="Be brief."),  # as it was before outcomes were kept
            InstructionRecord(
                type="SUPPORTING_CONTEXT",
                text='Je "poledne". 👋🏽',
                id="i1",
                pass_id="t1/2",
                injected_ms=2340,
                outcome=InstructionOutcome.USED,
                response_id="r2",
                spoken_in_turn="t2",
            ),
        ],
        multimodal=[{"type": "text", "nested": {"deep": [1, 2, {"x": True}]}}],
        timing=TimingLog(last_interim=0, final_transcript=300, first_text=500),
    )


def usage(usage_id: str = "u1", session_id: str = "s1", **fields: Any) -> UsageDocument:
    return UsageDocument.model_validate(
        {"id": usage_id, "session_id": session_id, "provider": "Internal", "created_at": NOON, **fields}
    )


def message(position: int, session_id: str = "s1", *, message_id: str = "", text: str = "hello") -> MessageDocument:
    return MessageDocument(
        id=message_id or f"t{position}",
        session_id=session_id,
        position=position,
        role="assistant" if position % 2 else "user",
        text=text,
        created_at=NOON + timedelta(seconds=position % 60),
    )


def log_entry(position: int, session_id: str = "s1", *, entry_id: str = "", text: str = "hello") -> LogEntry:
    return LogEntry(
        id=entry_id or f"t{position}",
        session_id=session_id,
        position=position,
        at=NOON + timedelta(seconds=position % 60),
        kind=LogKind.CHAT,
        component="planner",
        model="small",
        turn_id="t1",
        input_tokens=12,
        output_tokens=3,
        cached_tokens=2,
        duration_ms=250,
        content={"prompt": text, **ODD_BODY},
    )


def resource(resource_id: str = "r1", kind: ResourceKind = ResourceKind.AGENT, **fields: Any) -> Resource:
    given = {"kind": kind, "id": resource_id, "body": {"name": "Coach"}, "created_at": NOON, "updated_at": NOON}
    return Resource.model_validate({**given, **fields})


def memory(document_id: str = "m1", scope: str = "user:anna", name: str = "facts", **fields: Any) -> MemoryDocument:
    given = {"id": document_id, "scope": scope, "name": name, "body": {"by": document_id}, "created_at": NOON}
    return MemoryDocument.model_validate({**given, **fields})


def delivery(delivery_id: str = "d1", **fields: Any) -> Delivery:
    given = {
        "id": delivery_id,
        "session_id": "s1",
        "url": "https://example.org/hook",
        "secret": "env:HOOK_SECRET",
        "body": '{"$set": {"a.b": "\\u0000"}}',
        "due_at": NOON,
        "expires_at": NOON + timedelta(hours=1),
    }
    return Delivery.model_validate({**given, **fields})
