"""A turn as it is stored (protocol page, section 3)."""

from datetime import datetime

from engine.elements import ToolPhase
from engine.protocol.memory import is_action
from engine.protocol.steering import Whisper
from engine.protocol.turn import Timing, Turn
from engine.store.documents import (
    InstructionRecord,
    TimingLog,
    ToolRecord,
    TurnDocument,
    TurnInputRecord,
    TurnOutputRecord,
)

TYPED = "Client"
"""The provider of a typed utterance's transcript."""


def turn_document(turn: Turn, *, session_id: str, index: int, started_at: datetime) -> TurnDocument:
    """The document of a turn; `started_at` is its start by the wall clock."""
    return TurnDocument(
        id=turn.id,
        session_id=session_id,
        index=index,
        started_at=started_at,
        input=_input(turn),
        output=[
            TurnOutputRecord(
                text=record.text,
                heard=record.heard_text,
                response_id=record.response_id,
                status=record.status.value if record.status else "failed",
            )
            for record in turn.responses
            if record.text.strip()
        ],
        interrupted=turn.was_interrupted,
        tools=[
            ToolRecord(
                call_id=event.call_id,
                name=event.name,
                parameters=dict(turn.parameters[call_id].parameters) if call_id in turn.parameters else {},
                result=event.result,
                error=event.error if event.phase is not ToolPhase.START else "The call did not finish.",
                owner=event.owner.value,
            )
            for call_id, event in turn.tools.items()
        ],
        instructions=[_instruction(whisper) for whisper in turn.instructions],
        multimodal=[{"kind": item.kind.value, "name": item.name, "data": dict(item.data)} for item in turn.multimodal],
        timing=_timing(turn.timing, turn.started_at or 0.0),
    )


def _input(turn: Turn) -> TurnInputRecord:
    if turn.final is None or turn.is_asked_again:
        return TurnInputRecord()  # the copy of a final whose answer was cut is not stored a second time (L12)
    if is_action(turn):
        return TurnInputRecord(text=turn.final.text, kind="action")
    return TurnInputRecord(text=turn.final.text, kind="text" if turn.final.provider == TYPED else "speech")


def _instruction(whisper: Whisper) -> InstructionRecord:
    return InstructionRecord(
        id=whisper.instruction.id,
        type=whisper.type.value,
        text=whisper.text,
        pass_id=whisper.pass_id,
        injected_ms=whisper.injected_ms,
        outcome=whisper.outcome,
        response_id=whisper.response_id,
        spoken_in_turn=whisper.spoken_in,
    )


def _timing(timing: Timing, start: float) -> TimingLog:
    def ms(at: float | None) -> int | None:
        return None if at is None else round((at - start) * 1000)

    return TimingLog(
        last_interim=ms(timing.last_interim),
        final_transcript=ms(timing.final_transcript),
        first_text=ms(timing.first_text),
        last_text=ms(timing.last_text),
        first_audio=ms(timing.first_audio),
        last_audio=ms(timing.last_audio),
    )
