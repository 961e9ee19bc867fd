"""A turn as it is stored (protocol page, section 3)."""

from datetime import UTC, datetime

from engine.elements import (
    InstructionType,
    MultimodalInteraction,
    MultimodalKind,
    RealtimeInstruction,
    ResponseStatus,
    ToolEvent,
    ToolOwner,
    ToolPhase,
    Transcript,
)
from engine.protocol.steering import Whisper
from engine.protocol.turn import ResponseRecord, Timing, Turn
from engine.protocol.turn_record import TYPED, turn_document
from engine.store.documents import InstructionOutcome, InstructionRecord, TimingLog, TurnDocument, TurnInputRecord
from engine.testing.invariants import UNFINISHED
from engine.testing.scripted import final

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def document(turn: Turn) -> TurnDocument:
    return turn_document(turn, session_id="s1", index=3, started_at=NOON)


def test_everything_of_a_turn() -> None:
    turn = Turn(
        "t1",
        started_at=10.0,
        final=final("find it"),
        responses=[
            ResponseRecord("r1", ["Let me see.", "Here it is."], ResponseStatus.CANCELLED, heard="Let me"),
            ResponseRecord("r2", [" "], ResponseStatus.COMPLETED),
            ResponseRecord("r3", ["Anything else?"]),
        ],
        was_interrupted=True,
        instructions=[
            Whisper(
                RealtimeInstruction("Be brief.", InstructionType.COMMENTARY, "i1"),
                "t1",
                "t1/1",
                2340,
                InstructionOutcome.SPOKEN,
                "r3",
                "t1",
            )
        ],
        multimodal=[MultimodalInteraction(MultimodalKind.CARD, "menu", {"a": 1})],
        timing=Timing(10.0, 10.5, 11.25, None, 11.0, 12.9996),
    )
    turn.parameters["c1"] = ToolEvent(ToolPhase.START, "c1", "find", parameters={"what": "it"})
    turn.tools["c1"] = ToolEvent(ToolPhase.SUCCESS, "c1", "find", ToolOwner.MODEL, result=[1])
    turn.tools["c2"] = ToolEvent(ToolPhase.ERROR, "c2", "find", ToolOwner.PLANNER, error="No.")
    turn.tools["c3"] = ToolEvent(ToolPhase.START, "c3", "find")
    stored = document(turn)
    assert (stored.id, stored.session_id, stored.index, stored.started_at) == ("t1", "s1", 3, NOON)
    assert stored.input == TurnInputRecord(text="find it", kind="speech")
    assert [(o.text, o.heard, o.response_id, o.status) for o in stored.output] == [
        ("Let me see. Here it is.", "Let me", "r1", "cancelled"),
        ("Anything else?", "Anything else?", "r3", "failed"),
    ]
    assert stored.interrupted
    assert [(t.call_id, t.parameters, t.result, t.error, t.owner) for t in stored.tools] == [
        ("c1", {"what": "it"}, [1], "", "model"),
        ("c2", {}, None, "No.", "planner"),
        ("c3", {}, None, UNFINISHED, "model"),
    ]
    assert stored.instructions == [
        InstructionRecord(
            id="i1",
            type="COMMENTARY",
            text="Be brief.",
            pass_id="t1/1",
            injected_ms=2340,
            outcome=InstructionOutcome.SPOKEN,
            response_id="r3",
            spoken_in_turn="t1",
        )
    ]
    assert stored.multimodal == [{"kind": "card", "name": "menu", "data": {"a": 1}}]
    assert stored.timing == TimingLog(
        last_interim=0, final_transcript=500, first_text=1250, first_audio=1000, last_audio=3000
    )


def test_what_the_user_did() -> None:
    assert document(Turn("t1")).input == TurnInputRecord()
    assert document(Turn("t1", final=final("hello", TYPED))).input == TurnInputRecord(text="hello", kind="text")
    action = Transcript("#intro", is_synthetic=True)
    assert document(Turn("t1", final=action)).input == TurnInputRecord(text="#intro", kind="action")


def test_the_copy_of_a_final_is_not_stored_a_second_time() -> None:
    again = Turn("t1", final=Transcript("book it", is_synthetic=True), is_asked_again=True)
    assert document(again).input == TurnInputRecord()
