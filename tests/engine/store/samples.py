"""Documents for the tests of the stores."""

from datetime import UTC, datetime, timedelta
from typing import Any

from engine.store.documents import (
    InstructionRecord,
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
        started_at=datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC),
        input=TurnInputRecord(text='Řekni "ahoj"\n\0 👋🏽', kind="text"),
        output=[TurnOutputRecord(text="Ahoj. Jak se máš?", heard="Ahoj.", response_id="r1", status="cancelled")],
        interrupted=True,
        tools=[ToolRecord(call_id="c1", name="weather", parameters={"city": ["Brno"]}, result={"t": 21.5, "n": None})],
        instructions=[InstructionRecord(type="INSTRUCTION", text="Be brief.")],
        multimodal=[{"type": "text", "nested": {"deep": [1, 2, {"x": True}]}}],
        timing=TimingLog(last_interim=0, final_transcript=300, first_text=500),
    )


def usage(usage_id: str = "u1", session_id: str = "s1", **fields: Any) -> UsageDocument:
    return UsageDocument.model_validate(
        {"id": usage_id, "session_id": session_id, "provider": "Internal", "created_at": NOON, **fields}
    )
