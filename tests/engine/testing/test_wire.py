"""What passes the wire is judged as what was sent."""

import attrs
import pytest

from engine.config import Encoding, Wire
from engine.elements import (
    MultimodalKind,
    OutCommand,
    OutEmotion,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutputElement,
    OutSpeech,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.wire import WireEncoder
from engine.testing.invariants import check_stream
from engine.testing.wire import WireJudge, read_all
from tests.engine.testing.test_invariants import RIGHT, WRONG, stream

UNSEEN = {"an open run", "speech after its cut", "two last frames"}
"""What one of the wires does not show: who sees only messages concludes where speech was cut."""
WIRES: tuple[Wire, ...] = ("json", "binary")
UNFOUNDED = '{"type":"command","name":"tool-success","parameters":{"turnId":"t1","callId":"c1","name":"find"}}'
KINDS: list[OutputElement] = [
    OutError(ErrorCode.INTERNAL, "Oops.", recoverable=True, whose=Whose.SERVER),
    OutEvaluation("polite", 1.0),
    OutMultimodal(MultimodalKind.CARD, "menu", {}, "t1"),
    OutEmotion(None, {}, "t1"),
]


def over_the_wire(elements: list[OutputElement], wire: Wire, encoding: Encoding = "pcm16") -> list[OutputElement]:
    encoder = WireEncoder(wire, encoding)
    named = [
        attrs.evolve(each, parameters={**each.parameters, "turnId": each.turn_id})
        if isinstance(each, OutCommand) and each.turn_id
        else each
        for each in elements
    ]
    return read_all(frame for element in named for frame in encoder.encode(element))


@pytest.mark.parametrize("wire", ["json", "binary"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_found_right(name: str, wire: Wire) -> None:
    heard = over_the_wire(RIGHT[name], wire)
    assert check_stream(stream(*heard), is_over=bool(RIGHT[name])) == []


@pytest.mark.parametrize("wire", ["json", "binary"])
@pytest.mark.parametrize("name", sorted(WRONG.keys() - UNSEEN))
def test_what_is_wrong_is_found(name: str, wire: Wire) -> None:
    rule, elements = WRONG[name]
    heard = over_the_wire(elements, wire)
    assert rule in [violation.rule for violation in check_stream(stream(*heard))]


@pytest.mark.parametrize("name", sorted(UNSEEN))
def test_what_a_wire_does_not_show(name: str) -> None:
    rule, elements = WRONG[name]
    found = [{v.rule for v in check_stream(stream(*over_the_wire(elements, wire)))} for wire in WIRES]
    assert not all(rule in rules for rules in found)


def test_a_judge_says_at_once_what_is_broken() -> None:
    judge = WireJudge()
    judge.heard('{"type":"command","name":"ready","parameters":{}}', 0.0)
    with pytest.raises(AssertionError, match="tools: tool-success of call c1"):
        judge.heard(UNFOUNDED, 1.0)
    with pytest.raises(AssertionError, match="session-end: the stream ends without one"):
        judge.over()


def test_every_message_is_read() -> None:
    assert [type(each).__name__ for each in over_the_wire(KINDS, "json")] == [
        "OutError",
        "OutEvaluation",
        "OutPartial",
        "OutPartial",
    ]
    with pytest.raises(ValueError, match="'weather' is no message"):
        read_all(['{"type":"weather"}'])


@pytest.mark.parametrize("wire", ["json", "binary"])
def test_telephone_speech_has_its_length(wire: Wire) -> None:
    (frame,) = over_the_wire([OutSpeech(bytes(1600), 8000, "t1", "r1")], wire, "mulaw")
    assert isinstance(frame, OutSpeech)
    assert (len(frame.data), frame.sample_rate) == (1600, 8000)
