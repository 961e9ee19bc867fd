"""The models of the wire's messages are true: what the wire gives fits them exactly, and what fits them the wire takes."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import orjson
import pybase64
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from engine.config import Encoding, Wire
from engine.elements import (
    Action,
    BadInput,
    Commit,
    ControlToken,
    Image,
    InputAudio,
    InputElement,
    InputText,
    MultimodalKind,
    OutCommand,
    OutEmotion,
    OutError,
    OutEvaluation,
    OutMultimodal,
    OutPartial,
    OutputElement,
    OutSpeech,
    OutText,
    OutToken,
    OutTranscript,
    Playback,
    RealtimeDelegation,
    Sensory,
    SpeakingState,
    SpeechCut,
    SpeechItem,
    Token,
)
from engine.errors import ErrorCode, Whose
from engine.protocol.wire import WireEncoder, decode_binary, decode_text
from engine.testing.faults import FaultyStore
from engine.testing.scripted import ScriptedModel, interim, speech
from engine.testing.stage import Stage, open_stage
from engine.transport.commands import COMMAND_NAMES, COMMANDS, literal_of
from engine.transport.messages import ERRORS, INPUTS, OUTPUTS, InputMessage, OutputMessage
from engine.transport.wire_model import Message, examples_of
from tests.scenarios.rich_turn import Performer, play

WIRES: list[tuple[Wire, Encoding]] = [("json", "pcm16"), ("json", "mulaw"), ("binary", "pcm16"), ("binary", "mulaw")]


def check(frame: str | bytes) -> Message | None:
    """The model of a text frame, which has to fit exactly: nothing more, nothing less, nothing of another type."""
    if isinstance(frame, bytes):
        return None
    model = OutputMessage.model_validate_json(frame, strict=True, extra="forbid").root
    said = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert said == json.loads(frame)
    return model


def encoded(elements: list[OutputElement], wire: Wire = "json", encoding: Encoding = "pcm16") -> Iterator[str | bytes]:
    encoder = WireEncoder(wire, encoding)
    for element in elements:
        yield from encoder.encode(element)


# --- to the client -----------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS, lambda inner: st.lists(inner, max_size=2)
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
SHAPES = st.lists(OBJECTS, max_size=2).map(tuple)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PCM = st.binary(max_size=8).map(lambda data: data[: len(data) // 2 * 2])
COMMAND = st.sampled_from([(literal_of(model, "name"), examples_of(model)[0]["parameters"]) for model in COMMANDS])
COMMANDS_OF_AGENTS = st.tuples(TEXTS.filter(lambda name: name not in COMMAND_NAMES), OBJECTS)

ELEMENTS: dict[type, st.SearchStrategy[OutputElement]] = {
    OutTranscript: st.builds(OutTranscript, TEXTS, st.booleans(), st.booleans(), st.booleans(), TEXTS, TEXTS),
    OutPartial: st.builds(OutPartial, TEXTS, TEXTS),
    OutToken: st.builds(OutToken, TEXTS, TEXTS, TEXTS),
    OutText: st.builds(OutText, TEXTS, TEXTS, TEXTS, st.none() | FLOATS),
    OutSpeech: st.builds(OutSpeech, PCM, st.integers(8000, 48000), TEXTS, TEXTS, st.booleans(), SHAPES, SHAPES, TEXTS),
    SpeechCut: st.builds(SpeechCut, TEXTS, TEXTS),
    OutCommand: (COMMAND | COMMANDS_OF_AGENTS).map(lambda pair: OutCommand(*pair)),
    OutMultimodal: st.builds(OutMultimodal, st.sampled_from(MultimodalKind), TEXTS, OBJECTS, TEXTS),
    OutEmotion: st.builds(
        OutEmotion, st.none() | st.sampled_from(SpeakingState), st.dictionaries(TEXTS, FLOATS), TEXTS
    ),
    OutEvaluation: st.builds(OutEvaluation, TEXTS, st.none() | FLOATS, st.lists(TEXTS).map(tuple), st.none() | OBJECTS),
    OutError: st.builds(OutError, st.sampled_from(ErrorCode), TEXTS, st.booleans(), st.sampled_from(Whose)),
}
"""Every output element, with any content."""


def test_every_output_element_is_covered() -> None:
    assert set(ELEMENTS) == set(get_args(OutputElement))


@pytest.mark.parametrize("kind", ELEMENTS, ids=lambda kind: kind.__name__)
def test_whatever_is_sent_fits_its_model(kind: type) -> None:
    @settings(max_examples=40)
    @given(st.lists(ELEMENTS[kind], min_size=1, max_size=4), st.sampled_from(WIRES))
    def fits(elements: list[OutputElement], wire: tuple[Wire, Encoding]) -> None:
        for frame in encoded(elements, *wire):
            check(frame)

    fits()


def test_every_message_to_a_client_can_be_sent() -> None:
    """No model is only a promise: each is what some element becomes."""
    said = OutSpeech(bytes(8), 24000, "t1", "r1", visemes=({"a": 1},), blend_shape_weights=({"b": 1},))
    elements: list[OutputElement] = [
        OutTranscript("hi", False, False, False, "Local", "t1"),
        OutPartial("h", "t1"),
        OutToken("h", "t1", "r1"),
        OutText("Hi.", "t1", "r1"),
        OutMultimodal(MultimodalKind.CARD, "menu", {}, "t1"),
        OutEmotion(None, {}, "t1"),
        OutEvaluation("tone", 0.5, ("kind",), {"a": 1}),
        OutError(ErrorCode.INTERNAL, "Sorry.", True, Whose.SERVER),
        OutCommand("an agent's own", {}),
        *(OutCommand(literal_of(model, "name"), examples_of(model)[0]["parameters"]) for model in COMMANDS),
        said,
        SpeechCut("t1", "r1"),
    ]
    frames = [*encoded(elements, "json"), *encoded(elements, "binary")]
    assert {type(model) for model in map(check, frames) if model is not None} == set(OUTPUTS)
    assert sum(isinstance(frame, bytes) for frame in frames) == 1


@pytest.mark.parametrize("model", OUTPUTS, ids=lambda model: model.__name__)
def test_an_example_of_a_message_to_a_client(model: type[Message]) -> None:
    for example in examples_of(model):
        assert type(check(json.dumps(example))) is model


def test_a_message_with_more_than_the_page_says_does_not_fit() -> None:
    with pytest.raises(ValueError, match="speaker"):
        check('{"type":"partial","text":"a","turnId":"t1","speaker":"me"}')
    with pytest.raises(ValueError, match="turnId"):
        check('{"type":"command","name":"exit","parameters":{"sessionId":"S","userId":"u","saved":true}}')
    with pytest.raises(ValueError, match="unknown"):
        check('{"type":"unknown"}')
    with pytest.raises(ValueError, match="text"):
        check('"text"')


def test_every_error_code_has_a_meaning() -> None:
    assert set(ERRORS) == set(ErrorCode)


# --- whole sessions ------------------------------------------------------------------------------------------------------


def check_session(elements: list[OutputElement]) -> set[type[Message]]:
    """Every frame that a session has sent, on every wire."""
    return {
        type(model)
        for wire, encoding in WIRES
        for frame in encoded(elements, wire, encoding)
        if (model := check(frame)) is not None
    }


async def test_a_rich_turn_and_a_barge_in_are_told_in_these_messages(autojump_clock: MockClock) -> None:
    async def barge_in(stage: Stage, performer: Performer) -> None:
        stage.model.session.say(interim())
        await stage.client.send(InputText("never mind"), Action("dance"), BadInput(ErrorCode.BAD_JSON, "No JSON."))
        await stage.client.wait_for_command("exit")
        stage.client.end()
        await stage.over.wait()

    stage, _ = await play(barge_in, at=1.2, partials=True)
    kinds = check_session(stage.client.elements)
    names = {model.__name__ for model in kinds}
    assert {
        "ReadyCommand",
        "TranscriptOutput",
        "TokenOutput",
        "TextOutput",
        "SpeechOutput",
        "SpeechStartOutput",
    } <= names
    assert {"SpeechEndOutput", "ToolStartCommand", "ToolErrorCommand", "ResponseEndCommand", "ExitCommand"} <= names
    assert {"ErrorOutput", "SessionEndCommand"} <= names
    assert "OtherCommand" not in names


async def test_steering_is_told_in_these_messages(autojump_clock: MockClock) -> None:
    async def wait(stage: Stage, performer: Performer) -> None:
        await stage.client.wait_for_command("exit")
        stage.client.end()
        await stage.over.wait()

    stage, _ = await play(wait, at=1.0)
    names = {model.__name__ for model in check_session(stage.client.elements)}
    assert {"RealtimePlanningCommand", "RealtimeInstructionCommand", "ResponseInstructionEndCommand"} <= names
    assert "ToolSuccessCommand" in names


async def test_a_conversation_without_turns_is_told_in_these_messages(autojump_clock: MockClock) -> None:
    async with open_stage(turnless=True, model=ScriptedModel(), store=FaultyStore(), tokens=True) as stage:
        stage.model.session.say(
            RealtimeDelegation("d1", "help", 30), Token("Hello.", "r1"), SpeechItem(speech(300), 24000, "r1")
        )
        await stage.client.wait_for_command("realtime-delegation")
        stage.client.end()
        await stage.over.wait()
    names = {model.__name__ for model in check_session(stage.client.elements)}
    assert {"RealtimeDelegationCommand", "TokenOutput", "TextOutput", "SpeechOutput", "SessionEndCommand"} <= names


# --- from the client -----------------------------------------------------------------------------------------------------

READ_AS: dict[str, set[type]] = {
    "audio": {InputAudio},
    "text": {InputText},
    "token": {ControlToken, Action},
    "action": {Action},
    "commit": {Commit},
    "image": {Image},
    "sensory": {Sensory},
    "playback": {Playback},
}
NO_MESSAGE = {BadInput}
"""What could not be read."""


def kind_of(model: type[Message]) -> str:
    return literal_of(model, "type")


def test_every_input_element_is_covered() -> None:
    assert {element for kinds in READ_AS.values() for element in kinds} | NO_MESSAGE == set(get_args(InputElement))
    assert {kind_of(model) for model in INPUTS} == set(READ_AS)
    refused = decode_text('{"type":"no such type"}')
    assert isinstance(refused, BadInput)
    assert refused.message.endswith(", ".join(kind_of(model) for model in INPUTS) + ".")  # it names all there are
    assert decode_binary(b"\0\0") == InputAudio(b"\0\0")


@pytest.mark.parametrize("model", INPUTS, ids=lambda model: model.__name__)
def test_an_example_of_a_message_from_a_client(model: type[Message]) -> None:
    read = {type(decode_text(orjson.dumps(example))) for example in examples_of(model)}
    assert read == READ_AS[kind_of(model)]
    for example in examples_of(model):
        assert type(InputMessage.model_validate(example, strict=True, extra="forbid").root) is model


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", fullmatch=True)
BASE64 = st.binary(max_size=9).map(pybase64.b64encode_as_string)
FITTING: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "audio": st.fixed_dictionaries({"data": BASE64}),
    "text": st.fixed_dictionaries({"text": TEXTS}),
    "token": st.fixed_dictionaries({"text": NAMES.map("#{}".format) | NAMES.map("#{}:a=b&c".format)}),
    "action": st.fixed_dictionaries({"name": NAMES}, optional={"parameters": OBJECTS}),
    "commit": st.just({}),
    "image": st.fixed_dictionaries(
        {
            "mediaType": st.from_regex(r"image/[a-z0-9][a-z0-9.+-]{0,63}", fullmatch=True),
            "data": st.binary(min_size=1, max_size=9).map(pybase64.b64encode_as_string),
        }
    ),
    "sensory": st.fixed_dictionaries({"data": OBJECTS}),
    "playback": st.fixed_dictionaries(
        {
            "responseId": st.text(min_size=1, max_size=128).filter(lambda text: text.isascii()),
            "playedMs": st.integers(0, 10**6) | st.floats(0, 1e6),
        }
    ),
}


@pytest.mark.parametrize("kind", FITTING)
def test_what_fits_a_model_is_read(kind: str) -> None:
    @settings(max_examples=40)
    @given(FITTING[kind], OBJECTS)
    def is_read(fields: dict[str, Any], more: dict[str, Any]) -> None:
        message = more | fields | {"type": kind}
        InputMessage.model_validate(message, strict=True)
        assert not isinstance(decode_text(orjson.dumps(message)), BadInput)

    is_read()


@given(
    st.sampled_from([*READ_AS, "other"]),
    st.dictionaries(
        st.sampled_from(["data", "text", "name", "parameters", "mediaType", "responseId", "playedMs"]),
        JSON | OBJECTS | BASE64 | NAMES | st.just("image/png") | NAMES.map("#{}".format) | FLOATS,
    ),
)
def test_what_is_read_fits_a_model(kind: str, fields: dict[str, Any]) -> None:
    message = fields | {"type": kind}
    if not isinstance(decode_text(orjson.dumps(message)), BadInput):
        InputMessage.model_validate_json(orjson.dumps(message), strict=True)
