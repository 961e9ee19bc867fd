"""The one place where realtime elements become what a client is told (SPEC E3).

An element without a mapping is a programming error and fails loudly; a test walks all classes.
"""

from collections.abc import Mapping
from typing import Any

from engine.elements import (
    EmotionalState,
    MultimodalInteraction,
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
    SpeechItem,
    Text,
    Token,
    ToolEvent,
    ToolPhase,
    Transcript,
)


def to_output(element: RealtimeElement, turn_id: str) -> OutputElement:
    """What the client is told of an element of a turn.

    Raises:
        TypeError: the element has no mapping.
    """
    match element:
        case SpeechItem():
            return OutSpeech(
                element.data,
                element.sample_rate,
                turn_id,
                element.response_id,
                is_last=element.is_last,
                visemes=element.visemes,
                blend_shape_weights=element.blend_shape_weights,
                text=element.text,
            )
        case Token(text, response_id):
            return OutToken(text, turn_id, response_id)
        case Text(text, response_id, speech_ms):
            return OutText(text, turn_id, response_id, speech_ms)
        case Transcript():
            return OutTranscript(
                element.text,
                element.is_interim,
                element.is_synthetic,
                element.is_asynchronous,
                element.provider,
                turn_id,
            )
        case Partial(text):
            return OutPartial(text, turn_id)
        case ResponseEnd(response_id, status):
            return _command("response-end", turn_id, {"responseId": response_id, "status": status.value})
        case RealtimeInstruction(text, kind):
            told = {"instructionId": element.id, "passId": element.pass_id, "instructionType": kind.value, "text": text}
            return _command("realtime-instruction", turn_id, told)
        case RealtimeDelegation(delegation_id, text, offset_ms):
            return _command("realtime-delegation", turn_id, {"id": delegation_id, "text": text, "offsetMs": offset_ms})
        case RealtimeCommand(name, parameters):
            return _command(name, turn_id, parameters)
        case ToolEvent():
            return _tool(element, turn_id)
        case MultimodalInteraction(kind, name, data):
            return OutMultimodal(kind, name, data, turn_id)
        case EmotionalState(state, scores):
            return OutEmotion(state, scores, turn_id)
        case RealtimeError(code, message, recoverable, whose):
            return OutError(code, message, recoverable, whose)
        case _:  # pyright: ignore[reportUnnecessaryComparison] - reached when a class is added and forgotten here
            raise TypeError(f"{type(element).__name__} has no output element")


def _command(name: str, turn_id: str, parameters: Mapping[str, Any]) -> OutCommand:
    return OutCommand(name, {"turnId": turn_id, **parameters}, turn_id)


def _tool(event: ToolEvent, turn_id: str) -> OutCommand:
    parameters: dict[str, Any] = {"callId": event.call_id, "name": event.name, "owner": event.owner.value}
    if event.phase is ToolPhase.START:
        parameters["parameters"] = dict(event.parameters)
    elif event.phase is ToolPhase.SUCCESS:
        parameters["result"] = event.result
    else:
        parameters["error"] = event.error
    return _command(event.phase.value, turn_id, parameters)
