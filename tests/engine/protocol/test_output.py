"""Every realtime element has its output element, and a class that is forgotten fails loudly (SPEC E3)."""

from typing import Any, get_args

import pytest

from engine.elements import (
    EmotionalState,
    InstructionType,
    MultimodalInteraction,
    MultimodalKind,
    OutCommand,
    OutEmotion,
    OutError,
    OutMultimodal,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Partial,
    RealtimeCommand,
    RealtimeDelegation,
    RealtimeElement,
    RealtimeError,
    RealtimeInstruction,
    ResponseEnd,
    ResponseStatus,
    SpeakingState,
    SpeechItem,
    Text,
    Token,
    ToolEvent,
    ToolOwner,
    ToolPhase,
    Transcript,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.output import to_output

VISEMES = ({"at": 0},)
WEIGHTS = ({"jawOpen": 0.5},)

MAPPED: list[tuple[RealtimeElement, OutputElement]] = [
    (
        Transcript("hello", True, True, True, "P", "r1"),
        OutTranscript("hello", True, True, True, "P", "t1"),
    ),
    (Partial("hel", "P"), OutPartial("hel", "t1")),
    (Token("One", "r1"), OutToken("One", "t1", "r1")),
    (Text("One.", "r1", 20.0), OutText("One.", "t1", "r1", 20.0)),
    (
        SpeechItem(b"\1\0", 24000, "r1", "P", True, VISEMES, WEIGHTS),
        OutSpeech(b"\1\0", 24000, "t1", "r1", True, VISEMES, WEIGHTS),
    ),
    (
        ResponseEnd("r1", ResponseStatus.IDLE),
        OutCommand("response-end", {"turnId": "t1", "responseId": "r1", "status": "idle"}, "t1"),
    ),
    (
        RealtimeInstruction("Be kind.", InstructionType.COMMENTARY, "i1", pass_id="t1/1"),
        OutCommand(
            "realtime-instruction",
            {
                "turnId": "t1",
                "instructionId": "i1",
                "passId": "t1/1",
                "instructionType": "COMMENTARY",
                "text": "Be kind.",
            },
            "t1",
        ),
    ),
    (
        RealtimeDelegation("d1", "help", 30),
        OutCommand("realtime-delegation", {"turnId": "t1", "id": "d1", "text": "help", "offsetMs": 30}, "t1"),
    ),
    (
        RealtimeCommand("realtime-planning", {"text": "Hm."}),
        OutCommand("realtime-planning", {"turnId": "t1", "text": "Hm."}, "t1"),
    ),
    (
        RealtimeError(ErrorCode.CHAT_FAILED, "Sorry.", recoverable=False, whose=Whose.SERVER),
        OutError(ErrorCode.CHAT_FAILED, "Sorry.", False, Whose.SERVER),
    ),
    (
        MultimodalInteraction(MultimodalKind.CARD, "menu", {"a": 1}),
        OutMultimodal(MultimodalKind.CARD, "menu", {"a": 1}, "t1"),
    ),
    (
        EmotionalState(SpeakingState.USER_SPEAKING, {"joy": 0.5}),
        OutEmotion(SpeakingState.USER_SPEAKING, {"joy": 0.5}, "t1"),
    ),
    (
        ToolEvent(ToolPhase.START, "c1", "book", parameters={"n": 2}),
        OutCommand(
            "tool-start",
            {"turnId": "t1", "callId": "c1", "name": "book", "owner": "model", "parameters": {"n": 2}},
            "t1",
        ),
    ),
    (
        ToolEvent(ToolPhase.SUCCESS, "c1", "book", ToolOwner.PLANNER, result=[1]),
        OutCommand(
            "tool-success", {"turnId": "t1", "callId": "c1", "name": "book", "owner": "planner", "result": [1]}, "t1"
        ),
    ),
    (
        ToolEvent(ToolPhase.ERROR, "c1", "book", error="No room."),
        OutCommand(
            "tool-error", {"turnId": "t1", "callId": "c1", "name": "book", "owner": "model", "error": "No room."}, "t1"
        ),
    ),
]


@pytest.mark.parametrize(("element", "expected"), MAPPED, ids=lambda value: type(value).__name__)
def test_a_mapping(element: RealtimeElement, expected: OutputElement) -> None:
    assert to_output(element, "t1") == expected


def test_every_class_is_mapped() -> None:
    classes = set(get_args(RealtimeElement))
    assert {type(element) for element, _ in MAPPED} == classes


def test_what_has_no_mapping_fails_loudly() -> None:
    stranger: Any = object()
    with pytest.raises(TypeError, match="object has no output element"):
        to_output(stranger, "t1")
